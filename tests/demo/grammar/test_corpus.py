"""The built-in corpus: every construction, one German per English, honest splits.

The German itself is checked in test_morphology.py and test_clauses.py.
"""

import re
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kutta.demo.grammar import verbs
from kutta.demo.grammar.corpus import PRODUCTIONS, Pair, generate, write_corpus
from kutta.demo.grammar.morphology import HABEN, SEIN

SAMPLES = generate(2_000, seed=2024)

CONSTRUCTIONS = {
    "every": (r"\bevery \w+ ", r"\b[Jj]ede[rsnm]? "),
    "dative": (r"", r"\b(dem|einem|diesem|meinem|vielen|einigen) \w+"),
    "genitive": (r"'s ", r"\b(des|meines|deines|seines|ihres|unseres|eines) "),
    "kein": (r"\bnot .*\b(a|an|any)\b", r"\b[Kk]eine?[mnrs]? "),
    "nicht": (r"\bnot\b", r"\bnicht\b"),
    "number": (r"(twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety)-", r"und(zwan|drei|\w+)"),
    "compound": (r"kitchen (door|table|lamp|chair|window|cupboard)", r"Küchen(t|l|st|f|sch)"),
    "separable": (r"\b(opens?|opening)\b", r"\b[Mm]ach\w*\b.* auf[.,!?]"),
    "separable joined": (r"", r"(aufmach|zumach|einpack|zuhör|anzieh)\w+"),
    "separable zu": (r" to ", r"(auf|zu|an|aus|ab|ein|mit|weg|vor|zurück)zu\w+en[.]"),
    "weil": (r"[Bb]ecause", r"[Ww]eil"),
    "dass": (r"that", r"\bdass\b"),
    "wenn": (r"\b([Ii]f|[Ww]hen)\b", r"\b[Ww]enn\b"),
    "obwohl": (r"[Aa]lthough", r"[Oo]bwohl"),
    "ob": (r"whether", r"\bob\b"),
    "damit": (r"so that", r"\bdamit\b"),
    "um zu": (r"in order to", r", um .*zu"),
    "relative subject": (r"\bwho\b", r", (der|die|das) "),
    "relative dative": (r"\bwhom\b", r", (dem|der|denen) "),
    "relative place": (r"\bin which\b", r", in (dem|der|denen) "),
    "relative whose": (r"\bwhose\b", r", (dessen|deren) "),
    "yes-no question": (r"^(Do|Does|Did|Is|Are|Has|Have|Can) .*\?$", r"\?$"),
    "who": (r"^Who ", r"^Wer "),
    "what": (r"^What ", r"^Was "),
    "whom": (r"^Whom ", r"^We[nm] "),
    "where": (r"^Where ", r"^(Wo|Wohin) "),
    "when": (r"^When .*\?$", r"^Wann "),
    "why": (r"^Why ", r"^Warum "),
    "how": (r"^How (old|many) ", r"^Wie (alt|viele) "),
    "which": (r"^Which ", r"^Welche[rsnm]? "),
    "command": (r"!$", r"!$"),
    "perfect": (r"\b(has|have) ", r"\b([Hh]at|[Hh]aben|ist|sind|habe|hast) .*(en|t)[.?,]"),
    "modal": (r"\b([Cc]an|must|wants? to)\b", r"\b([Kk]ann|[Kk]önnen|muss|müssen|will|wollen)\b"),
    "future": (r"\bwill\b", r"\b([Ww]ird|[Ww]erden|werde|wirst)\b"),
    "two-way accusative": (r"\binto the\b", r"\b(ins|in den|in die) "),
    "two-way dative": (r"\bin the\b", r"\b(im|Im|in der|In der) "),
    "genitive preposition": (
        r"(because of|despite|during)",
        r"([Ww]egen|[Tt]rotz|[Ww]ährend) de[sr] ",
    ),
    "comparison": (r"\bthan\b", r"\bals\b"),
    "es gibt": (r"[Tt]here (is|are)", r"([Ee]s gibt|gibt es)"),
}


@pytest.mark.parametrize("construction", CONSTRUCTIONS)
def test_every_construction_appears(construction: str) -> None:
    english, german_pattern = CONSTRUCTIONS[construction]
    assert any(re.search(english, en) and re.search(german_pattern, de) for en, de in SAMPLES)


def test_every_kind_of_sentence_can_be_drawn_on_its_own() -> None:
    for production in PRODUCTIONS:
        pairs = {production(Random(seed)) for seed in range(50)}
        assert len(pairs) > 40, production.__name__


def test_sentences_look_like_sentences() -> None:
    for english, german_text in SAMPLES:
        assert 4 <= len(english.split()) <= 20
        for text in (english, german_text):
            assert re.fullmatch(r"[A-ZÄÖÜ][^.!?]*[^\s,.!?][.!?]", text), text
            assert not re.search(r"  |,,|,\S| ,", text), text


def test_finite_verb_is_second_after_an_opening_adverb() -> None:
    opened = [
        de for _, de in SAMPLES if re.match(r"(Heute|Gestern|Jetzt|Morgen|Bald) (?!Abend)", de)
    ]
    assert len(opened) > 10
    finite = {form for each in verbs.VERBS for form in each.de.present}
    finite |= {form for modal in (*verbs.MODALS, verbs.WILL) for form in modal.de}
    finite |= {form for each in verbs.ATTEMPTING for form in each.de.present}
    finite |= {*HABEN, *SEIN, "war", "warst", "waren"}
    for text in opened:
        assert text.split()[1] in finite, text


def test_english_determines_german() -> None:
    """50,000 sentences drawn with repetition: the same English never gets a second German."""
    rng = Random(5)
    productions = list(PRODUCTIONS)
    seen: dict[str, str] = {}
    repeated = 0
    for _ in range(50_000):
        english, german_text = productions[int(rng.random() * len(productions))](rng)
        repeated += english in seen
        assert seen.setdefault(english, german_text) == german_text
    assert repeated > 500  # otherwise this test would say nothing


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**32), count=st.integers(0, 60))
def test_the_seed_decides_and_shorter_is_a_prefix(seed: int, count: int) -> None:
    pairs = generate(count, seed)
    assert pairs == generate(count + 5, seed)[:count]
    assert len({english for english, _ in pairs}) == len(pairs) == count


def test_other_seeds_give_other_sentences_and_the_space_is_huge() -> None:
    """Birthday estimate: two samples of n meet n*n/space times."""
    n = 10_000
    met = {en for en, _ in generate(n, 1)} & {en for en, _ in generate(n, 2)}
    long = {en for en in met if len(en.split()) > 7}
    assert len(met) < n / 50
    assert len(long) <= 3  # beyond seven words there are tens of millions at the least


def test_excluded_sentences_stay_out() -> None:
    first: list[Pair] = generate(300, 7)
    taken = {english for english, _ in first[::2]}
    again = generate(300, 7, exclude=taken)
    assert taken.isdisjoint(english for english, _ in again)
    assert again[:150] == first[1::2]


# With this seed the first 2,000 sentences and the rest share German, see the next test.
SEED = 4
SIZES = {"test": 2_000, "valid": 2_000, "train": 4_000}


def test_written_splits_are_disjoint_on_both_sides_and_reproducible(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        write_corpus(tmp_path / folder, **SIZES, seed=SEED)
    for language in ("en", "de"):
        lines: dict[str, set[str]] = {}
        for split, size in SIZES.items():
            name = f"{split}.{language}"
            content = (tmp_path / "a" / name).read_bytes()
            assert content == (tmp_path / "b" / name).read_bytes()
            assert content.count(b"\n") == size
            lines[split] = set(content.decode("utf-8").splitlines())
        assert lines["train"].isdisjoint(lines["valid"] | lines["test"])
        assert lines["valid"].isdisjoint(lines["test"])


def test_sharing_german_is_what_the_splits_have_to_prevent() -> None:
    """'He reads' and 'he is reading' are one in German: cut blindly, the splits would share."""
    german = [de for _, de in generate(sum(SIZES.values()), SEED)]
    assert not set(german[:2_000]).isdisjoint(german[2_000:])


def test_written_lines_are_the_pairs(tmp_path: Path) -> None:
    write_corpus(tmp_path, train=50, valid=10, test=20, seed=3)
    written = [(tmp_path / f"test.{side}").read_text("utf-8").splitlines() for side in ("en", "de")]
    assert list(zip(*written, strict=True)) == generate(20, 3)
