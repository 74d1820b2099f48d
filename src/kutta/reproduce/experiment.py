"""An experiment: a table or a figure of the paper as one TOML file.

Its cells are rows x columns. The settings of a cell are those of the preset it extends, overridden
by its scale, its column and its row, first by those for all scales, then by those for this one.
Each of them may name the preset; the last one wins.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, cast

from pydantic import Field, ValidationError, field_validator, model_validator

from kutta.config import Section
from kutta.config.load import extended, merge, read_values, shipped
from kutta.config.mistakes import first_mistake, sentence, suggest
from kutta.errors import InputError
from kutta.reproduce.claims import Claim

ScaleName = Literal["paper", "small"]
# Scores of the test set come from evaluation; the last two from the records of training.
Metric = Literal[
    "BLEU", "sacreBLEU", "chrF2", "perplexity", "validation perplexity", "gradient norm"
]

Published = float | list[float]  # by the first metric only, or by each metric


class Change(Section):
    """The preset to extend, by name or by column, and settings that override the preset's."""

    extends: str | dict[str, str] = ""
    data: dict[str, Any] = Field(default_factory=dict[str, Any])
    model: dict[str, Any] = Field(default_factory=dict[str, Any])
    train: dict[str, Any] = Field(default_factory=dict[str, Any])
    decode: dict[str, Any] = Field(default_factory=dict[str, Any])

    @model_validator(mode="before")
    @classmethod
    def _renamed(cls, values: Any) -> Any:
        if isinstance(values, dict) and "preset" in values:
            raise ValueError('preset is now extends; write extends = "NAME", a name without .toml')
        return cast(Any, values)

    @field_validator("extends", mode="before")
    @classmethod
    def _names_presets(cls, value: Any) -> Any:
        names = cast(dict[str, Any], value).values() if isinstance(value, dict) else [value]
        if not all(isinstance(name, str) for name in names):
            raise ValueError('write a preset in quotes, or one for each column: { key = "NAME" }')
        return cast(Any, value)

    def values(self) -> dict[str, Any]:
        """These settings as plain values of a config, by section."""
        return {name: getattr(self, name) for name in ("data", "model", "train", "decode")}

    def preset(self, column: str) -> str:
        """The preset for the cells of a column, or ""."""
        return self.extends if isinstance(self.extends, str) else self.extends.get(column, "")


class Here(Change):
    """The settings of a row or a column at one scale."""

    name: str = ""
    at: float | None = None


class Sentences(Section):
    """How much text of the built-in grammar to write, for an experiment without a download."""

    train: int = Field(ge=1)
    valid: int = Field(ge=1)
    test: int = Field(ge=1)
    seed: int = Field(ge=0)


class Scale(Change):
    """The scale of all runs: the paper's on GPUs, or small on two cores."""

    corpus: str
    seeds: list[int] = Field(min_length=1)
    note: str = ""
    builtin: Sentences | None = None


class Part(Change):
    """A row or a column: its name, its settings for all scales, and those for each scale."""

    name: str
    paper: Here = Field(default_factory=Here)
    small: Here = Field(default_factory=Here)

    def here(self, scale: ScaleName) -> Here:
        """Its settings at this scale."""
        return getattr(self, scale)

    def name_at(self, scale: ScaleName) -> str:
        """Its name at this scale."""
        return self.here(scale).name or self.name


class Column(Part):
    """A condition under which all methods are compared; `at` is its x value in the figure."""

    at: float | None = None

    def at_scale(self, scale: ScaleName) -> float | None:
        """Its x value at this scale."""
        here = self.here(scale).at
        return self.at if here is None else here


class Row(Part):
    """A system, the row it is compared with, and the paper's numbers by column.

    A `quoted` row has published numbers and no runs. `size` is its published parameter count.
    """

    against: str = ""
    only: list[str] = Field(default_factory=list[str])
    published: dict[str, Published] = Field(default_factory=dict[str, Published])
    quoted: bool = False
    size: str = ""

    def mistakes_of(self, key: str, metrics: int) -> Iterator[str]:
        """Error messages for conflicting settings of this row."""
        lists = [v for v in self.published.values() if isinstance(v, list)]
        if any(not 1 <= len(values) <= metrics for values in lists):
            yield f"rows.{key}: published has more numbers than there are metrics ({metrics})"
        runs = self.against or self.extends or any(self.values().values())
        if self.quoted and (runs or not self.published):
            yield (
                f"rows.{key}: a quoted row has published numbers and no runs; remove its settings "
                "and against, or remove quoted"
            )

    def published_at(self, column: str, metric: int = 0) -> float | None:
        """The paper's number in a column by this metric of the experiment, counted from 0."""
        found = self.published.get(column, [])
        values = found if isinstance(found, list) else [found]
        return values[metric] if metric < len(values) else None


class Experiment(Section):
    """One table or figure: its runs, its metrics, and the paper's numbers."""

    title: str
    reproduces: str = ""  # empty for a check of our own that is not in the paper
    metrics: list[Metric] = Field(min_length=1)  # the first decides, the others are also shown
    better: Literal["higher", "lower", "neither"]
    figures: list[Literal["bars", "lines", "parameters", "curves", "gradients"]] = Field(
        min_length=1
    )
    axis: str = ""
    scales: dict[ScaleName, Scale] = Field(min_length=1)
    columns: dict[str, Column] = Field(min_length=1)
    rows: dict[str, Row] = Field(min_length=1)
    claims: list[Claim] = Field(default_factory=list[Claim])

    @model_validator(mode="before")
    @classmethod
    def _one_for_a_list(cls, values: Any) -> Any:
        """`metric = "BLEU"` is short for a list of one, and so is `figure = "bars"`."""
        if isinstance(values, dict):
            settings = dict(cast(dict[str, Any], values))
            for one, several in (("metric", "metrics"), ("figure", "figures")):
                if one in settings and several not in settings:
                    settings[several] = [settings.pop(one)]
            return settings
        return values

    @property
    def metric(self) -> Metric:
        """The metric that decides."""
        return self.metrics[0]

    @model_validator(mode="after")
    def _fits(self) -> "Experiment":
        for mistake in self._mistakes():
            raise ValueError(mistake)
        return self

    def _mistakes(self) -> Iterator[str]:
        """Error messages for conflicting settings."""
        for key in (*self.columns, *self.rows):
            if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", key):
                yield f"{key!r} is used as a folder name; use lower case, digits and hyphens"
        for key, row in self.rows.items():
            if row.against and row.against not in self.rows:
                near = suggest(row.against, [*self.rows])
                yield f"rows.{key}: against = {row.against!r} is not a row{near}"
            for column in (*row.only, *row.published):
                if column not in self.columns:
                    near = suggest(column, [*self.columns])
                    yield f"rows.{key}: {column!r} is not a column{near}"
            yield from row.mistakes_of(key, len(self.metrics))
        names = [f"{row}-{column}" for row, column in self.cells()]
        if len(set(names)) < len(names):
            yield "two cells would share a folder; choose other keys for rows or columns"
        for number, claim in enumerate(self.claims, start=1):
            for mistake in claim.mistakes_of(self.all_cells(), self.better):
                yield f"claim {number} ({claim.says!r}): {mistake}"
        yield from self._preset_mistakes()
        places = [c.at_scale(scale) for c in self.columns.values() for scale in self.scales]
        if "lines" in self.figures and None in places:
            yield "figure = 'lines' needs at, the x value, in every column"

    def _preset_mistakes(self) -> Iterator[str]:
        """Error messages for cells without a preset, and presets for unknown columns."""
        for scale in self.scales:
            for row, column in self.cells():
                where = f"row {row}, column {column} at scale {scale}"
                for change in self.changes(scale, row, column):
                    named = change.extends if isinstance(change.extends, dict) else {}
                    for wrong in sorted(named.keys() - self.columns.keys()):
                        near = suggest(wrong, [*self.columns])
                        yield f"{where}: extends has {wrong!r}, which is not a column{near}"
                if not self.preset(scale, row, column):
                    yield f"{where} extends no preset; add extends to the scale, column or row"

    def changes(self, scale: ScaleName, row: str, column: str) -> list[Change]:
        """The changes that define a cell, in the order in which they are applied."""
        parts = (self.columns[column], self.rows[row])
        return [self.scales[scale], *parts, *(part.here(scale) for part in parts)]

    def preset(self, scale: ScaleName, row: str, column: str) -> str:
        """The preset that a cell extends: the last one given for it."""
        named = [change.preset(column) for change in self.changes(scale, row, column)]
        return next(filter(None, reversed(named)), "")

    def cells(self) -> list[tuple[str, str]]:
        """The (row, column) pairs that are run, column by column."""
        return [(row, column) for row, column in self.all_cells() if not self.rows[row].quoted]

    def all_cells(self) -> list[tuple[str, str]]:
        """All cells, also those that are only quoted, column by column."""
        return [
            (key, column)
            for column in self.columns
            for key, row in self.rows.items()
            if column in (row.published if row.quoted else row.only or self.columns)
        ]

    def scale(self, name: ScaleName, where: str) -> Scale:
        """The scale of this name; an InputError if there is none."""
        if name not in self.scales:
            raise InputError(f"{where} has no scale {name}; it has {', '.join(self.scales)}.")
        return self.scales[name]


def config_of(
    experiment: Experiment, where: Path, scale: ScaleName, row: str, column: str
) -> dict[str, Any]:
    """The settings of a cell as plain values, before seed and folders are set."""
    values = extended(experiment.preset(scale, row, column), where).values
    for change in experiment.changes(scale, row, column):
        values = merge(values, change.values())
    return values


def load(path: Path) -> Experiment:
    """Read an experiment; the first mistake is raised as an InputError."""
    try:
        return Experiment.model_validate(read_values(path))
    except ValidationError as error:
        raise InputError(f"{path}: {first_mistake(error, [*Experiment.model_fields])}") from None


def available() -> dict[str, Path]:
    """The experiments shipped with Kutta, by name."""
    return {path.stem: path for path in sorted(shipped("experiments").glob("*.toml"))}


def find(name: str) -> Path:
    """The file of an experiment: one shipped with Kutta by its name, or the user's .toml."""
    if name.endswith(".toml"):
        if not Path(name).is_file():
            raise InputError(f"There is no experiment file {name}; check the path.")
        return Path(name)
    known = available()
    if name not in known:
        near = suggest(name, [*known, "all"])
        raise InputError(sentence(f"There is no experiment {name!r}{near}"))
    return known[name]
