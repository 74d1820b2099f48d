"""The toolkits of reliability.py: how each trains, resumes and translates a tiny model."""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from environments import Steps, run
from peers import eole, fairseq, joeynmt, marian

UPDATES, SAVE_EVERY = 60, 10
WIDTH, INNER, HEADS = 32, 64, 2

Command = Callable[[Path, Path, Path], list[str]]  # of its Python, the text and a folder


@dataclass(frozen=True)
class Subject:
    """A toolkit. `train` takes also whether it resumes; `digest` is Python that prints a word."""

    name: str
    version: str
    install: Steps
    prepare: Callable[[Path, Path, Path], None]
    train: Callable[[Path, Path, Path, bool], list[str]]
    translate: Command
    model: Callable[[Path], Path]
    digest: str
    resuming: str
    lines: Callable[[str], list[str]] = str.splitlines


def _words(options: dict[str, object]) -> list[str]:
    return [word for key, value in options.items() for word in (f"--{key}", str(value)) if word]


# ---- Kutta --------------------------------------------------------------------------------------

_CONFIG = f"""
run = "run"
[data]
dir = "DIR"
source = "en"
target = "de"
vocab_size = 300
max_length = 32
[model]
d_model = {WIDTH}
ffn = {INNER}
heads = {HEADS}
encoder_layers = 1
decoder_layers = 1
solver = "euler"
gamma = "tableau"
[train]
max_steps = {UPDATES}
save_every = {SAVE_EVERY}
batch_tokens = 300
warmup = 20
valid_bleu = false
tensorboard = false
threads = 1
final_model = "last"
"""


def _prepare_kutta(python: Path, text: Path, place: Path) -> None:
    (place / "config.toml").write_text(_CONFIG.replace("DIR", str(text)))


def _kutta(*words: str) -> list[str]:
    source = Path(__file__).parents[1] / "src"
    start = f"import sys; sys.path.insert(0, {str(source)!r}); from kutta.cli import main; main()"
    return [sys.executable, "-c", start, *words]


KUTTA = Subject(
    name="Kutta",
    version="this tree",
    install=(),
    prepare=_prepare_kutta,
    train=lambda python, text, place, resumes: _kutta("train", "config.toml"),
    translate=lambda python, text, place: _kutta("translate", "run"),
    model=lambda place: place / "run" / "model.safetensors",
    digest="import hashlib, sys; print(hashlib.sha256(open(sys.argv[1] + "
    "'/run/model.safetensors', 'rb').read()).hexdigest())",
    resuming="the same command",
)

# ---- Marian -------------------------------------------------------------------------------------

_TRANSLATE_MARIAN = """
import sys, pymarian
translator = pymarian.Translator(" ".join(sys.argv[1:]))
for line in translator.translate(sys.stdin.read().splitlines()):
    print(line)
"""
_DIGEST_NPZ = """
import hashlib, sys, zipfile
found = zipfile.ZipFile(sys.argv[1] + "/model.npz")
names = sorted(name for name in found.namelist() if not name.startswith("special:"))
print(hashlib.sha256(b"".join(map(found.read, names))).hexdigest())
"""


def _prepare_marian(python: Path, text: Path, place: Path) -> None:
    words = ["</s>", "<unk>", *(text / "vocab.txt").read_text().splitlines()]
    lines = (f'"{word}": {number}\n' for number, word in enumerate(words))
    (place / "vocab.yml").write_text("".join(lines))


def _train_marian(python: Path, text: Path, place: Path, resumes: bool) -> list[str]:
    options: dict[str, object] = {
        "type": "transformer",
        "model": "model.npz",
        "train-sets": f"{text}/train.en {text}/train.de",
        "vocabs": "vocab.yml vocab.yml",
        "tied-embeddings-all": "true",
        "dim-emb": WIDTH,
        "transformer-dim-ffn": INNER,
        "transformer-heads": HEADS,
        "enc-depth": 1,
        "dec-depth": 1,
        "transformer-dropout": 0.1,
        "optimizer": "adam",
        "learn-rate": 0.002,
        "lr-warmup": 20,
        "mini-batch": 32,
        "maxi-batch": 4,
        "shuffle-in-ram": "true",
        "sync-sgd": "true",
        "cpu-threads": 1,
        "seed": 1,
        "after-batches": UPDATES,
        "save-freq": SAVE_EVERY,
        "overwrite": "true",
        "disp-freq": 10,
    }
    return [str(python), "-c", marian.TRAIN, *_words(options)]


MARIAN = Subject(
    name=marian.TOOLKIT.name,
    version=marian.TOOLKIT.version,
    install=marian.TOOLKIT.install,
    prepare=_prepare_marian,
    train=_train_marian,
    translate=lambda python, text, place: [
        *(str(python), "-c", _TRANSLATE_MARIAN),
        *("-m", "model.npz", "-v", "vocab.yml", "vocab.yml", "--cpu-threads", "1", "--beam-size"),
        *("2", "--max-length", "20", "--quiet", "--quiet-translation"),
    ],
    model=lambda place: place / "model.npz",
    digest=_DIGEST_NPZ,
    resuming="the same command",
)

# ---- fairseq ------------------------------------------------------------------------------------

_DIGEST_PT = """
import hashlib, sys, torch
# One tensor of fairseq is never filled.
state = torch.load(sys.argv[1] + "/{file}", map_location="cpu", weights_only=False)["{key}"]
print(hashlib.sha256(b"".join(state[name].numpy().tobytes() for name in sorted(state)
                              if not name.endswith("_float_tensor"))).hexdigest())
"""


def _prepare_fairseq(python: Path, text: Path, place: Path) -> None:
    parts = ["--trainpref", f"{text}/train", "--validpref", f"{text}/valid"]
    languages = ["-s", "en", "-t", "de", "--joined-dictionary"]
    command = [str(python), fairseq.INSIDE, "fairseq_cli.preprocess", *languages, *parts]
    run([*command, "--destdir", str(place / "data")])


def _train_fairseq(python: Path, text: Path, place: Path, resumes: bool) -> list[str]:
    options: dict[str, object] = {"arch": "transformer", "share-all-embeddings": ""}
    for side in ("encoder", "decoder"):
        options |= {
            f"{side}-embed-dim": WIDTH,
            f"{side}-ffn-embed-dim": INNER,
            f"{side}-layers": 1,
            f"{side}-attention-heads": HEADS,
        }
    options |= {
        "dropout": 0.1,
        "criterion": "label_smoothed_cross_entropy",
        "optimizer": "adam",
        "lr": 0.002,
        "lr-scheduler": "inverse_sqrt",
        "warmup-updates": 20,
        "max-tokens": 300,
        "max-update": UPDATES,
        "save-interval-updates": SAVE_EVERY,
        "save-dir": "checkpoints",
        "num-workers": 0,
        "cpu": "",
        "seed": 1,
        "log-format": "none",
        "disable-validation": "",
    }
    start = [str(python), fairseq.INSIDE, "fairseq_cli.train", "data"]
    return [*start, *_words(options)]


def _fairseq_lines(out: str) -> list[str]:
    return [line.split("\t")[-1] for line in out.splitlines() if line.startswith("H-")]


FAIRSEQ = Subject(
    name=fairseq.TOOLKIT.name,
    version=fairseq.TOOLKIT.version,
    install=fairseq.TOOLKIT.install,
    prepare=_prepare_fairseq,
    train=_train_fairseq,
    translate=lambda python, text, place: [
        *(str(python), fairseq.INSIDE, "fairseq_cli.interactive", "data", "--cpu"),
        *("--path", "checkpoints/checkpoint_last.pt", "-s", "en", "-t", "de", "--beam", "2"),
    ],
    model=lambda place: place / "checkpoints" / "checkpoint_last.pt",
    digest=_DIGEST_PT.format(file="checkpoints/checkpoint_last.pt", key="model"),
    resuming="the same command",
    lines=_fairseq_lines,
)

# ---- JoeyNMT ------------------------------------------------------------------------------------


def _joey_config(text: Path, place: Path, resumes: bool) -> Path:
    """Its config; to resume it has to name the last checkpoint and another folder."""
    side = {"level": "word", "voc_file": f"{text}/vocab.txt", "max_length": 32, "lowercase": False}
    stack = {
        "type": "transformer",
        "num_layers": 1,
        "num_heads": HEADS,
        "embeddings": {"embedding_dim": WIDTH, "scale": True, "dropout": 0.1},
        "hidden_size": WIDTH,
        "ff_size": INNER,
        "dropout": 0.1,
        "layer_norm": "pre",
    }
    training: dict[str, object] = {
        "optimizer": "adam",
        "learning_rate": 0.002,
        "scheduling": "warmupinversesquareroot",
        "learning_rate_warmup": 20,
        "normalization": "tokens",
        "batch_size": 300,
        "batch_type": "token",
        "shuffle": True,
        "epochs": 1000,
        "updates": UPDATES,
        "validation_freq": SAVE_EVERY,
        "logging_freq": 10,
        "keep_best_ckpts": 2,
        "early_stopping_metric": "loss",
        "overwrite": True,
    }
    folder = "resumed" if resumes else "model"
    if resumes and (place / "model" / "latest.ckpt").exists():
        training["load_model"] = str(place / "model" / "latest.ckpt")
    config = {
        "name": "tiny",
        "model_dir": str(place / folder),
        "use_cuda": False,
        "fp16": False,
        "random_seed": 1,
        "data": {
            "train": f"{text}/train",
            "dev": f"{text}/valid",
            "dataset_type": "plain",
            "src": {"lang": "en", **side},
            "trg": {"lang": "de", **side},
        },
        "testing": {"beam_size": 2, "max_output_length": 20},
        "training": training,
        "model": {
            "initializer": "xavier_uniform",
            "tied_embeddings": True,
            "tied_softmax": True,
            "encoder": stack,
            "decoder": stack,
        },
    }
    path = place / f"{folder}.yaml"
    path.write_text(json.dumps(config, indent=2))  # JSON is YAML
    return path


def _train_joey(python: Path, text: Path, place: Path, resumes: bool) -> list[str]:
    config = _joey_config(text, place, resumes)
    return [str(python), "-m", "joeynmt", "train", str(config), "--skip-test"]


_LATEST = "(sys.argv[1] + ('/resumed' if os.path.isdir(sys.argv[1] + '/resumed') else '/model'))"
JOEYNMT = Subject(
    name=joeynmt.TOOLKIT.name,
    version=joeynmt.TOOLKIT.version,
    install=joeynmt.TOOLKIT.install,
    prepare=lambda python, text, place: None,
    train=_train_joey,
    translate=lambda python, text, place: [
        *(str(python), "-m", "joeynmt", "translate", str(_joey_config(text, place, False))),
    ],
    model=lambda place: (place / "model" / "latest.ckpt").resolve(),
    digest="import hashlib, os, sys, torch\n"
    f"state = torch.load({_LATEST} + '/latest.ckpt', map_location='cpu', weights_only=False)\n"
    "state = state['model_state']\n"
    "print(hashlib.sha256(b''.join(state[n].numpy().tobytes() for n in sorted(state)))"
    ".hexdigest())",
    resuming="a config that names the last checkpoint and another folder",
)

# ---- eole ---------------------------------------------------------------------------------------


def _train_eole(python: Path, text: Path, place: Path, resumes: bool) -> list[str]:
    training: dict[str, object] = {
        "model_path": str(place / "model"),
        "world_size": 1,
        "gpu_ranks": [],
        "compute_dtype": "fp32",
        "batch_type": "tokens",
        "batch_size": 300,
        "batch_size_multiple": 1,
        "bucket_size": 400,
        "normalization": "tokens",
        "num_workers": 0,
        "dropout": [0.1],
        "attention_dropout": [0.1],
        "label_smoothing": 0.1,
        "optim": "adam",
        "learning_rate": 1.0,
        "warmup_steps": 20,
        "decay_method": "noam",
        "train_steps": UPDATES,
        "valid_steps": 10 * UPDATES,
        "save_checkpoint_steps": SAVE_EVERY,
        "keep_checkpoint": 3,
    }
    if resumes and (place / "model" / "config.json").exists():
        training["train_from"] = str(place / "model")
    config = {
        "seed": 1,
        "src_vocab": f"{text}/vocab.txt",
        "tgt_vocab": f"{text}/vocab.txt",
        "share_vocab": True,
        "overwrite": True,
        "report_every": 10,
        "data": {
            "train": {
                "path_src": f"{text}/train.en",
                "path_tgt": f"{text}/train.de",
                "transforms": [],
            }
        },
        "model": {
            "architecture": "transformer",
            "layers": 1,
            "hidden_size": WIDTH,
            "heads": HEADS,
            "transformer_ff": INNER,
            "embeddings": {
                "word_vec_size": WIDTH,
                "position_encoding_type": "SinusoidalInterleaved",
            },
            "share_embeddings": True,
            "share_decoder_embeddings": True,
        },
        "training": training,
    }
    path = place / ("resumed.yaml" if resumes else "train.yaml")
    path.write_text(json.dumps(config, indent=2))  # JSON is YAML
    return [str(python.with_name("eole")), "train", "-config", str(path)]


EOLE = Subject(
    name=eole.TOOLKIT.name,
    version=eole.TOOLKIT.version,
    install=eole.TOOLKIT.install,
    prepare=lambda python, text, place: None,
    train=_train_eole,
    # It writes to files only.
    translate=lambda python, text, place: [
        *("bash", "-c"),
        'cat > source && "$0" predict -model_path "$1" -src source -output found -beam_size 2 '
        ">&2 && cat found",
        *(str(python.with_name("eole")), str(place / "model")),
    ],
    model=lambda place: (place / "model" / "model.00.safetensors").resolve(),
    digest="import hashlib, sys\n"
    "from safetensors.numpy import load_file\n"
    "state = load_file(sys.argv[1] + '/model/model.00.safetensors')\n"
    "print(hashlib.sha256(b''.join(state[n].tobytes() for n in sorted(state))).hexdigest())",
    resuming="a config that names the last checkpoint",
)

SUBJECTS = (KUTTA, MARIAN, FAIRSEQ, JOEYNMT, EOLE)
