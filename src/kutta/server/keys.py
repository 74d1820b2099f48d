"""API keys: a file with one key on each line, compared in constant time."""

import hashlib
import hmac
from collections.abc import Iterable
from pathlib import Path
from typing import Self

from fastapi import Request

from kutta.errors import InputError
from kutta.server.fields import Fields
from kutta.server.limits import RequestError


class Keys:
    """The keys that a server accepts; with no keys, everybody is served."""

    def __init__(self, keys: Iterable[str] = ()) -> None:
        # Digests have one length, so the comparison tells nothing about the length of a key.
        self._digests = [_digest(key) for key in keys]

    @classmethod
    def read(cls, file: Path) -> Self:
        """The keys of a file; empty lines and lines that begin with # are skipped."""
        try:
            lines = [line.strip() for line in file.read_text(encoding="utf-8").splitlines()]
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"Cannot read the API keys in {file}: {error}; check it.") from error
        keys = [line for line in lines if line and not line.startswith("#")]
        if not keys:
            raise InputError(f"{file} has no API keys; write one on each line.")
        return cls(keys)

    @property
    def required(self) -> bool:
        return bool(self._digests)

    def check(self, request: Request, fields: Fields) -> None:
        """Refuse a request without a valid key, in the field api_key or as a bearer token."""
        if not self.required:
            return
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        given = token.strip() if scheme.lower() == "bearer" else fields.get("api_key")
        if not isinstance(given, str) or not given:
            raise RequestError(403, "This server needs an API key; give it as the field api_key.")
        # All keys are compared, whichever of them matches.
        found = [hmac.compare_digest(_digest(given), known) for known in self._digests]
        if not any(found):
            raise RequestError(403, "The API key is not valid; ask the operator for one.")


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()
