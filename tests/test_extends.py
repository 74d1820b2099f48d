"""`extends`: what is taken over, what is replaced, and the mistakes one can make."""

from pathlib import Path

import pytest

from kutta.config import Config
from kutta.config.load import find_preset, merge, presets, read_settings
from kutta.errors import InputError

BASE = """
run = "runs/base"
[data]
dir = "text"
source = "en"
target = "de"
test = ["one", "two"]
[model]
d_model = 64
heads = 4
[train]
lr = 0.5
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "base.toml").write_text(BASE)
    return tmp_path


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / f"{name}.toml"
    path.write_text(text)
    return path


def test_a_config_has_the_settings_it_extends_and_replaces_those_it_names(folder: Path) -> None:
    child = write(folder, "child", 'extends = "base"\n[data]\ntest = ["x"]\n[model]\nheads = 8\n')
    config = Config.load(child)
    assert (config.model.d_model, config.model.heads, config.train.lr) == (64, 8, 0.5)
    assert config.data.test == ["x"], "a list is replaced, not added to"
    assert config.run == "runs/child", "two configs never share a folder by accident"


def test_extends_reaches_through_several_files_and_the_command_line_comes_last(
    folder: Path,
) -> None:
    write(folder, "middle", 'extends = "base.toml"\n[model]\nd_model = 32\n')
    last = write(folder, "last", 'run = "here"\nextends = "middle"\n[train]\nlr = 0.1\n')
    settings = read_settings(last, ["train.lr=0.2"])
    config = Config.load(last, ["train.lr=0.2"])
    assert (config.run, config.model.d_model, config.model.heads) == ("here", 32, 4)
    assert config.train.lr == 0.2
    assert settings.origins["model.d_model"] == "middle.toml"
    assert settings.origins["model.heads"] == "base.toml"
    assert settings.origins["train.lr"] == "--set"
    assert settings.origins["run"] == "last.toml"


def test_presets_are_found_by_name_from_anywhere(tmp_path: Path) -> None:
    mine = write(tmp_path, "mine", 'extends = "wmt14-en-de-base"\n[model]\nsolver = "rk4"\n')
    config = Config.load(mine)
    assert (config.model.solver, config.model.d_model) == ("rk4", 512)
    assert config.run == "runs/mine"
    assert find_preset("wmt14-en-de-base", mine) == presets()["wmt14-en-de-base"]


def test_a_file_beside_goes_before_a_preset_of_the_same_name(folder: Path) -> None:
    write(folder, "wmt14-en-de-base", BASE.replace("64", "48"))
    child = write(folder, "child", 'extends = "wmt14-en-de-base"\n')
    assert Config.load(child).model.d_model == 48


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('extends = "child"', r"child\.toml: extends forms a cycle \(child\.toml -> child"),
        ('extends = "bass"', "extends = 'bass' is not a file or a preset"),
        ('extends = "wmt14-en-de-bas"', r"did you mean .*wmt14-en-de-base"),
        ("extends = 3", "extends = 3 is not valid: write one name, in quotes"),
        ('extends = ["base"]', "write one name"),
    ],
)
def test_mistakes_are_one_sentence(folder: Path, text: str, said: str) -> None:
    with pytest.raises(InputError, match=said) as caught:
        Config.load(write(folder, "child", text))
    assert "\n" not in str(caught.value)


def test_a_circle_of_two_is_found(folder: Path) -> None:
    write(folder, "a", 'extends = "b"')
    with pytest.raises(InputError, match=r"cycle \(b\.toml -> a\.toml -> b\.toml\)"):
        Config.load(write(folder, "b", 'extends = "a"'))


def test_tables_are_merged_and_all_else_is_replaced() -> None:
    old = {"a": {"x": 1, "y": {"z": 2}}, "b": [1, 2], "c": 3}
    new = {"a": {"y": {"w": 4}}, "b": [5], "d": {}}
    merged = merge(old, new)
    assert merged == {"a": {"x": 1, "y": {"z": 2, "w": 4}}, "b": [5], "c": 3, "d": {}}
    assert old == {"a": {"x": 1, "y": {"z": 2}}, "b": [1, 2], "c": 3}, "nothing is changed in place"
