"""The text that all toolkits train on, and their vocabulary."""

import gzip
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from peers.toolkit import SOURCE, TARGET

FOLDER = Path("multi30k-bpe") / "en-de"


@dataclass(frozen=True)
class Corpus:
    """Plain text in a folder; tokens count the end mark of each sentence."""

    folder: Path
    words: int
    source_tokens: int
    target_tokens: int

    @property
    def source_per_target(self) -> float:
        return self.source_tokens / self.target_tokens


def unpack(data: Path, folder: Path) -> Corpus:
    """Write train.en, train.de, valid.en, valid.de and vocab.txt, the frequent words first."""
    words: Counter[str] = Counter()
    tokens: dict[str, int] = {}
    for part in ("train", "valid"):
        for language in (SOURCE, TARGET):
            lines = read(data / FOLDER / f"{part}.{language}").splitlines()
            (folder / f"{part}.{language}").write_text("\n".join(lines) + "\n", "utf-8")
            if part == "train":
                split = [line.split() for line in lines]
                tokens[language] = sum(map(len, split)) + len(split)
                words.update(word for line in split for word in line)
    (folder / "vocab.txt").write_text("".join(f"{w}\n" for w, _ in words.most_common()), "utf-8")
    return Corpus(folder, len(words), tokens[SOURCE], tokens[TARGET])


def read(path: Path) -> str:
    packed = path.with_name(path.name + ".gz")
    if packed.is_file():
        return gzip.decompress(packed.read_bytes()).decode("utf-8")
    if path.is_file():
        return path.read_text("utf-8")
    raise SystemExit(f"There is no {path} (or {packed.name}); say where the corpora are: --data")
