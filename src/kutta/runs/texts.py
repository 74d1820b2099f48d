"""The validation and test text of a run, copied into it when its data is prepared.

text/valid.source  text/valid.target
text/test/NAME.source  text/test/NAME.target  text/test/NAME.raw

So a run can be moved, trained and scored without its original text. A set that was not copied (it
was added later, or the run is of an earlier version) is read from data.dir.
"""

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
        return self._pairs(self.data.valid, "valid")

    def test(self, name: str) -> Pairs:
        """The pairs of a test set."""
        return self._pairs(name, _test(name))

    def raw_references(self, name: str, lines: int) -> list[str] | None:
        """The raw references of a test set of split text; None if the config names none."""
        if name not in self.data.raw_references:
            return None
        original = Path(self.data.dir) / self.data.raw_references[name]
        path = self._copy(_test(name), "raw") or original
        raw = list(read_lines(path))
        if len(raw) != lines:
            raise InputError(
                f"{path} has {len(raw):,} lines but the test set {name!r} has {lines:,}; set "
                "data.raw_references to the raw text of the same sentences."
            )
        return raw

    def keep(self) -> None:
        """Copy validation and test sets into the folder, unless they are already there."""
        assert self.folder is not None
        originals = Texts(None, self.data)
        tests = ((name, _test(name)) for name in self.data.test)
        for name, base in ((self.data.valid, "valid"), *tests):
            if self._copy(base, "target"):
                continue
            pairs = originals.test(name)
            sides = {
                "raw": originals.raw_references(name, len(pairs)),
                "source": [source for source, _ in pairs],
                "target": [target for _, target in pairs],  # last: the set is complete
            }
            for side, lines in sides.items():
                if lines is not None:
                    text = "".join(line + "\n" for line in lines)
                    write_text(self.folder / f"{base}.{side}", text)

    def _pairs(self, name: str, base: str) -> Pairs:
        target = self._copy(base, "target")
        if target is None:
            return list(read_pairs(self.data, name))
        source = target.with_suffix(".source")
        return list(zip(read_lines(source), read_lines(target), strict=True))

    def _copy(self, base: str, side: str) -> Path | None:
        """The copied file of one side of a set; None if it was not copied."""
        path = self.folder / f"{base}.{side}" if self.folder else None
        return path if path and path.is_file() else None


def _test(name: str) -> str:
    """The files of a test set in the folder, without their endings."""
    return f"test/{quote(name, safe=' ')}"
