"""The experiment of docs/small.md: its subsets, its configs, and what is kept of its runs."""

import json
import re
import runpy
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from kutta import Config, Step
from tests.conftest import toy_config
from tests.pages import blocks

ROOT = Path(__file__).parent.parent
SCRIPT = runpy.run_path(str(ROOT / "experiments" / "small_corpus.py"))
RESULTS = ROOT / "experiments" / "results" / "small-corpus"
KEPT = sorted(RESULTS.glob("*/"), key=lambda folder: int(folder.name))


def test_smaller_subsets_are_parts_of_larger_ones_and_pairs_stay_together(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for name, count in (("train", 200), ("valid", 5), ("test", 5)):
        for language in ("en", "de"):
            text = "".join(f"{name} {n} {language}\n" for n in range(count))
            (corpus / f"{name}.{language}").write_text(text)
    chosen: dict[int, set[int]] = {}
    for pairs in (10, 50, 200):
        folder = tmp_path / str(pairs)
        SCRIPT["subset"](corpus, pairs, folder)
        english, german = (
            (folder / f"train.{one}").read_text().split("\n") for one in ("en", "de")
        )
        assert [line.replace("en", "de") for line in english] == german
        chosen[pairs] = {int(line.split()[1]) for line in english[:-1]}
        assert len(chosen[pairs]) == pairs
        assert (folder / "test.de").read_bytes() == (corpus / "test.de").read_bytes()
    assert chosen[10] < chosen[50] < chosen[200]
    assert chosen[10] != set(range(10)), "not the first ones, which are the shortest in Tatoeba"


def test_what_is_kept_has_no_path_of_the_machine(tmp_path: Path) -> None:
    run = tmp_path / "work" / "runs" / "10"
    run.mkdir(parents=True)
    for name in SCRIPT["KEPT"]:
        (run / name).write_text(f'{{"run": "{run}"}}\n')
    SCRIPT["keep"](run, tmp_path / "work", tmp_path / "kept")
    for name in SCRIPT["KEPT"]:
        assert (tmp_path / "kept" / name).read_text() == '{"run": "runs/10"}\n'


def test_the_rate_is_that_of_the_updates_after_the_first_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On this clock an update takes two seconds; the first ones and the last take a hundred."""
    warm, last = SCRIPT["WARM"], SCRIPT["WARM"] + SCRIPT["UPDATES"]
    clock = [0.0]

    def train(config: Config, console: Console, on_step: Callable[[Step], object]) -> None:
        for number in range(last + 1):
            measured = warm <= number < last
            clock[0] += 2.0 if measured else 100.0
            tokens = 30 if measured else 1
            on_step(Step(number + 1, 0, 1.0, 1.0, 0.1, 1.0, tokens, skipped=False))

    script = SCRIPT["rate"].__globals__
    monkeypatch.setitem(script, "kutta_train", train)
    monkeypatch.setattr(script["time"], "process_time", lambda: clock[0])
    assert SCRIPT["rate"](toy_config(tmp_path)) == SCRIPT["LANES"] * 30 / 2.0


def test_the_config_of_the_page_is_that_of_an_experiment() -> None:
    page = (ROOT / "docs" / "small.md").read_text(encoding="utf-8")
    (text,) = (text for language, text in blocks(page) if language == "toml")
    ours = (ROOT / "experiments" / "small-corpus" / "10000.toml").read_text(encoding="utf-8")
    _, _, experiment = ours.partition("[data]\n")
    _, _, example = text.partition("[data]\n")
    assert example.split("\n")[1:] == experiment.split("\n")[1:], "but for data.dir"


@pytest.mark.parametrize("folder", KEPT, ids=lambda folder: folder.name)
def test_a_kept_run_is_one_of_its_config(folder: Path) -> None:
    """All settings that decide the result are those of the config of the experiment."""
    kept = Config.parse(json.loads((folder / "config.json").read_text())).model_dump()
    config = Config.load(ROOT / "experiments" / "small-corpus" / f"{folder.name}.toml").model_dump()
    free = {"dir", "threads", "lanes", "pieces", "precision"}  # of the machine, or decided by it
    for section in ("data", "model", "train", "decode"):
        for key in config[section].keys() - free:
            assert kept[section][key] == config[section][key], key


@pytest.mark.parametrize("folder", KEPT, ids=lambda folder: folder.name)
def test_a_kept_run_names_no_path_of_a_machine(folder: Path) -> None:
    for file in folder.iterdir():
        assert not re.search(r"""(^|[\s"'])/\w+/""", file.read_text(encoding="utf-8")), file.name
