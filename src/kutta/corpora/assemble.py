"""From a recipe to a folder of text: fetch, extract, clean, count, and write a report."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

from rich.progress import Progress, TaskID

from kutta import __version__
from kutta.corpora.clean import fault, held_out, respell, tidy
from kutta.corpora.download import Patience
from kutta.corpora.extract import read_rows
from kutta.corpora.fetch import fetch, record
from kutta.corpora.recipes import Recipe, Split, Table
from kutta.corpora.subwords import write_subwords
from kutta.corpora.writer import SplitWriter
from kutta.errors import InputError
from kutta.files import atomic_path, remove, write_json
from kutta.parsing import read_json

REPORT = "report.json"
DOWNLOADS = "downloads"
TOLERANCE = 0.1  # relative difference from the paper's number of lines that gives a warning
STEP = 10_000  # lines between updates of the progress bar

Archives = dict[str, Path]
Outcome = dict[str, dict[str, Any]]  # split -> what was written and dropped


def make_corpus(
    recipe: Recipe,
    root: Path,
    by_hand: Path | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
    patience: Patience | None = None,
) -> dict[str, Any] | None:
    """Create the folder `root/recipe.name`; return its report, or None if it already exists."""
    folder = root / recipe.name
    if not overwrite and is_made(recipe, root):
        return None
    if not overwrite and folder.exists():
        raise InputError(
            f"{folder} exists but was not created by this version of the recipe; move it, or add "
            "--overwrite to replace it."
        )
    if by_hand and not by_hand.is_dir():
        raise InputError(f"There is no folder {by_hand}; set --from to the folder of the files.")
    with progress or Progress(disable=True) as bar:
        archives = {
            name: fetch(name, source, root / DOWNLOADS, by_hand, patience or Patience(), bar)
            for name, source in recipe.sources.items()
        }
        with atomic_path(folder) as temporary:
            temporary.mkdir()
            splits = _write_text(recipe, archives, temporary, bar)
            report = _report(recipe, record(root / DOWNLOADS, archives), splits)
            write_json(temporary / REPORT, report)
    return report


def is_made(recipe: Recipe, root: Path) -> bool:
    """Whether the folder is complete and was created by this version of the recipe."""
    try:
        report = cast(dict[str, Any], read_json(root / recipe.name / REPORT))
        return (report["recipe"], report["version"]) == (recipe.name, recipe.version)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _write_text(recipe: Recipe, archives: Archives, folder: Path, bar: Progress) -> Outcome:
    """Write all splits of a recipe."""
    if isinstance(recipe.text, Table):
        return _write_table(recipe.text, recipe.languages, archives, folder, bar)
    if recipe.subwords is None:
        return {split.name: _write_split(split, archives, folder, bar) for split in recipe.text}
    with TemporaryDirectory(dir=folder) as raw:
        for split in recipe.text:
            _write_split(split, archives, Path(raw), bar)
        lines = {split.name: split.lines for split in recipe.text}
        return write_subwords(Path(raw), lines, recipe.subwords, folder, bar)


def _write_split(split: Split, archives: Archives, folder: Path, bar: Progress) -> dict[str, Any]:
    """Concatenate the parts of a split, cleaned or as published, and check the result."""
    languages = list(split.parts[0])
    task = bar.add_task(f"writing {split.name}", total=split.lines, unit="lines")
    dropped: Counter[str] = Counter()
    rows = chain.from_iterable(read_rows(part, archives) for part in split.parts)
    end = ".gz" if split.cleaning else ""  # cleaned text is large
    with ExitStack() as stack:
        text = SplitWriter(stack, folder / split.name, languages, end)
        for raw in _watched(rows, bar, task):
            if split.cleaning is None:
                text.write(_published(raw, languages, split.name))
                continue
            row = [tidy(side, language) for side, language in zip(raw, languages, strict=True)]
            if reason := fault(row, split.cleaning):
                dropped[reason] += 1
            else:
                text.write(cast(list[str], row))
    bar.remove_task(task)
    outcome = text.outcome(split.lines, dropped)
    _check(split, outcome)
    return outcome


def _write_table(
    table: Table, languages: tuple[str, ...], archives: Archives, folder: Path, bar: Progress
) -> Outcome:
    """Distribute the pairs of a table over train, valid and test by their English side."""
    task = bar.add_task("writing", total=table.lines, unit="lines")
    dropped: Counter[str] = Counter()
    credits = folder / "attribution.tsv"
    with ExitStack() as stack:
        splits = ("train", "valid", "test")
        texts = {name: SplitWriter(stack, folder / name, languages) for name in splits}
        credit_file = stack.enter_context(open(credits, "w", encoding="utf-8"))
        for (raw,) in _watched(read_rows({"table": table.member}, archives), bar, task):
            first, second, credit, *_ = *raw.split(b"\t"), b"", b""
            row = [tidy(first, languages[0]), tidy(second, languages[1])]
            if reason := fault(row, table.cleaning):
                dropped[reason] += 1
                continue
            english, other = cast(list[str], row)
            name = held_out(english, table.one_in)
            texts[name].write((english, other))
            if source := tidy(credit, ""):
                credit_file.write(f"{name}\t{texts[name].lines}\t{source}\n")
    bar.remove_task(task)
    if not credits.stat().st_size:
        remove(credits)
    empty = [name for name, text in texts.items() if not text.lines]
    if empty:
        raise InputError(
            f"{archives[table.member.source]} has too few pairs: there are none for "
            f"{' and '.join(empty)}; delete it and run the same command to download it again."
        )
    outcome = {name: text.outcome(None, Counter()) for name, text in texts.items()}
    outcome["train"]["dropped"] = dict(dropped)
    return outcome


def _watched(
    rows: Iterator[tuple[bytes, ...]], bar: Progress, task: TaskID
) -> Iterator[tuple[bytes, ...]]:
    for number, row in enumerate(rows):
        if number % STEP == 0:
            bar.update(task, completed=number)
        yield row


def _published(raw: Sequence[bytes], languages: Sequence[str], name: str) -> list[str]:
    """A row as published, with normalised letters."""
    try:
        return [respell(side.decode(), end) for side, end in zip(raw, languages, strict=True)]
    except UnicodeDecodeError as error:
        raise InputError(
            f"The text for {name} is damaged: it is not valid UTF-8 ({error.reason}); delete its "
            "download and run the same command again."
        ) from error


def _check(split: Split, outcome: dict[str, Any]) -> None:
    """Check that text that is not cleaned has the published lines and, if known, checksum."""
    sources = ", ".join(sorted({m.source for part in split.parts for m in part.values()}))
    remedy = f"so {sources} is not the published text; download it manually and add --from DIR."
    if split.cleaning is None and outcome["lines"] != split.lines:
        raise InputError(
            f"{split.name} has {outcome['lines']:,} lines instead of {split.lines:,}, {remedy}"
        )
    for language, sha256 in split.sha256.items():
        if outcome["sha256"][language] != sha256:
            raise InputError(
                f"The text of {split.name}.{language} has the checksum "
                f"{outcome['sha256'][language]} instead of {sha256}, {remedy}"
            )
    if not outcome["lines"]:
        raise InputError(f"{split.name} is empty, {remedy}")


def _report(recipe: Recipe, hashes: dict[str, str], splits: Outcome) -> dict[str, Any]:
    """The report that is saved with the text: sources, cleaning and splits."""
    cleanings = (
        [recipe.text.cleaning]
        if isinstance(recipe.text, Table)
        else [split.cleaning for split in recipe.text if split.cleaning]
    )
    return {
        "recipe": recipe.name,
        "version": recipe.version,
        "title": recipe.title,
        "terms": recipe.terms,
        "kutta": __version__,
        "sources": {
            name: {"url": source.url, "sha256": hashes[name]}
            for name, source in recipe.sources.items()
        },
        "cleaning": asdict(cleanings[0]) if cleanings else None,
        "splits": splits,
    }


def summary(report: dict[str, Any]) -> Iterator[str]:
    """The report as text, one line per split."""
    for name, split in report["splits"].items():
        dropped = sum(split["dropped"].values())
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in split["dropped"].items())
        line = f"{name:<12}{split['lines']:>12,} lines"
        yield line + (f"; {dropped:,} dropped: {reasons}" if dropped else "")
        expected = split["expected"]
        if expected and abs(split["lines"] - expected) > TOLERANCE * expected:
            yield f"{'':<12}warning: the paper has about {expected:,} lines"
