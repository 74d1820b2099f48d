"""Settings: every default, every wrong value in one sentence, and what identifies a run."""

import json
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from kutta.config import Config, ModelConfig, Section, from_earlier, known_keys
from kutta.config.mistakes import OTHER_NAMES, apply_override, parse_value, sentence, suggest
from kutta.errors import InputError
from kutta.model import PLACEMENTS
from kutta.model.transformer import build_model
from kutta.ode import GAMMAS, METHODS

ROOT = Path(__file__).parent.parent
REQUIRED = {"run": "runs/mine", "data": {"dir": "text", "source": "en", "target": "de"}}

# Written down a second time on purpose: changing a default changes other people's experiments.
DEFAULTS: dict[str, Any] = {
    "data.source": "",
    "data.train": "train",
    "data.valid": "valid",
    "data.test": [],
    "data.columns": [],
    "data.tokenizer": "bpe",
    "data.vocab_size": 8000,
    "data.vocabulary": [],
    "data.shared_vocab": True,
    "data.bpe_dropout": 0.0,
    "data.max_length": 256,
    "data.max_source": 0,
    "data.max_ratio": 9.0,
    "data.lowercased": False,
    "data.split_compounds": False,
    "data.raw_references": {},
    "model.d_model": 512,
    "model.ffn": 2048,
    "model.heads": 8,
    "model.encoder_layers": 6,
    "model.decoder_layers": 6,
    "model.solver": "rk2",
    "model.gamma": "tableau",
    "model.gamma_start": "ones",
    "model.share_gamma": False,
    "model.tableau": None,
    "model.field": "san+ffn",
    "model.decoder_solver": "euler",
    "model.decoder_gamma": "tableau",
    "model.replicate": "paper",
    "model.norm": "pre",
    "model.init": "xavier",
    "model.share_layers": False,
    "model.stage_parameters": "shared",
    "model.layer_drop": 0.0,
    "model.tie_embeddings": True,
    "model.relative_positions": 8,
    "model.dropout": 0.1,
    "model.attention_dropout": 0.1,
    "model.relu_dropout": 0.1,
    "train.max_steps": 50_000,
    "train.batch_tokens": 4096,
    "train.accumulate": 1,
    "train.pieces": 0,
    "train.lr": 0.002,
    "train.warmup": 4000,
    "train.warmup_from": 1e-7,
    "train.adam_betas": (0.9, 0.997),
    "train.adam_eps": 1e-8,
    "train.clip_norm": 0.0,
    "train.label_smoothing": 0.1,
    "train.precision": "fp32",
    "train.recompute": False,
    "train.compile": False,
    "train.device": "auto",
    "train.workers": 0,
    "train.shard": False,
    "train.threads": 0,
    "train.lanes": 0,
    "train.log_every": 50,
    "train.save_every": 500,
    "train.valid_every": 0,
    "train.valid_bleu": True,
    "train.patience": 0,
    "train.best": "loss",
    "train.final_model": "validated",
    "train.keep_last": 10,
    "train.max_bad_steps": 20,
    "train.tensorboard": True,
    "train.seed": 1,
    "train.grow_from": "",
    "decode.beam": 4,
    "decode.length_penalty": 0.6,
    "decode.average": 5,
    "decode.min_length": 0,
    "decode.max_length": 0,
    "decode.no_repeat_ngram": 0,
    "decode.exact_stop": False,
    "decode.batch_tokens": 4096,
}

LANGUAGE = {"encoder_layers": 0}  # what makes a language model, which has no source


def values(*overrides: str) -> dict[str, Any]:
    """Plain settings: the required ones and these."""
    plain = json.loads(json.dumps(REQUIRED))
    for override in overrides:
        apply_override(plain, override)
    return plain


def config(*overrides: str) -> Config:
    return Config.parse(values(*overrides))


def mistake(*overrides: str) -> str:
    """The sentence that these settings are answered with."""
    with pytest.raises(InputError) as caught:
        config(*overrides)
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert sentence.endswith((".", "?.", "?"))
    return sentence


def test_every_setting_has_the_documented_default() -> None:
    required = {"run", "data.dir", "data.target"}
    assert set(known_keys()) == DEFAULTS.keys() | required, "a new setting: add its default here"
    least = Config.parse({"run": "a", "data": {"dir": "b", "target": "c"}, "model": LANGUAGE})
    translation = ("model.encoder_layers", "model.tie_embeddings")  # others without a source
    defaults = {key: least.value(key) for key in DEFAULTS}
    assert defaults | {key: config().value(key) for key in translation} == DEFAULTS


def test_a_language_model_is_untied_unless_asked_for() -> None:
    """As fairseq's: --share-decoder-input-output-embed is off there by default."""
    assert not config(*NO_SOURCE).model.tie_embeddings
    assert config(*NO_SOURCE, "model.tie_embeddings=true").model.tie_embeddings
    assert config().model.tie_embeddings
    assert not config("model.tie_embeddings=false").model.tie_embeddings
    assert config(*NO_SOURCE).hash() != config(*NO_SOURCE, "model.tie_embeddings=true").hash()


def test_every_setting_has_a_description() -> None:
    for name, info in Config.model_fields.items():
        if isinstance(info.annotation, type) and issubclass(info.annotation, Section):
            assert info.annotation.__doc__
            for key, inner in info.annotation.model_fields.items():
                assert inner.description, f"{name}.{key}"
        else:
            assert info.description, name


def test_the_settings_page_shows_every_setting_and_its_default() -> None:
    shown: dict[str, Any] = {}
    for line in (ROOT / "docs" / "configuration.md").read_text().splitlines():
        if line.startswith("## ["):
            section = line[4:-1]
        elif line.startswith("| `"):
            name, default = (cell.strip(" `") for cell in line.split("|")[1:3])
            nothing = default in ("required", "none")
            shown[f"{section}.{name}"] = None if nothing else json.loads(default)
    required = dict.fromkeys(("data.dir", "data.target"))
    assert shown == json.loads(json.dumps(DEFAULTS)) | required


@pytest.mark.parametrize(
    ("override", "answer"),
    [
        ("model.sovler=rk4", "there is no setting model.sovler; did you mean model.solver?"),
        ("model.Solver=rk4", "there is no setting model.Solver; did you mean model.solver?"),
        ("model.learning_rate=1", "did you mean train.lr?"),
        ("train.epochs=20", "did you mean train.max_steps?"),
        ("model.layers=6", "did you mean model.encoder_layers?"),
        ("model.tableu.a=[]", "there is no setting model.tableu; did you mean model.tableau?"),
        ("tableau.a=[]", "there is no setting tableau; did you mean model.tableau?"),
        ("solver=rk4", "there is no setting solver; did you mean model.solver?"),
        ("training.seed=1", "there is no setting training; did you mean train?"),
        ("train.warm_up=1", "did you mean train.warmup?"),
        ("decode.beam_size=1", "did you mean decode.beam?"),
        ("rum=x", "did you mean run?"),
        ("data.src=en", "did you mean data.source?"),
        ("data.model=x", "did you mean model?"),
        ("train.dropout=0.3", "no setting train.dropout; did you mean model.dropout?"),
        ("model.max-length=9", "did you mean data.max_length or decode.max_length?"),
        ("model.encoder_ffn_embed_dim=9", "did you mean model.ffn?"),  # fairseq
        ("train.update-freq=9", "did you mean train.accumulate?"),
        ("train.mini-batch-words=9", "did you mean train.batch_tokens?"),  # Marian
        ("train.early-stopping=9", "did you mean train.patience?"),
        ("train.valid_steps=9", "did you mean train.valid_every?"),  # OpenNMT
        ("world_size=9", "did you mean train.workers?"),
        ("training.model_dir=x", "did you mean train?"),  # JoeyNMT
        ("train.batch_multiplier=9", "did you mean train.accumulate?"),
        ("train.output_dir=x", "no setting train.output_dir; did you mean run?"),  # Hugging Face
        ("train.gradient_checkpointing=true", "did you mean train.recompute?"),
        ("optimizer.lr=1", "there is no setting optimizer; did you mean train?"),
        ("train.optimizer=adam", "there is no setting train.optimizer; [train] has max_steps, "),
        ("train.gpu_cards=8", "no setting train.gpu_cards; [train] has max_steps, "),
        ("model.tableau.c=[0]", "no setting model.tableau.c; [model.tableau] has a, b."),
        ("xyzzy=1", "there is no setting xyzzy; there are run, data, model, train, decode."),
    ],
)
def test_an_unknown_key_is_named_with_the_nearest_one(override: str, answer: str) -> None:
    assert answer in mistake(override)


def test_names_of_other_toolkits_stand_for_settings_that_exist() -> None:
    ours = {*known_keys()}
    assert {*OTHER_NAMES.values()} <= ours
    assert not {*OTHER_NAMES} & {key.rpartition(".")[2] for key in ours}
    assert all(name == name.lower().replace("-", "_") for name in OTHER_NAMES)


def test_a_misspelled_name_is_told_before_what_follows_from_it() -> None:
    plain = values()
    plain["data"]["tarhet"] = plain["data"].pop("target")
    with pytest.raises(InputError, match=r"no setting data\.tarhet; did you mean data\.target\?"):
        Config.parse(plain)
    assert "did you mean model.tableau?" in mistake("model.solver=custom", "tableau.a=[]")


@pytest.mark.parametrize(
    ("override", "parts"),
    [
        ("train.lr=fast", ["train.lr", '"fast"', "a number"]),
        ("train.lr=true", ["train.lr", "true", "a number"]),
        ("model.layer_drop=20%", ["model.layer_drop", '"20%"', "a number"]),
        ("train.max_steps=2.5", ["train.max_steps", "2.5", "an integer"]),
        ("train.max_steps=1e5", ["train.max_steps", "100000.0", "an integer, without a point"]),
        ("train.max_steps='100'", ["train.max_steps", '"100"', "an integer"]),
        ("train.valid_bleu=1", ["train.valid_bleu", "1", "true or false"]),
        ("train.valid_bleu=yes", ["train.valid_bleu", '"yes"', "true or false"]),
        ("model.share_gamma=yes", ["model.share_gamma", '"yes"', "true or false"]),
        ("model.share_layers=1", ["model.share_layers", "1", "true or false"]),
        ("model.tie_embeddings=no", ["model.tie_embeddings", '"no"', "true or false"]),
        ("data.test=test2016", ["data.test", '"test2016"', "a list"]),
        ("data.test=[1]", ["data.test[0]", "1", "text, in quotes"]),
        ("data.source=5", ["data.source", "5", "text, in quotes"]),
        ("train.grow_from=5", ["train.grow_from", "5", "text, in quotes"]),
        ("model.solver.name=rk4", ["model.solver", "rk4", "text, in quotes"]),
        ("model=5", ["model", "5", "a section", "[model]"]),
        ("model.tableau=rk2", ["model.tableau", '"rk2"', "a section", "[model.tableau]"]),
        (
            "model.tableau.a=[[1/2]]",
            ["model.tableau.a", "[[1/2]]", "list, with strings in quotes"],
        ),
        (
            "model.tableau.a=[[1/2]]",
            ["put single quotes around the whole setting"],
        ),
        ("model.tableau.a=['1/2']", ["model.tableau.a[0]", '"1/2"', "a list of rows, e.g. [[1]]"]),
        ("model.tableau.a=[1]", ["a[0] = 1", "model.tableau.a is a list of rows, e.g. [[1]]"]),
        ("train.adam_betas=[0.9]", ["train.adam_betas", "[0.9] is not a pair", "[0.9, 0.98]"]),
        ("train.adam_betas=[0.9, 0.98, 1]", ["train.adam_betas", "1] is not a pair"]),
        ("train.adam_betas=0.9", ["train.adam_betas", "0.9 is not a pair"]),
        ("run=", ['run = ""', "empty"]),
        ("data.dir=", ['data.dir = ""', "empty"]),
        ("data.target=", ['data.target = ""', "empty"]),
    ],
)
def test_a_wrong_type_is_answered_with_key_value_and_what_fits(
    override: str, parts: list[str]
) -> None:
    sentence = mistake(override)
    for part in parts:
        assert part in sentence


def test_a_section_that_a_run_does_not_have_can_be_set(tmp_path: Path) -> None:
    """A run's config.json has null where there is no tableau."""
    (tmp_path / "config.json").write_text(config().to_json())
    changes = ["model.solver=custom", "model.tableau.a=[[1]]", "model.tableau.b=[0.5, 0.5]"]
    changed = Config.load(tmp_path / "config.json", changes).model.tableau
    assert changed is not None
    assert (changed.a, changed.b) == ([[1]], [0.5, 0.5])


def test_a_sentence_ends_once() -> None:
    assert sentence("there is none") == "there is none."
    assert sentence("did you mean a?") == "did you mean a?"


def test_a_long_value_is_cut_short_in_the_answer() -> None:
    sentence = mistake(f"train.lr={'x' * 500}")
    assert len(sentence) < 200
    assert "xxx... is not valid: write a number" in sentence


@pytest.mark.parametrize(
    "override",
    [
        "data.vocab_size=4",
        "data.bpe_dropout=1.0",
        "data.bpe_dropout=-0.1",
        "data.max_length=0",
        "data.max_ratio=0.5",
        "data.tokenizer=words",
        "model.d_model=0",
        "model.ffn=0",
        "model.heads=0",
        "data.max_source=-1",
        "model.encoder_layers=-1",
        "model.encoder_layers=0",
        "model.decoder_layers=0",
        "model.gamma=free",
        "model.decoder_gamma=free",
        "model.gamma_start=zero",
        "model.replicate=authors",
        "model.norm=middle",
        "model.init=depth_scaled",
        "model.stage_parameters=apart",
        "model.layer_drop=1.0",
        "model.layer_drop=-0.1",
        "model.field=san-ffn",
        "model.relative_positions=-1",
        "model.dropout=1.0",
        "model.attention_dropout=-0.5",
        "model.relu_dropout=2.0",
        "train.max_steps=0",
        "train.batch_tokens=1",
        "train.accumulate=0",
        "train.pieces=-1",
        "train.lr=0.0",
        "train.lr=nan",
        "train.warmup=0",
        "train.warmup_from=-1.0",
        "train.adam_eps=0.0",
        "train.clip_norm=-1.0",
        "train.label_smoothing=1.0",
        "train.precision=fp8",
        "train.threads=-1",
        "train.lanes=-1",
        "train.log_every=0",
        "train.save_every=0",
        "train.valid_every=-1",
        "train.patience=-1",
        "train.best=chrf",
        "train.final_model=first",
        "train.keep_last=0",
        "train.max_bad_steps=0",
        "train.seed=-1",
        "decode.beam=0",
        "decode.length_penalty=11.0",
        "decode.average=0",
        "decode.min_length=-1",
        "decode.max_length=-1",
        "decode.no_repeat_ngram=-1",
        "decode.batch_tokens=0",
    ],
)
def test_a_value_out_of_range_is_answered_with_its_key_and_value(override: str) -> None:
    key, _, value = override.partition("=")
    sentence = mistake(override)
    assert key in sentence
    assert value.removesuffix(".0").lower() in sentence.lower()


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        (
            ("train.lanes=2", "train.workers=2"),
            "lanes = 2 needs a single process",
        ),
        (
            ("train.lanes=2", "train.compile=true"),
            "lanes = 2 needs a single process",
        ),
        (("train.lanes=3", "train.pieces=2"), "lanes = 3 is more than accumulate x pieces = 2"),
        (("train.workers=5", "train.pieces=4"), "workers = 5 is more than accumulate x pieces = 4"),
        (("train.pieces=16",), "train.batch_tokens / train.pieces = 4096 / 16 tokens"),
    ],
)
def test_what_cannot_share_an_update_is_told_before_text_is_prepared(
    overrides: tuple[str, ...], told: str
) -> None:
    assert told in mistake(*overrides)


@pytest.mark.parametrize(
    "override",
    [
        "train.adam_betas=[1.0, 0.9]",
        "train.adam_betas=[0.9, -0.1]",
        "train.lr=inf",
        "train.clip_norm=inf",
        "decode.length_penalty=nan",
        f"train.seed={2**70}",
    ],
)
def test_a_value_that_would_fail_much_later_fails_now(override: str) -> None:
    """torch would refuse these with a traceback, or train on nonsense."""
    assert override.partition("=")[0] in mistake(override)


OWN = ["model.tableau.a=[['1/2']]", "model.tableau.b=[0, 1]"]
NO_SOURCE = ["data.source=", "model.encoder_layers=0"]
EULER = ["model.solver=euler"]


@pytest.mark.parametrize(
    ("overrides", "answer"),
    [
        (["model.d_model=10", "model.heads=4"], "d_model = 10 is not a multiple of heads = 4"),
        (["model.solver=rk3"], "model.solver: there is no method 'rk3'; did you mean rk2 or rk4"),
        (["model.solver=RK2"], "did you mean rk2?"),
        (["model.solver="], "there is no method ''; there are euler, midpoint"),
        (["model.decoder_solver=leapfrg"], "model.decoder_solver: there is no method 'leapfrg'"),
        # a method of one's own
        (["model.solver=custom"], "'custom' needs a table [model.tableau] with a and b"),
        (["model.decoder_solver=custom"], "'custom' needs a table [model.tableau]"),
        (OWN, "[model.tableau] is for solver = 'custom'; set the solver, or remove the table"),
        ([OWN[0]], "the setting model.tableau.b is missing"),
        ([OWN[1]], "the setting model.tableau.a is missing"),
        (["model.solver=custom", OWN[0], "model.tableau.b=[0, 2]"], "must add up to 1, not 2"),
        (
            ["model.solver=custom", "model.tableau.a=[]", OWN[1]],
            "model.tableau: a tableau with 2 weights needs rows of [1] entries",
        ),
        (
            ["model.solver=custom", "model.tableau.a=[['x']]", OWN[1]],
            "model.tableau: a[0][0] = 'x' of the tableau is not a number",
        ),
        (
            ["model.solver=custom", "model.tableau.a=[[0, 1], [1, 0]]", OWN[1]],
            "model.tableau: row 1 of the tableau's a is not zero on and above the diagonal",
        ),
        # gamma
        (
            ["model.solver=leapfrog", "model.gamma=learned"],
            "gamma = 'learned' needs a Runge-Kutta method, but solver = 'leapfrog' is not one",
        ),
        (
            ["model.decoder_solver=dlcl", "model.decoder_gamma=ones"],
            "decoder_gamma = 'ones' needs a Runge-Kutta method, but decoder_solver = 'dlcl'",
        ),
        (["model.solver=pc2", "model.gamma=ema"], "solver = 'pc2' is not one; remove gamma"),
        (
            ["model.solver=rk4", "model.gamma=gated"],
            "choose a method with 2, such as midpoint, rk2 or",
        ),
        (["model.decoder_gamma=gated"], "decoder_gamma = 'gated' weighs 2 stages"),
        (["model.gamma_start=tableau"], "gamma_start = 'tableau' needs gamma = 'learned'"),
        (["model.gamma_start=tableau", "model.gamma=ema"], "needs gamma = 'learned'"),
        (["model.share_gamma=true"], "share_gamma needs a gamma that is learned"),
        (["model.share_gamma=true", "model.gamma=ones"], "'learned', 'gated' or 'ema'"),
        # methods that look back
        (["model.solver=dlcl", "model.field=san"], "dlcl looks back over whole layers: set field"),
        (["model.solver=pc4", "model.field=macaron"], "set field = 'san+ffn', not 'macaron'"),
        (["model.decoder_solver=dlcl", "model.layer_drop=0.2"], "set layer_drop = 0, not 0.2"),
        # the authors' release
        (["model.replicate=release", "model.field=ffn"], "set field = 'san+ffn', not 'ffn'"),
        (["model.replicate=release", "model.layer_drop=0.1"], "'release' looks back over layers"),
        (
            ["model.replicate=release", "model.solver=leapfrog"],
            "leapfrog is not one; choose rk2",
        ),
        (["model.replicate=release", "model.decoder_solver=polynet"], "but polynet is not one"),
        (["model.replicate=release", "model.norm=post", *EULER], "needs norm = 'pre'"),
        (
            ["model.replicate=release", "model.stage_parameters=separate"],
            "uses the same whole layer for all stages: set stage_parameters = 'shared'",
        ),
        # post-norm
        (["model.norm=post"], "set solver and decoder_solver to 'euler'"),
        (["model.norm=post", *EULER, "model.gamma=learned"], "remove the gammas"),
        (["model.norm=post", *EULER, "model.decoder_solver=rk2"], "not a step of an ODE"),
        (["model.init=admin"], "init = 'admin' sets the weights of post-norm residuals: set norm"),
        # a language model
        (["data.source="], "the setting data.source is missing; add it, or for a language model"),
        (["model.encoder_layers=0"], "leave data.source = 'en' out, or set model.encoder_layers"),
        ([*NO_SOURCE, "model.decoder_solver=rk4"], "one stack, whose method is model.solver"),
        ([*NO_SOURCE, "model.decoder_gamma=ones"], "one stack, whose method is model.solver"),
        ([*NO_SOURCE, "train.best=bleu"], "set train.best = 'loss'"),
        ([*NO_SOURCE, "data.max_source=9"], "no source to cut; leave data.max_source out"),
        # the others
        (["train.best=bleu", "train.valid_bleu=false"], "best = 'bleu' needs valid_bleu = true"),
        (
            ["data.max_length=100", "train.batch_tokens=100"],
            "max_length = 100 tokens plus its",
        ),
        (["data.max_source=300"], "max_source = 300 tokens is still longer than max_length = 256"),
        (["data.target=en"], "source and target are both 'en', so both sides would be the same"),
        (["decode.min_length=9", "decode.max_length=5"], "min_length = 9 is more than max_length"),
    ],
)
def test_settings_that_do_not_go_together_are_told_apart(overrides: list[str], answer: str) -> None:
    assert answer in mistake(*overrides)


@pytest.mark.parametrize(
    "overrides",
    [
        NO_SOURCE,
        ["model.solver=custom", *OWN],
        ["model.decoder_solver=custom", *OWN],
        ["model.solver=custom", "model.tableau={a = [['1/2']], b = [0, 1]}"],
        ["model.solver=custom", *OWN, "model.gamma=gated"],
        ["model.solver=rk4", "model.gamma=learned", "model.gamma_start=tableau"],
        ["model.decoder_gamma=learned", "model.gamma_start=tableau", "model.share_gamma=true"],
        ["model.norm=post", *EULER, "model.init=admin", "model.layer_drop=0.1"],
        ["model.replicate=release", "model.solver=rk4"],
        ["model.stage_parameters=separate", *EULER],
        ["model.stage_parameters=separate", "model.solver=pc4", "model.decoder_solver=rk2"],
        ["data.target=en", "data.train=pairs.tsv"],
        ["data.max_source=256"],
        ["decode.min_length=5", "decode.max_length=5"],
        ["decode.min_length=50"],
    ],
)
def test_settings_that_do_go_together_are_accepted(overrides: list[str]) -> None:
    config(*overrides)


@pytest.mark.parametrize("method", [n for n, m in METHODS.items() if m.looks_back])
@pytest.mark.parametrize("side", ["", "decoder_"])
@pytest.mark.parametrize(
    "wrong", [*(f"field={f}" for f in PLACEMENTS if f != "san+ffn"), "layer_drop=0.1"]
)
def test_methods_that_look_back_need_whole_layers(method: str, side: str, wrong: str) -> None:
    said = mistake(*EULER, f"model.{side}solver={method}", f"model.{wrong}")
    assert f"{method} looks back over whole layers: set {wrong.partition('=')[0]}" in said


READ_ALL = """
import sys
from pathlib import Path
from kutta.config import Config
configs = [Config.load(path) for path in sorted(Path(sys.argv[1]).glob("*.toml"))]
print(len(configs), "torch" in sys.modules)
"""


def test_reading_the_shipped_configs_loads_no_torch() -> None:
    """In a Python of its own: here torch has long been loaded."""
    folder = ROOT / "configs"
    command = [sys.executable, "-c", READ_ALL, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(len([*folder.glob("*.toml")])), "False"]


def test_the_settings_know_the_placements_of_the_model() -> None:
    assert get_args(ModelConfig.model_fields["field"].annotation) == tuple(PLACEMENTS)


CHOICES = {
    "solver": tuple(METHODS),
    "gamma": tuple(GAMMAS),
    "gamma_start": ("ones", "tableau"),
    "share_gamma": (False, True),
    "field": ("san+ffn", "san/ffn", "san", "ffn", "macaron"),
    "decoder_solver": tuple(METHODS),
    "decoder_gamma": tuple(GAMMAS),
    "replicate": ("paper", "release"),
    "norm": ("pre", "post"),
    "init": ("xavier", "depth-scaled", "admin"),
    "share_layers": (False, True),
    "stage_parameters": ("shared", "separate"),
    "layer_drop": (0.0, 0.3),
}
TINY = {"d_model": 4, "ffn": 4, "heads": 2, "encoder_layers": 2, "decoder_layers": 2}


def test_what_the_settings_accept_the_model_can_do() -> None:
    """Most combinations are refused with a sentence; all others can be built and run."""
    draw = random.Random(3)
    source, target = torch.tensor([[4, 5, 3]]), torch.tensor([[2, 4]])
    accepted, refused = 0, list[str]()
    for _ in range(120):
        keys = draw.sample(sorted(CHOICES), k=4)
        chosen: dict[str, Any] = {"solver": "euler"}
        chosen |= {key: draw.choice(CHOICES[key]) for key in keys}
        if "custom" in (chosen["solver"], chosen.get("decoder_solver")):
            chosen["tableau"] = {"a": [["1/2"]], "b": [0, 1]}
        try:
            model = Config.parse(REQUIRED | {"model": TINY | chosen}).model
        except InputError as error:
            refused.append(str(error))
            continue
        accepted += 1
        built = build_model(model, 6, 6, shared=True)
        assert built(source, target).isfinite().all(), chosen
    assert accepted > 30
    assert len(set(refused)) > 15
    assert all(re.fullmatch(r"the config: model: [^\n]+\.", sentence) for sentence in refused)


def test_a_sentence_of_the_longest_length_just_fits_into_a_batch() -> None:
    assert config("data.max_length=99", "train.batch_tokens=100").data.max_length == 99


def test_a_missing_section_is_named() -> None:
    with pytest.raises(InputError, match=r"the section \[data\] is missing; add it"):
        Config.parse({"run": "a"})


@pytest.mark.parametrize("key", ["run", "data.dir", "data.source", "data.target"])
def test_a_missing_setting_is_named(key: str) -> None:
    plain: Any = values()
    *sections, name = key.split(".")
    inner = plain[sections[0]] if sections else plain
    del inner[name]
    with pytest.raises(InputError, match=f"the setting {key} is missing"):
        Config.parse(plain)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_can_be_chosen(method: str) -> None:
    own = OWN if method == "custom" else []
    assert config(f"model.solver={method}", *own).model.solver == method


# ---- files ----------------------------------------------------------------------------------

TOML = 'run = "runs/a"\n[data]\ndir = "text"\nsource = "en"\ntarget = "de"\n'


def test_a_toml_file_is_loaded_and_overridden(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text(TOML + "[train]\nlr = 1e-3\n")
    assert Config.load(path).train.lr == 0.001
    changed = Config.load(str(path), ["train.lr=0.5", "model.solver=rk4", "data.test=['x','y']"])
    assert (changed.train.lr, changed.model.solver, changed.data.test) == (0.5, "rk4", ["x", "y"])


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no config file .*nothing\.toml"):
        Config.load(tmp_path / "nothing.toml")


def test_bad_toml_is_answered_with_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(TOML + "[model]\nsolver = rk2\n")
    with pytest.raises(InputError, match=r"bad\.toml is not readable as TOML: .*line 7.*in quotes"):
        Config.load(path)


def test_bad_json_is_answered_with_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"run": "a",\n "data": ')
    with pytest.raises(InputError, match=r"config\.json is not readable as JSON: .*line 2"):
        Config.load(path)


@pytest.mark.parametrize("text", ["[]", "null", '"run"', "5"])
def test_json_that_is_no_table_is_told_in_a_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    for overrides in ([], ["train.seed=2"]):
        with pytest.raises(InputError, match=r"config\.json does not contain a table of settings"):
            Config.load(tmp_path / "config.json", overrides)


def test_a_file_without_an_ending_is_read_as_toml(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text(TOML + "seed 5\n")
    with pytest.raises(InputError, match=r"not readable as TOML: .*line 6"):
        Config.load(tmp_path / "mine")


def test_a_file_that_is_not_text_and_a_folder_are_told_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_bytes(b"run = \xff\xfe")
    with pytest.raises(InputError, match=r"a\.toml is not valid UTF-8 \(byte 7\)"):
        Config.load(tmp_path / "a.toml")
    with pytest.raises(InputError, match=r"is a folder but not a run \(it has no config\.json\)"):
        Config.load(tmp_path)


def test_the_folder_of_a_run_stands_for_its_config(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = Path("runs/mine")
    (run / "checkpoints" / "step-00000002").mkdir(parents=True)
    (run / "config.json").write_text(config("train.seed=7").to_json())
    assert Config.load(run) == Config.load(tmp_path / run) == config("train.seed=7")
    changed = Config.load(run, ["train.max_steps=9", "run=other"])
    assert (changed.run, changed.train.max_steps, changed.train.seed) == ("other", 9, 7)
    Path("runs").rename("moved")
    assert Config.load("moved/mine").run == "moved/mine"
    for checkpoint in (
        Path("moved/mine/checkpoints/step-00000002"),
        Path("moved/mine/checkpoints/../checkpoints/step-00000002"),
    ):
        with pytest.raises(
            InputError,
            match=r"is part of the run moved/mine, such as a checkpoint; .* give the folder",
        ):
            Config.load(checkpoint)


@pytest.mark.parametrize(
    ("path", "overrides", "told"),
    [
        (3, (), "Give the path of a config or the name of a preset, not 3."),
        (None, (), "Give the path of a config or the name of a preset, not None."),
        ("ptb-1-layer", [3], 'Give overrides as a list of strings, e.g. ["train.lr=0.001"], not'),
    ],
)
def test_a_config_is_not_loaded_from_anything_else(path: Any, overrides: Any, told: str) -> None:
    with pytest.raises(InputError, match=re.escape(told)):
        Config.load(path, overrides)


def test_one_override_needs_no_list() -> None:
    assert Config.load("ptb-1-layer", "train.max_steps=3").train.max_steps == 3


def test_a_mistake_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(TOML + "[model]\nsolvr = 'rk2'\n")
    with pytest.raises(InputError, match=r"mine\.toml: there is no setting model\.solvr"):
        Config.load(path)


def test_json_round_trip(tmp_path: Path) -> None:
    changed = config("train.adam_betas=[0.8, 0.95]", "data.test=['a']", "model.solver=custom", *OWN)
    (tmp_path / "config.json").write_text(changed.to_json())
    assert Config.load(tmp_path / "config.json") == changed
    assert Config.load(tmp_path / "config.json").hash() == changed.hash()


# ---- runs of earlier versions ---------------------------------------------------------------

# A run of 0.1.0, which had no choice, without its defaults: its scores are signed 9fb5f74c83.
EARLIER = json.loads("""{
    "run": "reproductions/ptb-small/runs/residual-1-s1",
    "data": {"dir": "data/ptb", "target": "txt", "train": "ptb.train", "valid": "ptb.valid",
             "test": ["ptb.test"], "tokenizer": "split"},
    "model": {"d_model": 128, "ffn": 512, "heads": 4, "encoder_layers": 0, "decoder_layers": 1,
              "solver": "euler"},
    "train": {"max_steps": 918, "batch_tokens": 1024, "lr": 0.008, "warmup": 300, "threads": 1,
              "label_smoothing": 0.0, "log_every": 51, "save_every": 153, "valid_bleu": false,
              "keep_last": 2, "tensorboard": false},
    "decode": {"average": 1}
}""")


@pytest.mark.parametrize("overrides", [[], NO_SOURCE], ids=["translation", "language model"])
def test_a_config_of_a_version_without_a_choice_is_read_as_tied(
    tmp_path: Path, overrides: list[str]
) -> None:
    tied = config(*overrides, "model.tie_embeddings=true")
    kept = json.loads(tied.to_json())
    del kept["model"]["tie_embeddings"]
    (tmp_path / "config.json").write_text(json.dumps(kept))
    assert Config.load(tmp_path / "config.json") == tied
    assert "tie_embeddings" not in kept["model"], "what was read is not changed"
    changed = Config.load(tmp_path / "config.json", ["model.tie_embeddings=false"])
    assert not changed.model.tie_embeddings


def test_a_run_of_an_earlier_version_keeps_the_hash_that_signs_its_scores(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(EARLIER))
    earlier = Config.load(tmp_path / "config.json")
    assert earlier.model.tie_embeddings
    assert earlier.hash() == "9fb5f74c83"
    assert Config.parse(EARLIER).hash() != "9fb5f74c83", "begun today it would be another model"


def test_what_is_written_down_is_not_changed_by_how_old_it_is() -> None:
    for tied in (True, False):
        kept: Any = {"model": {"encoder_layers": 0, "tie_embeddings": tied}}
        assert from_earlier(kept) == kept
    for other in ({}, {"model": {"solver": "rk4"}}, {"model": 5}):  # not what a run keeps
        assert from_earlier(other) == other


# ---- the command line's --set ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5),
        ("-3", -3),
        ("0.1", 0.1),
        ("1e-4", 1e-4),
        ("5_000", 5000),
        ("true", True),
        ("false", False),
        ("rk4", "rk4"),
        ("no", "no"),
        ("san+ffn", "san+ffn"),
        ('"5"', "5"),
        ("'true'", "true"),
        ('["a", "b"]', ["a", "b"]),
        ("[0.9, 0.98]", [0.9, 0.98]),
        ("[]", []),
        ("../shared/data", "../shared/data"),
        ("C:\\data", "C:\\data"),
        ("a=b", "a=b"),
        ("", ""),
    ],
)
def test_a_value_of_the_command_line(text: str, value: object) -> None:
    parsed = parse_value(text)
    assert parsed == value
    assert type(parsed) is type(value)


@given(
    st.integers(-(1 << 63), (1 << 63) - 1)  # those of TOML
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.booleans()
)
def test_numbers_and_booleans_come_back_as_themselves(value: float | bool) -> None:
    parsed = parse_value(json.dumps(value))
    assert parsed == value
    assert type(parsed) is type(value)


@settings(max_examples=50)
@given(st.text(max_size=20))
def test_any_text_is_some_value(text: str) -> None:
    parse_value(text)


@pytest.mark.parametrize("override", ["train.lr", "", "=5", "train.=5", "."])
def test_an_override_without_key_or_value_is_refused(override: str) -> None:
    with pytest.raises(InputError, match="is not of the form key=value"):
        apply_override({}, override)


def test_an_override_through_something_that_is_no_section_is_refused() -> None:
    with pytest.raises(InputError, match="run is not a section"):
        apply_override(values(), "run.fast=5")


def test_the_last_override_wins_and_a_value_may_hold_an_equals_sign() -> None:
    plain: dict[str, Any] = {}
    for override in ("data.dir=a", "data.dir = b=c"):
        apply_override(plain, override)
    assert plain == {"data": {"dir": "b=c"}}


def test_suggestions_are_near_or_the_whole_choice() -> None:
    assert suggest("rk3", ["rk2", "dlcl"]) == "; did you mean rk2?"
    assert suggest("RK4", ["rk2", "rk4"]) == "; did you mean rk4?"
    assert suggest("rk3", ["rk4", "rk2", "dlcl"]) == "; did you mean rk2 or rk4?"
    assert suggest("zzz", ["rk2", "dlcl"]) == "; there are rk2, dlcl"
    assert suggest("zzz", [f"key{n}" for n in range(50)]) == ""


# ---- identity -------------------------------------------------------------------------------


def test_settings_are_frozen() -> None:
    with pytest.raises(ValidationError):
        config().train.lr = 1.0  # type: ignore[misc]
    with pytest.raises(ValidationError):
        config().run = "elsewhere"  # type: ignore[misc]


def test_the_hash_is_stable_and_ignores_where_things_are() -> None:
    base = config()
    assert base.hash() == config("run=elsewhere", "data.dir=other").hash()
    assert len(base.hash()) == 10
    assert int(base.hash(), 16) >= 0


# Another value than the default, where adding to it or negating it gives none that fits ...
OTHER: dict[str, str] = {
    "data.tokenizer": "split",
    "data.max_length": "99",
    "model.encoder_layers": "7",
    "model.gamma": "ones",
    "model.gamma_start": "tableau",
    "model.tableau": "{a = [['1/3']], b = [0, 1]}",
    "model.field": "san",
    "model.solver": "rk4",
    "model.decoder_solver": "rk2",
    "model.decoder_gamma": "learned",
    "model.replicate": "release",
    "model.norm": "post",
    "model.init": "depth-scaled",
    "model.stage_parameters": "separate",
    "train.precision": "bf16",
    "train.best": "bleu",
    "train.final_model": "best",
    "train.adam_betas": "[0.9, 0.98]",
    "data.raw_references": "{test = 'raw.de'}",
    "data.columns": '["de", "en"]',
}
# ... and what else has to be set before it can be changed.
FIRST: dict[str, list[str]] = {
    "model.gamma_start": ["model.gamma=learned"],
    "model.share_gamma": ["model.gamma=learned"],
    "model.tableau": ["model.solver=custom", *OWN],
    "model.norm": EULER,
    "data.raw_references": ["data.tokenizer=split", "data.test=['test']"],
}


def before_and_after(key: str) -> tuple[Config, Config]:
    """Two configs that differ in this key alone; the first has its default where it can."""
    default = DEFAULTS[key]
    by_type: dict[type, str] = {
        bool: json.dumps(not default),
        int: str(default + 8) if isinstance(default, int) else "",
        float: str(default + 0.125) if isinstance(default, float) else "",
        list: '["x"]',
        str: "x",
    }
    other = OTHER.get(key) or by_type[type(default)]
    before = FIRST.get(key, [])
    return config(*before), config(*before, f"{key}={other}")


@pytest.mark.parametrize("key", sorted(DEFAULTS))
def test_every_other_setting_changes_the_hash(key: str) -> None:
    before, after = before_and_after(key)
    named_otherwise = key == "train.final_model"  # a score's signature says which checkpoints
    assert (before.hash() == after.hash()) == named_otherwise


def test_the_hash_is_the_same_in_every_process_and_on_every_machine() -> None:
    """It names results, so a known one is written down."""
    assert config("model.solver=euler").hash() == "50167fd540"


@pytest.mark.parametrize("key", sorted(DEFAULTS))
def test_a_default_written_down_leaves_the_hash_as_it_is(key: str) -> None:
    """So a setting that is new tomorrow does not rename the runs of today."""
    if DEFAULTS[key] is not None and key != "data.source":
        assert config(f"{key}={json.dumps(DEFAULTS[key])}").hash() == config().hash()


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["data.columns=['en']"], "does not name both the source 'en' and the target 'de'"),
        (["data.columns=['en', 'fr', 'en']"], "does not name both"),
        (["data.columns=['fr', 'de', 'en']"], ""),
        (["data.target=en", "data.train=p.tsv", "data.columns=['en', 'de']"], "does not name both"),
        (["data.target=en", "data.train=p.tsv", "data.columns=['en', 'en']"], ""),
        ([*NO_SOURCE, "data.columns=['de']"], "which a language model does not read; remove them"),
    ],
)
def test_columns_name_the_source_and_the_target(overrides: list[str], said: str) -> None:
    if said:
        assert said in mistake(*overrides)
    else:
        config(*overrides)


ALL = ("data", "model", "train")
FREE = {
    *("data.split_compounds", "data.raw_references", "data.lowercased"),
    *("data.test", "train.max_steps", "train.device", "train.threads", "train.lanes"),
    "train.log_every",
    *("train.workers", "train.shard", "train.recompute"),
    *("train.save_every", "train.valid_every", "train.valid_bleu", "train.patience"),
    *("train.keep_last", "train.final_model", "train.max_bad_steps", "train.tensorboard"),
}


@pytest.mark.parametrize("key", sorted(DEFAULTS))
def test_only_settings_that_do_not_touch_an_update_may_change(key: str) -> None:
    before, after = before_and_after(key)
    conflict = before.conflict(after, ALL)
    if key in FREE or key.startswith("decode.") or key == "train.best":
        assert conflict is None
    else:
        assert conflict is not None
        assert conflict.startswith(f"{key} = ")


def test_a_conflict_names_both_values() -> None:
    mine, other = config("model.solver=rk2"), config("model.solver=rk4")
    assert mine.conflict(other, ALL) == 'model.solver = "rk2" there, "rk4" here'
    assert mine.conflict(other, ["data", "train"]) is None
    assert mine.conflict(mine, ALL) is None


def test_moving_a_run_or_its_text_is_no_conflict() -> None:
    assert config().conflict(config("run=elsewhere", "data.dir=other"), ALL) is None


def test_known_keys_are_those_of_the_json_that_is_kept() -> None:
    kept = json.loads(config().to_json())
    flat = [
        f"{name}.{key}" if isinstance(value, dict) else name
        for name, value in kept.items()
        for key in (value if isinstance(value, dict) else [""])
    ]
    assert flat == known_keys()


def test_choices_are_spelled_out_in_the_answer() -> None:
    for section, info in Config.model_fields.items():
        annotation = info.annotation
        assert isinstance(annotation, type)
        inner = annotation.model_fields if issubclass(annotation, Section) else {}
        for name, field in inner.items():
            choices = get_args(field.annotation) if get_origin(field.annotation) is Literal else ()
            sentence = mistake(f"{section}.{name}=nonsense") if choices else ""
            assert all(f"'{choice}'" in sentence for choice in choices)
