"""BLEU and chrF, counted by sacrebleu: tokenised BLEU as of multi-bleu.perl, sacreBLEU and chrF."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from sacrebleu.metrics.bleu import BLEU, BLEUScore
from sacrebleu.metrics.chrf import CHRF

from kutta import __version__
from kutta.metrics.moses import moses_signature, moses_tokenize, split_hyphens
from kutta.metrics.score import Counts, Lines, Metric, Score


def multi_bleu(
    lowercase: bool = False, language: str | None = None, split_compounds: bool = False
) -> Metric:
    """BLEU-4 over white-space tokens, without smoothing; given its `language`, of raw text."""
    case = "lc-ascii" if lowercase else "mixed"
    moses = moses_signature(language) if language else "none"
    settings = f"case:{case}|tok:{moses}{'+atat' if split_compounds else ''}"
    bleu = sacre(BLEU, tokenize="none", smooth_method="none")

    def words(lines: Lines) -> list[str]:
        """The lines with each word written as the hex digits of its bytes.

        Perl reads bytes, so only ASCII letters have case and only ASCII spaces separate words.
        """
        tokenized = moses_tokenize(lines, language) if language else lines
        split = map(split_hyphens, tokenized) if split_compounds else tokenized
        encoded = (line.encode("utf-8", "surrogatepass") for line in split)
        cased = (line.lower() if lowercase else line for line in encoded)
        return [" ".join(map(bytes.hex, line.split())) for line in cased]

    def count(hypotheses: Lines, references: Sequence[Lines]) -> Counts:
        return bleu.count(words(hypotheses), [*map(words, references)])

    def score(sums: Counts, references: int) -> Score:
        signature = (
            f"kutta|tokenized|multi-bleu|nrefs:{references}|{settings}"
            f"|smooth:none|version:{__version__}"
        )
        return replace(bleu.score(sums, references), name="BLEU", signature=signature)

    return Metric(count, score)


def sacre(kind: type[BLEU] | type[CHRF], **options: Any) -> Metric:
    """BLEU (13a tokens, exponential smoothing) or chrF2 of sacrebleu, with these options."""
    if kind is BLEU:  # silence a warning about tokenised text; signatures state that instead
        options["force"] = True
    make = partial(kind, **options)

    # sacrebleu's own significance tests use these two private methods to separate counting from
    # scoring; its public functions go from text to score, which is too slow for a bootstrap.
    def count(hypotheses: Lines, references: Sequence[Lines]) -> Counts:
        counts = make()._extract_corpus_statistics(hypotheses, references)  # pyright: ignore[reportPrivateUsage]
        return np.array(counts, dtype=np.float64)

    def score(sums: Counts, references: int) -> Score:
        metric = make()
        metric.num_refs = references
        result = metric._compute_score_from_stats(sums.tolist())  # pyright: ignore[reportPrivateUsage]
        signature = metric.get_signature().format()
        if not isinstance(result, BLEUScore):
            return Score(result.name, result.score, "", signature)
        return Score("sacreBLEU", result.score, _details(result), signature)

    return Metric(count, score)


def _details(bleu: BLEUScore) -> str:
    """What multi-bleu.perl prints after the score, in the same format."""
    ratio = bleu.sys_len / bleu.ref_len if bleu.ref_len else 0.0
    return (
        f"{'/'.join(f'{p:.1f}' for p in bleu.precisions)} (BP={bleu.bp:.3f}, "
        f"ratio={ratio:.3f}, hyp_len={bleu.sys_len:.0f}, ref_len={bleu.ref_len:.0f})"
    )
