"""`kutta info`: presets by name, their list, and every setting with where it comes from."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kutta.cli import main
from kutta.cli.resolved import as_toml, list_presets, resolved_settings
from kutta.config import Config, known_keys
from kutta.config.load import presets, read_settings
from kutta.errors import InputError

Kutta = Callable[..., tuple[int, str, str]]


@pytest.fixture
def kutta(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Kutta:
    """Run the command line in this process, in a folder without any config."""
    monkeypatch.chdir(tmp_path)

    def run(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["kutta", *map(str, words)])
        with pytest.raises(SystemExit) as stop:
            main()
        return (int(stop.value.code or 0), *capsys.readouterr())

    return run


# ---- presets by name ------------------------------------------------------------------------


def test_a_preset_is_found_by_its_name(kutta: Kutta) -> None:
    by_name = kutta("info", "wmt14-en-de-base", "--json")
    by_path = kutta("info", presets()["wmt14-en-de-base"], "--json")
    assert by_name == by_path
    assert json.loads(by_name[1])["parameters"]["total"] == pytest.approx(60.9e6, rel=0.001)
    assert json.loads(by_name[1])["run"] == "runs/wmt14-en-de-base"


@pytest.mark.parametrize("command", ["train", "prepare"])
def test_training_and_preparing_take_a_name_too(kutta: Kutta, command: str) -> None:
    """They get as far as the text of the preset, which is not there."""
    code, _, said = kutta(command, "multi30k-en-de", "--set", "data.dir=nowhere")
    assert (code, said.count("\n")) == (2, 1)
    assert "nowhere" in said


def test_a_path_that_exists_goes_before_a_preset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert Config.load("gec").data.source == "wrong"
    Path("gec").write_text('extends = "multi30k-en-de"\n')
    assert Config.load("gec").data.source == "en"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("wmt14-en-de-bas", "no config file or preset 'wmt14-en-de-bas'; did you mean wmt14-en-de"),
        ("xyzzy", "no config file or preset 'xyzzy'; `kutta info --list` lists the presets"),
        ("configs/gec.toml", "no config file configs/gec.toml; check the path, or use gec for"),
        ("x" * 300, "There is no config file or preset 'xxx"),
        ("mine.toml", "There is no config file mine.toml; check the path."),
        ("runs/mine", "There is no config file runs/mine; check the path."),
    ],
)
@pytest.mark.parametrize("command", ["info", "train", "prepare"])
def test_a_wrong_name_is_answered_by_one_sentence(
    kutta: Kutta, command: str, name: str, said: str
) -> None:
    code, out, error = kutta(command, name)
    assert (code, out, error.count("\n")) == (2, "", 1)
    assert said in error


# ---- the list -------------------------------------------------------------------------------


def test_the_list_has_a_line_for_each_preset(kutta: Kutta) -> None:
    code, out, _ = kutta("info", "--list")
    lines = out.splitlines()
    assert (code, [line.split()[0] for line in lines]) == (0, [*presets()])
    assert (
        "wmt14-en-de-base        WMT14 English-German, base 6-6, 61M parameters: RK2 with learned "
        "gamma (paper: BLEU 28.86)"
    ) in lines
    listed = json.loads(kutta("info", "--list", "--json")[1])
    assert listed == list_presets()
    assert all(Config.load(preset["file"]) for preset in listed)


@pytest.mark.parametrize("name", presets())
def test_the_first_line_of_a_preset_is_its_title(name: str) -> None:
    first = presets()[name].read_text(encoding="utf-8").splitlines()[0]
    assert first.startswith("# ")
    assert first.endswith("."), "a sentence that ends on this line"
    assert len(first) <= 100
    assert len(name) <= 22, "the list has a column for it"


def test_names_of_presets_are_unique() -> None:
    root = Path(__file__).parent.parent
    files = [*(root / "configs").glob("*.toml"), *(root / "experiments/presets").glob("*.toml")]
    assert sorted(presets()) == sorted(file.stem for file in files)


@pytest.mark.parametrize("words", [["gec"], ["--resolved"], ["--set", "model.solver=rk4"]])
def test_the_list_stands_alone(kutta: Kutta, words: list[str]) -> None:
    code, out, error = kutta("info", "--list", *words)
    assert (code, out) == (2, "")
    assert "--list lists all presets" in error


def test_info_without_a_name_says_what_to_name(kutta: Kutta) -> None:
    code, _, error = kutta("info")
    assert code == 2
    assert "Give a config, a preset or a run directory" in error


# ---- every setting --------------------------------------------------------------------------


@pytest.mark.parametrize("name", presets())
def test_what_is_printed_is_the_same_config(name: str, tmp_path: Path) -> None:
    settings = resolved_settings(Path(name), ["run=elsewhere"])
    (tmp_path / "printed.toml").write_text(as_toml(settings), encoding="utf-8")
    printed = Config.load(tmp_path / "printed.toml")
    assert printed == Config.load(name, ["run=elsewhere"])
    assert [setting.key for setting in settings] == known_keys()


def test_tables_are_printed_as_tables(tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text(
        'extends = "multi30k-residual"\n[data]\ntest = ["a.b"]\n'
        'raw_references = { "a.b" = "raw \\"a\\".de" }\n[model]\nsolver = "custom"\n'
        'tableau = { a = [["1/2"]], b = [0, 1] }\n'
    )
    (tmp_path / "printed.toml").write_text(as_toml(resolved_settings(mine, [])))
    printed = Config.load(tmp_path / "printed.toml")
    assert printed == Config.load(mine)
    assert printed.model.tableau is not None


def test_origins_are_the_file_the_one_it_extends_the_command_line_or_the_default(
    kutta: Kutta, tmp_path: Path
) -> None:
    mine = 'extends = "wmt14-en-de-deep-24"\n[train]\nlr = 0.001\n'
    (tmp_path / "mine.toml").write_text(mine)
    words = ("mine.toml", "--resolved", "--set", "model.solver=rk4")
    settings = json.loads(kutta("info", *words, "--json")[1])
    assert settings["train.lr"] == {"value": 0.001, "from": "mine.toml"}
    expected = {
        "run": ("runs/mine", "the name of the file"),
        "model.encoder_layers": (24, "wmt14-en-de-deep-24.toml"),
        "model.heads": (8, "wmt14-en-de-base.toml"),
        "model.solver": ("rk4", "--set"),
        "model.norm": ("pre", "default"),
        "train.pieces": (0, "default"),
    }
    assert {key: tuple(settings[key].values()) for key in expected} == expected
    lines = [line.split("  ") for line in kutta("info", *words)[1].splitlines()]
    assert ["encoder_layers = 24", "# wmt14-en-de-deep-24.toml"] in [
        [line[0], line[-1].strip()] for line in lines
    ]


def test_a_section_given_on_the_command_line_takes_the_place_of_the_file_s() -> None:
    path = presets()["multi30k-en-de"]
    origins = read_settings(path, ["decode={ beam = 7 }", "run=x"]).origins
    decode = {key: of for key, of in origins.items() if key.startswith("decode")}
    assert decode == {"decode.beam": "--set"}
    assert origins["run"] == "--set"


def test_what_a_run_decided_comes_from_the_device(toy_run: Path, tmp_path: Path) -> None:
    """The config leaves train.pieces open; its run has decided."""
    written = toy_config_text(toy_run)
    (tmp_path / "mine.toml").write_text(written)
    decided = Config.load(toy_run / "config.json").train.pieces
    assert decided > 0
    settings = {one.key: one for one in resolved_settings(tmp_path / "mine.toml", [])}
    assert (settings["train.pieces"].value, settings["train.pieces"].origin) == (
        decided,
        "the device",
    )
    assert settings["train.lr"].origin == "default"
    assert settings["data.vocab_size"].origin == "mine.toml"
    elsewhere = resolved_settings(tmp_path / "mine.toml", [f"run={tmp_path / 'new'}"])
    assert {one.key: one.origin for one in elsewhere}["train.pieces"] == "default"


def toy_config_text(run: Path) -> str:
    """The config of the toy run as its user may have written it, in TOML."""
    lines = [
        f'run = "{run}"\n[data]\ndir = "{run.parent / "text"}"\nsource = "xx"\ntarget = "yy"',
        'test = ["test"]\nvocab_size = 300\n[model]\nd_model = 16\nffn = 32\nheads = 2',
        'encoder_layers = 1\ndecoder_layers = 1\nsolver = "rk2"\ngamma = "learned"',
        "[train]\nmax_steps = 8\nbatch_tokens = 300\nwarmup = 4\nsave_every = 4\n",
    ]
    return "\n".join(lines)


def test_a_run_says_which_settings_differ_from_the_default(toy_run: Path) -> None:
    settings = {one.key: one for one in resolved_settings(toy_run, ["decode.beam=9"])}
    assert [*settings] == known_keys()
    origins = {key: one.origin for key, one in settings.items()}
    assert origins["data.vocab_size"] == "config.json"
    assert origins["model.norm"] == "default"
    assert origins["decode.beam"] == "--set"
    assert origins["train.pieces"] == "the config or the device"


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"not a run directory \(it has no config\.json\)"):
        resolved_settings(tmp_path, [])
