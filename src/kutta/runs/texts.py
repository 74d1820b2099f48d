"""The validation and test text of a run, copied into it when its data is prepared.

text/valid.source  text/valid.target
text/test/NAME.source  text/test/NAME.target  text/test/NAME.raw

So a run can be moved, trained and scored without its original text. A set that was not copied (it
was added later, or the run is of an earlier version) is read from data.dir.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from kutta.config import DataConfig
from kutta.data.corpus import read_lines, read_pairs
from kutta.errors import InputError
from kutta.files import write_text

Pairs = list[tuple[str, str]]


@dataclass(frozen=True)
class Texts:
    """Validation and test sets as sentence pairs; a language model has empty sources.

    Without a `folder` everything is read from data.dir.
    """

    folder: Path | None
    data: DataConfig

    def valid(self) -> Pairs:
        """The validation pairs."""
        return self._pairs(self.data.valid, self._valid)

    def test(self, name: str) -> Pairs:
        """The pairs of a test set."""
        return self._pairs(name, self._test(name))

    def raw_references(self, name: str, lines: int) -> list[str] | None:
        """The raw references of a test set of split text; None if the config names none."""
        if name not in self.data.raw_references:
            return None
        kept = self._test(name)
        path = kept.with_name(f"{kept.name}.raw") if kept else None
        if path is None or not path.is_file():
            path = Path(self.data.dir) / self.data.raw_references[name]
        raw = list(read_lines(path))
        if len(raw) != lines:
            raise InputError(
                f"{path} has {len(raw):,} lines but the test set {name!r} has {lines:,}; set "
                "data.raw_references to the raw text of the same sentences."
            )
        return raw

    def keep(self) -> None:
        """Copy validation and test sets into the folder, unless they are already there."""
        originals = Texts(None, self.data)
        for name, base in ((self.data.valid, self._valid), *self._tests()):
            if base is None or base.with_name(f"{base.name}.target").is_file():
                continue
            pairs = originals.test(name)
            raw = originals.raw_references(name, len(pairs))
            for side, lines in (("raw", raw), ("source", [s for s, _ in pairs])):
                if lines is not None:
                    _write(base, side, lines)
            _write(base, "target", [target for _, target in pairs])  # last: the set is complete

    @property
    def _valid(self) -> Path | None:
        return self.folder / "valid" if self.folder else None

    def _test(self, name: str) -> Path | None:
        return self.folder / "test" / quote(name, safe=" ") if self.folder else None

    def _tests(self) -> Iterable[tuple[str, Path | None]]:
        return ((name, self._test(name)) for name in self.data.test)

    def _pairs(self, name: str, base: Path | None) -> Pairs:
        if base is not None and base.with_name(f"{base.name}.target").is_file():
            sides = (read_lines(base.with_name(f"{base.name}.{s}")) for s in ("source", "target"))
            return list(zip(*sides, strict=True))
        data = self.data
        return list(read_pairs(Path(data.dir), name, data.source, data.target))


def _write(base: Path, side: str, lines: Iterable[str]) -> None:
    write_text(base.with_name(f"{base.name}.{side}"), "".join(line + "\n" for line in lines))
