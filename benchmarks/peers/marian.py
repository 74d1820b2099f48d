"""Marian, through the trainer of its Python package."""

from peers.toolkit import (
    DROPOUT,
    ENDLESS,
    RATE,
    SMOOTHING,
    SOURCE,
    TARGET,
    UPDATE_TOKENS,
    WARMUP,
    Case,
    Division,
    Job,
    Place,
    Toolkit,
    number_in,
)

TRAIN = "import sys, pymarian; pymarian.Trainer(' '.join(sys.argv[1:])).train()"


def prepare(place: Place) -> None:
    """Number the words; the two marks come first."""
    words = ["</s>", "<unk>", *(place.text / "vocab.txt").read_text("utf-8").splitlines()]
    quoted = (word.replace("\\", "\\\\").replace('"', '\\"') for word in words)
    lines = (f'"{word}": {number}\n' for number, word in enumerate(quoted))
    (place.work / "vocab.yml").write_text("".join(lines), encoding="utf-8")


def job(place: Place, case: Case) -> Job:
    """A worker for each thread; the delay cuts the share of each into micro-batches."""
    size, vocabulary = case.size, str(place.work / "vocab.yml")
    options: dict[str, object] = {
        "type": "transformer",
        "model": place.work / f"{size.name}-{case.division.micro_batches}.npz",
        "train-sets": f"{place.text}/train.{SOURCE} {place.text}/train.{TARGET}",
        "vocabs": f"{vocabulary} {vocabulary}",
        "tied-embeddings-all": "true",
        "dim-emb": size.d_model,
        "transformer-dim-ffn": size.ffn,
        "transformer-heads": size.heads,
        "enc-depth": size.layers,
        "dec-depth": size.layers,
        "transformer-preprocess": "n",
        "transformer-postprocess": "da",
        "transformer-postprocess-emb": "d",
        "transformer-dropout": DROPOUT,
        "transformer-dropout-attention": DROPOUT,
        "transformer-dropout-ffn": DROPOUT,
        "label-smoothing": SMOOTHING,
        "cost-type": "ce-sum",  # with it the log has the number of target tokens
        "optimizer": "adam",
        "learn-rate": RATE,
        "lr-warmup": WARMUP,
        "mini-batch": 1000,
        "mini-batch-words": UPDATE_TOKENS,
        "optimizer-delay": max(1, case.division.micro_batches // place.threads),
        "maxi-batch": 100,
        "max-length": 256,
        "shuffle-in-ram": "true",
        "sync-sgd": "true",
        "cpu-threads": place.threads,
        "seed": 1,
        "after-batches": ENDLESS,
        "save-freq": ENDLESS,
        "overwrite": "true",
        "disp-freq": 1,
        "disp-label-counts": "true",
    }
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    one_thread = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}  # of each worker
    return Job([str(place.python), "-c", TRAIN, *words], one_thread, tokens)


def tokens(line: str) -> int | None:
    labels = number_in(r": Up\. .*: Cost \S+ \* ([\d,]+)", line)
    return None if labels is None else int(labels)


TOOLKIT = Toolkit(
    name="Marian",
    install=(("pymarian==1.12.42",),),
    divisions=(Division(), Division(micro_batches=4)),
    prepare=prepare,
    job=job,
)
