"""The implementation of the commands, without the parsing of their options."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kutta.commands.average import average_run
    from kutta.commands.evaluate import evaluate_run, evaluations
    from kutta.commands.export import export_model
    from kutta.commands.score import score_files, score_like_run
    from kutta.commands.translate import translate_text

__all__ = [
    "average_run",
    "evaluate_run",
    "evaluations",
    "export_model",
    "score_files",
    "score_like_run",
    "translate_text",
]

# Imported on first use: only some of them need torch.
_MODULES = {
    "average_run": "average",
    "evaluate_run": "evaluate",
    "evaluations": "evaluate",
    "export_model": "export",
    "score_files": "score",
    "score_like_run": "score",
    "translate_text": "translate",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'kutta.commands' has no attribute {name!r}")
    return getattr(import_module(f"kutta.commands.{_MODULES[name]}"), name)
