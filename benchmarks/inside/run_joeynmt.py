"""Run JoeyNMT and say how many target tokens each update had: its own log has only a rate.

It runs in JoeyNMT's environment: python run_joeynmt.py train CONFIG
"""

from typing import Any

from joeynmt.__main__ import main
from joeynmt.training import TrainManager

log_scores = TrainManager._log_scores


def log_tokens(self: Any, epoch: int, seconds: float, tokens_before: int, *rest: Any) -> None:
    log_scores(self, epoch, seconds, tokens_before, *rest)
    print("target tokens", self.stats.total_tokens - tokens_before, flush=True)


TrainManager._log_scores = log_tokens
main()
