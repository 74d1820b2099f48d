"""The commands as a user sees them: output, and one sentence if the input is wrong."""

import contextlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import pytest

from kutta.cli import main
from kutta.config import Config
from kutta.integrity import MANIFEST
from kutta.ode import GAMMAS, METHODS
from tests.conftest import toy_toml

CONFIG = toy_toml(
    model={"gamma": "tableau"},
    train={"max_steps": 4, "save_every": 2, "warmup": 2, "log_every": 50},
)

COMMANDS = [
    *("demo", "prepare", "train", "translate", "evaluate", "score", "average", "info", "methods"),
    *("sample", "data", "analyze", "reproduce", "models"),
]
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "100"}


@dataclass(frozen=True)
class Answer:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str


def kutta(*words: object, stdin: bytes = b"", cwd: Path | None = None) -> Answer:
    """Run the command line in this process, as `python -m kutta` would."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    code = 0
    with (
        patch.object(sys, "argv", ["kutta", *map(str, words)]),
        patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), "utf-8")),
        contextlib.chdir(cwd or Path.cwd()),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    texts = [stream.buffer.getvalue().decode() for stream in (out, err)]  # type: ignore[attr-defined]
    return Answer(code, *texts)


def is_one_sentence(answer: Answer, *parts: str) -> None:
    """Exit code 2, one line that names these parts, no traceback, nothing on standard output."""
    assert answer.code == 2, answer
    assert answer.out == ""
    assert answer.err.startswith("kutta: ")
    assert answer.err.count("\n") == 1, answer.err
    assert "Traceback" not in answer.err
    for part in parts:
        assert part in answer.err


@pytest.fixture
def folder(tmp_path: Path, toy_run: Path) -> Path:
    """A folder with text and a config, nothing trained yet."""
    shutil.copytree(toy_run.parent / "text", tmp_path / "text")
    (tmp_path / "config.toml").write_text(CONFIG)
    return tmp_path


def test_translate_keeps_one_line_out_for_one_line_in(toy_run: Path) -> None:
    lines = "ba be\n\n   \nbi\u2028bo\n" + "da " * 300 + "\nlast line without a newline"
    answer = kutta("translate", toy_run, stdin=lines.encode())
    assert answer.code == 0, answer.err
    out = answer.out.split("\n")
    assert out[-1] == ""
    assert len(out) - 1 == 6
    assert out[1] == ""
    assert out[2] == ""


def test_translate_gives_n_best_lists_json_samples_and_files(toy_run: Path, tmp_path: Path) -> None:
    groups = kutta("translate", toy_run, "--n-best", 2, stdin=b"ba be\nbi\n").out.split("\n\n")
    assert len(groups) == 3
    scores = [float(line.split("\t")[0]) for line in groups[0].split("\n")]
    assert len(scores) == 2
    assert scores == sorted(scores, reverse=True)
    answer = json.loads(kutta("translate", toy_run, "--json", stdin=b"ba be\n").out)
    assert answer["source"] == "ba be"
    assert answer["translations"][0]["score"] < 0
    draws = [kutta("translate", toy_run, "--sample", "--seed", 3, stdin=b"ba\n").out for _ in "ab"]
    assert draws[0] == draws[1]
    source, target = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text("ba\nbe\n")
    assert kutta("translate", toy_run, "--input", source, "--output", target).code == 0
    assert target.read_text().count("\n") == 2


def test_an_ensemble_of_a_run_with_itself_translates_as_the_run(toy_run: Path) -> None:
    text = b"ba be bi\nda do\n"
    alone = kutta("translate", toy_run, stdin=text).out
    assert kutta("translate", toy_run, toy_run, stdin=text).out == alone


def test_evaluate_prints_scores_with_signatures(toy_run: Path) -> None:
    answer = kutta("evaluate", toy_run, "--json")
    assert answer.code == 0, answer.err
    (result,) = json.loads(answer.out)
    assert result["sentences"] == 8
    assert f"config:{Config.load(toy_run / 'config.json').hash()}" in result["signature"]
    assert [score["name"] for score in result["scores"]] == ["BLEU", "sacreBLEU", "chrF2"]
    assert all(score["signature"] for score in result["scores"])
    assert Path(result["hypotheses"]).read_text().count("\n") == 8


def test_evaluate_searches_with_the_options_of_translate(toy_run: Path) -> None:
    options = ("--beam", 3, "--min-length", 2, "--max-length", 4, "--no-repeat-ngram", 1)
    (result,) = json.loads(kutta("evaluate", toy_run, *options, "--json").out)
    rules = "|min_length:2|max_length:4|no_repeat_ngram:1"
    assert "|beam:3|penalty:" in result["signature"]
    assert result["signature"].endswith(rules)
    text = (toy_run.parent / "text" / "test.xx").read_bytes()
    translated = kutta("translate", toy_run, *options, stdin=text).out
    assert Path(result["hypotheses"]).read_text() == translated
    assert translated != kutta("translate", toy_run, stdin=text).out
    is_one_sentence(kutta("evaluate", toy_run, "--min-length", 9, "--max-length", 4), "min_length")


def test_score_compares_files(tmp_path: Path) -> None:
    good, bad, reference = tmp_path / "good", tmp_path / "bad", tmp_path / "reference"
    lines = [f"the cat number {n} sits on the mat" for n in range(30)]
    reference.write_text("\n".join(lines) + "\n")
    good.write_text("\n".join(lines) + "\n")
    bad.write_text("\n".join(line.replace("cat", "dog") for line in lines) + "\n")
    answer = kutta("score", good, reference, "--metric", "bleu")
    assert "BLEU = 100.00" in answer.out
    (compared,) = json.loads(
        kutta("score", bad, reference, "--against", good, "--metric", "chrf", "--json").out
    )
    assert compared["b"]["value"] > compared["a"]["value"]
    assert compared["p_value"] < 0.05
    bad.write_text("one line\n")
    is_one_sentence(kutta("score", bad, reference), "30", "1")
    is_one_sentence(kutta("score", good, reference, "--metric", "bleurt"), "bleurt", "chrf")


def test_train_prepare_average_and_info_work_on_a_config(folder: Path) -> None:
    plan = kutta("train", "config.toml", "--dry-run", cwd=folder)
    assert plan.code == 0, plan.err
    assert "4 steps" in plan.out
    assert not (folder / "run").exists()
    prepared = kutta("prepare", "config.toml", "--json", cwd=folder)
    assert json.loads(prepared.out)["train"]["kept"] == 120
    assert "already" in kutta("prepare", "config.toml", cwd=folder).out
    trained = kutta("train", "config.toml", "--set", "model.solver=rk4", cwd=folder)
    assert trained.code == 0, trained.err
    assert (folder / "run" / "model.safetensors").is_file()
    assert "`model.safetensors`" not in (folder / "run" / "README.md").read_text()
    facts = json.loads(kutta("info", "run", "--json", cwd=folder).out)
    assert facts["method"] == "rk4"
    assert facts["training"] == {
        "checkpoints": 2,
        "last_step": 4,
        "best_step": 4,
        "finished": True,
    }
    parts = facts["parameters"]
    assert parts["total"] == parts["embeddings"] + parts["encoder"] + parts["decoder"]
    before = (folder / "run" / "model.safetensors").read_bytes()
    assert kutta("average", "run", "--step", 2, cwd=folder).code == 0
    assert (folder / "run" / "model.safetensors").read_bytes() != before
    is_one_sentence(kutta("average", "run", "--step", 3, cwd=folder), "step 3", "2, 4")
    # A damaged store is recreated, and the run resumes with its own vocabulary.
    (folder / "run" / "store" / "train.arrow").write_bytes(b"damaged")
    more = ("train", "config.toml", "--set", "model.solver=rk4", "--set", "train.max_steps=5")
    is_one_sentence(kutta(*more, cwd=folder), "train.arrow", "--overwrite")
    remade = kutta("prepare", "config.toml", "--set", "model.solver=rk4", "--overwrite", cwd=folder)
    assert remade.code == 0, remade.err
    assert "resuming from step 4" in kutta(*more, cwd=folder).out
    # The run has checkpoints of rk4 now: another method needs another folder, or --overwrite.
    is_one_sentence(kutta("train", "config.toml", cwd=folder), "model.solver", "rk4", "--overwrite")
    assert kutta("train", "config.toml", "--overwrite", cwd=folder).code == 0


def test_sigterm_saves_and_the_same_command_resumes(folder: Path) -> None:
    words = [
        "train",
        "config.toml",
        "--set",
        "train.max_steps=100000",
        "--set",
        "train.log_every=1",
    ]
    process = subprocess.Popen(
        [sys.executable, "-m", "kutta", *words],
        cwd=folder,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("step 3 "):
            process.send_signal(signal.SIGTERM)
            break
    rest = process.stdout.read()
    assert process.wait(timeout=60) == 130
    assert "run the same command to resume" in rest
    last = max(path.name for path in (folder / "run" / "checkpoints").iterdir())
    step = int(last.removeprefix("step-"))
    again = kutta("train", "config.toml", "--set", f"train.max_steps={step + 1}", cwd=folder)
    assert again.code == 0, again.err
    assert f"resuming from step {step}" in again.out


def test_a_reader_that_goes_away_is_no_error(toy_run: Path) -> None:
    command = (
        f"yes ba be | head -n 20000 | {sys.executable} -m kutta translate {toy_run} | head -n 1"
    )
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, env=ENVIRONMENT, text=True, check=False
    )
    assert "Traceback" not in done.stderr
    assert done.stdout.count("\n") == 1


CONFIG_MISTAKES = {
    "model.solvr=rk4": ("model.solvr", "did you mean model.solver?"),
    "model.solver=rk5": ("rk5", "did you mean rk2 or rk4?"),
    "trian.lr=1": ("trian", "did you mean"),
    "train.lr=fast": ("train.lr", "fast", "number"),
    "train.max_steps=1.5": ("train.max_steps", "integer"),
    "model.dropout=1.5": ("model.dropout", "less than 1"),
    "model.heads=3": ("d_model = 16", "heads = 3"),
    "model.field=ffn+san": ("model.field", "san+ffn"),
    "data.dir=nowhere": ("nowhere", "data.dir"),
    "data.train=trein": ("trein.xx", "train.xx"),
    "data.max_length=5000": ("data.max_length", "train.batch_tokens"),
    "train.device=cuda:9": ("cuda:9", "cpu"),
    "nonsense": ("nonsense", "key=value"),
}


@pytest.mark.parametrize("setting", CONFIG_MISTAKES)
def test_a_wrong_setting_is_answered_by_one_sentence(setting: str, folder: Path) -> None:
    answer = kutta("train", "config.toml", "--set", setting, cwd=folder)
    is_one_sentence(answer, *CONFIG_MISTAKES[setting])


def test_wrong_files_are_answered_by_one_sentence(folder: Path, toy_run: Path) -> None:
    is_one_sentence(kutta("train", "absent.toml", cwd=folder), "absent.toml")
    (folder / "bad.toml").write_text("run = \n[data")
    is_one_sentence(kutta("train", "bad.toml", cwd=folder), "bad.toml", "line 1")
    is_one_sentence(kutta("translate", folder), "not a run directory")
    is_one_sentence(kutta("translate", toy_run, stdin=b"fine\nbad \xff\n"), "line 2", "UTF-8")
    is_one_sentence(kutta("info", folder), "config.json")
    is_one_sentence(kutta("evaluate", toy_run, "no-such-set"), "no-such-set")
    is_one_sentence(kutta("translate", toy_run, "--beam", 0, stdin=b"ba\n"), "beam")


@pytest.mark.parametrize(
    ("damage", "parts"),
    [
        (lambda text: (text / "train.xx").write_text("only one line\n"), ("120", "1", "train")),
        (lambda text: (text / "train.xx").write_text(""), ("train",)),
        (lambda text: (text / "valid.yy").unlink(), ("valid.yy",)),
        (lambda text: (text / "train.yy").write_bytes(b"\xfe\xff\n"), ("train.yy", "line 1")),
        (lambda text: (text / "train.xx").write_bytes(b"a\0b\n"), ("train.xx", "line 1", "NUL")),
    ],
    ids=["unequal", "empty", "missing", "not UTF-8", "NUL"],
)
def test_damaged_text_is_answered_by_one_sentence_and_can_be_mended(
    damage: object, parts: tuple[str, ...], folder: Path
) -> None:
    good = {path.name: path.read_bytes() for path in (folder / "text").iterdir()}
    assert callable(damage)
    damage(folder / "text")
    is_one_sentence(kutta("prepare", "config.toml", cwd=folder), *parts)
    for name, content in good.items():
        (folder / "text" / name).write_bytes(content)
    assert kutta("prepare", "config.toml", "--set", "data.vocab_size=290", cwd=folder).code == 0


def test_a_monstrous_line_is_dropped_in_training_and_split_in_translation(
    folder: Path, toy_run: Path
) -> None:
    for language in ("xx", "yy"):
        with open(folder / "text" / f"train.{language}", "a") as file:
            file.write("ba " * 100_000 + "\n")
    answer = kutta("prepare", "config.toml", "--json", cwd=folder)
    tally = json.loads(answer.out)["train"]
    assert (tally["read"], tally["kept"]) == (121, 120)
    assert "too long" in next(iter(tally["dropped"]))
    long = kutta("translate", toy_run, "--beam", 1, stdin=b"ba " * 3_000 + b"\nba\n")
    assert (long.code, long.err) == (0, "")  # split into parts, not cut
    assert long.out.count("\n") == 2
    scored = kutta("translate", toy_run, "--beam", 1, "--json", stdin=b"ba " * 3_000 + b"\nba\n")
    assert "Line 1" in scored.err


def test_a_vocabulary_that_does_not_match_the_model_is_told(toy_run: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(toy_run, run)
    other = tmp_path / "other"
    shutil.copytree(toy_run.parent / "text", other / "text")
    (other / "config.toml").write_text(CONFIG)
    assert kutta("prepare", "config.toml", "--set", "data.vocab_size=285", cwd=other).code == 0
    shutil.copy(other / "run" / "tokenizer.model", run / "tokenizer.model")
    (run / MANIFEST).unlink()
    is_one_sentence(kutta("translate", run, stdin=b"ba\n"), "tokens", "vocabulary")


def test_help_lists_every_command_without_loading_torch() -> None:
    answer = kutta("--help")
    for command in COMMANDS:
        assert command in answer.out
    loaded = "import sys, kutta.cli; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", loaded], check=False).returncode == 0


def test_methods_lists_every_method_and_every_gamma() -> None:
    tables = kutta("methods").out.strip().split("\n\n")
    names = [[row.split()[0] for row in table.split("\n")[1:]] for table in tables]
    assert names == [list(METHODS), list(GAMMAS)]


def test_preparing_again_removes_nothing_that_is_not_its_own(folder: Path) -> None:
    foreign = folder / "foreign"
    (foreign / "store").mkdir(parents=True)
    (foreign / "store" / "thesis.txt").write_text("years of work")
    answer = kutta("prepare", "config.toml", "--set", "run=foreign", "--overwrite", cwd=folder)
    is_one_sentence(answer, "foreign", "not a Kutta run")
    assert (foreign / "store" / "thesis.txt").read_text() == "years of work"


def test_a_checkpoint_is_scored_and_named_in_its_signature(folder: Path) -> None:
    assert kutta("train", "config.toml", cwd=folder).code == 0
    checkpoint = sorted((folder / "run" / "checkpoints").iterdir())[-1]
    answer = kutta("evaluate", checkpoint, cwd=folder)
    assert answer.code == 0, answer.err
    assert f"step:{int(checkpoint.name[5:])}|beam" in answer.out
    assert (folder / "run" / "hypotheses" / checkpoint.name / "test.yy").is_file()
    for count, made in ((2, "average:2"), (1, f"step:{int(checkpoint.name[5:])}")):
        assert kutta("average", "run", "--last", count, cwd=folder).code == 0
        assert f"|{made}|beam" in kutta("evaluate", "run", cwd=folder).out


def test_a_run_is_resumed_by_its_folder(folder: Path) -> None:
    """Without its config file, which may be gone, and also where it was moved."""
    assert kutta("train", "config.toml", cwd=folder).code == 0
    (folder / "config.toml").unlink()
    again = kutta("train", "run", cwd=folder)
    assert again.code == 0, again.err
    assert "run has already finished at step 4 (" in again.out
    more = kutta("train", "run", "--set", "train.max_steps=6", cwd=folder)
    assert more.code == 0, more.err
    assert "resuming from step 4" in more.out
    is_one_sentence(kutta("train", "run", "--set", "model.solver=rk4", cwd=folder), "model.solver")
    plan = kutta("train", "run", "--dry-run", cwd=folder)
    assert "already finished at step 6" in plan.out
    (folder / "run").rename(folder / "moved")
    moved = kutta("train", "moved", "--set", "train.max_steps=7", cwd=folder)
    assert moved.code == 0, moved.err
    assert not (folder / "run").exists()
    assert (
        json.loads(kutta("info", "moved", "--json", cwd=folder).out)["training"]["last_step"] == 7
    )
    checkpoint = Path("moved/checkpoints/step-00000007")
    is_one_sentence(
        kutta("train", checkpoint, cwd=folder),
        "is part of the run moved, such as a checkpoint",
        "the folder of the run",
    )
    is_one_sentence(kutta("train", "text", cwd=folder), "text is a folder but not a run")
