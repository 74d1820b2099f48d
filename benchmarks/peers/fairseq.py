"""fairseq: binarised text, one process with all threads, or torchrun with one for each."""

from pathlib import Path

from environments import TORCH, run

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

INSIDE = str(Path(__file__).parent.with_name("inside") / "run_fairseq.py")


def prepare(place: Place) -> None:
    """Binarise the text, with one dictionary for both languages."""
    text = ["--trainpref", f"{place.text}/train", "--validpref", f"{place.text}/valid"]
    languages = ["-s", SOURCE, "-t", TARGET, "--joined-dictionary"]
    command = [str(place.python), INSIDE, "fairseq_cli.preprocess", *languages, *text]
    run([*command, "--destdir", str(place.work / "data")])


def job(place: Place, case: Case) -> Job:
    size, processes = case.size, case.division.processes
    options: dict[str, object] = {"arch": "transformer", "share-all-embeddings": ""}
    for side in ("encoder", "decoder"):
        options |= {
            f"{side}-embed-dim": size.d_model,
            f"{side}-ffn-embed-dim": size.ffn,
            f"{side}-layers": size.layers,
            f"{side}-attention-heads": size.heads,
            f"{side}-normalize-before": "",
        }
    options |= {
        "dropout": DROPOUT,
        "attention-dropout": DROPOUT,
        "activation-dropout": DROPOUT,
        "criterion": "label_smoothed_cross_entropy",
        "label-smoothing": SMOOTHING,
        "optimizer": "adam",
        "lr": RATE,
        "lr-scheduler": "inverse_sqrt",
        "warmup-updates": WARMUP,
        "max-tokens": case.division.tokens,
        "update-freq": case.division.micro_batches // processes,
        "max-update": ENDLESS,
        "num-workers": 0,
        "cpu": "",
        "no-save": "",
        "disable-validation": "",
        "seed": 1,
        "log-interval": 1,
        "log-format": "json",
    }
    start = [str(place.python)]
    if processes > 1:
        start = [str(place.python.with_name("torchrun")), f"--nproc-per-node={processes}"]
        options |= {"distributed-backend": "gloo", "ddp-backend": "legacy_ddp"}
    words = [word for name, value in options.items() for word in (f"--{name}", str(value)) if word]
    command = [*start, INSIDE, "fairseq_cli.train", str(place.work / "data"), *words]
    return Job(command, threaded(place, processes), tokens)


def tokens(line: str) -> int | None:
    """wpb counts the target tokens of all processes and micro-batches, end marks included."""
    words = number_in(r'train_inner.*"wpb": "([\d.]+)"', line)
    return None if words is None else round(words)


TOOLKIT = Toolkit(
    name="fairseq",
    # A newer pip refuses the metadata of the omegaconf that fairseq asks for.
    install=(("pip<24.1",), (TORCH, "numpy"), ("fairseq==0.12.2",)),
    divisions=(
        *(Division(), Division(micro_batches=4), Division(micro_batches=8)),
        *(Division(micro_batches=2, processes=2), Division(micro_batches=4, processes=2)),
    ),
    prepare=prepare,
    job=job,
    usual={"base": Division(micro_batches=4)},
)
