"""[data]: the text."""

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from kutta.config.section import Section

GERMAN = frozenset({"de", "deu", "ger"})


def language_of(name: str) -> str:
    """The language code of a file name extension, such as de for de-AT."""
    return name.replace("_", "-").partition("-")[0].lower()


class DataConfig(Section):
    """Where the text is and how it is split into tokens."""

    dir: str = Field(min_length=1, description="folder of the text files")
    source: str = Field(
        default="",
        description="source language: the extension of its files; empty for a language model",
    )
    target: str = Field(min_length=1, description="target language: the extension of its files")
    train: str = Field(default="train", description="name of the training files, or a .tsv")
    valid: str = Field(default="valid", description="name of the validation files, or a .tsv")
    test: list[str] = Field(default_factory=list[str], description="names of the test sets")
    tokenizer: Literal["bpe", "split"] = Field(
        default="bpe", description="learn BPE from raw text, or take text that is already split"
    )
    vocab_size: int = Field(
        default=8000,
        ge=16,
        description="size of a learned BPE vocabulary; for split text the expected size, used for "
        "estimates before the text is read",
    )
    vocabulary: list[str] = Field(
        default_factory=list[str],
        description="for split text: a fairseq dict.txt in dir, or two (source, target) if the "
        "vocabulary is not shared",
    )
    shared_vocab: bool = Field(default=True, description="one vocabulary for both languages")
    bpe_dropout: float = Field(
        default=0.0, ge=0.0, lt=1.0, description="skip merges at random in training"
    )
    max_length: int = Field(default=256, ge=1, description="longest training sentence, in tokens")
    max_source: int = Field(
        default=0, ge=0, description="truncate sources to this many tokens; 0 for no limit"
    )
    max_ratio: float = Field(
        default=9.0, ge=1.0, description="largest ratio of the two lengths in tokens"
    )

    lowercased: bool = Field(
        default=False,
        description="the text is lower-cased, so ignore case when scoring against raw references",
    )
    split_compounds: bool = Field(
        default=False,
        description="split German compounds at hyphens for tokenised BLEU, as in published WMT14 "
        "English-German scores",
    )
    raw_references: dict[str, str] = Field(
        default_factory=dict[str, str],
        description="for split text: files in dir with raw references for sacreBLEU and chrF, by "
        "the name of the test set",
    )

    def mistakes(self) -> Iterator[tuple[bool, str]]:
        yield (
            self.max_source > self.max_length,
            f"a source truncated to max_source = {self.max_source} tokens is still longer than "
            f"max_length = {self.max_length} and would be dropped; raise max_length",
        )
        yield (
            self.split_compounds and language_of(self.target) not in GERMAN,
            f"split_compounds is for translations into German, but target = {self.target!r}; "
            "remove it",
        )
        yield (
            bool(self.raw_references) and self.tokenizer != "split",
            f"raw_references are for text that is already split, but tokenizer = "
            f"{self.tokenizer!r} reads raw text; remove them",
        )
        unknown = sorted(self.raw_references.keys() - set(self.test))
        yield (
            bool(unknown),
            f"raw_references names {', '.join(map(repr, unknown))}, which is not a test set; test "
            f"has {', '.join(map(repr, self.test)) or 'none'}",
        )
        yield (
            self.source == self.target and ".tsv" not in self.train,
            f"source and target are both {self.source!r}, so both sides would be the same file; "
            "give two different extensions",
        )
