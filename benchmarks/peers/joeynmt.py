"""JoeyNMT."""

import json
from pathlib import Path

from environments import TORCH

from peers.toolkit import (
    DROPOUT,
    ENDLESS,
    RATE,
    SMOOTHING,
    SOURCE,
    TARGET,
    WARMUP,
    Case,
    Division,
    Job,
    Place,
    Toolkit,
    number_in,
    threaded,
)

INSIDE = str(Path(__file__).parent.with_name("inside") / "run_joeynmt.py")


def job(place: Place, case: Case) -> Job:
    size, division = case.size, case.division
    vocabulary = str(place.text / "vocab.txt")
    side = {"level": "word", "voc_file": vocabulary, "max_length": 256, "lowercase": False}
    stack = {
        "type": "transformer",
        "num_layers": size.layers,
        "num_heads": size.heads,
        "embeddings": {"embedding_dim": size.d_model, "scale": True, "dropout": DROPOUT},
        "hidden_size": size.d_model,
        "ff_size": size.ffn,
        "dropout": DROPOUT,
        "layer_norm": "pre",
    }
    name = f"{size.name}-{division.micro_batches}"
    config = {
        "name": name,
        "model_dir": str(place.work / name),
        "use_cuda": False,
        "fp16": False,
        "random_seed": 1,
        "data": {
            "train": str(place.text / "train"),
            "dev": str(place.text / "valid"),
            "dataset_type": "plain",
            "src": {"lang": SOURCE, **side},
            "trg": {"lang": TARGET, **side},
        },
        "testing": {"beam_size": 1},
        "training": {
            "optimizer": "adam",
            "learning_rate": RATE,
            "scheduling": "warmupinversesquareroot",
            "learning_rate_warmup": WARMUP,
            "normalization": "tokens",
            "label_smoothing": SMOOTHING,
            "batch_size": division.tokens,
            "batch_type": "token",
            "batch_multiplier": division.micro_batches,
            "shuffle": True,
            "epochs": ENDLESS,
            "updates": ENDLESS,
            "validation_freq": ENDLESS,
            "logging_freq": 1,
            "early_stopping_metric": "loss",
            "overwrite": True,
        },
        "model": {
            "initializer": "xavier_uniform",
            "tied_embeddings": True,
            "tied_softmax": True,
            "encoder": stack,
            "decoder": stack,
        },
    }
    path = place.work / f"{name}.yaml"
    path.write_text(json.dumps(config, indent=2), encoding="utf-8")  # JSON is YAML
    command = [str(place.python), INSIDE, "train", str(path), "--skip-test"]
    return Job(command, threaded(place), tokens)


def tokens(line: str) -> int | None:
    counted = number_in(r"^target tokens (\d+)$", line)
    return None if counted is None else int(counted)


TOOLKIT = Toolkit(
    name="JoeyNMT",
    # It imports importlib_metadata without asking for it.
    install=((TORCH, "numpy", "importlib-metadata"), ("joeynmt==2.3.0",)),
    divisions=(Division(micro_batches=4),),
    job=job,
)
