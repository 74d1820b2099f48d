"""Explicit signatures for functions with **options: for help(), notebooks and the CLI."""

from collections.abc import Callable, Mapping
from inspect import Parameter, signature
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def spelled_out(options: Mapping[str, Any]) -> Callable[[F], F]:
    """Show these options (name: annotation) in the signature instead of **options.

    Their default is None. They come before the other keyword-only parameters.
    """
    shown = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        for name, kind in options.items()
    ]

    def decorate(function: F) -> F:
        own = signature(function)
        named = [p for p in own.parameters.values() if p.kind is not Parameter.VAR_KEYWORD]
        spelled = own.replace(parameters=sorted([*shown, *named], key=lambda p: p.kind))
        setattr(function, "__signature__", spelled)  # noqa: B010 (a function declares no such name)
        return function

    return decorate
