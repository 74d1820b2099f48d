"""The experiments that come with Kutta, and the mistakes one can make in a file of one's own."""

import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from kutta.config import load as load_module
from kutta.config.load import shipped
from kutta.errors import InputError
from kutta.reproduce.experiment import ScaleName, available, find, load
from kutta.reproduce.plan import Plan, make_plan

PlanOf = Callable[..., Plan]

ROOT = Path(__file__).parents[2]
NAMES = sorted(path.stem for path in (ROOT / "experiments").glob("*.toml"))
TABLES = [
    *("main", "en-ro", "efficiency", "methods", "field"),
    *("depth", "size", "curves", "gradients", "ptb"),
]


def plan(name: str, scale: ScaleName, tmp_path: Path) -> Plan:
    return make_plan(name, scale, Path("data"), tmp_path)


def test_the_tables_and_figures_are_there_at_both_scales() -> None:
    assert sorted([*TABLES, "multi30k", "smoke", "tying"]) == NAMES == sorted(available())
    for name in TABLES:
        assert set(load(find(name)).scales) == {"paper", "small"}
        assert load(find(name)).reproduces
    for name in ("multi30k", "smoke", "tying"):
        assert not load(find(name)).reproduces


@pytest.mark.parametrize("scale", ["paper", "small"])
@pytest.mark.parametrize("name", TABLES)
def test_every_cell_has_valid_settings(name: str, scale: ScaleName, tmp_path: Path) -> None:
    made = plan(name, scale, tmp_path)
    seeds = load(find(name)).scales[scale].seeds
    assert len(made.runs) == len(load(find(name)).cells()) * len(seeds)
    for run in made.runs:
        assert run.config.train.seed == run.seed
        assert run.config.data.test
        assert Path(run.config.run) == tmp_path / f"{name}-{scale}" / "runs" / run.name
    assert len({run.config.run for run in made.runs}) == len(made.runs)
    # Two cells of one experiment differ in more than where they are.
    assert len({run.config.hash() for run in made.runs}) == len(made.runs)


@pytest.mark.parametrize("name", TABLES)
def test_small_runs_are_small_and_on_one_core(name: str, tmp_path: Path) -> None:
    for run in plan(name, "small", tmp_path).runs:
        assert run.config.train.threads == 1
        assert run.config.train.precision == "fp32"
        assert run.config.model.d_model <= 192
        assert not run.config.train.valid_bleu
        steps = run.config.train.max_steps
        assert (
            steps % run.config.train.save_every == 0
        )  # so that equally spaced models are averaged


def by_column(columns: str, *values: float) -> dict[str, float]:
    return dict(zip(columns.split(), values, strict=True))


DEPTHS = "6 12 18 24 30 36"
# Typed off the paper, not off the files.
PUBLISHED = {
    ("main", "base-residual"): {"en-de": [27.89, 26.8], "en-fr": [41.05, 39.1]},
    ("main", "base-rk4"): {"en-de": [29.03, 27.9], "en-fr": [42.56, 40.6]},
    ("main", "deep-rk2"): {"en-de": [30.29, 29.2], "en-fr": [43.48, 41.5]},
    ("main", "big-12-rk2"): {"en-de": [30.76, 29.6], "en-fr": [44.11, 42.2]},
    ("main", "big-residual"): {"en-de": [29.21, 28.1], "en-fr": [42.89, 40.9]},
    ("main", "transformer"): {"en-de": 28.40, "en-fr": 41.00},
    ("main", "universal"): {"en-de": 28.90},
    ("main", "admin"): {"en-de": [30.01, 29.5], "en-fr": [43.80, 41.8]},
    ("main", "sdt"): {"en-de": [30.21, 29.0], "en-fr": [43.28, 41.5]},
    ("en-ro", "int"): {"en-ro": 32.60},
    ("efficiency", "lite"): {"en-de": 26.50},
    ("en-ro", "residual"): {"en-ro": 33.49},
    ("en-ro", "big-rk2"): {"en-ro": 35.28},
    ("efficiency", "rk2-37m"): {"en-de": 28.24},
    ("efficiency", "rk2-29m"): {"en-de": 27.84},
    ("methods", "dlcl"): {"en-de": 27.78},
    ("methods", "rk2-ones"): {"en-de": 28.77},
    ("methods", "rk2-shared-gamma"): {},
    ("methods", "rk2-separate"): {},
    ("methods", "rk4-learned"): {},
    ("field", "baseline"): {"en-de": 27.60},
    ("field", "san-ffn-split"): {"en-de": 28.65},
    ("depth", "rk2"): by_column(DEPTHS, 28.67, 29.33, 29.58, 30.0, 29.97, 30.11),
    ("depth", "rk4"): by_column(DEPTHS, 29.05, 29.51, 29.76, 29.80, 29.88, 29.89),
    ("size", "residual"): by_column("19m 29m 42m 62m 110m", 24.83, 26.66, 27.73, 28.69, 29.03),
    ("size", "rk2"): by_column("19m 29m 33m 42m 62m", 25.96, 27.84, 28.24, 28.88, 29.23),
    ("ptb", "residual"): {"1": 142.33, "2": 136.07},
    ("ptb", "rk2-learned"): {"1": 128.48, "2": 121.02},
    ("ptb", "rk4"): {"1": 126.89, "2": 119.46},
}


@pytest.mark.parametrize(("name", "row"), PUBLISHED)
def test_the_paper_is_copied_without_a_slip(name: str, row: str) -> None:
    assert load(find(name)).rows[row].published == PUBLISHED[name, row]


def test_the_rows_run_the_methods_they_are_named_after(tmp_path: Path) -> None:
    runs = {run.row: run.config.model for run in plan("methods", "paper", tmp_path).runs}
    assert runs["residual"].solver == "euler"
    assert runs["residual"].gamma == "tableau"
    assert (runs["rk2"].solver, runs["rk2"].gamma) == ("rk2", "tableau")
    assert (runs["rk2-ones"].solver, runs["rk2-ones"].gamma) == ("rk2", "ones")
    assert (runs["rk4-learned"].solver, runs["rk4-learned"].gamma) == ("rk4", "learned")
    assert {m.solver for m in runs.values()} >= {"leapfrog", "multistep", "dlcl", "polynet"}
    shared, learned = runs["rk2-shared-gamma"], runs["rk2-learned"]
    assert shared == learned.model_copy(update={"share_gamma": True})
    separate = runs["rk2"].model_copy(update={"stage_parameters": "separate"})
    assert runs["rk2-separate"] == separate
    fields = {run.row: run.config.model.field for run in plan("field", "paper", tmp_path).runs}
    assert fields["san-ffn-split"] == "san/ffn"
    depths = {
        r.column: r.config.model.encoder_layers for r in plan("depth", "paper", tmp_path).runs
    }
    assert depths == {str(n): n for n in (6, 12, 18, 24, 30, 36)}


@pytest.mark.parametrize("scale", ["paper", "small"])
@pytest.mark.parametrize("name", ["curves", "gradients"])
def test_the_figures_show_rk2_with_learned_weights(name: str, scale: str, tmp_path: Path) -> None:
    """The only RK2 that the paper has as a big model."""
    models = [run.config.model for run in plan(name, scale, tmp_path).runs]
    assert {(m.solver, m.gamma) for m in models if m.solver == "rk2"} == {("rk2", "learned")}


@pytest.mark.parametrize("name", NAMES)
def test_the_row_measured_against_is_the_nearest_above_that_has_none(name: str) -> None:
    """The note below a table with several baselines says so."""
    baseline = ""
    for key, row in load(find(name)).rows.items():
        if row.against:
            assert row.against == baseline, key
        else:
            baseline = key


def test_the_code_knows_no_table_by_name() -> None:
    for file in (ROOT / "src" / "kutta" / "reproduce").glob("*.py"):
        text = file.read_text(encoding="utf-8")
        for name in ("wmt", "multi30k", "ptb", "en-ro", "tatoeba"):
            assert f'"{name}' not in text, f"{file.name} knows {name}"


def test_the_example_in_the_documentation_is_valid(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "reproduce.md").read_text(encoding="utf-8")
    (tmp_path / "my-table.toml").write_text(page.split("```toml\n")[1].split("```")[0])
    made = plan(str(tmp_path / "my-table.toml"), "small", tmp_path)
    assert len(made.runs) == 12
    for name in available():
        assert f"| `{name}` |" in page


# ---- where they are found -------------------------------------------------------------------


def test_a_wheel_has_them_in_the_package_and_a_checkout_at_its_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "root" / "src" / "kutta"
    for folder in (package, tmp_path / "root" / "experiments"):
        folder.mkdir(parents=True)
    monkeypatch.setattr(load_module, "_PACKAGE", package)
    assert shipped("experiments") == tmp_path / "root" / "experiments"
    (package / "experiments").mkdir()
    assert shipped("experiments") == package / "experiments"
    with pytest.raises(InputError, match="configs"):
        shipped("configs")


def test_the_wheel_is_told_to_carry_them() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wheel = settings["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert {"/configs/*.toml", "/experiments/*.toml", "/experiments/presets/*.toml"} <= {
        *wheel["include"]
    }
    assert wheel["sources"]["configs"] == "kutta/configs"
    assert wheel["sources"]["experiments"] == "kutta/experiments"


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(InputError, match=r"did you mean .*methods\?$"):
        find("method")
    with pytest.raises(InputError, match=r"there are curves, .*smoke.*[a-z]\.$"):
        find("xyzzy")
    with pytest.raises(InputError, match=r"nowhere\.toml"):
        find("nowhere.toml")


# ---- mistakes in a file of one's own --------------------------------------------------------

MISTAKES = {
    "another metric": ('metric = "chrF2"', 'metric = "bleurt"', "bleurt"),
    "a setting that is none": ('better = "higher"', 'beter = "higher"', "did you mean better"),
    "against no row": ('against = "residual"', 'against = "resdual"', "did you mean residual"),
    "a value for no column": ("{ one = 12.5 }", "{ on = 12.5 }", "'on' is not a column"),
    "no folder name": ("[rows.rk2]", '[rows."r/k2"]', "'r/k2' is used as a folder name"),
    "no place on the axis": ('"bars"', '"lines"', "at, the x value"),
    "a quoted row with settings": (
        'against = "residual"',
        "quoted = true",
        "a quoted row has published numbers and no runs",
    ),
    "more numbers than metrics": (
        "{ one = 12.5 }",
        "{ one = [12.5, 1.0] }",
        "than there are metrics",
    ),
    "no seeds": ("seeds = [1]", "seeds = []", "seeds = [] is not valid: it needs at least 1"),
    "not TOML": ("[scales.small]", "[scales.small", "TOML"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_the_file_is_one_sentence(mistake: str, folder: Path) -> None:
    old, new, said = MISTAKES[mistake]
    text = (folder / "toy.toml").read_text(encoding="utf-8").replace(old, new)
    text = text.replace("at = 1\n", "") if mistake == "no place on the axis" else text
    (folder / "toy.toml").write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as error:
        load(folder / "toy.toml")
    assert said in str(error.value)
    assert "toy.toml" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('solver = "rk2"', 'solver = "rk5"', "rk5.*did you mean"),
        ('"toy-preset"', '"absent"', "toy.toml: extends = 'absent' is not a file or a preset"),
        ('"toy-preset"', '"wmt14-en-de-bas"', "is not a file or a preset; did you mean .*wmt14"),
        ('"toy-preset"', '"toy"', r"extends forms a cycle \(toy.toml -> toy.toml\)"),
        ('"toy-preset"', "3", "scales.small.extends: write a preset in quotes"),
        ('"toy-preset"', "{ one = 1 }", "scales.small.extends: write a preset in quotes"),
        (
            '"toy-preset"',
            '{ on = "toy-preset" }',
            "extends has 'on', which is not a column; did you mean one",
        ),
        ('"toy-preset"', '{ one = "toy-preset" }', "row residual, column two .* extends no preset"),
        ('extends = "toy-preset"', 'preset = "toy-preset.toml"', "small: preset is now extends"),
        ('extends = "toy-preset"\n', "", "row residual, column one .* extends no preset; add"),
        ("model.encoder_layers = 2", "model.encoder_leyers = 2", "encoder_layers"),
        ('metric = "chrF2"', 'metric = "perplexity"', "translation model is not scored"),
        ("seeds = [1]", "seeds = [1]\ndata.test = []", "has no test set"),
    ],
)
def test_a_mistake_in_the_settings_names_row_and_column(
    old: str, new: str, said: str, plan_of: PlanOf
) -> None:
    with pytest.raises(InputError, match=said):
        plan_of((old, new))


def test_two_cells_cannot_share_a_folder(plan_of: PlanOf) -> None:
    """residual + one-two and residual-one + two."""
    row = '[rows.residual-one]\nname = "other"\n\n[rows.rk2]'
    with pytest.raises(InputError, match="share a folder"):
        plan_of(
            ("[columns.one]", "[columns.one-two]"), ("one = ", "one-two = "), ("[rows.rk2]", row)
        )
