"""How test sets are scored: what is compared with what, and what the signature says of it."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sacrebleu
from sacremoses import MosesDetokenizer, MosesTokenizer

from kutta.config import Config, DataConfig
from kutta.errors import InputError
from kutta.metrics.texts import reference_texts, score_texts, valid_score
from kutta.runs import Run
from kutta.runs.texts import Texts
from kutta.translate.evaluate import Evaluation, eval_sets, evaluate_set
from kutta.translate.translator import Translator
from tests.test_cli import is_one_sentence, kutta

RAW = ["Der Zug fährt um 9.30 Uhr ab, d.h. heute.", "Ein Nord-Süd-Gefälle gibt's auch."]
FOUND = ["Der Zug fährt um 9.30 Uhr, d.h. heute.", "Ein Nord-Süd-Gefälle gibt's nicht."]
SPLIT = [
    "ein nord@@ -@@ süd@@ -@@ ge@@ fälle , sagt er .",
    "der hu@@ nd läuft über die stra@@ ße .",
]
JOINED = ["ein nord-süd-gefälle , sagt er .", "der hund läuft über die straße ."]
HYPOTHESES = ["ein nord-süd-gefälle , sagt sie .", "der hund rennt über die straße ."]


def data(**settings: Any) -> DataConfig:
    return DataConfig.model_validate({"dir": "d", "source": "en", "target": "de"} | settings)


def evaluate(run: Run, translator: Translator, *of: Any, **search: Any) -> list[Evaluation]:
    """The evaluations of the test sets `of`, by default those of the config."""
    return [evaluate_set(run, translator, one, **search) for one in eval_sets(run, *of)]


def multi_bleu(hypotheses: list[str], references: list[str]) -> float:
    """BLEU of white-space tokens by sacrebleu itself, without its tokenizer and smoothing."""
    return sacrebleu.corpus_bleu(
        hypotheses, [references], tokenize="none", smooth_method="none", force=True
    ).score


def moses(lines: list[str], language: str) -> list[str]:
    return [MosesTokenizer(lang=language).tokenize(line, return_str=True) for line in lines]


# ---- raw text -------------------------------------------------------------------------------


@pytest.mark.parametrize(("target", "rules"), [("de", "de"), ("fr", "fr"), ("xx", "en")])
def test_raw_text_is_tokenised_by_the_rules_of_its_language(target: str, rules: str) -> None:
    bleu, sacre, chrf = score_texts(FOUND, RAW, data(target=target))
    assert bleu.value == pytest.approx(multi_bleu(moses(FOUND, rules), moses(RAW, rules)))
    assert f"|tok:moses-{rules}-" in bleu.signature
    assert sacre.value == pytest.approx(sacrebleu.corpus_bleu(FOUND, [RAW]).score)
    assert chrf.value == pytest.approx(sacrebleu.corpus_chrf(FOUND, [RAW]).score)
    assert [score.name for score in (bleu, sacre, chrf)] == ["BLEU", "sacreBLEU", "chrF2"]


def test_the_rules_of_a_language_make_a_difference() -> None:
    """The test above could not tell German rules from English ones otherwise."""
    assert moses(RAW, "de") != moses(RAW, "en")


@pytest.mark.parametrize("tokenizer", ["bpe", "split"])
def test_a_translation_that_says_too_little_is_not_one_that_says_too_much(tokenizer: str) -> None:
    """Hypotheses and references are not exchanged: only the first can be too short."""
    short, long = ["a b c d e f"], ["a b c d e f g h i"]
    settings = data(tokenizer=tokenizer)
    for found, wanted in ((short, long), (long, short)):
        bleu, sacre, chrf = score_texts(found, wanted, settings)
        assert bleu.value == pytest.approx(multi_bleu(found, wanted))
        assert sacre.value == pytest.approx(sacrebleu.corpus_bleu(found, [wanted]).score)
        assert chrf.value == pytest.approx(sacrebleu.corpus_chrf(found, [wanted]).score)
        watched = valid_score(found, wanted, settings)
        assert watched.value == (bleu if tokenizer == "split" else sacre).value
    assert multi_bleu(short, long) != pytest.approx(multi_bleu(long, short))


# ---- compounds ------------------------------------------------------------------------------


def test_compounds_are_split_where_the_data_asks_for_it() -> None:
    plain = score_texts(FOUND, RAW, data())[0]
    split = score_texts(FOUND, RAW, data(split_compounds=True))[0]
    apart = [
        [
            line.replace("Nord-Süd-Gefälle", "Nord ##AT##-##AT## Süd ##AT##-##AT## Gefälle")
            for line in moses(lines, "de")
        ]
        for lines in (FOUND, RAW)
    ]
    assert split.value == pytest.approx(multi_bleu(*apart))
    assert split.value != plain.value
    assert "+atat" in split.signature
    assert "+atat" not in plain.signature


@pytest.mark.parametrize("target", ["de", "de-AT", "DE", "deu"])
def test_german_may_be_split(target: str) -> None:
    assert data(target=target, split_compounds=True).split_compounds


def test_no_other_language_is_split() -> None:
    values = {"run": "r", "data": {"dir": "d", "source": "en", "target": "fr"}}
    values["data"]["split_compounds"] = True  # type: ignore[index]
    with pytest.raises(InputError, match="into German, but target = 'fr'; remove it"):
        Config.parse(values)


# ---- split text -----------------------------------------------------------------------------


def test_split_text_is_joined_and_marked_as_tokenised() -> None:
    settings = data(tokenizer="split")
    references = reference_texts(SPLIT, settings)
    assert references == JOINED
    bleu, sacre, chrf = score_texts(HYPOTHESES, references, settings)
    assert bleu.value == pytest.approx(multi_bleu(HYPOTHESES, JOINED))
    assert "|tok:none|" in bleu.signature
    assert sacre.name == "sacreBLEU (tokenised text)"
    assert chrf.name == "chrF2 (tokenised text)"
    apart = HYPOTHESES, [JOINED]
    assert sacre.value == pytest.approx(sacrebleu.corpus_bleu(*apart, force=True).score)
    assert chrf.value == pytest.approx(sacrebleu.corpus_chrf(*apart).score)
    assert sacre.signature.endswith("|text:tokenised")
    assert chrf.signature.endswith("|text:tokenised")


def test_raw_references_are_compared_with_detokenised_translations() -> None:
    raw = ["Ein Nord-Süd-Gefälle, sagt er.", "Der Hund läuft über die Straße."]
    plain = [MosesDetokenizer(lang="de").detokenize(line.split()) for line in HYPOTHESES]
    assert plain[0] == "ein nord-süd-gefälle, sagt sie."
    for lower in (False, True):
        settings = data(tokenizer="split", lowercased=lower)
        bleu, sacre, chrf = score_texts(HYPOTHESES, JOINED, settings, raw)
        assert bleu.value == pytest.approx(multi_bleu(HYPOTHESES, JOINED))
        expected = sacrebleu.corpus_bleu(plain, [raw], lowercase=lower)
        assert sacre.value == pytest.approx(expected.score)
        lowered = [[line.lower() if lower else line for line in text] for text in (plain, raw)]
        expected_chrf = sacrebleu.corpus_chrf(lowered[0], [lowered[1]])
        assert chrf.value == pytest.approx(expected_chrf.score)
        assert (sacre.name, chrf.name) == ("sacreBLEU", "chrF2")
        assert "|detok:moses-de-sacremoses-" in sacre.signature
        assert f"|case:{'lc' if lower else 'mixed'}|" in sacre.signature


def test_raw_references_are_read_and_counted(tmp_path: Path) -> None:
    (tmp_path / "raw.de").write_text("eins\nzwei\n")
    names = {"test": ["test", "other"], "raw_references": {"test": "raw.de"}}
    settings = data(dir=str(tmp_path), tokenizer="split", **names)
    texts = Texts(None, settings)
    assert texts.raw_references("test", 2) == ["eins", "zwei"]
    assert texts.raw_references("other", 2) is None
    with pytest.raises(InputError, match=r"raw\.de has 2 lines but the test set 'test' has 3; "):
        texts.raw_references("test", 3)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"tokenizer": "bpe", "test": ["t"]}, "are for text that is already split"),
        ({"tokenizer": "split", "test": ["u"]}, "names 't', which is not a test set; test has 'u'"),
    ],
)
def test_raw_references_that_nothing_uses_are_refused(settings: Any, said: str) -> None:
    section = {"dir": "d", "source": "a", "target": "de", "raw_references": {"t": "raw"}} | settings
    with pytest.raises(InputError, match=said):
        Config.parse({"run": "r", "data": section})


# ---- validation -----------------------------------------------------------------------------


def test_validation_is_scored_as_the_data_is() -> None:
    assert valid_score(FOUND, RAW, data()).value == pytest.approx(
        sacrebleu.corpus_bleu(FOUND, [RAW]).score
    )
    assert valid_score(HYPOTHESES, SPLIT, data(tokenizer="split")).value == pytest.approx(
        multi_bleu(HYPOTHESES, JOINED)
    )
    split = valid_score(FOUND, RAW, data(split_compounds=True))
    assert split == score_texts(FOUND, RAW, data(split_compounds=True))[0]


# ---- a whole evaluation ---------------------------------------------------------------------


class Fixed(Translator):
    """Gives the same translations whatever it is asked."""

    def translate(self, lines: Any, **options: Any) -> list[str]:
        self.asked = list(lines), options
        return list(HYPOTHESES)


MakeRun = Callable[..., tuple[Run, Fixed]]


@pytest.fixture
def split_run(tmp_path: Path, toy_run: Path) -> MakeRun:
    """A run on split text in tmp_path whose translations are HYPOTHESES."""

    def make(**settings: Any) -> tuple[Run, Fixed]:
        (tmp_path / "test.en").write_text("one\ntwo\n")
        (tmp_path / "test.de").write_text("".join(line + "\n" for line in SPLIT))
        (tmp_path / "raw.de").write_text("Ein Nord-Süd-Gefälle, sagt er.\nDer Hund.\n")
        section = {"dir": str(tmp_path), "tokenizer": "split", "test": ["test"]} | settings
        toy = Run.load(toy_run)
        run = Run(tmp_path / "run", toy.config.model_copy(update={"data": data(**section)}))
        run.path.mkdir()
        for language in ("en", "de"):
            (tmp_path / f"valid.{language}").write_text("one\n")
        if section["test"] == ["test"]:
            run.texts.keep(run.text)
        run.final_weights.write_bytes(toy.final_weights.read_bytes())
        return run, Fixed.load(toy_run, "cpu")

    return make


def test_an_evaluation_keeps_translations_and_signs_every_option(split_run: MakeRun) -> None:
    run, fixed = split_run(raw_references={"test": "raw.de"})
    options: Any = {"beam": 7, "length_penalty": 1.5, "no_repeat_ngram": 3}
    (result,) = evaluate(run, fixed, **options)
    assert fixed.asked == (["one", "two"], {"on_lines": None, **options})
    assert (run.path / "hypotheses" / "test.de").read_text().splitlines() == HYPOTHESES
    assert result.hypotheses == run.path / "hypotheses" / "test.de"
    assert result.scores[0].value == pytest.approx(multi_bleu(HYPOTHESES, JOINED))
    assert "detok" in result.scores[1].signature
    assert result.to_dict() == {
        "test": "test",
        "sentences": 2,
        "scores": [score.to_dict() for score in result.scores],
        "hypotheses": str(run.path / "hypotheses" / "test.de"),
        "signature": result.signature,
    }
    assert result.signature.startswith(f"{run.signature}|")
    assert "|beam:7|penalty:1.5" in result.signature
    assert result.signature.endswith("|no_repeat_ngram:3")
    decode = fixed.config
    (usual,) = evaluate(run, fixed)
    assert f"|beam:{decode.beam}|penalty:{decode.length_penalty:g}" in usual.signature
    assert "no_repeat" not in usual.signature


def test_a_raw_reference_of_another_length_is_found_before_translating(split_run: MakeRun) -> None:
    run, fixed = split_run(raw_references={"test": "raw.de"})
    (Path(run.config.data.dir) / "raw.de").write_text("nur eins\n")
    with pytest.raises(InputError, match="has 1 lines but the test set 'test' has 2"):
        evaluate(run, fixed, ["test"], run.config.data.dir)
    assert not hasattr(fixed, "asked")


def test_an_evaluation_without_translations_says_so() -> None:
    """As that of a language model is."""
    assert Evaluation("test", 3, [], None, "signed").to_dict()["hypotheses"] is None


def test_other_test_sets_and_another_folder_may_be_named(
    split_run: MakeRun, tmp_path: Path
) -> None:
    run, fixed = split_run()
    there = tmp_path / "elsewhere"
    there.mkdir()
    (there / "new.en").write_text("three\nfour\n")
    (there / "new.de").write_text("".join(line + "\n" for line in HYPOTHESES))
    (result,) = evaluate(run, fixed, ["new"], str(there))
    assert fixed.asked[0] == ["three", "four"]
    assert (result.test, result.sentences) == ("new", 2)
    assert result.scores[0].value == pytest.approx(100)
    assert (run.path / "hypotheses" / "new.de").is_file()
    with pytest.raises(InputError, match=r"data\.test"):
        evaluate(split_run_without_tests(run), fixed)


def split_run_without_tests(run: Run) -> Run:
    named = run.config.data.model_copy(update={"test": []})
    return Run(run.path, run.config.model_copy(update={"data": named}))


# ---- the same scores by `kutta score` -------------------------------------------------------

RAW_SETTINGS: dict[str, dict[str, Any]] = {
    "raw": {"tokenizer": "bpe"},
    "compounds": {"tokenizer": "bpe", "split_compounds": True},
    "split": {},
    "split compounds": {"split_compounds": True},
    "detokenised": {"raw_references": {"test": "raw.de"}},
    "lower-cased": {"raw_references": {"test": "raw.de"}, "lowercased": True},
}


@pytest.mark.parametrize("kind", RAW_SETTINGS)
def test_score_with_the_run_gives_the_scores_of_the_evaluation(
    kind: str, split_run: MakeRun
) -> None:
    run, fixed = split_run(**RAW_SETTINGS[kind])
    run.write_config()
    (result,) = evaluate(run, fixed)
    answer = kutta("score", result.hypotheses, "--run", run.path, "--json")
    assert answer.err == ""
    assert json.loads(answer.out) == [score.to_dict() for score in result.scores]
    one = kutta("score", result.hypotheses, "--run", run.path, "--metric", "chrf", "--json")
    assert json.loads(one.out) == [result.scores[2].to_dict()]
    # The reference file instead of the test set, in the form of the run's text.
    text = Path(run.config.data.dir) / "test.de"
    given = kutta("score", result.hypotheses, text, "--run", run.path, "--json")
    same = "raw_references" not in RAW_SETTINGS[kind]
    assert (json.loads(given.out) == json.loads(answer.out)) == same
    assert ("data.raw_references" in given.err) != same
    compared = kutta(
        *("score", result.hypotheses, "--run", run.path, "--json"),
        *("--against", result.hypotheses, "--samples", 9),
    )
    assert [one["a"] for one in json.loads(compared.out)] == json.loads(answer.out)


@pytest.mark.parametrize("kind", RAW_SETTINGS)
def test_score_without_the_run_agrees_or_says_why_not(kind: str, split_run: MakeRun) -> None:
    run, fixed = split_run(**RAW_SETTINGS[kind])
    run.write_config()
    (result,) = evaluate(run, fixed)
    text = Path(run.config.data.dir) / "test.de"
    answer = kutta("score", result.hypotheses, text, "--json")
    assert answer.err.count("\n") == 1
    assert f"add --run {run.path} for its numbers" in answer.err
    options: list[object] = [] if run.config.data.tokenizer == "split" else ["--tokenize", "de"]
    options += ["--split-compounds"] if run.config.data.split_compounds else []
    if "raw_references" not in RAW_SETTINGS[kind]:  # options alone give the same numbers
        if run.config.data.tokenizer == "split":
            text.write_text("".join(f"{line}\n" for line in JOINED))
        answer = kutta("score", result.hypotheses, text, *options, "--json")
        assert "--run" not in answer.err
        values = [score["value"] for score in json.loads(answer.out)]
        assert values == [score.value for score in result.scores]


def test_score_finds_the_test_set_by_the_name_of_the_file(split_run: MakeRun) -> None:
    run, fixed = split_run(test=["test", "other"])
    for language in ("en", "de"):
        (Path(run.config.data.dir) / f"other.{language}").write_text("eins .\nzwei .\n")
    run.texts.keep(run.text)
    run.write_config()
    test, other = evaluate(run, fixed)
    found = [
        kutta("score", one.hypotheses, "--run", run.path, "--json").out for one in (test, other)
    ]
    for one, out in zip((test, other), found, strict=True):
        assert json.loads(out) == [score.to_dict() for score in one.scores]
    copy = run.path.parent / "copy.txt.gz"
    assert test.hypotheses is not None
    copy.write_bytes(gzip.compress(test.hypotheses.read_bytes()))
    is_one_sentence(kutta("score", copy, "--run", run.path), "--test NAME", "test, other")
    named = kutta("score", copy, "--run", run.path, "--test", "test", "--json").out
    assert named == found[0]
