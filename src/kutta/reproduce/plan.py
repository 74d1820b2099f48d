"""The runs of an experiment, and the check that an existing folder has the same ones."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kutta.config import Config, from_earlier, known_keys
from kutta.corpora.recipes import RECIPES
from kutta.errors import InputError
from kutta.files import write_json
from kutta.parsing import read_json
from kutta.reproduce.experiment import Experiment, Scale, ScaleName, config_of, find, load
from kutta.runs import check_text

# Paths and devices: they do not change what a run should compute, although another kind of device
# draws other dropout masks and may divide batches into other micro-batches.
_FREE_KEYS = {"run", "data.dir", "train.device", "train.workers", "train.threads", "train.lanes"}
_METRICS_OF_THE_OTHER = {True: ("BLEU", "sacreBLEU", "chrF2"), False: ("perplexity",)}


@dataclass(frozen=True)
class PlannedRun:
    """One training: a cell of the table with one seed."""

    row: str
    column: str
    seed: int
    config: Config

    @property
    def name(self) -> str:
        return f"{self.row}-{self.column}-s{self.seed}"


@dataclass(frozen=True)
class Plan:
    """An experiment at one scale: its folder and all its runs, requested now or earlier."""

    name: str
    experiment: Experiment
    text_hash: str
    scale_name: ScaleName
    folder: Path
    asked: tuple[int, ...]
    runs: tuple[PlannedRun, ...]

    @property
    def scale(self) -> Scale:
        return self.experiment.scales[self.scale_name]

    @property
    def seeds(self) -> list[int]:
        return sorted({run.seed for run in self.runs})

    def to_dict(self) -> dict[str, Any]:
        """The contents of plan.json: enough to resume, and the origin of every number."""
        return {
            "experiment": self.name,
            "experiment_sha256": self.text_hash,
            "scale": self.scale_name,
            "metric": self.experiment.metric,
            "seeds": self.seeds,
            "runs": [
                {
                    "name": run.name,
                    "row": run.row,
                    "column": run.column,
                    "seed": run.seed,
                    "config": run.config.model_dump(mode="json"),
                }
                for run in self.runs
            ],
        }


def make_plan(
    name: str, scale: ScaleName, data: Path, out: Path, seeds: Sequence[int] = ()
) -> Plan:
    """The plan of an experiment, by its name or the path of its file; validates all settings.

    The seeds of an earlier plan in the same folder are kept, so that its table keeps them.
    """
    path = find(name)
    experiment = load(path)
    chosen = experiment.scale(scale, path.stem)
    folder = out / f"{path.stem}-{scale}"
    if out.exists() and not out.is_dir():
        raise InputError(f"--out {out} is a file; name a folder.")
    before = read_plan(folder)
    kept: list[int] = before["seeds"] if before else []
    asked = tuple(seeds) or tuple(chosen.seeds)
    runs = tuple(
        PlannedRun(
            row, column, seed, _config(experiment, path, scale, row, column, seed, data, folder)
        )
        for seed in sorted({*kept, *asked})  # seed by seed: a whole table of one seed comes first
        for row, column in experiment.cells()
    )
    text = hashlib.sha256(path.read_bytes()).hexdigest()
    plan = Plan(path.stem, experiment, text, scale, folder, asked, runs)
    if before:
        _check_same(before, plan)
    return plan


def _config(
    experiment: Experiment,
    path: Path,
    scale: ScaleName,
    row: str,
    column: str,
    seed: int,
    data: Path,
    folder: Path,
) -> Config:
    """The settings of one run."""
    values = config_of(experiment, path, scale, row, column)
    where = f"{path}, row {row}, column {column} at scale {scale}"
    values["run"] = str(folder / "runs" / f"{row}-{column}-s{seed}")
    values["train"]["seed"] = seed
    config = Config.parse(values, where=where)
    if not config.data.test:
        raise InputError(f"{where}: data.test has no test set to score; add one.")
    for metric in experiment.metrics:
        if metric in _METRICS_OF_THE_OTHER[config.language_model]:
            kind = "a language model" if config.language_model else "a translation model"
            raise InputError(f"{where}: {kind} is not scored by {metric}; choose another.")
    builtin = experiment.scales[scale].builtin is not None
    home = folder / "text" if builtin else _below(data, config.data.dir)
    return config.model_copy(update={"data": config.data.model_copy(update={"dir": str(home)})})


def _below(data: Path, folder: str) -> Path:
    """A preset's folder data/NAME, relative to the user's folder of corpora."""
    parts = Path(folder).parts
    return data.joinpath(*parts[1:]) if parts[:1] == ("data",) else Path(folder)


# ---- the folder of a reproduction -----------------------------------------------------------


def write_plan(plan: Plan) -> None:
    """Save the plan in its folder."""
    write_json(plan.folder / "plan.json", plan.to_dict())


def read_plan(folder: Path) -> dict[str, Any] | None:
    """The parts of a saved plan that must stay the same; None if there is no plan yet."""
    path = folder / "plan.json"
    try:
        values: Any = read_json(path)
        return {
            "metric": str(values["metric"]),
            "seeds": [int(seed) for seed in values["seeds"]],
            "runs": {str(run["name"]): dict(run["config"]) for run in values["runs"]},
        }
    except FileNotFoundError:
        if folder.exists() and (not folder.is_dir() or any(_foreign(folder))):
            raise InputError(
                f"{folder} exists but is not a reproduction (it has no plan.json); "
                "choose another --out."
            ) from None
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{path} is damaged ({error}); remove {folder} to start over, or choose another --out."
        ) from None


def _foreign(folder: Path) -> Iterable[Path]:
    """The files in a folder besides temporary files of an interrupted start."""
    return (path for path in folder.iterdir() if not path.name.startswith("."))


def _check_same(before: dict[str, Any], plan: Plan) -> None:
    """Reject a folder that was started with other settings; seeds and rows may be added."""
    difference = _difference(before, plan)
    if difference:
        raise InputError(
            f"{plan.folder} was started with other settings: {difference}; choose another --out, "
            f"or remove {plan.folder} to start over."
        )


def _difference(before: dict[str, Any], plan: Plan) -> str | None:
    """The first difference that makes results incomparable."""
    if before["metric"] != plan.experiment.metric:
        return f"metric = {before['metric']!r} there, {plan.experiment.metric!r} here"
    now = {run.name: run.config for run in plan.runs}
    for name, config in before["runs"].items():
        if name not in now:
            return f"it has the run {name}, which is no longer in the experiment"
        try:
            kept = Config.parse(from_earlier(config), where=f"the run {name} there")
        except InputError as error:
            return str(error).removesuffix(".")
        for key in known_keys():
            if key not in _FREE_KEYS and kept.value(key) != now[name].value(key):
                there, here = kept.value(key), now[name].value(key)
                return f"{key} of the run {name} is {there!r} there and {here!r} here"
    return None


# ---- the text -------------------------------------------------------------------------------


def missing_text(plan: Plan) -> list[str]:
    """One sentence for each missing corpus of the plan."""
    if plan.scale.builtin is not None:
        return []
    texts = {run.config.data.model_dump_json(): run.config.data for run in plan.runs}
    sentences: dict[str, str] = {}
    for data in texts.values():
        try:
            check_text(data, [data.train, data.valid, *data.test])
        except InputError as error:
            why = str(error).partition(";")[0]
            sentences[data.dir] = f"The text of {plan.name} is missing: {why}; {_get(data.dir)}"
    return list(sentences.values())


def _get(folder: str) -> str:
    """How to get the text of a folder."""
    root, name = Path(folder).parent, Path(folder).name
    if name not in RECIPES:
        return "put it there, or set --data to its folder."
    where = "" if root == Path("data") else f" --dir {root}"
    return f"run `kutta data get {name}{where}`, or set --data to its folder."
