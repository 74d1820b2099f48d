"""[data]: the text."""

import json
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath, PureWindowsPath
from typing import Literal

from pydantic import Field

from kutta.config.section import Natural, Positive, Rate, Section, setting
from kutta.limits import LANGUAGE, VOCABULARY

_PATHS = (PurePosixPath, PureWindowsPath)
GERMAN = frozenset({"de", "deu", "ger"})


def language_of(name: str) -> str:
    """The language code of a file name extension, such as de for de-AT."""
    return name.replace("_", "-").partition("-")[0].lower()


def places(columns: Sequence[str], source: str, target: str) -> tuple[int, int] | None:
    """Which of the columns are the source and the target; None if one of them is missing."""
    try:
        first = columns.index(source)
        return first, columns.index(target, first + 1 if source == target else 0)
    except ValueError:
        return None


def is_outside(name: str) -> bool:
    """Whether the name of a file leads out of the folder that it belongs to."""
    return any(kind(name).is_absolute() or ".." in kind(name).parts for kind in _PATHS)


class DataConfig(Section):
    """Where the text is and how it is split into tokens."""

    dir: str = Field(min_length=1, description="folder of the text files")
    source: str = setting(
        "",
        "source language: the extension of its files; empty for a language model",
        max_length=LANGUAGE,
    )
    target: str = Field(
        min_length=1,
        max_length=LANGUAGE,
        description="target language: the extension of its files",
    )
    train: str = setting("train", "name of the training files, or a .tsv or .tmx")
    valid: str = setting("valid", "name of the validation files, or a .tsv or .tmx")
    test: list[str] = setting([], "names of the test sets")
    columns: list[str] = setting(
        [],
        "languages of the columns of a .tsv, in order; by default its header line, or source and "
        "target",
    )
    tokenizer: Literal["bpe", "split"] = setting(
        "bpe", "learn BPE from raw text, or take text that is already split"
    )
    vocab_size: int = setting(
        8000,
        "size of a learned BPE vocabulary; for split text the expected size, used for estimates "
        "before the text is read",
        ge=16,
        le=VOCABULARY,
    )
    vocabulary: list[str] = setting(
        [],
        "for split text: a fairseq dict.txt in dir, or two (source, target) if the vocabulary is "
        "not shared",
    )
    shared_vocab: bool = setting(True, "one vocabulary for both languages")
    bpe_dropout: Rate = setting(0.0, "skip merges at random in training")
    max_length: Positive = setting(256, "longest training sentence, in tokens")
    max_source: Natural = setting(0, "truncate sources to this many tokens; 0 for no limit")
    max_ratio: float = setting(9.0, "largest ratio of the two lengths in tokens", ge=1.0)

    lowercased: bool = setting(
        False, "the text is lower-cased, so ignore case when scoring against raw references"
    )
    split_compounds: bool = setting(
        False,
        "split German compounds at hyphens for tokenised BLEU, as in published WMT14 "
        "English-German scores",
    )
    raw_references: dict[str, str] = setting(
        {},
        "for split text: files in dir with raw references for sacreBLEU and chrF, by the name of "
        "the test set",
    )

    def mistakes(self) -> Iterator[str]:
        for side in ("source", "target"):
            if {"/", "\\"} & {*getattr(self, side)}:
                yield f"{side} = {getattr(self, side)!r} is not the extension of a file"
        if self.max_source > self.max_length:
            yield (
                f"a source truncated to max_source = {self.max_source} tokens is still longer than "
                f"max_length = {self.max_length} and would be dropped; raise max_length"
            )
        if self.split_compounds and language_of(self.target) not in GERMAN:
            yield (
                f"split_compounds is for translations into German, but target = {self.target!r}; "
                "remove it"
            )
        if self.raw_references and self.tokenizer != "split":
            yield (
                f"raw_references are for text that is already split, but tokenizer = "
                f"{self.tokenizer!r} reads raw text; remove them"
            )
        if unknown := sorted(self.raw_references.keys() - set(self.test)):
            yield (
                f"raw_references names {', '.join(map(repr, unknown))}, which is not a test set; "
                f"test has {', '.join(map(repr, self.test)) or 'none'}"
            )
        if self.columns and not self.source:
            yield "columns are for a .tsv, which a language model does not read; remove them"
        elif self.columns and places(self.columns, self.source, self.target) is None:
            yield (
                f"columns = {json.dumps(self.columns)} does not name both the source "
                f"{self.source!r} and the target {self.target!r}; name the language of every "
                "column of the .tsv, in order"
            )
        if self.source == self.target and ".tsv" not in self.train:
            yield (
                f"source and target are both {self.source!r}, so both sides would be the same "
                "file; give two different extensions"
            )
