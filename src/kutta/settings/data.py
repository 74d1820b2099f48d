"""[data]: the text."""

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from kutta.settings.section import Section


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

    def mistakes(self) -> Iterator[tuple[bool, str]]:
        yield (
            self.max_source > self.max_length,
            f"a source cut to max_source = {self.max_source} tokens is still longer than "
            f"max_length = {self.max_length}, so it is dropped; raise max_length",
        )
        yield (
            self.source == self.target and ".tsv" not in self.train,
            f"source and target are both {self.source!r}, one file for both sides; give the "
            "endings of two",
        )
