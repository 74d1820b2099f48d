"""Runs and their settings; a folder started with other settings is refused, more seeds are not."""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest

from kutta.errors import InputError
from kutta.reproduce.plan import Plan, make_plan, missing_text, write_plan

PlanOf = Callable[..., Plan]


def names(plan: Plan) -> list[str]:
    return [run.name for run in plan.runs]


def test_a_run_for_each_cell_and_seed(plan_of: PlanOf, folder: Path) -> None:
    plan = plan_of(seeds=(1, 5))
    cells = ["residual-one", "rk2-one", "residual-two", "rk2-two"]
    assert names(plan) == [f"{cell}-s{seed}" for seed in (1, 5) for cell in cells]
    run = plan.runs[-1].config
    assert run.train.seed == 5
    assert run.model.encoder_layers == 2
    assert run.model.gamma == "learned"
    assert Path(run.data.dir) == folder / "data" / "toy"
    assert Path(run.run) == folder / "out" / "toy-small" / "runs" / "rk2-two-s5"


def test_what_holds_at_one_scale_wins_over_what_holds_at_all(plan_of: PlanOf) -> None:
    plan = plan_of(
        ('name = "RK2"', 'name = "RK2"\nsmall.model = { gamma = "ones" }\nsmall.name = "here"'),
        ("at = 2", "at = 2\nsmall.train.max_steps = 7\npaper.train.max_steps = 9"),
    )
    settings = {run.name: run.config for run in plan.runs}
    assert settings["rk2-one-s1"].model.gamma == "ones"
    assert settings["residual-one-s1"].train.max_steps == 4
    assert settings["residual-two-s1"].train.max_steps == 7
    assert plan.experiment.rows["rk2"].name_at("small") == "here"
    assert plan.experiment.rows["rk2"].name_at("paper") == "RK2"


def test_the_last_to_name_a_preset_wins(plan_of: PlanOf, folder: Path) -> None:
    """The scale comes first, then column and row, then what they say for this scale."""
    text = (folder / "toy-preset.toml").read_text()
    (folder / "presets").mkdir()
    for size in (310, 320, 330):  # in the folder presets, where experiments keep theirs
        changed = text.replace("vocab_size = 300", f"vocab_size = {size}")
        (folder / "presets" / f"p{size}.toml").write_text(changed)
    plan = plan_of(
        ("at = 2\n", 'at = 2\nsmall.extends = "p320"\n'),
        ('name = "RK2"', 'name = "RK2"\nextends = "p310"\nsmall.extends = { two = "p330" }'),
    )
    assert {run.name: run.config.data.vocab_size for run in plan.runs} == {
        "residual-one-s1": 300,
        "rk2-one-s1": 310,
        "residual-two-s1": 320,
        "rk2-two-s1": 330,
    }


def test_a_preset_may_extend_another(plan_of: PlanOf, folder: Path) -> None:
    (folder / "mine.toml").write_text('extends = "toy-preset"\n[model]\nheads = 4\n')
    plan = plan_of(('"toy-preset"', '"mine"'))
    assert {(r.config.model.heads, r.config.model.d_model) for r in plan.runs} == {(4, 16)}


def test_presets_that_go_in_a_circle_are_named(plan_of: PlanOf, folder: Path) -> None:
    (folder / "a.toml").write_text('extends = "b"')
    (folder / "b.toml").write_text('extends = "a"')
    with pytest.raises(InputError, match=r"cycle \(toy.toml -> a.toml -> b.toml -> a.toml\)"):
        plan_of(('"toy-preset"', '"a"'))


def test_a_row_may_run_in_some_columns_only(plan_of: PlanOf) -> None:
    plan = plan_of(('name = "RK2"', 'name = "RK2"\nonly = ["two"]'))
    assert names(plan) == ["residual-one-s1", "residual-two-s1", "rk2-two-s1"]


# ---- resuming in a folder --------------------------------------------------------------------


def test_more_seeds_may_be_added_and_earlier_ones_stay(plan_of: PlanOf) -> None:
    write_plan(plan_of(seeds=(2,)))
    more = plan_of(seeds=(4, 3))
    assert more.seeds == [2, 3, 4]
    assert set(more.asked) == {3, 4}
    write_plan(more)
    again = plan_of()
    assert again.asked == (1,)
    assert again.seeds == [1, 2, 3, 4]


def test_where_the_text_and_the_folder_are_may_change(plan_of: PlanOf, folder: Path) -> None:
    write_plan(plan_of())
    shutil.move(folder / "data", folder / "corpora")
    shutil.move(folder / "out", folder / "elsewhere")
    toy = str(folder / "toy.toml")
    moved = make_plan(toy, "small", folder / "corpora", folder / "elsewhere")
    assert moved.seeds == [1]
    assert not missing_text(moved)


def test_words_around_the_numbers_may_change_and_rows_be_added(plan_of: PlanOf) -> None:
    before = plan_of()
    write_plan(before)
    words = ("Toy table", "A better title"), ("one = 12.5", "one = 12.6"), ("at = 1", "at = 9")
    assert plan_of(*words).text_hash != before.text_hash
    row = '[rows.rk4]\nname = "RK4"\nmodel = { solver = "rk4" }\n\n[rows.rk2]'
    assert "rk4-one-s1" in names(plan_of(("[rows.rk2]", row)))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('solver = "rk2"', 'solver = "rk4"', "model.solver of the run rk2-one-s1 is 'rk2' there"),
        ("seeds = [1]", "seeds = [1]\ntrain.max_steps = 5", "train.max_steps of the run residual"),
        ("seeds = [1]", "seeds = [1]\ndecode.beam = 3", "decode.beam"),
        ("seeds = [1]", 'seeds = [1]\ndata.test = ["valid"]', "data.test"),
        ('"chrF2"', '"BLEU"', "metric = 'chrF2' there, 'BLEU' here"),
        ("[rows.rk2]", "[rows.rk3]", "it has the run rk2-one-s1"),
    ],
)
def test_other_settings_are_refused_with_the_first_difference(
    old: str, new: str, said: str, plan_of: PlanOf
) -> None:
    write_plan(plan_of())
    with pytest.raises(InputError) as error:
        plan_of((old, new))
    assert said in str(error.value)
    assert "choose another --out" in str(error.value)
    assert plan_of().seeds == [1]  # nothing was lost


def without(plan: Plan, key: str) -> None:
    """Let the plan that is kept be one of a version that did not have this setting of a model."""
    path = plan.folder / "plan.json"
    kept = json.loads(path.read_text())
    for run in kept["runs"]:
        del run["config"]["model"][key]
    path.write_text(json.dumps(kept))


@pytest.mark.parametrize("scale", ["small", "paper"])
def test_language_models_begun_when_all_were_tied_are_not_mixed_with_untied_ones(
    tmp_path: Path, scale: Literal["small", "paper"]
) -> None:
    plan = make_plan("ptb", scale, Path("data"), tmp_path)
    assert not any(run.config.model.tie_embeddings for run in plan.runs)
    write_plan(plan)
    assert names(make_plan("ptb", scale, Path("data"), tmp_path)) == names(plan)
    without(plan, "tie_embeddings")
    before = (plan.folder / "plan.json").read_bytes()
    with pytest.raises(InputError) as error:
        make_plan("ptb", scale, Path("data"), tmp_path)
    told = "model.tie_embeddings of the run residual-1-s1 is True there and False here"
    assert told in str(error.value)
    assert "choose another --out" in str(error.value)
    assert (plan.folder / "plan.json").read_bytes() == before


def test_translation_begun_when_all_were_tied_is_resumed(plan_of: PlanOf) -> None:
    plan = plan_of()
    write_plan(plan)
    without(plan, "tie_embeddings")
    assert names(plan_of(seeds=(2,))) == names(plan) + [name[:-1] + "2" for name in names(plan)]
    untied = ("seeds = [1]", "seeds = [1]\nmodel.tie_embeddings = false")
    with pytest.raises(InputError, match=r"model\.tie_embeddings of the run .* is True there"):
        plan_of(untied)


def test_a_folder_that_is_something_else_is_left_alone(plan_of: PlanOf) -> None:
    folder = plan_of().folder
    folder.mkdir(parents=True)
    (folder / ".lock").touch()  # of a first moment that was cut short
    assert plan_of().seeds == [1]
    (folder / "diary.txt").write_text("dear diary")
    with pytest.raises(InputError, match="not a reproduction"):
        plan_of()
    for damage in ("{", "[1]", '{"metric": "BLEU"}'):
        (folder / "plan.json").write_text(damage)
        with pytest.raises(InputError, match="damaged"):
            plan_of()


def test_a_plan_keeps_every_setting(plan_of: PlanOf) -> None:
    plan = plan_of()
    write_plan(plan)
    kept = json.loads((plan.folder / "plan.json").read_text())
    names = ("experiment", "scale", "metric", "seeds")
    assert [kept[name] for name in names] == ["toy", "small", "chrF2", [1]]
    text = (plan.folder.parents[1] / "toy.toml").read_bytes()
    assert kept["experiment_sha256"] == hashlib.sha256(text).hexdigest()
    cells = [("residual", "one"), ("rk2", "one"), ("residual", "two"), ("rk2", "two")]
    assert [(run["row"], run["column"]) for run in kept["runs"]] == cells
    assert [run["name"] for run in kept["runs"]] == [f"{row}-{column}-s1" for row, column in cells]
    assert {run["seed"] for run in kept["runs"]} == {1}
    assert kept["runs"][1]["config"] == plan.runs[1].config.model_dump(mode="json")


def test_a_run_whose_settings_are_not_known_any_more_is_named(plan_of: PlanOf) -> None:
    plan = plan_of()
    write_plan(plan)
    path = plan.folder / "plan.json"
    kept = json.loads(path.read_text())
    kept["runs"][1]["config"]["model"]["solver"] = "forgotten"
    path.write_text(json.dumps(kept))
    with pytest.raises(InputError, match=r"rk2-one-s1.*model\.solver"):
        plan_of()


def test_an_out_that_is_a_file_is_told(folder: Path) -> None:
    (folder / "file").touch()
    with pytest.raises(InputError, match="file"):
        make_plan(str(folder / "toy.toml"), "small", folder / "data", folder / "file")


@pytest.mark.parametrize("name", ["train.device", "train.workers", "train.threads", "train.lanes"])
def test_on_what_a_run_is_made_may_change(plan_of: PlanOf, name: str) -> None:
    write_plan(plan_of())
    other = '"cpu"' if name == "train.device" else 2
    plan = plan_of(("seeds = [1]", f"seeds = [1]\n{name} = {other}"))
    assert plan.runs[0].config.value(name) == json.loads(str(other))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('metric = "chrF2"', 'metric = "perplexity"', "perplexity"),
        ('metric = "chrF2"', 'metrics = ["BLEU", "perplexity"]', "perplexity"),
        ("seeds = [1]", "seeds = [1]\ndata.test = []", "data.test"),
    ],
)
def test_what_no_run_can_be_scored_by_is_told_before_any_is_made(
    old: str, new: str, said: str, plan_of: PlanOf
) -> None:
    with pytest.raises(InputError, match=said) as error:
        plan_of((old, new))
    assert "row residual, column one" in str(error.value)


@pytest.mark.parametrize("metric", ["BLEU", "sacreBLEU", "chrF2"])
def test_a_language_model_is_not_scored_as_a_translation(
    tmp_path: Path, metric: str, folder: Path
) -> None:
    language = 'source = ""\ntarget = "yy"'
    preset = (folder / "toy-preset.toml").read_text()
    preset = preset.replace('source = "xx"\ntarget = "yy"', language)
    (folder / "toy-preset.toml").write_text(
        preset.replace("encoder_layers = 1", "encoder_layers = 0")
    )
    text = (folder / "toy.toml").read_text().replace("model.encoder_layers = 2", "")
    for name, refused in ((metric, True), ("perplexity", False)):
        (folder / "toy.toml").write_text(text.replace('"chrF2"', f'"{name}"'))
        if refused:
            with pytest.raises(InputError, match=metric):
                make_plan(str(folder / "toy.toml"), "small", folder / "data", tmp_path / "o")
        else:
            make_plan(str(folder / "toy.toml"), "small", folder / "data", tmp_path / "o")


# ---- the text -------------------------------------------------------------------------------


def test_text_that_is_not_there_is_named_with_what_to_type(tmp_path: Path, folder: Path) -> None:
    (sentence,) = missing_text(make_plan("en-ro", "small", Path("data"), tmp_path / "a"))
    assert "data/tatoeba-en-ro" in sentence
    assert "`kutta data get tatoeba-en-ro`" in sentence
    (sentence,) = missing_text(make_plan("ptb", "small", Path("my/own"), tmp_path / "a"))
    assert "`kutta data get ptb --dir my/own`" in sentence
    pair = missing_text(make_plan("main", "paper", Path("data"), tmp_path / "a"))
    assert [f"wmt14-en-{other}`" in said for said, other in zip(pair, ("de", "fr"), strict=True)]
    toy = make_plan(str(folder / "toy.toml"), "small", folder / "data", tmp_path / "a")
    assert not missing_text(toy)
    (folder / "data" / "toy" / "valid.yy").unlink()
    (sentence,) = missing_text(toy)
    assert "valid.yy" in sentence
    assert sentence.count(";") == 1, "what to do is said once"
    assert "kutta data get" not in sentence  # it is not a corpus that Kutta could get


def test_the_built_in_grammar_is_never_missing(tmp_path: Path) -> None:
    plan = make_plan("smoke", "small", Path("nowhere"), tmp_path)
    assert not missing_text(plan)
    assert {run.config.data.dir for run in plan.runs} == {str(plan.folder / "text")}
    inside = make_plan("smoke", "small", Path("nowhere"), Path("data"))
    assert inside.runs[0].config.data.dir == "data/smoke-small/text"


def test_an_experiment_without_a_scale_says_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="smoke has no scale paper; it has small"):
        make_plan("smoke", "paper", Path("data"), tmp_path)
