"""Run a command of fairseq (fairseq_cli.train, ...) under a Python and numpy newer than it knows.

It runs in fairseq's environment: python run_fairseq.py fairseq_cli.train ARGUMENTS
"""

import builtins
import dataclasses
import importlib
import sys
from typing import Any

import numpy as np

plain = dataclasses.dataclass


def dataclass(cls: Any = None, /, **options: Any) -> Any:
    """A dataclass that may stand as a default: since Python 3.11 these must be hashable."""

    def make(cls: Any) -> Any:
        free = "__hash__" not in vars(cls) and not options.get("frozen")
        return plain(cls, **({"unsafe_hash": True} if free else {}) | options)

    return make if cls is None else make(cls)


dataclasses.dataclass = dataclass
for name in ("bool", "float", "int", "object"):  # aliases that numpy 1.24 took away
    if name not in vars(np):
        setattr(np, name, getattr(builtins, name))

sys.argv = sys.argv[1:]
importlib.import_module(sys.argv[0]).cli_main()
