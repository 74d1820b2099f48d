"""Text in, text out: one line out for each line in, and a clear message when loading fails."""

import inspect
import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kutta.config import Config, DecodeConfig
from kutta.data.tokenizer import BPE, EOS, Pretokenized, Tokenizer, Tokenizers
from kutta.errors import InputError
from kutta.model import TranslationModel
from kutta.model.transformer import build_model
from kutta.model.weights import own_tensors, read_tensors, write_tensors
from kutta.runs import choose_device
from kutta.translate import Sampling, Translator, beam_search
from kutta.translate.pytorch import SingleModel
from kutta.translate.scorer import Ensemble
from kutta.translate.segments import SHORTEST_LIMIT

WORDS = [f"w{i}" for i in range(12)]
SPLIT = Pretokenized(WORDS)
BYTES = BPE.learn(["ein Mann geht", "a man walks", "zwei Hunde", "two dogs"] * 5, 290)
CONFIG = Config.parse(
    {
        "run": "run",
        "data": {"dir": "data", "source": "en", "target": "de", "tokenizer": "split"},
        "model": {"d_model": 8, "ffn": 16, "heads": 2, "encoder_layers": 1, "decoder_layers": 1},
        "decode": {"beam": 3, "length_penalty": 1.0, "max_length": 6, "batch_tokens": 64},
    }
)
LINES = ["w1 w2 w3", "", "w4", "w5 w6 w7 w8 w9 w10 w11 w0 w1", "   ", "w3 w2 w1", "w1 w2 w3 w4 w5"]


def tiny(seed: int = 0, source: Tokenizer = SPLIT, target: Tokenizer = SPLIT) -> TranslationModel:
    """An untrained model, louder than at initialisation: the source and the prefix matter."""
    torch.manual_seed(seed)
    model = build_model(CONFIG.model, len(source), len(target), source is target)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.mul_(6 if ".cross.attention." in name else 1.5)
        model.output_weight[EOS] *= 2  # or no hypothesis would end before the limit
    return model


def translator(seed: int = 0, tokenizer: Tokenizer = SPLIT, **decode: object) -> Translator:
    config = DecodeConfig.model_validate(CONFIG.decode.model_dump() | decode)
    return Translator(tiny(seed, tokenizer, tokenizer), Tokenizers(tokenizer, tokenizer), config)


def write_run(folder: Path, seed: int = 0, tokenizer: Tokenizer = SPLIT) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(CONFIG.to_json())
    Tokenizers(tokenizer, tokenizer).save(folder)
    write_tensors(own_tensors(tiny(seed, tokenizer, tokenizer)), folder / "model.safetensors")
    return folder


# ---- lines -----------------------------------------------------------------------------------


@pytest.mark.parametrize("tokenizer", [SPLIT, BYTES], ids=["split", "bpe"])
@settings(max_examples=25, deadline=None)
@given(lines=st.lists(st.text(st.characters(exclude_categories=[])), max_size=5))
def test_one_line_out_for_each_line_in(tokenizer: Tokenizer, lines: list[str]) -> None:
    translated = translator(tokenizer=tokenizer).translate(lines, max_length=4)
    assert len(translated) == len(lines)
    for line, translation in zip(lines, translated, strict=True):
        assert translation == "" or line.split()
        assert len((translation + "|").splitlines()) == 1
        translation.encode("utf-8")


def test_a_translation_never_contains_the_end_of_a_line() -> None:
    ends = ["\n", "\r", "\r\n", "\v", "\f", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"]
    tokenizer = Pretokenized([f"a{end}b" for end in ends])
    translated = translator(tokenizer=tokenizer).translate(["x y z", "x x"], sampling=Sampling())
    assert all(len(line.splitlines()) == 1 for line in translated)
    assert set(" ".join(translated).split()) == {"a", "b"}


def test_what_is_translated_is_what_the_search_finds() -> None:
    both = translator()
    source = [[*SPLIT.encode("w1 w2 w3"), EOS]]
    model = both.models[0].eval()
    (found,) = beam_search(SingleModel(model), source, CONFIG.decode, n_best=3)
    expected = [(SPLIT.decode(h.tokens), pytest.approx(h.score, abs=1e-5)) for h in found]
    assert both.hypotheses(["w1 w2 w3"], n_best=3) == [expected]
    assert both.translate(["w1 w2 w3"]) == [expected[0][0]]


def test_empty_lines_stay_empty() -> None:
    lines = ["", " ", "\n", "\t \u3000", "w1\n"]
    translated = translator().translate(lines)
    assert translated[:4] == [""] * 4
    assert translated[4] == translator().translate(["w1"])[0]
    assert translator().hypotheses([""], n_best=3) == [[("", 0.0)]]
    assert translator().translate([]) == []


def test_order_and_batches_change_nothing() -> None:
    generator = random.Random(1)
    lines = [" ".join(generator.choices(WORDS, k=generator.randrange(9))) for _ in range(40)]
    expected = translator().translate(lines)
    assert len(set(expected)) > 10
    order = generator.sample(range(40), 40)
    shuffled = translator(batch_tokens=4096).translate([lines[i] for i in order])
    assert shuffled == [expected[i] for i in order]
    assert translator(batch_tokens=8).translate(lines, chunk=7) == expected
    assert [translator().translate([line])[0] for line in lines[:5]] == expected[:5]


def test_a_stream_answers_before_its_end() -> None:
    read: list[int] = []

    def endless() -> Iterator[str]:
        for number in range(10**9):
            read.append(number)
            yield f"w{number % 12}"

    stream = translator().translate_stream(endless(), chunk=4)
    assert read == []
    first = [next(stream) for _ in range(5)]
    assert len(read) == 8
    assert first == translator().translate(["w0", "w1", "w2", "w3", "w4"])


def test_a_monstrous_line_is_translated_in_segments_and_told() -> None:
    told: list[str] = []
    words = (WORDS * 100)[: 3 * SHORTEST_LIMIT + 5]
    subject = translator()
    subject.warn = told.append
    lines = ["w1", " ".join(words), "w2"]
    starts = range(0, len(words), SHORTEST_LIMIT)
    segments = [" ".join(words[at : at + SHORTEST_LIMIT]) for at in starts]
    first, *parts, last = subject.translate(["w1", *segments, "w2"], max_length=3)
    assert subject.translate(lines, max_length=3) == [first, " ".join(parts), last]
    assert told == ["Line 2 has 773 tokens; it is translated in 4 segments."]
    done: list[int] = []
    subject.translate(lines, max_length=3, on_lines=done.append)
    assert sum(done) == len(lines)
    best = subject.hypotheses(lines, n_best=2, max_length=3)[1]
    each = subject.hypotheses(segments, n_best=2, max_length=3)
    assert best[1][0] == " ".join(found[1][0] for found in each)
    assert best[0][1] == pytest.approx(sum(found[0][1] for found in each) / 4, abs=1e-5)
    with pytest.warns(UserWarning, match="Line 1 has 773 tokens"):
        translator().translate([lines[1]], max_length=1)


def test_a_model_trained_on_the_beginnings_of_sources_reads_no_more_and_says_nothing() -> None:
    lines = ["w1 w2 w3 w4 w5", "w1", "w5 w4 w3", ""]
    whole, told = translator(), list[str]()
    parts = (whole.models, whole.tokenizers, whole.config, "cpu", told.append)
    subject = Translator(*parts, max_source=3)
    cut = [" ".join(line.split()[:3]) for line in lines]
    assert subject.translate(lines) == whole.translate(cut) != whole.translate(lines)
    longer = Translator(*parts, max_source=SHORTEST_LIMIT + 2)
    ends = ["w1 " * (SHORTEST_LIMIT + 1) + rest for rest in ("w2 w3", "w2 w4", "w3 w4")]
    one, other, another = longer.hypotheses(ends, max_length=4)
    assert one == other != another  # it reads to where it was trained, not to SHORTEST_LIMIT
    assert told == []


def test_a_broken_model_still_gives_its_lines() -> None:
    subject = translator()
    with torch.no_grad():
        subject.models[0].output_weight.fill_(float("nan"))
    assert subject.translate(LINES) == [""] * len(LINES)


def test_what_is_not_a_list_of_lines_is_refused() -> None:
    with pytest.raises(InputError, match="a list of lines"):
        translator().translate("w1 w2")
    with pytest.raises(InputError, match="a list of lines to translate, not an object of type int"):
        translator().translate(3)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="Line 2 is an object of type int, not text"):
        translator().translate(["w1", 2])  # type: ignore[list-item]


# ---- options ---------------------------------------------------------------------------------


def test_options_replace_the_settings_of_the_run() -> None:
    greedy = translator(beam=1, length_penalty=0.0)
    assert translator().translate(LINES, beam=1, length_penalty=0.0) == greedy.translate(LINES)
    short = translator().translate(LINES, max_length=2, sampling=Sampling(temperature=9.0))
    assert max(len(line.split()) for line in short) == 2


def test_lengths_and_repetition_are_settings_and_options() -> None:
    rules = {"min_length": 5, "max_length": 9, "no_repeat_ngram": 1}
    free = translator(length_penalty=0.0, max_length=9)
    ruled = translator(length_penalty=0.0, **rules)
    plain = free.translate(LINES)
    assert min(len(line.split()) for line in plain if line) < 4
    assert any(len(set(line.split())) < len(line.split()) for line in plain)
    for translations in (ruled.translate(LINES), ruled.translate(LINES, sampling=Sampling())):
        for source, words in zip(LINES, map(str.split, translations), strict=True):
            assert len(set(words)) == len(words)
            # One of the five may be UNK, which has no text.
            assert 4 <= len(words) <= 9 if source.strip() else not words
    assert free.translate(LINES, **rules) == ruled.translate(LINES)
    assert ruled.translate(LINES, min_length=0, no_repeat_ngram=0) == plain


def test_n_best_is_sorted_and_begins_with_the_translation() -> None:
    found = translator().hypotheses(LINES, n_best=3)
    assert [hypotheses[0][0] for hypotheses in found] == translator().translate(LINES)
    assert [len(h) for h in found] == [1 if not line.strip() else 3 for line in LINES]
    for hypotheses in found:
        scores = [score for _, score in hypotheses]
        assert scores == sorted(scores, reverse=True)


def test_samples_follow_the_seed_and_the_line_number_alone() -> None:
    subject, lines = translator(), ["w1 w2 w3"] * 10 + LINES
    first = subject.translate(lines, sampling=Sampling(seed=3))
    assert subject.translate(lines, sampling=Sampling(seed=3), chunk=3) == first
    assert len(set(first[:10])) > 3
    assert subject.translate(lines, sampling=Sampling(seed=4)) != first


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beam": 0}, "beam = 0"),
        ({"n_best": 0}, "n_best = 0"),
        ({"n_best": 4}, "n_best = 4 is larger than beam = 3"),
        ({"n_best": 2, "sampling": Sampling()}, "is not supported with sampling"),
        ({"length_penalty": float("nan")}, "length_penalty = NaN"),
        ({"length_penalty": 1e9}, "length_penalty"),
        ({"max_length": -1}, "max_length = -1"),
        ({"min_length": -1}, "min_length = -1"),
        ({"min_length": 7}, "min_length = 7 is more than max_length = 6"),
        ({"no_repeat_ngram": -2}, "no_repeat_ngram = -2"),
        ({"chunk": 0}, "chunk = 0"),
    ],
    ids=str,
)
def test_impossible_options_are_refused_at_once(options: dict[str, int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        translator().hypotheses_stream(LINES, **options)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"bean": 4}, "There is no option bean; did you mean beam?"),
        ({"samplin": None}, "There is no option samplin; did you mean sampling?"),
        (
            {"beam": "4"},
            'beam = "4" is not valid: write an integer, without a point or an exponent.',
        ),
        (
            {"sampling": True},
            "sampling = true is not valid: it must be a Sampling, such as Sampling().",
        ),
        (
            {"chunk": 1.5},
            "chunk = 1.5 is not valid: write an integer, without a point or an exponent.",
        ),
    ],
    ids=str,
)
def test_a_wrong_option_is_one_sentence(options: dict[str, Any], sentence: str) -> None:
    subject = translator()
    methods = subject.translate, subject.hypotheses
    for method in (*methods, subject.translate_stream, subject.hypotheses_stream):
        with pytest.raises(InputError) as caught:
            method(LINES, **options)
        assert str(caught.value) == sentence


def test_one_translation_of_a_line_has_no_n_best() -> None:
    for method in (translator().translate, translator().translate_stream):
        with pytest.raises(InputError, match=r"one translation .* hypotheses\(lines, n_best=2\)"):
            method(LINES, n_best=2)  # type: ignore[call-arg]
    with pytest.raises(InputError, match='n_best = "2" is not valid: write an integer'):
        translator().hypotheses(LINES, n_best="2")  # type: ignore[arg-type]


def test_signatures_and_objects_are_readable() -> None:
    names = ["beam", "length_penalty", "min_length", "max_length", "no_repeat_ngram", "exact_stop"]
    others = ["sampling", "chunk", "on_lines"]
    for method in (Translator.translate, Translator.translate_stream):
        shown = inspect.signature(method)
        assert [*shown.parameters] == ["self", "lines", *names, *others]
        assert shown.parameters["beam"].annotation == int | None
    for method in (Translator.hypotheses, Translator.hypotheses_stream):
        shown = inspect.signature(method)
        assert [*shown.parameters] == ["self", "lines", "n_best", *names, *others]
    assert repr(translator()).startswith("Translator(1 model on cpu, DecodeConfig(beam=3, ")


def test_progress_is_reported_by_batch_and_streams_start_with_small_chunks() -> None:
    lines = ["w1", "", "w4"] * 330
    for method in (Translator.translate, Translator.translate_stream):
        done: list[int] = []
        assert len(list(method(translator(), lines, on_lines=done.append))) == len(lines)
        assert sum(done) == len(lines)
        assert len(done) > 2
    read: list[int] = []
    stream = translator().translate_stream(read.append(n) or line for n, line in enumerate(lines))
    sizes: list[int] = []
    for number, _ in enumerate(stream):
        if sum(sizes) == number:
            sizes.append(len(read) - number)
    assert sizes[:4] == [64, 128, 256, 512]
    with pytest.raises(InputError, match="on_lines"):
        translator().translate(lines, on_lines=3)  # type: ignore[arg-type]


# ---- beside training -------------------------------------------------------------------------


def test_a_model_in_training_is_left_as_it_was() -> None:
    subject = translator()
    model = subject.models[0]
    model.train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    random_state = torch.get_rng_state()
    while_training = subject.translate(LINES)
    assert all(module.training for module in model.modules())
    assert torch.equal(torch.get_rng_state(), random_state)
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert all(p.grad is None and p.requires_grad for p in model.parameters())
    model(torch.tensor([[4, EOS]]), torch.tensor([[2, 4]])).sum().backward()
    model.eval()
    assert subject.translate(LINES) == while_training


# ---- loading ---------------------------------------------------------------------------------


@pytest.mark.parametrize("tokenizer", [SPLIT, BYTES], ids=["split", "bpe"])
def test_a_run_translates_as_the_model_that_was_saved(tmp_path: Path, tokenizer: Tokenizer) -> None:
    lines = [*LINES, "ein Mann geht"]
    run = write_run(tmp_path / "run", 5, tokenizer)
    expected = translator(5, tokenizer).hypotheses(lines, n_best=3)
    assert Translator.load(run).hypotheses(lines, n_best=3) == expected
    moved = shutil.copytree(run, tmp_path / "elsewhere" / "moved")
    shutil.rmtree(run)
    assert Translator.load(str(moved), device="cpu").hypotheses(lines, n_best=3) == expected


def test_separate_vocabularies_are_loaded(tmp_path: Path) -> None:
    target = Pretokenized(["x", "y", "z"])
    run = write_run(tmp_path / "run")
    Tokenizers(SPLIT, target).save(run)
    model = tiny(1, SPLIT, target)
    write_tensors(own_tensors(model), run / "model.safetensors")
    expected = Translator(model, Tokenizers(SPLIT, target), CONFIG.decode).translate(LINES)
    assert Translator.load(run).translate(LINES) == expected
    assert set(" ".join(expected).split()) <= {"x", "y", "z"}


def test_a_run_remembers_how_much_of_a_source_its_model_reads(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    values = json.loads((run / "config.json").read_text())
    values["data"]["max_source"] = 2
    (run / "config.json").write_text(json.dumps(values))
    assert Translator.load(run).max_source == 2
    cut = [" ".join(line.split()[:2]) for line in LINES]
    assert Translator.load(run).translate(LINES) == translator().translate(cut)
    checkpoint = run / "checkpoints" / "step-00000500"
    write_tensors(own_tensors(tiny(2)), checkpoint / "model.safetensors")
    assert Translator.load([checkpoint, run]).max_source == 2


def test_a_checkpoint_takes_settings_and_vocabulary_from_its_run(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", seed=1)
    checkpoint = run / "checkpoints" / "step-00000500"
    write_tensors(own_tensors(tiny(2)), checkpoint / "model.safetensors")
    assert Translator.load(checkpoint).translate(LINES) == translator(2).translate(LINES)


def test_an_ensemble_is_loaded_from_runs_and_checkpoints(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a", seed=1)
    checkpoint = run / "checkpoints" / "step-00000500"
    write_tensors(own_tensors(tiny(2)), checkpoint / "model.safetensors")
    other = write_run(tmp_path / "b", seed=3)
    loaded = Translator.load([run, checkpoint, str(other)])
    source = [[*SPLIT.encode("w1 w2 w3"), EOS]]
    models = [tiny(seed).eval() for seed in (1, 2, 3)]
    ((best,),) = beam_search(Ensemble([SingleModel(m) for m in models]), source, CONFIG.decode)
    assert loaded.hypotheses(["w1 w2 w3"]) == [
        [(SPLIT.decode(best.tokens), pytest.approx(best.score))]
    ]


def test_members_of_different_vocabularies_are_refused(tmp_path: Path) -> None:
    runs = [
        write_run(tmp_path / "a"),
        write_run(tmp_path / "b", tokenizer=Pretokenized(WORDS[::-1])),
    ]
    with pytest.raises(InputError, match="different vocabularies"):
        Translator.load(runs)


def refuse(run: Path, *parts: str) -> None:
    """Loading fails with one sentence that has all these parts."""
    with pytest.raises(InputError) as caught:
        Translator.load(run)
    for part in parts:
        assert part in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_is_not_a_run_is_named(tmp_path: Path) -> None:
    refuse(tmp_path / "nowhere", "no folder", "nowhere")
    (tmp_path / "x" / "y").mkdir(parents=True)
    refuse(tmp_path / "x" / "y", "not a run directory", "config.json")
    with pytest.raises(InputError, match="at least one"):
        Translator.load([])


def test_unfinished_training_says_how_to_resume(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    (run / "model.safetensors").unlink()
    refuse(run, "no model.safetensors", "kutta train", "checkpoints")


@pytest.mark.parametrize("keep", [0, 7, 100, -1])
def test_a_truncated_model_is_told(tmp_path: Path, keep: int) -> None:
    path = write_run(tmp_path / "run") / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    refuse(path.parent, str(path), "damaged")


def test_a_vocabulary_that_does_not_match_is_told_with_both_numbers(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    Pretokenized([*WORDS, "more"]).save(run / "vocab.txt")
    refuse(run, "was trained with 16 target tokens", "has 17")


def test_another_config_is_told(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    values = json.loads((run / "config.json").read_text())
    values["model"]["ffn"] = 24
    (run / "config.json").write_text(json.dumps(values))
    refuse(run, "is 16 x 8 but the config asks for 24 x 8", ".ffn.")


def test_missing_and_unknown_tensors_are_told(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run") / "model.safetensors"
    tensors = read_tensors(path)
    write_tensors(tensors | {"decoder.surprise": torch.zeros(2)}, path)
    refuse(path.parent, "unknown tensor decoder.surprise")
    name = "encoder.norm.weight"
    write_tensors({n: t for n, t in tensors.items() if n != name}, path)
    refuse(path.parent, f"lacks the tensor {name}")


def test_devices() -> None:
    assert choose_device("cpu") == torch.device("cpu")
    assert choose_device("auto").type in ("cpu", "cuda")
    for name in ("toaster", "cuda:99"):
        with pytest.raises(InputError, match=name):
            choose_device(name)
