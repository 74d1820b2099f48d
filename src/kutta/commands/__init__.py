"""The implementation of the commands, without the parsing of their options."""

from kutta.commands.average import average_run
from kutta.commands.describe import describe
from kutta.commands.evaluate import evaluate_run, evaluations
from kutta.commands.score import score_files, score_like_run
from kutta.commands.translate import translate_text

__all__ = [
    "average_run",
    "describe",
    "evaluate_run",
    "evaluations",
    "score_files",
    "score_like_run",
    "translate_text",
]
