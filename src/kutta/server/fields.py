"""The fields of a request, from a JSON body or a form."""

import asyncio
from collections.abc import Mapping
from typing import Any, cast

from fastapi import Request
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException
from starlette.requests import ClientDisconnect
from starlette.types import Message

from kutta.parsing import DocumentError, parse_json
from kutta.server.limits import Limits, RequestError

_JSON = "application/json"
_HUGE = 10  # times as large as the limit of a body
_FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")

Fields = Mapping[str, Any]


async def read_fields(request: Request, limits: Limits) -> Fields:
    """The fields of the body; RequestError says what is wrong with it."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != _JSON and kind not in _FORMS:
        raise RequestError(
            415, f"The content type is {kind or 'missing'}; send {_JSON} or {_FORMS[0]}."
        )
    body = await _read_body(request, limits)
    return _json(body) if kind == _JSON else await _form(request, body, limits)


async def _read_body(request: Request, limits: Limits) -> bytes:
    """The whole body, within the limits of size and time.

    A client that is still sending sees no answer, so the rest of a body that is too large is read
    and forgotten, unless it is huge.
    """
    said = request.headers.get("content-length", "")
    if said.isdecimal() and int(said) > _HUGE * limits.body:
        raise _too_large(limits)
    parts, size = list[bytes](), 0
    try:
        async with asyncio.timeout(limits.body_seconds):
            async for part in request.stream():
                size += len(part)
                if size <= limits.body:
                    parts.append(part)
                elif size > _HUGE * limits.body:
                    raise _too_large(limits)
    except TimeoutError:
        raise RequestError(
            408, f"The body was not complete after {limits.body_seconds:g} s; send it at once."
        ) from None
    except ClientDisconnect:
        raise gone() from None
    if size > limits.body:
        raise _too_large(limits)
    return b"".join(parts)


def gone() -> RequestError:
    """The answer to a client that has gone; only the log sees it."""
    return RequestError(499, "The client has gone.")


def _too_large(limits: Limits) -> RequestError:
    return RequestError(413, f"The body has more than {limits.body:,} bytes; send less.")


def _json(body: bytes) -> Fields:
    try:
        value = parse_json(body.decode("utf-8"))
    except UnicodeDecodeError:
        raise RequestError(400, "The body is not UTF-8 text; encode it so.") from None
    except DocumentError as error:
        raise RequestError(400, f"The body {error}; correct it.") from None
    if not isinstance(value, dict):
        raise RequestError(400, 'The JSON is not an object; send {"q": ..., "source": ...}.')
    return cast(dict[str, Any], value)


async def _form(request: Request, body: bytes, limits: Limits) -> Fields:
    async def receive() -> Message:  # the parser reads what was read within the limits
        return {"type": "http.request", "body": body, "more_body": False}

    wrong = RequestError(400, f"The form is not valid, or has more than {limits.fields} fields.")
    try:
        form = await Request(request.scope, receive).form(
            max_files=0, max_fields=limits.fields, max_part_size=limits.body
        )
    except (HTTPException, MultiPartException, UnicodeDecodeError, ValueError):
        raise wrong from None
    if len(form) > limits.fields or any(isinstance(v, UploadFile) for v in form.values()):
        raise wrong
    return dict(form)


def text_field(fields: Fields, name: str) -> str:
    """A field that must be text and not empty."""
    value = fields.get(name)
    if value is None or value == "":
        raise RequestError(400, f"The field {name} is missing; give it.")
    if not isinstance(value, str):
        raise RequestError(400, f"The field {name} is not text; give a string.")
    return clean(value)


def texts_field(fields: Fields, limits: Limits) -> tuple[list[str], bool]:
    """The texts of the field q, and whether they came as a list."""
    value = fields.get("q")
    if not isinstance(value, list):
        texts, listed = [text_field(fields, "q")], False
    else:
        items = cast(list[Any], value)
        if not items:
            raise RequestError(400, "The list q is empty; give the texts to translate.")
        if len(items) > limits.texts:
            raise RequestError(
                400, f"The list q has {len(items):,} texts; send at most {limits.texts:,}."
            )
        if not all(isinstance(item, str) for item in items):
            raise RequestError(400, "The list q has an item that is not text; give strings.")
        texts, listed = [clean(item) for item in items], True
    characters = sum(map(len, texts))
    if characters > limits.characters:
        raise RequestError(
            400, f"The text has {characters:,} characters; send at most {limits.characters:,}."
        )
    return texts, listed


def count_field(fields: Fields, name: str, most: int) -> int:
    """A field that is a number from 0; more than `most` is `most`."""
    value = fields.get(name)
    if value is None or value == "":
        return 0
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 10:
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise RequestError(400, f"The field {name} is not a number from 0; correct it.")
    return min(value, most)


def choice_field(fields: Fields, name: str, choices: tuple[str, ...]) -> str:
    """A field that is one of some words; missing, it is the first."""
    value = fields.get(name)
    if value is None or value == "":
        return choices[0]
    if value not in choices:
        raise RequestError(400, f"The field {name} is not valid; give {' or '.join(choices)}.")
    return str(value)


def clean(text: str) -> str:
    """The text with replacement characters for halves of surrogate pairs, which are no text."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
