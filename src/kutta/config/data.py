"""[data]: the text."""

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from kutta.config.section import Section

GERMAN = frozenset({"de", "deu", "ger"})


def language_of(name: str) -> str:
    """The language in the name of a file's ending, such as de of de-AT."""
    return name.replace("_", "-").partition("-")[0].lower()


class DataConfig(Section):
    """Where the text is and how it is split into tokens."""

    dir: str = Field(min_length=1, description="folder of the text files")
    source: str = Field(
        default="",
        description="source language: the ending of its files; none for a language model",
    )
    target: str = Field(min_length=1, description="target language: the ending of the target files")
    train: str = Field(default="train", description="name of the training files, or a .tsv")
    valid: str = Field(default="valid", description="name of the validation files, or a .tsv")
    test: list[str] = Field(default_factory=list[str], description="names of the test sets")
    tokenizer: Literal["bpe", "split"] = Field(
        default="bpe", description="learn BPE, or text is split"
    )
    vocab_size: int = Field(
        default=8000,
        ge=16,
        description="tokens of a learned BPE vocabulary; split text: how many to expect, for "
        "estimates before it is read",
    )
    vocabulary: list[str] = Field(
        default_factory=list[str],
        description="split text: fairseq dict.txt in dir; two (source, target) unless shared",
    )
    shared_vocab: bool = Field(default=True, description="one vocabulary for both languages")
    bpe_dropout: float = Field(
        default=0.0, ge=0.0, lt=1.0, description="skip merges at random in training"
    )
    max_length: int = Field(default=256, ge=1, description="longest training sentence, in tokens")
    max_source: int = Field(
        default=0, ge=0, description="cut longer sources to so many tokens; 0 cuts none"
    )
    max_ratio: float = Field(
        default=9.0, ge=1.0, description="largest ratio of the two lengths in tokens"
    )

    lowercased: bool = Field(
        default=False, description="the text is lower-cased: scores of raw references ignore case"
    )
    split_compounds: bool = Field(
        default=False,
        description="tokenised BLEU with German compounds split at hyphens, as published WMT14 "
        "English-German scores are",
    )
    raw_references: dict[str, str] = Field(
        default_factory=dict[str, str],
        description="split text: files in dir with the raw references of test sets, by the name "
        "of the test set, for sacreBLEU and chrF",
    )

    def mistakes(self) -> Iterator[tuple[bool, str]]:
        yield (
            self.max_source > self.max_length,
            f"a source cut to max_source = {self.max_source} tokens is still longer than "
            f"max_length = {self.max_length}, so it is dropped; raise max_length",
        )
        yield (
            self.split_compounds and language_of(self.target) not in GERMAN,
            f"split_compounds is how translations into German are scored, and target = "
            f"{self.target!r}; leave it out",
        )
        yield (
            bool(self.raw_references) and self.tokenizer != "split",
            f"raw_references are for text that is already split, and tokenizer = "
            f"{self.tokenizer!r} reads raw text; leave them out",
        )
        unknown = sorted(self.raw_references.keys() - set(self.test))
        yield (
            bool(unknown),
            f"raw_references names {', '.join(map(repr, unknown))}, which is no test set; test has "
            f"{', '.join(map(repr, self.test)) or 'none'}",
        )
        yield (
            self.source == self.target and ".tsv" not in self.train,
            f"source and target are both {self.source!r}, one file for both sides; give the "
            "endings of two",
        )
