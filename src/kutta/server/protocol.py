"""uvicorn's HTTP, with a limit on the head of a request, and errors in the format of the API."""

import json
from http import HTTPStatus

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from kutta.server.limits import HEAD_BYTES


class Protocol(HttpToolsProtocol):
    """One connection.

    The parser keeps the first line and the headers in memory until they are complete, however long
    they are.
    """

    head: int | None = None  # bytes of the head so far; None outside of a head

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.head = 0

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self.head = None

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.head is None or self.transport.is_closing():
            return
        self.head += len(data)
        if self.head > HEAD_BYTES:
            self.refuse(431, f"The headers have more than {HEAD_BYTES:,} bytes; send less.")

    def send_400_response(self, msg: str) -> None:
        """Answer what is not HTTP."""
        self.refuse(400, "The request is not valid HTTP; correct it.")

    def refuse(self, status: int, sentence: str) -> None:
        """Answer with one sentence and close the connection."""
        body = json.dumps({"error": sentence}).encode()
        head = (
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
            "content-type: application/json",
            f"content-length: {len(body)}",
            "connection: close",
            "\r\n",
        )
        self.transport.write("\r\n".join(head).encode() + body)
        self.transport.close()
