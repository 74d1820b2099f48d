"""`kutta info`: facts about a config or a run."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from kutta.config import Config
from kutta.contained import check_contained
from kutta.data.prepare import expected_vocabulary
from kutta.errors import InputError
from kutta.model.arithmetic import cost_of
from kutta.model.transformer import build_model
from kutta.runs import Run
from kutta.runs.run import CONFIG
from kutta.runtime import is_exported
from kutta.training.card import depth, unusual
from kutta.translate.native import obstacle


def describe(what: Path, overrides: Sequence[str]) -> dict[str, Any]:
    """Facts about a config or a run, in the order to show them."""
    if what.is_dir():
        check_contained(what)
    if what.is_dir() and not Run.is_at(what):
        Run.load(what)  # says so if it is a folder of runs
        raise InputError(f"{what} is not a run directory (it has no {CONFIG}).")
    config = Config.load(what / CONFIG if what.is_dir() else what, overrides)
    run = Run(what if what.is_dir() else Path(config.run), config)
    source, target, shared, known = _vocabularies(run)
    with torch.device("meta"):  # sizes only: no memory
        cost = cost_of(build_model(config.model, source, target, shared))
    shape, two_sided = config.model, not config.language_model
    decoder = {"decoder_method": shape.decoder_solver, "decoder_gamma": shape.decoder_gamma}
    checkpoints = run.checkpoints()
    return {
        "run": str(run.path),
        "config": config.hash(),
        **({"computed_by": _engine(what)} if is_exported(what) else {}),
        "method": shape.solver,
        **({"tableau": own.description} if (own := shape.own_tableau()) else {}),
        "gamma": shape.gamma,
        "field": shape.field,
        **(decoder if two_sided else {}),
        **unusual(shape),
        "layers": depth(config),
        "d_model": shape.d_model,
        "vocabulary": {
            **({"source": source} if two_sided else {}),
            "target": target,
            "known": known,
        },
        "parameters": {
            "total": cost.parameters,
            "embeddings": cost.embeddings,
            "encoder": cost.encoder,
            "decoder": cost.decoder,
            "solver": cost.solver,
        },
        "multiply_adds": {
            "per_source_token": cost.per_source_token,
            "per_target_token": cost.per_target_token,
        },
        "training": {
            "checkpoints": len(checkpoints),
            "last_step": checkpoints[-1].step if checkpoints else 0,
            "best_step": checkpoints[-1].best_step if checkpoints else 0,
            "finished": run.final_weights.is_file() and not run.passed(),
        },
    }


def _engine(exported: Path) -> str:
    """What computes an exported model on this machine."""
    reason = obstacle(exported)
    return f"onnxruntime ({reason})" if reason else "kernels"


def _vocabularies(run: Run) -> tuple[int, int, bool, str]:
    """The sizes of the vocabularies, whether they are shared, and where that is known from."""
    if run.is_prepared or run.final_weights.is_file():  # a model in the box has no stores
        known = run.tokenizers
        return len(known.source), len(known.target), known.shared, "from the run"
    data = run.config.data
    size = expected_vocabulary(data)
    return size, size, data.shared_vocab, "assumed; the text is not prepared yet"
