"""Resumable downloads: partial files are kept, and completeness is verified."""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import requests
from urllib3.exceptions import HTTPError as TransportError

from kutta.errors import InputError
from kutta.files import link_or_copy, lock, remove, write_json
from kutta.parsing import read_json

CHUNK = 1 << 18
AGAIN = {408, 429}  # request timeout and too many requests: retried, like every 5xx
# No transfer encoding: a server that unpacks a .gz would break length and range.
HEADERS = {"User-Agent": "Mozilla/5.0 (compatible; kutta)", "Accept-Encoding": "identity"}


@dataclass(frozen=True)
class Patience:
    """Retries and timeouts."""

    attempts: int = 4  # consecutive attempts without new bytes
    wait: float = 1.0  # seconds before the second attempt; doubles with each further one
    silence: float = 30.0  # timeout in seconds without a byte


class CutShortError(Exception):
    """The transfer ended early, or sent bytes that do not match the partial file."""


class RefusedError(Exception):
    """The server responded with an error status."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(f"the server answered {status} {reason}".strip())
        self.final = status < 500 and status not in AGAIN  # a retry cannot help


FAILURES = (requests.RequestException, TransportError, CutShortError, RefusedError)


@dataclass(frozen=True)
class Resume:
    """A downloader for pooch that resumes `part`, and keeps it if the download fails."""

    part: Path
    patience: Patience
    seen: Callable[[int, int | None], object]  # called with the bytes so far and the total

    def __call__(
        self, url: str, output: Any, pooch: Any, *, check_only: bool | None = None
    ) -> None:
        """Download `url` into the part and link it to `output`."""
        try:
            with open(self.part, "ab") as file:
                lock(
                    file.fileno(),
                    f"Another process is downloading {self.part}; wait until it has finished.",
                )
                self._complete(url, file)
            link_or_copy(self.part, Path(output))  # pooch removes its copy if a checksum is wrong
        except OSError as error:
            raise InputError(
                f"Cannot write {self.part}: {error.strerror or error}; free some disk space and "
                "run the same command to resume."
            ) from error
        finally:
            if self.part.is_file() and not self.part.stat().st_size:
                remove(self.part)

    def done(self) -> None:
        """Remove the part and its metadata."""
        remove(self.part)
        remove(_notes(self.part))

    def _complete(self, url: str, file: BinaryIO) -> None:
        """Request the missing bytes until the file is complete, with retries."""
        failures, most = 0, file.tell()
        while True:
            try:
                return _transfer(url, file, _notes(self.part), self.patience.silence, self.seen)
            except FAILURES as error:
                file.flush()
                failures = 1 if file.tell() > most else failures + 1
                most = max(most, file.tell())
                final = isinstance(error, RefusedError) and error.final
                if final or failures >= self.patience.attempts:
                    raise _failure(self.part, url, error, self.patience.silence) from error
            time.sleep(self.patience.wait * 2 ** (failures - 1))


def _transfer(
    url: str, file: BinaryIO, notes: Path, silence: float, seen: Callable[[int, int | None], object]
) -> None:
    """One request for the bytes that `file` still lacks."""
    have, before = file.tell(), _remembered(notes)
    if have and have == before.get("total"):
        return
    with requests.get(url, headers=_wanted(have, before), stream=True, timeout=silence) as response:
        if response.status_code == 416 and _total(response) == have:
            return  # range not satisfiable: the file is complete
        if response.status_code == 416 or not _fits(response, have, before):
            _cut(file, 0)
            raise CutShortError("the file on the server has changed")
        if response.status_code >= 400:
            raise RefusedError(response.status_code, response.reason or "")
        _cut(file, _start(response))  # 0 if the server ignored the range
        total = _total(response)
        write_json(notes, {"url": url, "validator": _validator(response), "total": total})
        # Write bytes as they arrive: incomplete chunks would be lost when the connection stalls.
        while chunk := response.raw.read1(CHUNK, decode_content=False):
            file.write(chunk)
            seen(file.tell(), total)
    if total is not None and file.tell() < total:
        raise CutShortError(f"the transfer ended after {file.tell():,} of {total:,} bytes")


def _cut(file: BinaryIO, length: int) -> None:
    file.truncate(length)
    file.seek(length)


def _wanted(have: int, before: dict[str, Any]) -> dict[str, str]:
    """Headers that request the rest, or the whole file if it has changed."""
    if not have:
        return HEADERS
    unchanged = {"If-Range": before["validator"]} if before.get("validator") else {}
    return HEADERS | {"Range": f"bytes={have}-"} | unchanged


def _fits(response: requests.Response, have: int, before: dict[str, Any]) -> bool:
    """Whether a partial response matches the partial file; a complete one always does."""
    if response.status_code != 206:
        return True
    same_file = before.get("total") in (None, _total(response))
    return same_file and 0 <= _start(response) <= have


def _start(response: requests.Response) -> int:
    """The offset of the response in the file; -1 if the server does not send it."""
    if response.status_code != 206:
        return 0
    found = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
    return int(found[1]) if found else -1


def _total(response: requests.Response) -> int | None:
    """The length of the whole file; None if the server does not send it."""
    if response.status_code in (206, 416):
        found = re.search(r"/(\d+)$", response.headers.get("Content-Range", ""))
        return int(found[1]) if found else None
    length = response.headers.get("Content-Length", "")
    return int(length) if length.isdecimal() else None


def _validator(response: requests.Response) -> str:
    """The identifier of this version of the file: a strong ETag, or its date."""
    etag = response.headers.get("ETag", "")
    return etag if etag and not etag.startswith("W/") else response.headers.get("Last-Modified", "")


def _notes(part: Path) -> Path:
    """The file with the validator and the length of a part, for resuming."""
    return part.with_name(f"{part.name}.json")


def _remembered(notes: Path) -> dict[str, Any]:
    try:
        found: Any = read_json(notes)
    except (OSError, ValueError):  # missing or damaged
        return {}
    return cast(dict[str, Any], found) if isinstance(found, dict) else {}


def _failure(part: Path, url: str, error: Exception, silence: float) -> InputError:
    name, size = part.name.removesuffix(".part"), part.stat().st_size
    kept = f" ({size:,} bytes are kept)" if size else ""
    moved = isinstance(error, RefusedError) and error.final
    advice = "look for its new address" if moved else f"run the same command to resume{kept}"
    return InputError(
        f"Cannot download {name} from {url}: {_reason(error, silence)}; {advice}, or download it "
        f"manually, save it as {name} in a folder DIR and add --from DIR."
    )


def _reason(error: Exception, silence: float) -> str:
    if "timed out" in str(error).lower():
        return f"the connection timed out after {silence:g} seconds"
    if isinstance(error, requests.exceptions.SSLError):
        return "the certificate of the server is not trusted"
    if isinstance(error, requests.ConnectionError):
        return "there is no connection to the server"
    return "the connection broke" if isinstance(error, TransportError) else str(error)
