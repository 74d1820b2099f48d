"""The text that all toolkits train on, with its vocabulary; and invented text of any size."""

import gzip
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from peers.toolkit import SOURCE, TARGET

FOLDER = Path("multi30k-bpe") / "en-de"

# Invented text: lengths and word frequencies are like those of real text.
LANGUAGES = {
    "en": ("a e i o u ea ou", "b c d f g h l m n p r s t w th st"),
    "de": ("a e i o u ä ö ü au ei", "b d f g h k l m n r s t w z ch sch"),
}
TYPES = 2_000_000  # different words of a language
UNIQUE = 1_000_000  # pairs of text; a longer corpus says them again
VALID = 20_000  # pairs


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


def spell(language: str) -> list[str]:
    """Invented words, the frequent ones short: all of one syllable, then all of two, ..."""
    vowels, consonants = (letters.split() for letters in LANGUAGES[language])
    syllables = [c + v + end for end in ("", "n") for c in consonants for v in vowels]
    np.random.default_rng(1).shuffle(syllables)
    words, last = list[str](), [""]
    while len(words) < TYPES:
        last = [word + syllable for word in last[: TYPES // 100] for syllable in syllables]
        words += last
    return words[:TYPES]


def sentences(pairs: int, seed: int) -> Iterator[dict[str, str]]:
    """Text of both languages, some ten thousand lines at a time.

    Lengths are like those of newstest (22 words on average), frequencies fall as those of real
    words do: the first 100 make up 57% of the text, the first 10,000 91%, the first 131,000 96%.
    """
    draw = np.random.default_rng(seed)
    words = {language: np.array(spell(language), object) for language in LANGUAGES}
    for start in range(0, pairs, 20_000):
        typical = draw.gamma(3.2, 7.0, min(20_000, pairs - start))
        text: dict[str, str] = {}
        for language in LANGUAGES:
            lengths = np.clip(typical * draw.normal(1, 0.12, len(typical)), 1, 120).astype(int)
            rank = 10 * ((1 - draw.random(lengths.sum())) ** (-1 / 0.35) - 1)
            spoken = words[language][np.fmod(rank, TYPES).astype(int)].tolist()
            ends = np.cumsum(lengths).tolist()
            rows = zip([0, *ends], ends, strict=False)
            text[language] = "".join(" ".join(spoken[i:j]) + ".\n" for i, j in rows)
        yield text


def invent(folder: Path, pairs: int, seed: int = 1) -> int:
    """Write invented train and valid text of both languages; return the bytes of train.

    Above a million, `pairs` is a number of whole millions.
    """
    assert pairs <= UNIQUE or pairs % UNIQUE == 0, "a large corpus repeats whole millions"
    folder.mkdir(parents=True, exist_ok=True)
    files = {language: folder / f"train.{language}" for language in LANGUAGES}
    for part, count, number in (("train", min(pairs, UNIQUE), seed), ("valid", VALID, seed + 1)):
        handles = {k: (folder / f"{part}.{k}").open("w", encoding="utf-8") for k in LANGUAGES}
        for text in sentences(count, number):
            for language, handle in handles.items():
                handle.write(text[language])
        for handle in handles.values():
            handle.close()
    for file in files.values():
        text = file.read_bytes()
        with file.open("ab") as handle:
            for _ in range(pairs // UNIQUE - 1):
                handle.write(text)
    return sum(file.stat().st_size for file in files.values())
