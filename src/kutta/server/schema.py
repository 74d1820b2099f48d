"""What the OpenAPI document says about bodies and answers. Bodies are read by fields.py."""

from typing import Any

_TEXT = {"type": "string"}
_TEXTS = {
    "oneOf": [_TEXT, {"type": "array", "items": _TEXT}],
    "description": "The text, or a list of texts.",
}
_Q = {**_TEXT, "description": "The text."}
_SOURCE = {**_TEXT, "description": 'The code of the source language, or "auto".', "example": "en"}
_TARGET = {**_TEXT, "description": "The code of the target language.", "example": "de"}
_KEY = {**_TEXT, "description": "The API key, where the server needs one."}
_ALTERNATIVES = {"type": "integer", "minimum": 0, "description": "How many other translations."}
_FORMAT = {
    **_TEXT,
    "enum": ["text", "html"],
    "default": "text",
    "description": "Whether tags are kept.",
}
_DETECTED = {
    "type": "object",
    "properties": {"language": _TEXT, "confidence": {"type": "number", "maximum": 100}},
}
_ERROR = {"type": "object", "properties": {"error": _TEXT}, "required": ["error"]}
_ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"description": text, "content": {"application/json": {"schema": _ERROR}}}
    for status, text in {
        400: "The request is not valid; the sentence says why.",
        403: "The API key is missing or not valid.",
        408: "The body was not complete in time.",
        413: "The body is too large.",
        415: "The content type is neither JSON nor a form.",
        429: "The server is busy; Retry-After says when to try again.",
        503: "The time of the request is used up.",
    }.items()
}


def _route(fields: dict[str, Any], required: list[str], answer: Any, kind: str) -> dict[str, Any]:
    """The OpenAPI facts of a route: the fields of its body and the schema of its answer."""
    body = {"type": "object", "properties": {**fields, "api_key": _KEY}, "required": required}
    kinds = ("application/json", "application/x-www-form-urlencoded")
    content = {kind: {"schema": body} for kind in kinds}
    return {
        "openapi_extra": {"requestBody": {"required": True, "content": content}},
        "responses": {
            200: {"description": "The answer.", "content": {kind: {"schema": answer}}},
            **_ERRORS,
        },
    }


_TRANSLATION = {"source": _SOURCE, "target": _TARGET, "format": _FORMAT}
TRANSLATE = _route(
    {"q": _TEXTS, **_TRANSLATION, "alternatives": _ALTERNATIVES},
    ["q", "source", "target"],
    {
        "type": "object",
        "properties": {
            "translatedText": _TEXTS,
            "detectedLanguage": _DETECTED,
            "alternatives": {"type": "array", "items": _TEXT},
        },
    },
    "application/json",
)
STREAM = _route(
    {"q": _Q, **_TRANSLATION, "alternatives": _ALTERNATIVES},
    ["q", "source", "target"],
    {**_TEXT, "description": "Events: start, sentence for each sentence, done or error."},
    "text/event-stream",
)
DETECT = _route({"q": _Q}, ["q"], {"type": "array", "items": _DETECTED}, "application/json")
LANGUAGES: dict[str, Any] = {
    "responses": {
        200: {
            "description": "The languages.",
            "content": {
                "application/json": {
                    "schema": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "properties": {
                                "code": _TEXT,
                                "name": _TEXT,
                                "targets": {"type": "array", "items": _TEXT},
                            },
                        },
                    }
                }
            },
        }
    }
}
_SENTENCE = {
    "q": {**_TEXT, "description": "The sentence."},
    "source": {**_SOURCE, "description": "The code of the source language."},
    "target": _TARGET,
}
SENTENCE = _route(_SENTENCE, ["q", "source", "target"], {"type": "object"}, "application/json")
METHODS = _route(
    {
        **_SENTENCE,
        "stack": {**_TEXT, "enum": ["encoder", "decoder"], "default": "encoder"},
        "substeps": {"type": "integer", "minimum": 1, "maximum": 8, "default": 1},
    },
    ["q", "source", "target"],
    {"type": "object"},
    "application/json",
)
