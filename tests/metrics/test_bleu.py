"""Metrics against independent arithmetic, against Moses' printed lines, and against sacrebleu."""

import importlib.metadata
import json
import math
import random
from collections.abc import Callable, Sequence
from fractions import Fraction

import pytest
import sacrebleu
from hypothesis import given, settings
from hypothesis import strategies as st

from kutta.errors import InputError
from kutta.metrics import METRICS, Metric, Score, moses_detokenize, moses_signature, multi_bleu
from kutta.metrics.moses import moses_languages, moses_tokenize, split_hyphens
from kutta.metrics.score import Lines, References

HYPOTHESES = [
    "Ein Mann geht mit seinem Hund die Straße entlang .",
    "Zwei kleine Kinder spielen im Garten Ball .",
    "Ärzte stehen vor dem Krankenhaus .",
]
REFERENCES = [
    "Ein Mann geht mit dem Hund die Straße entlang .",
    "Zwei Kinder spielen im Garten mit einem Ball .",
    "ärzte stehen Vor dem Krankenhaus und reden .",
]
OTHERS = [
    "Ein Herr geht mit seinem Hund spazieren .",
    "Zwei kleine Kinder spielen Ball .",
    "Die Ärzte stehen vor dem neuen Krankenhaus .",
]

unhurried = settings(deadline=None)  # a busy machine is no failure
words = st.sampled_from(["a", "b", "c", "d", "é", "Ähre"])
line = st.lists(words, max_size=9).map(" ".join)
long_line = st.lists(words, min_size=4, max_size=9).map(" ".join)


def tokenized_bleu(
    hypotheses: Lines,
    references: References,
    lowercase: bool = False,
    language: str | None = None,
    split_compounds: bool = False,
) -> Score:
    return multi_bleu(lowercase, language, split_compounds)(hypotheses, references)


def texts(count: int, size: int = 6) -> st.SearchStrategy[list[list[str]]]:
    """`count` parallel texts of one to `size` lines each."""
    rows = st.lists(st.tuples(*[line] * count), min_size=1, max_size=size)
    return rows.map(lambda rows: [list(column) for column in zip(*rows, strict=True)])


def bleu_by_definition(hypotheses: Sequence[str], *references: Sequence[str]) -> float:
    """BLEU-4 from the formula: exact fractions, each n-gram looked up by walking the lists."""

    def occurrences(ngram: list[str], tokens: list[str]) -> int:
        return sum(tokens[i : i + len(ngram)] == ngram for i in range(len(tokens)))

    product = Fraction(1)
    for n in (1, 2, 3, 4):
        matched = total = 0
        for number, hypothesis in enumerate(hypotheses):
            tokens = hypothesis.split(" ") if hypothesis else []
            rivals = [r[number].split(" ") if r[number] else [] for r in references]
            for i in range(len(tokens) - n + 1):
                ngram = tokens[i : i + n]
                total += 1
                # The k-th occurrence counts if some reference has the n-gram k times.
                k = occurrences(ngram, tokens[: i + n])
                matched += any(occurrences(ngram, rival) >= k for rival in rivals)
        if matched == 0:
            return 0.0
        product *= Fraction(matched, total)
    h = r = 0
    for number, hypothesis in enumerate(hypotheses):
        length = len(hypothesis.split())
        h += length
        r += sorted(
            (abs(len(t[number].split()) - length), len(t[number].split())) for t in references
        )[0][1]
    return 100 * float(product) ** 0.25 * min(1.0, math.e ** (1 - r / h))


class TestTokenizedBleu:
    @pytest.mark.parametrize(
        ("references", "lowercase", "printed"),
        [
            (
                REFERENCES,
                False,
                "41.60, 83.3/57.1/38.9/26.7 (BP=0.882, ratio=0.889, hyp_len=24, ref_len=27)",
            ),
            (
                REFERENCES,
                True,
                "49.28, 87.5/66.7/50.0/33.3 (BP=0.882, ratio=0.889, hyp_len=24, ref_len=27)",
            ),
            (
                OTHERS,
                False,
                "40.23, 75.0/52.4/33.3/20.0 (BP=1.000, ratio=1.091, hyp_len=24, ref_len=22)",
            ),
            (
                [REFERENCES, OTHERS],
                False,
                "66.43, 100.0/95.2/72.2/46.7 (BP=0.882, ratio=0.889, hyp_len=24, ref_len=27)",
            ),
            (
                [REFERENCES, OTHERS],
                True,
                "69.96, 100.0/95.2/77.8/53.3 (BP=0.882, ratio=0.889, hyp_len=24, ref_len=27)",
            ),
        ],
    )
    def test_prints_the_line_that_moses_multi_bleu_perl_printed(
        self, references: list[str], lowercase: bool, printed: str
    ):
        score = tokenized_bleu(HYPOTHESES, references, lowercase=lowercase)
        assert str(score) == f"BLEU = {printed} [{score.signature}]"

    def test_hand_computed_example(self):
        # Matches 5/6, 3/5, 2/4, 1/3; six words against eight: BP = exp(1 - 8/6).
        score = tokenized_bleu(["a b c d x f"], ["a b c d e f g h"])
        expected = 100 * math.exp(-1 / 3) * (5 / 6 * 3 / 5 * 2 / 4 * 1 / 3) ** (1 / 4)
        assert score.value == pytest.approx(expected, rel=1e-12)
        assert score.details == "83.3/60.0/50.0/33.3 (BP=0.717, ratio=0.750, hyp_len=6, ref_len=8)"

    def test_repeated_words_count_only_as_often_as_the_reference_has_them(self):
        score = tokenized_bleu(["the the the the the the the"], ["the cat is on the mat"])
        assert score.details.startswith("28.6/0.0/0.0/0.0 ")  # 2 of 7
        assert score.value == 0.0

    def test_a_zero_precision_makes_the_score_zero_without_smoothing(self):
        score = tokenized_bleu(["a b c d", "e f g"], ["a b x d", "e f g h"])
        assert str(score).startswith("BLEU = 0.00, 85.7/60.0/33.3/0.0 (BP=0.867")

    def test_of_two_references_as_close_the_shorter_gives_the_length(self):
        assert "ref_len=3)" in tokenized_bleu(["a b c d"], [["a b c d e"], ["a b c"]]).details
        assert "ref_len=5)" in tokenized_bleu(["a b c d"], [["a b c d e"], ["a"]]).details

    def test_only_ascii_spaces_part_words_as_in_perl(self):
        hypothesis, reference = "a b c d 10\u00a0000\te", "a b c d 10 000 e"
        assert "hyp_len=6, ref_len=7)" in tokenized_bleu([hypothesis], [reference]).details

    def test_empty_hypotheses_score_zero(self):
        score = tokenized_bleu(["", ""], ["a b c d e", "f"])
        assert score.value == 0.0
        assert score.details == "0.0/0.0/0.0/0.0 (BP=0.000, ratio=0.000, hyp_len=0, ref_len=6)"
        assert tokenized_bleu([""], [""]).value == 0.0

    @unhurried
    @given(texts(2))
    def test_equals_the_definition(self, pair: list[list[str]]):
        expected = bleu_by_definition(*pair)
        assert tokenized_bleu(*pair).value == pytest.approx(expected, abs=1e-9)

    @unhurried
    @given(texts(4, size=4))
    def test_equals_the_definition_with_several_references(self, columns: list[list[str]]):
        hypotheses, *references = columns
        expected = bleu_by_definition(hypotheses, *references)
        assert tokenized_bleu(hypotheses, references).value == pytest.approx(expected, abs=1e-9)

    @unhurried
    @given(texts(3))
    def test_equals_sacrebleu_without_tokenizer_and_smoothing(self, columns: list[list[str]]):
        hypotheses, *references = columns
        peer = sacrebleu.BLEU(tokenize="none", smooth_method="none", force=True)
        expected = peer.corpus_score(hypotheses, references)
        score = tokenized_bleu(hypotheses, references)
        assert score.value == pytest.approx(expected.score, abs=1e-9)
        assert f"hyp_len={expected.sys_len}, ref_len={expected.ref_len})" in score.details

    @unhurried
    @given(st.lists(long_line, min_size=1, max_size=6))
    def test_a_text_against_itself_is_100(self, lines: list[str]):
        assert tokenized_bleu(lines, lines).value == pytest.approx(100, abs=1e-9)

    @unhurried
    @given(texts(2), st.randoms(use_true_random=False))
    def test_the_order_of_sentences_does_not_matter(
        self, pair: list[list[str]], shuffler: random.Random
    ):
        rows = list(zip(*pair, strict=True))
        shuffler.shuffle(rows)
        hypotheses, references = zip(*rows, strict=True)
        assert tokenized_bleu(hypotheses, references) == tokenized_bleu(*pair)

    def test_signature_tells_references_case_and_tokenizer(self):
        plain = tokenized_bleu(HYPOTHESES, REFERENCES).signature
        assert plain.startswith(
            "kutta|tokenized|multi-bleu|nrefs:1|case:mixed|tok:none|smooth:none"
        )
        raw = tokenized_bleu(
            HYPOTHESES,
            [REFERENCES, OTHERS],
            lowercase=True,
            language="de",
            split_compounds=True,
        ).signature
        assert "|nrefs:2|case:lc-ascii|tok:moses-de-sacremoses-" in raw
        assert "+atat|smooth:none|" in raw


class TestMosesTokenize:
    def test_parts_punctuation_and_keeps_german_abbreviations(self):
        raw = ['Er sagt: "Nein", z.B. am 3. Mai (2014).', ""]
        expected = "Er sagt : &quot; Nein &quot; , z.B. am 3. Mai ( 2014 ) ."
        assert moses_tokenize(raw, "de") == [expected, ""]

    def test_raw_text_scores_as_its_tokens_do(self):
        hypotheses = ["Das ist ein rich-text-Format, oder?", "Ja, das ist es wohl."]
        references = ["Dies ist ein rich-text-Format, nicht?", "Ja, das ist es."]
        tokens = [
            [split_hyphens(line) for line in moses_tokenize(text, "de")]
            for text in (hypotheses, references)
        ]
        raw = tokenized_bleu(hypotheses, references, language="de", split_compounds=True)
        assert (raw.value, raw.details) == (
            tokenized_bleu(*tokens).value,
            tokenized_bleu(*tokens).details,
        )
        assert raw.value > tokenized_bleu(hypotheses, references, language="de").value > 0

    @pytest.mark.parametrize(
        ("line", "split"),
        [
            ("rich-text format", "rich ##AT##-##AT## text format"),
            ("a-b-c", "a ##AT##-##AT## b-c"),
            ("100-prozentig - ja -", "100 ##AT##-##AT## prozentig - ja -"),
            ("a\u00a0-b", "a\u00a0 ##AT##-##AT## b"),  # to Perl this space is a letter
        ],
    )
    def test_compounds_are_split_as_for_published_wmt14_scores(self, line: str, split: str):
        assert split_hyphens(line) == split

    def test_unknown_language_is_named(self):
        with pytest.raises(InputError, match=r"'xx'.*choose one of .*\bde\b"):
            moses_tokenize(["a"], "xx")


class TestSacrebleu:
    def test_same_numbers_and_signatures_as_sacrebleu(self):
        peers = {
            "sacrebleu": sacrebleu.BLEU(),
            "chrf": sacrebleu.CHRF(),
            "chrf++": sacrebleu.CHRF(word_order=2),
        }
        for references in ([REFERENCES], [REFERENCES, OTHERS]):
            for name, peer in peers.items():
                expected = peer.corpus_score(HYPOTHESES, references).score
                score = METRICS[name](HYPOTHESES, references)
                assert score.value == pytest.approx(expected, abs=1e-12)
                assert score.signature == peer.get_signature().format()

    def test_the_table_has_every_metric(self):
        assert tokenized_bleu(HYPOTHESES, OTHERS) == METRICS["bleu"](HYPOTHESES, OTHERS)
        names = [METRICS[name](HYPOTHESES, OTHERS).name for name in METRICS]
        assert names == ["BLEU", "sacreBLEU", "chrF2", "chrF2++", "ROUGE-1", "ROUGE-2", "ROUGE-L"]

    def test_chrf_by_hand(self):
        # Against "abcd", "abce" matches 3/4 letters, 2/3 pairs, 1/2 triples and 0/1 of four.
        precision = recall = (3 / 4 + 2 / 3 + 1 / 2 + 0) / 4
        expected = 100 * 5 * precision * recall / (4 * precision + recall)
        assert METRICS["chrf"](["abce"], ["abcd"]).value == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS.keys())
class TestEveryMetric:
    @unhurried
    @given(texts(3))
    def test_lies_between_0_and_100(self, metric: Metric, columns: list[list[str]]):
        assert 0 <= metric(columns[0], columns[1:]).value <= 100 + 1e-9

    def test_a_text_against_itself_is_100_and_against_another_is_less(self, metric: Metric):
        assert metric(REFERENCES, REFERENCES).value == pytest.approx(100)
        assert metric(HYPOTHESES, REFERENCES).value < 90

    @pytest.mark.parametrize("references", [["a"] * 3, [["a"] * 2, ["a"] * 3]])
    def test_unequal_lengths_are_told_with_both_counts(self, metric: Metric, references: list[str]):
        with pytest.raises(InputError, match=r"have 2 lines but (the reference|reference 2) has 3"):
            metric(["a", "b"], references)

    @pytest.mark.parametrize("references", [[], [[]], [[], []]])
    def test_nothing_to_score_is_told(self, metric: Metric, references: list[str]):
        with pytest.raises(InputError, match="nothing to score"):
            metric([], references)

    def test_one_line_to_print_and_json_to_read(self, metric: Metric):
        score = metric(HYPOTHESES, REFERENCES)
        assert "\n" not in str(score)
        assert str(score).endswith(f"[{score.signature}]")
        assert Score(**json.loads(json.dumps(score.to_dict()))) == score


# ---- Moses' rules and versions --------------------------------------------------------------


@pytest.mark.parametrize("language", ["fr", "en"])
def test_text_is_joined_by_the_rules_of_its_language(language: str):
    """French elides without a space, English has no such rule."""
    tokens = "l' homme , dit-il ."
    joined = {"fr": "l'homme, dit-il.", "en": "l' homme, dit-il."}
    assert moses_detokenize([tokens, ""], language) == [joined[language], ""]


@pytest.mark.parametrize("rules", [moses_tokenize, moses_detokenize])
def test_a_language_without_rules_is_told(rules: Callable[[list[str], str], list[str]]):
    with pytest.raises(InputError, match="'xx'"):
        rules(["a"], "xx")
    assert {"de", "en", "fr", "ro"} <= set(moses_languages())
    assert moses_languages() == sorted(set(moses_languages()))


def test_signatures_name_the_versions_that_are_installed():
    assert (
        moses_signature("de") == f"moses-de-sacremoses-{importlib.metadata.version('sacremoses')}"
    )
    kutta = importlib.metadata.version("kutta")
    assert tokenized_bleu(HYPOTHESES, REFERENCES).signature.endswith(f"|version:{kutta}")


@pytest.mark.parametrize(
    ("hypothesis", "reference", "details"),
    [
        (
            "a b c d e",
            "a b c d",
            "80.0/75.0/66.7/50.0 (BP=1.000, ratio=1.250, hyp_len=5, ref_len=4)",
        ),
        (
            "a b c d",
            "a b c d e",
            "100.0/100.0/100.0/100.0 (BP=0.779, ratio=0.800, hyp_len=4, ref_len=5)",
        ),
        ("a b", "", "0.0/0.0/0.0/0.0 (BP=1.000, ratio=0.000, hyp_len=2, ref_len=0)"),
        ("", "a b", "0.0/0.0/0.0/0.0 (BP=0.000, ratio=0.000, hyp_len=0, ref_len=2)"),
    ],
)
def test_precisions_penalty_and_lengths_are_printed(hypothesis: str, reference: str, details: str):
    """exp(1 - 5/4) = 0.779; a text without words has no precision and no ratio."""
    assert tokenized_bleu([hypothesis], [reference]).details == details


def test_half_of_a_surrogate_pair_is_a_word_like_any_other():
    """Text cut in the middle of a character by other programs is scored, not refused."""
    broken = ["a b c d \ud83d"]
    assert tokenized_bleu(broken, broken).value == pytest.approx(100)
