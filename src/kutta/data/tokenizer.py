"""Text to ids and back: BPE learned by sentencepiece, or text that is already split."""

import io
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from operator import add
from pathlib import Path
from typing import Any, Self, cast, final

import numpy as np
import sentencepiece
from numpy.typing import NDArray

from kutta.data.corpus import read_lines
from kutta.errors import InputError
from kutta.integrity import check, drop, recorded

PAD, UNK, BOS, EOS = 0, 1, 2, 3
SPECIALS = ("<pad>", "<unk>", "<s>", "</s>")

Ids = Sequence[int] | NDArray[np.integer[Any]]
Pair = tuple[Ids, Ids]

# More sentences hardly change the learned subwords, and memory stays bounded.
SENTENCES_TO_LEARN_FROM = 2_000_000
LONGEST_TO_LEARN_FROM = 4_192  # bytes of a sentence; longer ones are skipped in learning
SPACE = "\N{LOWER ONE EIGHTH BLOCK}"  # how sentencepiece writes a space inside its subwords


@final
class BPE:
    """Byte-pair encoding; characters outside the vocabulary fall back to bytes."""

    def __init__(self, model: bytes) -> None:
        self._model = model
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)

    @classmethod
    def learn(cls, lines: Iterable[str], vocab_size: int) -> Self:
        """Learn at most `vocab_size` subwords (fewer if the text has no more to merge)."""
        model, failures = io.BytesIO(), list[InputError]()

        def sentences() -> Iterator[str]:
            # sentencepiece turns every exception of its iterator into a RuntimeError.
            try:
                yield from (" ".join(line.split()) for line in lines)
            except InputError as error:
                failures.append(error)

        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=sentences(),
                model_writer=model,
                model_type="bpe",
                vocab_size=vocab_size,
                character_coverage=1.0,
                byte_fallback=True,
                pad_id=PAD,
                unk_id=UNK,
                bos_id=BOS,
                eos_id=EOS,
                normalization_rule_name="identity",
                hard_vocab_limit=False,
                input_sentence_size=SENTENCES_TO_LEARN_FROM,
                shuffle_input_sentence=True,
                max_sentence_length=LONGEST_TO_LEARN_FROM,
                num_threads=1,  # written into the model; fixed, so that the file is reproducible
                minloglevel=2,
            )
        except RuntimeError as error:
            failures.append(_not_learned(str(error), vocab_size))
        if failures:
            raise failures[0]
        return cls(model.getvalue())

    def encode(self, text: str) -> list[int]:
        words = text.split()
        if SPACE in text:
            return list(chain.from_iterable(self.encode_words(words)))
        return cast(list[int], self._processor.encode(" ".join(words)))

    def encode_words(self, words: Sequence[str]) -> list[list[int]]:
        """The ids of many words; the ids of a text are the concatenation of those of its words."""
        encoded = cast(list[list[int]], self._processor.encode(list(words), num_threads=1))
        # A literal ▁ would be decoded as a space, so it is encoded as bytes.
        space, both = self._part(SPACE), zip(words, encoded, strict=True)
        return [space + self._bytes(word) if SPACE in word else ids for word, ids in both]

    def decode(self, ids: Ids) -> str:
        """The text of `ids`, without PAD, UNK, BOS and EOS."""
        return cast(str, self._processor.decode([int(i) for i in ids if i >= len(SPECIALS)]))

    @property
    def tokens(self) -> list[str]:
        """The subwords by id."""
        return [self._processor.id_to_piece(i) for i in range(len(self))]

    def sample(self, ids: Sequence[Ids], dropout: float, seed: int) -> list[list[int]]:
        """The same texts re-segmented, each possible merge skipped with probability `dropout`.

        This is BPE-dropout (Provilkov et al., 2020). sentencepiece's own cannot be seeded, and a
        resumed run has to see the same subwords again.
        """
        draw = random.Random(seed).random
        texts = [self.decode(row).split() for row in ids]
        return [[i for w in words for i in self._sampled(w, dropout, draw)] for words in texts]

    def __len__(self) -> int:
        return self._processor.get_piece_size()

    def save(self, path: Path) -> None:
        with recorded(path) as temporary:
            temporary.write_bytes(self._model)

    @classmethod
    def load(cls, path: Path) -> Self:
        try:
            tokenizer = cls(path.read_bytes())
            pieces = tokenizer.tokens
        except (OSError, RuntimeError, UnicodeDecodeError) as error:
            raise _damaged(path) from error
        if tuple(pieces[: len(SPECIALS)]) != SPECIALS:
            raise _damaged(path)
        return tokenizer

    @cached_property
    def _merges(self) -> dict[str, int]:
        """What merges produce, with the ids: the smaller the id, the earlier the merge."""
        ids = range(len(SPECIALS), len(self))
        return {self._processor.id_to_piece(i): i for i in ids if not self._processor.is_byte(i)}

    def _sampled(self, word: str, dropout: float, draw: Callable[[], float]) -> list[int]:
        if SPACE in word:
            return self.encode(word)
        merges, parts = self._merges, [SPACE, *word]
        while True:
            kept = [
                (merges[both], i)
                for i, both in enumerate(map(add, parts, parts[1:]))
                if both in merges and draw() >= dropout
            ]
            if not kept:
                return list(chain.from_iterable(map(self._part, parts)))
            _, first = min(kept)
            parts[first : first + 2] = [parts[first] + parts[first + 1]]

    def _part(self, part: str) -> list[int]:
        """The id of a subword, or the ids of its bytes if it is not one."""
        return [self._merges[part]] if part in self._merges else self._bytes(part)

    def _bytes(self, text: str) -> list[int]:
        return [self._processor.piece_to_id(f"<0x{byte:02X}>") for byte in text.encode()]


@final
class Pretokenized:
    """Text already split into tokens; decoding joins a token that ends in `@@` with the next."""

    def __init__(self, tokens: Sequence[str]) -> None:
        """`tokens` are the ordinary ones; their ids follow the four special ones."""
        self._tokens = [*SPECIALS, *tokens]
        # Without the special tokens: a "<pad>" in a text is an ordinary word.
        self._ids = {token: i for i, token in enumerate(tokens, start=len(SPECIALS))}

    @classmethod
    def of(cls, counts: Mapping[str, int]) -> Self:
        """The vocabulary of counted tokens: most frequent first, ties in alphabetical order."""
        if not counts:
            raise InputError("There are no tokens to build a vocabulary from; the text is empty.")
        return cls(sorted(counts, key=lambda token: (-counts[token], token)))

    def encode(self, text: str) -> list[int]:
        return [self._ids.get(token, UNK) for token in text.split()]

    def encode_words(self, words: Sequence[str]) -> list[list[int]]:
        return [[self._ids.get(word, UNK)] for word in words]

    def decode(self, ids: Ids) -> str:
        return join_subwords(" ".join(self._tokens[int(i)] for i in ids if i >= len(SPECIALS)))

    @property
    def tokens(self) -> list[str]:
        """The tokens by id, the special ones first."""
        return self._tokens

    def __len__(self) -> int:
        return len(self._tokens)

    def save(self, path: Path) -> None:
        with recorded(path) as temporary:
            temporary.write_text("".join(f"{token}\n" for token in self._tokens), "utf-8")

    @classmethod
    def load(cls, path: Path) -> Self:
        tokens = list(read_lines(path))
        specials, ordinary = tokens[: len(SPECIALS)], tokens[len(SPECIALS) :]
        proper = ordinary and all(token.split() == [token] for token in ordinary)
        if tuple(specials) != SPECIALS or not proper or len(set(ordinary)) != len(ordinary):
            raise _damaged(path)
        return cls(ordinary)


# Text to ids without BOS and EOS, word by word, and back. Whitespace becomes one space.
Tokenizer = BPE | Pretokenized


def join_subwords(text: str) -> str:
    """Join subwords back into words: one that ends in `@@` joins with the next."""
    return (text + " ").replace("@@ ", "").strip()


@dataclass(frozen=True)
class Tokenizers:
    """The tokenizers of both sides; with a shared vocabulary they are the same object."""

    source: Tokenizer
    target: Tokenizer

    @property
    def shared(self) -> bool:
        return self.source is self.target

    def save(self, folder: Path) -> None:
        """Write them to `folder`, and remove the files of any other kind of tokenizer."""
        names = _FILES[type(self.source), self.shared]
        for name, tokenizer in zip(names, (self.source, self.target), strict=False):
            tokenizer.save(folder / name)
        drop(folder, {name for others in _FILES.values() for name in others} - set(names))

    @classmethod
    def load(cls, folder: Path) -> Self:
        for (kind, _), names in _FILES.items():
            if (folder / names[0]).is_file():
                for name in names:
                    check(folder / name)
                loaded = [kind.load(folder / name) for name in names]
                return cls(loaded[0], loaded[-1])
        wanted = ", ".join(names[0] for names in _FILES.values())
        raise InputError(f"There is no tokenizer in {folder} ({wanted}); prepare the data first.")

    def dropout(self, rate: float) -> Callable[[Sequence[Pair], int], list[Pair]]:
        """The function (pairs, seed) -> pairs that re-segments both sides with BPE-dropout."""
        source, target = self.source, self.target
        if not isinstance(source, BPE) or not isinstance(target, BPE):
            raise InputError('data.bpe_dropout needs data.tokenizer = "bpe"; set it to 0.')

        def resample(pairs: Sequence[Pair], seed: int) -> list[Pair]:
            sources = source.sample([pair[0] for pair in pairs], rate, 2 * seed)
            targets = target.sample([pair[1] for pair in pairs], rate, 2 * seed + 1)
            return list(zip(sources, targets, strict=True))

        return resample


_FILES: dict[tuple[type[Tokenizer], bool], tuple[str, ...]] = {
    (BPE, True): ("tokenizer.model",),
    (BPE, False): ("tokenizer.source.model", "tokenizer.target.model"),
    (Pretokenized, True): ("vocab.txt",),
    (Pretokenized, False): ("vocab.source.txt", "vocab.target.txt"),
}


def saved_vocabulary(folder: Path) -> dict[str, bytes]:
    """The contents of the tokenizer files in a folder, by name."""
    files = (folder / name for names in _FILES.values() for name in names)
    return {file.name: file.read_bytes() for file in files if file.is_file()}


def _damaged(path: Path) -> InputError:
    return InputError(f"{path} is damaged or not a Kutta tokenizer; prepare the data again.")


def _not_learned(message: str, vocab_size: int) -> InputError:
    if "smaller than required_chars" in message:
        needed = message.split(" vs ")[1].split(".")[0]
        return InputError(
            f"data.vocab_size = {vocab_size} is too small: the characters, bytes and special "
            f"tokens of this text already take {needed} entries; set it to more than that."
        )
    lines = f"non-empty lines of at most {LONGEST_TO_LEARN_FROM:,} bytes"
    return InputError(f"Cannot learn a BPE vocabulary ({message.strip()}); the text needs {lines}.")
