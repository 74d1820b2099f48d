"""What a new user gets wrong first: the command, and the sentence that answers it.

The table is the specification. Each entry runs in a folder with a config `mine.toml`, its text and
its finished run `runs/mine`. `kutta: ` is left out of the answers.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kutta.box import models
from kutta.cli.options import meant_instead
from kutta.config import known_keys
from kutta.config.mistakes import OTHER_NAMES
from kutta.integrity import MANIFEST
from tests.conftest import toy_toml
from tests.test_cli import kutta

ENGLISH = ["They do not know this.", "She is from the city and you are not."] * 20
GERMAN = ["Das weiß ich nicht.", "Sie ist mit mir auf der Straße und nicht hier."] * 20


@pytest.fixture
def place(tmp_path: Path, toy_run: Path) -> Path:
    """The folder in which a command is typed."""
    shutil.copytree(toy_run.parent / "text", tmp_path / "text")
    shutil.copytree(toy_run, tmp_path / "runs" / "mine")
    (tmp_path / "runs" / "mine" / MANIFEST).unlink()  # files of the run are changed
    (tmp_path / "mine.toml").write_text(toy_toml(run="runs/mine"))
    change_data(tmp_path, "dir", "text")
    return tmp_path


def change_data(place: Path, key: str, value: object) -> None:
    """Change a setting of [data] in the finished run."""
    file = place / "runs/mine/config.json"
    config = json.loads(file.read_text())
    config["data"][key] = value
    file.write_text(json.dumps(config))


# ---- wrong commands, settings and names -----------------------------------------------------

BOXED = f", or a model in the box: {', '.join(models())}" if models() else ""

# What is typed after `kutta`, and the answer.
TYPED = {
    # Names that are nearly right.
    "train mien.toml": "There is no config file mien.toml; did you mean mine.toml?",
    "train wmt14-en-de-bse": "There is no config file or preset 'wmt14-en-de-bse'; did you mean "
    "wmt14-en-de-base or wmt14-en-de-big or wmt14-en-fr-base?",
    "translate runs/mien": "There is no folder runs/mien; did you mean runs/mine?",
    "translate mine": "There is no folder mine; did you mean runs/mine?",
    "evaluate runs/mine tset": "The text of 'tset' is not in runs/mine/text, which has test, "
    "valid; give one of these, or the folder of the text with --data-dir (text in training).",
    "data get multi30": "There is no corpus 'multi30'; did you mean multi30k or multi30k-bpe?",
    # A file where a folder is meant, and the reverse.
    "translate mine.toml": "mine.toml is a file; give the run directory, which its setting run "
    f"names (by default runs/mine){BOXED}.",
    "translate runs/mine/model.safetensors": "runs/mine/model.safetensors is a file; give the run "
    f"directory runs/mine{BOXED}.",
    "translate runs": "runs is a folder of runs; give one of them, e.g. runs/mine.",
    "train runs": "runs is a folder of runs; give one of them, e.g. runs/mine.",
    "info runs": "runs is a folder of runs; give one of them, e.g. runs/mine.",
    "train text/train.xx": "text/train.xx is not a config; give a .toml file, which names the "
    "folder of the text as data.dir.",
    "translate text": "text is not a run directory (it has no config.json); give the folder set as "
    "`run` in the config, or one of its checkpoints.",
    "translate runs/mine --input text": "Cannot read text: Is a directory; check that it exists "
    "and is readable.",
    "translate runs/mine none.en": "Cannot read none.en: No such file or directory; check that it "
    "exists and is readable.",
    "translate runs/mine --input none.txt": "Cannot read none.txt: No such file or directory; "
    "check that it exists and is readable.",
    # Options of commands.
    "translate runs/mine --beam 0": "beam = 0 is not valid: it must be at least 1.",
    "average runs/mine --step 3": "runs/mine has no checkpoint of step 3; it has: 4, 8.",
    "score text/test.xx text/valid.xx": "The hypotheses have 8 lines but the reference has 12; "
    "line n of both must be a translation of the same sentence.",
    "score text/test.xx text/test.yy --metric bluu": "There is no metric 'bluu'; choose from bleu, "
    "sacrebleu, chrf, chrf++, rouge1, rouge2, rougel.",
    # Text that nobody has downloaded.
    "train multi30k-en-de": "There is no folder data/multi30k; set data.dir to the folder of the "
    "corpus; `kutta data get multi30k` downloads it.",
}

# What is typed after `kutta train mine.toml --set run=new --set`, and the answer.
SET = {
    # Names of settings.
    "model.solvr=rk4": "mine.toml: there is no setting model.solvr; did you mean model.solver?",
    "train.dropout=0.3": "mine.toml: there is no setting train.dropout; did you mean "
    "model.dropout?",
    "train.max_length=50": "mine.toml: there is no setting train.max_length; did you mean "
    "data.max_length or decode.max_length?",
    "dropout=0.3": "mine.toml: there is no setting dropout; did you mean model.dropout?",
    "train.max_tokens=4096": "mine.toml: there is no setting train.max_tokens; did you mean "
    "train.batch_tokens?",  # fairseq
    "model.enc-depth=6": "mine.toml: there is no setting model.enc-depth; did you mean "
    "model.encoder_layers?",  # Marian
    "train.accum_count=4": "mine.toml: there is no setting train.accum_count; did you mean "
    "train.accumulate?",  # OpenNMT
    "testing.beam_alpha=1.0": "mine.toml: there is no setting testing; did you mean decode?",
    "decode.beam_alpha=1.0": "mine.toml: there is no setting decode.beam_alpha; did you mean "
    "decode.length_penalty?",  # JoeyNMT
    "train.num_train_epochs=3": "mine.toml: there is no setting train.num_train_epochs; did you "
    "mean train.max_steps?",  # Hugging Face
    # Values.
    "model.solver": "--set 'model.solver' is not of the form key=value, e.g. model.solver=rk4.",
    "model.solver=rk5": "mine.toml: model.solver: there is no method 'rk5'; did you mean rk2 or "
    "rk4?",
    "train.lr=fast": 'mine.toml: train.lr = "fast" is not valid: write a number.',
    "train.max_steps=1e5": "mine.toml: train.max_steps = 100000.0 is not valid: write an integer, "
    "without a point or an exponent.",
    "data.test=test": 'mine.toml: data.test = "test" is not valid: write a list, with strings in '
    'quotes: ["a", "b"]; on the command line, put single quotes around the whole setting.',
    "model.heads=3": "mine.toml: model: d_model = 16 is not a multiple of heads = 3; change one.",
    "train.batch_tokens=64": "mine.toml: a sentence of data.max_length = 256 tokens plus its end "
    "mark does not fit into train.batch_tokens = 64; lower data.max_length or raise "
    "train.batch_tokens.",
    "data.vocab_size=100": "data.vocab_size = 100 is too small: the characters, bytes and special "
    "tokens of this text already take 275 entries; set it to more than that.",
    # Text.
    "data.dir=txt": "There is no folder txt; set data.dir to the folder of the corpus.",
    "data.dir=text/train.xx": "text/train.xx is a file; set data.dir to the folder of the corpus.",
    "data.dir=data/ptb": "There is no folder data/ptb; set data.dir to the folder of the corpus; "
    "`kutta data get ptb` downloads it.",
    "data.dir=corpora/multi30k": "There is no folder corpora/multi30k; set data.dir to the folder "
    "of the corpus; `kutta data get multi30k --dir corpora` downloads it.",
    "data.source=en": "There is no valid.en (nor valid.en.gz, valid.en.zst) in text; it has "
    "valid.yy, valid.xx.",
    "data.train=train.xx": "There is no train.xx.xx (nor train.xx.xx.gz, train.xx.xx.zst) in text; "
    "it has train.xx, train.yy; leave .xx out of the name, it is added.",
    "data.target=xx": "mine.toml: data: source and target are both 'xx', so both sides would be "
    "the same file; give two different extensions.",
    'data.columns=["xx", "zz"]': 'mine.toml: data: columns = ["xx", "zz"] does not name both the '
    "source 'xx' and the target 'yy'; name the language of every column of the .tsv, in order.",
    # Where the run is.
    "run=text": "text exists but is not a Kutta run; choose another folder.",
}


# What is typed after `kutta`, and what is meant.
OPTIONS = {
    "train mine.toml --lr 0.1": "There is no option --lr; did you mean --set train.lr=0.1?",
    "train mine.toml --lr=0.1": "There is no option --lr; did you mean --set train.lr=0.1?",
    "train --train.lr 0.1 mine.toml": "There is no option --train.lr; did you mean --set "
    "train.lr=0.1?",
    "train mine.toml --max-length 50": "There is no option --max-length; did you mean --set "
    "data.max_length=50 or --set decode.max_length=50?",
    "train --compile mine.toml": "There is no option --compile; did you mean --set "
    "train.compile=true?",
    "train mine.toml --solvr rk4": "There is no option --solvr; did you mean --set "
    "model.solver=rk4?",
    "train mine.toml --max-tokens 4096": "There is no option --max-tokens; did you mean --set "
    "train.batch_tokens=4096?",  # fairseq
    "train --fp16 mine.toml": "There is no option --fp16; did you mean --set "
    "train.precision=VALUE?",  # fairseq
    "train mine.toml --max-epoch 30": "There is no option --max-epoch; did you mean --set "
    "train.max_steps=VALUE?",  # fairseq, in another unit
    "prepare mine.toml --dim-vocabs 8000": "There is no option --dim-vocabs; did you mean --set "
    "data.vocab_size=8000?",  # Marian
    "train mine.toml -train_steps 100": "There is no option -train_steps; did you mean --set "
    "train.max_steps=100?",  # OpenNMT
    "info mine.toml --hidden_size 64": "There is no option --hidden_size; did you mean --set "
    "model.d_model=64?",  # JoeyNMT
    "translate runs/mine --beam-size 5": "There is no option --beam-size; did you mean --beam 5?",
    "train mine.toml train.lr=0.1": "A setting needs --set before it; did you mean --set "
    "train.lr=0.1?",
    "train mine.toml --set train.lr 0.1": "--set takes a key and its value in one word; did you "
    "mean --set train.lr=0.1?",
}


@pytest.mark.parametrize("typed", OPTIONS)
def test_a_setting_as_an_option_is_answered(place: Path, typed: str) -> None:
    answer = kutta(*typed.split(), cwd=place)
    assert (answer.code, answer.out, answer.err) == (2, "", f"kutta: {OPTIONS[typed]}\n")


def test_every_setting_as_an_option_is_answered() -> None:
    """Also by the names that other toolkits have for it."""
    for name in (*known_keys(), *OTHER_NAMES):
        short = name.rpartition(".")[2]
        for option in {f"--{name}", f"--{short}", f"--{short.replace('_', '-')}"}:
            answer = meant_instead(["mine.toml", option, "3"], {"--set", "--overwrite"})
            assert answer is not None, option
            assert answer.startswith(f"There is no option {option}; did you mean --set ")
            assert f"--set {OTHER_NAMES.get(name, name)}=" in answer


@pytest.mark.parametrize("typed", TYPED)
def test_a_wrong_command_is_answered(place: Path, typed: str) -> None:
    answer = kutta(*typed.split(), stdin=b"ba\n", cwd=place)
    assert (answer.code, answer.out, answer.err) == (2, "", f"kutta: {TYPED[typed]}\n")


@pytest.mark.parametrize("setting", SET)
def test_a_wrong_setting_is_answered(place: Path, setting: str) -> None:
    answer = kutta("train", "mine.toml", "--set", "run=new", "--set", setting, cwd=place)
    assert (answer.code, answer.out, answer.err) == (2, "", f"kutta: {SET[setting]}\n")


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        ("trian mine.toml", "No such command 'trian'. Did you mean 'train'?"),
        ("train", "Missing argument 'CONFIG|RUN'."),
        ("translate runs/mine --baem 4", "No such option: --baem"),
    ],
)
def test_a_misspelled_command_or_option_is_answered(place: Path, typed: str, answer: str) -> None:
    said = kutta(*typed.split(), cwd=place)
    assert (said.code, said.out) == (2, "")
    assert answer in said.err


# ---- wrong files ----------------------------------------------------------------------------


def write(name: str, content: str | bytes) -> Callable[[Path], object]:
    """Write a file into the folder."""
    raw = content.encode() if isinstance(content, str) else content
    return lambda place: (place / name).write_bytes(raw)


YAML = "data:\n  dir: text\n  source: en\n"
NEW = "train mine.toml --set run=new"
# What happened, what is typed, and the answer.
HAPPENED = {
    "the config is YAML": (
        write("mine.yaml", YAML),
        "train mine.yaml",
        "mine.yaml is YAML, but a config is TOML; write a section as [data] and a setting as dir = "
        '"text".',
    ),
    "the config is YAML by another name": (
        write("mine.toml", f"# Mine.\n{YAML}"),
        "train mine.toml",
        "mine.toml is YAML, but a config is TOML; write a section as [data] and a setting as dir = "
        '"text".',
    ),
    "the config is JSON": (
        write("mine.toml", '{"data": {"dir": "text"}}'),
        "train mine.toml",
        "mine.toml is JSON, but a config is TOML; `kutta info PRESET --resolved` prints an "
        "example.",
    ),
    "text without quotes": (
        write("mine.toml", "[model]\nsolver = rk2\n"),
        "train mine.toml",
        "mine.toml is not readable as TOML: Invalid value (at line 2, column 10); text goes in "
        'quotes, e.g. "rk2".',
    ),
    "the files have unequal lengths": (
        write("text/train.xx", "ba\nbe\n"),
        NEW,
        "text/train.xx has 2 lines but text/train.yy has 120; line n of one must be the "
        "translation of line n of the other.",
    ),
    "a file is empty": (
        write("text/train.xx", ""),
        NEW,
        "text/train.xx has 0 lines but text/train.yy has 120; line n of one must be the "
        "translation of line n of the other.",
    ),
    "the text is one TSV": (
        write("text/pairs.tsv", "ba\tBA\nbe\tBE\n"),
        f"{NEW} --set data.train=words",
        "There is no words.xx (nor words.xx.gz, words.xx.zst) in text; it has pairs.tsv, test.xx, "
        "test.yy, train.xx, train.yy; a .tsv with both sides is found by the name words.tsv.",
    ),
    "a file is missing": (
        lambda place: (place / "text/valid.yy").unlink(),
        NEW,
        "There is no valid.yy (nor valid.yy.gz, valid.yy.zst) in text; it has valid.xx, train.yy.",
    ),
    "the text is in Latin-1": (
        write("text/train.xx", "café\n".encode("latin-1") * 120),
        NEW,
        "text/train.xx, line 1 is not valid UTF-8 (byte 4 of the line); save the file as UTF-8.",
    ),
    "the text is in UTF-16": (
        write("text/train.xx", ("ba\n" * 120).encode("utf-16")),
        NEW,
        "text/train.xx, line 1 has a NUL byte, so the file is damaged or not text; remove the byte "
        "or save the file as UTF-8.",
    ),
    "a line of a TSV has spaces for the tab": (
        write("text/pairs.tsv", "ba\tBA\nbe BE\n"),
        f"{NEW} --set data.train=pairs.tsv",
        "text/pairs.tsv, line 2 has 1 of the 2 columns that are needed; put a tab between two "
        "columns.",
    ),
    "training has not finished": (
        lambda place: (place / "runs/mine/model.safetensors").unlink(),
        "translate runs/mine",
        "There is no model.safetensors in runs/mine, because training has not finished; use a "
        "checkpoint (--checkpoint best, --checkpoint last, or a folder in runs/mine/checkpoints), "
        "or run `kutta train runs/mine` to resume.",
    ),
    "there is no test set": (
        lambda place: change_data(place, "test", []),
        "evaluate runs/mine",
        "There is no test set; give one, or list them as data.test in the config.",
    ),
    "the settings of a run were changed": (
        lambda place: None,
        "train mine.toml --set model.solver=rk4",
        'runs/mine contains a run of another config (model.solver = "rk2" there, "rk4" here); '
        "choose another run, or add --overwrite to start over.",
    ),
}


@pytest.mark.parametrize("happened", HAPPENED)
def test_wrong_files_are_answered(place: Path, happened: str) -> None:
    prepare, typed, sentence = HAPPENED[happened]
    prepare(place)
    answer = kutta(*typed.split(), stdin=b"ba\n", cwd=place)
    assert (answer.code, answer.out, answer.err) == (2, "", f"kutta: {sentence}\n")


def test_a_device_that_is_not_there_is_answered(place: Path) -> None:
    """PyTorch gives the reason, in words of its version."""
    for typed in (f"{NEW} --set train.device=cuda:99", "translate runs/mine --device cuda:99"):
        answer = kutta(*typed.split(), stdin=b"ba\n", cwd=place)
        assert (answer.code, answer.out) == (2, "")
        assert answer.err.startswith("kutta: The device 'cuda:99' cannot be used (")
        assert answer.err.endswith("); use auto or cpu.\n")


# ---- what is not wrong, or may not be -------------------------------------------------------


def prepare_languages(place: Path, sources: list[str], targets: list[str], *options: str) -> str:
    """Prepare text of which the settings say that it is English and German; what is warned of."""
    for name in ("train", "valid"):
        for language, lines in (("en", sources), ("de", targets)):
            (place / f"text/{name}.{language}").write_text("".join(f"{x}\n" for x in lines))
    settings = ("run=new", "data.source=en", "data.target=de", "data.test=[]", *options)
    words = [word for setting in settings for word in ("--set", setting)]
    answer = kutta("prepare", "mine.toml", *words, cwd=place)
    assert answer.code == 0, answer.err
    return answer.err


def test_swapped_languages_are_warned_about_once(place: Path) -> None:
    assert prepare_languages(place, ENGLISH, GERMAN) == ""
    shutil.rmtree(place / "new")
    assert prepare_languages(place, GERMAN, ENGLISH) == (
        "kutta: text/train: the source text seems to be German, but data.source = 'en' and the "
        "target text seems to be English, but data.target = 'de'; the two sides may be swapped.\n"
    )


def test_text_of_windows_is_read_as_any_other(place: Path) -> None:
    plain = kutta("prepare", "mine.toml", "--set", "run=plain", cwd=place)
    for file in (place / "text").iterdir():
        file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes().replace(b"\n", b"\r\n"))
    windows = kutta("prepare", "mine.toml", "--set", "run=windows", cwd=place)
    assert (windows.code, windows.err) == (0, "")
    assert windows.out.replace("windows", "plain") == plain.out
    for name in ("train.arrow", "valid.arrow"):
        one, other = (place / run / "store" / name for run in ("plain", "windows"))
        assert one.read_bytes() == other.read_bytes()


def test_a_tsv_is_found_and_read_in_both_directions(place: Path) -> None:
    for name in ("train", "valid", "test"):
        sides = [(place / f"text/{name}.{x}").read_text().splitlines() for x in ("xx", "yy")]
        rows = [
            "xx\tyy\tlicence",
            *("\t".join((*pair, "CC0")) for pair in zip(*sides, strict=True)),
        ]
        (place / "tsv").mkdir(exist_ok=True)
        (place / f"tsv/{name}.tsv").write_text("\n".join(rows) + "\n")
    for source, target in (("xx", "yy"), ("yy", "xx")):
        stores: list[bytes] = []
        for text in ("text", "tsv"):
            run = f"{text}-{source}"
            settings = (f"run={run}", f"data.dir={text}", f"data.source={source}")
            words = [w for s in (*settings, f"data.target={target}") for w in ("--set", s)]
            answer = kutta("prepare", "mine.toml", *words, cwd=place)
            assert (answer.code, answer.err) == (0, "")
            stores.append((place / run / "store/train.arrow").read_bytes())
        assert stores[0] == stores[1]


def test_an_output_in_a_folder_that_is_not_there_creates_it(place: Path) -> None:
    answer = kutta("translate", "runs/mine", "--output", "a/b.txt", stdin=b"ba\n", cwd=place)
    assert (answer.code, answer.err) == (0, "")
    assert (place / "a/b.txt").read_text().count("\n") == 1
