"""eole, the successor of OpenNMT-py."""

import json

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


def job(place: Place, case: Case) -> Job:
    size, division = case.size, case.division
    vocabulary = str(place.text / "vocab.txt")
    source, target = (str(place.text / f"train.{language}") for language in (SOURCE, TARGET))
    config = {
        "seed": 1,
        "src_vocab": vocabulary,
        "tgt_vocab": vocabulary,
        "share_vocab": True,
        "data": {"train": {"path_src": source, "path_tgt": target, "transforms": []}},
        "report_every": 1,
        "model": {
            "architecture": "transformer",
            "layers": size.layers,
            "hidden_size": size.d_model,
            "heads": size.heads,
            "transformer_ff": size.ffn,
            "embeddings": {
                "word_vec_size": size.d_model,
                "position_encoding_type": "SinusoidalInterleaved",
            },
            "share_embeddings": True,
            "share_decoder_embeddings": True,
        },
        "training": {
            "model_path": str(place.work / f"{size.name}-{division.micro_batches}"),
            "world_size": 1,
            "gpu_ranks": [],
            "compute_dtype": "fp32",
            "batch_type": "tokens",
            "batch_size": division.tokens,
            "batch_size_multiple": 1,
            "accum_count": [division.micro_batches],
            "bucket_size": 32_768,  # the corpus once; the default would read it nine times first
            "normalization": "tokens",
            "num_workers": 0,
            "dropout": [DROPOUT],
            "attention_dropout": [DROPOUT],
            "label_smoothing": SMOOTHING,
            "log_attention_entropy": False,
            "optim": "adam",
            "learning_rate": RATE,
            "warmup_steps": WARMUP,
            "decay_method": "rsqrt",
            "train_steps": ENDLESS,
            "valid_steps": ENDLESS,
            "save_checkpoint_steps": ENDLESS,
        },
    }
    path = place.work / f"{size.name}-{division.micro_batches}.yaml"
    path.write_text(json.dumps(config, indent=2), encoding="utf-8")  # JSON is YAML

    def tokens(line: str) -> int | None:
        """bsz has the mean over the micro-batches: source tokens, target tokens, sentences."""
        mean = number_in(r"Step .*; bsz: *\d+/ *(\d+)/", line)
        return None if mean is None else round(mean * division.micro_batches)

    command = [str(place.python.with_name("eole")), "train", "-config", str(path)]
    return Job(command, threaded(place), tokens)


TOOLKIT = Toolkit(
    name="eole",
    # Its command imports aiohttp without asking for it.
    install=((TORCH, "numpy", "aiohttp"), ("eole==0.6.4",)),
    divisions=(Division(), Division(micro_batches=8), Division(micro_batches=4)),
    job=job,
)
