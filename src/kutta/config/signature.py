"""Options by name, spelled out in a signature: for help(), notebooks and the command line."""

from collections.abc import Callable, Mapping
from inspect import Parameter, signature
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def spelled_out(options: Mapping[str, Any]) -> Callable[[F], F]:
    """Show these options (name: annotation), all None by default, in the place of **options.

    They stand before the other parameters that are given by name only.
    """
    shown = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        for name, kind in options.items()
    ]

    def decorate(function: F) -> F:
        own = signature(function)
        named = [p for p in own.parameters.values() if p.kind is Parameter.KEYWORD_ONLY]
        others = [p for p in own.parameters.values() if p.kind < Parameter.KEYWORD_ONLY]
        spelled = own.replace(parameters=[*others, *shown, *named])
        setattr(function, "__signature__", spelled)  # noqa: B010 (a function declares no such name)
        return function

    return decorate
