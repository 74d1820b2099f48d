"""Downloads that go on where they stopped: a part is never thrown away, an end is never guessed."""

import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

import requests
from urllib3.exceptions import HTTPError as TransportError

from kutta.errors import InputError
from kutta.files import link_or_copy, remove, write_json

CHUNK = 1 << 18
AGAIN = {408, 429}  # "too slow" and "too often": worth another attempt, as every 5xx is
# The bytes as they are stored: a server that unpacks a .gz on the way would break length and range.
HEADERS = {"User-Agent": "Mozilla/5.0 (compatible; kutta)", "Accept-Encoding": "identity"}


@dataclass(frozen=True)
class Patience:
    """When to give up on a server."""

    attempts: int = 4  # in a row that bring nothing new
    wait: float = 1.0  # seconds before the second attempt; doubles with every further one
    silence: float = 30.0  # seconds without a byte after which a connection counts as stalled


class CutShortError(Exception):
    """The transfer ended too early, or sent what does not fit to what we have."""


class RefusedError(Exception):
    """The server answered, and the answer is not the file."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(f"the server answered {status} {reason}".strip())
        self.final = status < 500 and status not in AGAIN  # asking again cannot help


FAILURES = (requests.RequestException, TransportError, CutShortError, RefusedError)


@dataclass(frozen=True)
class Resume:
    """A downloader for pooch that continues `part`, and leaves it there when something fails."""

    part: Path
    patience: Patience
    seen: Callable[[int, int | None], object]  # told how many bytes are there, of how many

    def __call__(
        self, url: str, output: Any, pooch: Any, *, check_only: bool | None = None
    ) -> None:
        """Download `url` into the part and hand `output` the same bytes."""
        try:
            with open(self.part, "ab") as file:
                _lock(file, self.part)
                self._complete(url, file)
            link_or_copy(self.part, Path(output))  # pooch throws away a copy with a wrong checksum
        except OSError as error:
            raise InputError(
                f"Cannot write {self.part}: {error.strerror or error}; what was downloaded is "
                "kept, so free some space and run the same command again."
            ) from error
        finally:
            if self.part.is_file() and not self.part.stat().st_size:
                remove(self.part)

    def done(self) -> None:
        """Forget the part: its bytes have their final name."""
        remove(self.part)
        remove(_notes(self.part))

    def _complete(self, url: str, file: BinaryIO) -> None:
        """Ask again and again for what is missing, as long as new bytes arrive."""
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
            return  # "nothing after that": we have it all
        if response.status_code == 416 or not _fits(response, have, before):
            _cut(file, 0)
            raise CutShortError("the server has another file than the one we began")
        if response.status_code >= 400:
            raise RefusedError(response.status_code, response.reason or "")
        _cut(file, _start(response))  # 0 where the server ignored what we asked for
        total = _total(response)
        write_json(notes, {"url": url, "validator": _validator(response), "total": total})
        # what has come is written at once: whole chunks would be lost when the server falls silent
        while chunk := response.raw.read1(CHUNK, decode_content=False):
            file.write(chunk)
            seen(file.tell(), total)
    if total is not None and file.tell() < total:
        raise CutShortError(f"the transfer ended after {file.tell():,} of {total:,} bytes")


def _cut(file: BinaryIO, length: int) -> None:
    file.truncate(length)
    file.seek(length)


def _wanted(have: int, before: dict[str, Any]) -> dict[str, str]:
    """Headers that ask for the rest, but for everything where the file has changed meanwhile."""
    if not have:
        return HEADERS
    unchanged = {"If-Range": before["validator"]} if before.get("validator") else {}
    return HEADERS | {"Range": f"bytes={have}-"} | unchanged


def _fits(response: requests.Response, have: int, before: dict[str, Any]) -> bool:
    """Whether a partial answer continues what is there; a whole one always does."""
    if response.status_code != 206:
        return True
    same_file = before.get("total") in (None, _total(response))
    return same_file and 0 <= _start(response) <= have


def _start(response: requests.Response) -> int:
    """Where the bytes that come now belong; -1 where the server does not say."""
    if response.status_code != 206:
        return 0
    found = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
    return int(found[1]) if found else -1


def _total(response: requests.Response) -> int | None:
    """The length of the whole file, where the server tells."""
    if response.status_code in (206, 416):
        found = re.search(r"/(\d+)$", response.headers.get("Content-Range", ""))
        return int(found[1]) if found else None
    length = response.headers.get("Content-Length", "")
    return int(length) if length.isdecimal() else None


def _validator(response: requests.Response) -> str:
    """What tells this version of the file from another; a weak ETag does not."""
    etag = response.headers.get("ETag", "")
    return etag if etag and not etag.startswith("W/") else response.headers.get("Last-Modified", "")


def _notes(part: Path) -> Path:
    """Where the validator and the length of a part are kept for the next run."""
    return part.with_name(f"{part.name}.json")


def _remembered(notes: Path) -> dict[str, Any]:
    try:
        found: Any = json.loads(notes.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # none yet, or damaged: then we know nothing
        return {}
    return cast(dict[str, Any], found) if isinstance(found, dict) else {}


def _failure(part: Path, url: str, error: Exception, silence: float) -> InputError:
    name, size = part.name.removesuffix(".part"), part.stat().st_size
    kept = f" ({size:,} bytes are kept)" if size else ""
    moved = isinstance(error, RefusedError) and error.final
    advice = "look for its new address" if moved else f"run the same command to go on{kept}"
    return InputError(
        f"Cannot download {name} from {url}: {_reason(error, silence)}; {advice}, or download it "
        f"by hand, save it as {name} in a folder DIR and add --from DIR."
    )


def _reason(error: Exception, silence: float) -> str:
    if "timed out" in str(error).lower():
        return f"the server was silent for {silence:g} seconds"
    if isinstance(error, requests.exceptions.SSLError):
        return "the server cannot prove who it is (its certificate is not trusted here)"
    if isinstance(error, requests.ConnectionError):
        return "there is no connection to the server"
    return "the connection broke" if isinstance(error, TransportError) else str(error)


def _lock(file: BinaryIO, part: Path) -> None:
    """Two processes must not append to the same part; where the system has no locks, trust."""
    if fcntl is None:
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise InputError(
            f"Another process is downloading {part} right now; wait until it has finished."
        ) from error
    except OSError:
        pass  # a file system without locks
