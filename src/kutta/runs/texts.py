"""The validation and test text of a run, copied into it when its data is prepared.

text/valid.source  text/valid.target
text/test/NAME.source  text/test/NAME.target  text/test/NAME.raw  text/checksums.json

So a run can be moved, trained and scored without its original text. A set that was not copied (it
was added later, or the run is of an earlier version) is read from data.dir.
"""

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from kutta.config import DataConfig
from kutta.config.data import is_outside
from kutta.data.corpus import read_lines, read_pairs
from kutta.errors import InputError
from kutta.files import link_or_copy, write_text
from kutta.integrity import verify

Pairs = list[tuple[str, str]]


@dataclass(frozen=True)
class Texts:
    """Validation and test sets as sentence pairs; a language model has empty sources.

    Without a `folder` everything is read from data.dir. If the settings are `foreign`, those of a
    run that somebody else may have made, they name no file outside of the folder, or of data.dir.
    """

    folder: Path | None
    data: DataConfig
    foreign: bool = False

    def valid(self) -> Pairs:
        """The validation pairs."""
        return self._pairs(self.data.valid, "valid")

    def test(self, name: str) -> Pairs:
        """The pairs of a test set; the validation set can be one too."""
        as_valid = name == self.data.valid and not self._copy(_test(name), "target")
        return self._pairs(name, "valid" if as_valid else _test(name))

    def raw_references(self, name: str, lines: int) -> list[str] | None:
        """The raw references of a test set of split text; None if the config names none."""
        if name not in self.data.raw_references:
            return None
        copied = self._copy(_test(name), "raw")
        path = copied or self._folder(name) / self._own(self.data.raw_references[name])
        raw = list(read_lines(path))
        if len(raw) != lines:
            raise InputError(
                f"{path} has {len(raw):,} lines but the test set {name!r} has {lines:,}; set "
                "data.raw_references to the raw text of the same sentences."
            )
        return raw

    def keep(self, place: Path, again: bool = False) -> None:
        """Copy validation and test sets to a new folder, `again` or from what was kept so far."""
        originals = Texts(None, self.data)
        tests = ((name, _test(name)) for name in self.data.test)
        for name, base in ((self.data.valid, "valid"), *tests):
            kept = self._copies(base)
            if kept and not again:
                for copy in kept:
                    link_or_copy(copy, place / copy.relative_to(self.folder or ""))
                continue
            pairs = originals.test(name)
            sides = {
                "raw": originals.raw_references(name, len(pairs)),
                "source": [source for source, _ in pairs],
                "target": [target for _, target in pairs],
            }
            for side, lines in sides.items():
                if lines is not None:
                    write_text(place / f"{base}.{side}", "".join(line + "\n" for line in lines))

    def _pairs(self, name: str, base: str) -> Pairs:
        target = self._copy(base, "target")
        if target is None:
            self._folder(name)
            return list(read_pairs(self.data, self._own(name)))
        source = self._copy(base, "source") or target.with_suffix(".source")
        sides = [list(read_lines(path)) for path in (source, target)]
        if len(sides[0]) != len(sides[1]):
            raise InputError(
                f"{target} has {len(sides[1]):,} lines but its source has {len(sides[0]):,}, so "
                "the text of the run is damaged; give the original with --data-dir."
            )
        return list(zip(*sides, strict=True))

    def _folder(self, name: str) -> Path:
        """The folder of text that was not copied."""
        if self.foreign and self.folder:
            kept = [one for one in (*self.data.test, self.data.valid) if self._has(one)]
            raise InputError(
                f"The text of {name!r} is not in {self.folder}, which has "
                f"{', '.join(kept) or 'none'}; give one of these, or the folder of the text with "
                f"--data-dir ({self.data.dir} in training)."
            )
        return Path(self.data.dir)

    def _has(self, name: str) -> bool:
        """Whether a set was copied."""
        bases = (_test(name), *(["valid"] if name == self.data.valid else []))
        return any(self._copy(base, "target") for base in bases)

    def _own(self, name: str) -> str:
        """The name of a file in data.dir."""
        if self.foreign and is_outside(name):
            raise InputError(f"{name!r} is not in {self.data.dir}; give the name of a file there.")
        return name

    def _copies(self, base: str) -> list[Path]:
        """The copied files of a set; none if it was not copied."""
        if self._copy(base, "target") is None:
            return []
        return [path for side in ("raw", "source", "target") if (path := self._copy(base, side))]

    def _copy(self, base: str, side: str) -> Path | None:
        """The copied file of one side of a set, checked for damage; None if it was not copied."""
        name = f"{base}.{side}"
        if self.folder is None or not (self.folder / name).is_file():
            return None
        verify(self.folder, [name])
        return self.folder / name


def _test(name: str) -> str:
    """The files of a test set in the folder, without their endings."""
    return f"test/{quote(name, safe=' ')}"
