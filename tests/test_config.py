"""Settings: every default, every wrong value in one sentence, and what identifies a run."""

import json
import tomllib
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from kutta.config import Config, Section, known_keys
from kutta.errors import InputError
from kutta.mistakes import apply_override, parse_value, suggest
from kutta.ode import METHODS

ROOT = Path(__file__).parent.parent
CONFIGS = sorted((ROOT / "configs").glob("*.toml"))

REQUIRED = {"run": "runs/mine", "data": {"dir": "text", "source": "en", "target": "de"}}

# Written down a second time on purpose: changing a default changes other people's experiments.
DEFAULTS: dict[str, Any] = {
    "data.train": "train",
    "data.valid": "valid",
    "data.test": [],
    "data.tokenizer": "bpe",
    "data.vocab_size": 8000,
    "data.vocabulary": [],
    "data.shared_vocab": True,
    "data.bpe_dropout": 0.0,
    "data.max_length": 256,
    "data.max_ratio": 9.0,
    "model.d_model": 512,
    "model.ffn": 2048,
    "model.heads": 8,
    "model.encoder_layers": 6,
    "model.decoder_layers": 6,
    "model.solver": "rk2",
    "model.gamma": "tableau",
    "model.field": "san+ffn",
    "model.decoder_solver": "euler",
    "model.decoder_gamma": "tableau",
    "model.relative_positions": 8,
    "model.dropout": 0.1,
    "model.attention_dropout": 0.1,
    "model.relu_dropout": 0.1,
    "train.max_steps": 50_000,
    "train.batch_tokens": 4096,
    "train.accumulate": 1,
    "train.lr": 0.002,
    "train.warmup": 4000,
    "train.warmup_from": 1e-7,
    "train.adam_betas": (0.9, 0.997),
    "train.adam_eps": 1e-8,
    "train.clip_norm": 0.0,
    "train.label_smoothing": 0.1,
    "train.precision": "fp32",
    "train.device": "auto",
    "train.threads": 0,
    "train.log_every": 50,
    "train.save_every": 500,
    "train.valid_every": 0,
    "train.valid_bleu": True,
    "train.patience": 0,
    "train.best": "loss",
    "train.keep_last": 10,
    "train.max_bad_steps": 20,
    "train.tensorboard": True,
    "train.seed": 1,
    "decode.beam": 4,
    "decode.length_penalty": 0.6,
    "decode.average": 5,
    "decode.max_length": 0,
    "decode.batch_tokens": 4096,
}


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
    required = {"run", "data.dir", "data.source", "data.target"}
    assert set(known_keys()) == DEFAULTS.keys() | required, "a new setting: add its default here"
    assert {key: config().value(key) for key in DEFAULTS} == DEFAULTS


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
            shown[f"{section}.{name}"] = None if default == "required" else json.loads(default)
    known = {key: config().value(key) for key in known_keys() if key in DEFAULTS}
    required = dict.fromkeys(("data.dir", "data.source", "data.target"))
    assert shown == json.loads(json.dumps(known)) | required


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_a_shipped_config_loads_and_names_its_own_run(path: Path) -> None:
    loaded = Config.load(path)
    assert Path(loaded.run).name == path.stem
    assert not Path(loaded.data.dir).is_absolute()


def test_there_are_shipped_configs() -> None:
    assert {"multi30k-residual", "multi30k-rk2"} <= {path.stem for path in CONFIGS}


@pytest.mark.parametrize(
    ("override", "answer"),
    [
        ("model.sovler=rk4", "there is no setting model.sovler; did you mean model.solver?"),
        ("model.learning_rate=1", "there is no setting model.learning_rate"),
        ("solver=rk4", "there is no setting solver; did you mean model.solver?"),
        ("training.seed=1", "there is no setting training; did you mean train?"),
        ("train.warm_up=1", "did you mean train.warmup?"),
        ("decode.beam_size=1", "did you mean decode.beam?"),
        ("rum=x", "did you mean run?"),
    ],
)
def test_an_unknown_key_is_named_with_the_nearest_one(override: str, answer: str) -> None:
    assert answer in mistake(override)


@pytest.mark.parametrize(
    ("override", "parts"),
    [
        ("train.lr=fast", ["train.lr", '"fast"', "number"]),
        ("train.lr=true", ["train.lr", "true", "number"]),
        ("train.max_steps=2.5", ["train.max_steps", "2.5", "integer"]),
        ("train.max_steps='100'", ["train.max_steps", '"100"', "integer"]),
        ("train.valid_bleu=1", ["train.valid_bleu", "1", "boolean"]),
        ("train.valid_bleu=yes", ["train.valid_bleu", '"yes"', "boolean"]),
        ("data.test=test2016", ["data.test", '"test2016"', "list"]),
        ("data.test=[1]", ["data.test.0", "1", "string"]),
        ("data.source=5", ["data.source", "5", "string"]),
        ("model=5", ["model", "5"]),
        ("train.adam_betas=[0.9]", ["train.adam_betas"]),
        ("train.adam_betas=0.9", ["train.adam_betas", "0.9"]),
    ],
)
def test_a_wrong_type_is_answered_with_key_value_and_what_fits(
    override: str, parts: list[str]
) -> None:
    sentence = mistake(override)
    for part in parts:
        assert part in sentence


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
        "model.encoder_layers=0",
        "model.decoder_layers=-1",
        "model.gamma=free",
        "model.field=san-ffn",
        "model.relative_positions=-1",
        "model.dropout=1.0",
        "model.attention_dropout=-0.5",
        "model.relu_dropout=2.0",
        "train.max_steps=0",
        "train.batch_tokens=1",
        "train.accumulate=0",
        "train.lr=0.0",
        "train.lr=nan",
        "train.warmup=0",
        "train.warmup_from=-1.0",
        "train.adam_eps=0.0",
        "train.clip_norm=-1.0",
        "train.label_smoothing=1.0",
        "train.precision=fp8",
        "train.threads=-1",
        "train.log_every=0",
        "train.save_every=0",
        "train.valid_every=-1",
        "train.patience=-1",
        "train.best=chrf",
        "train.keep_last=0",
        "train.max_bad_steps=0",
        "train.seed=-1",
        "decode.beam=0",
        "decode.average=0",
        "decode.max_length=-1",
        "decode.batch_tokens=0",
    ],
)
def test_a_value_out_of_range_is_answered_with_its_key_and_value(override: str) -> None:
    key, _, value = override.partition("=")
    sentence = mistake(override)
    assert key in sentence
    assert value.removesuffix(".0").lower() in sentence.lower()


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


@pytest.mark.parametrize(
    ("overrides", "parts"),
    [
        (["model.d_model=10", "model.heads=4"], ["d_model = 10", "multiple", "heads = 4"]),
        (["model.solver=rk5"], ["model.solver", "'rk5'", "did you mean rk"]),
        (["model.decoder_solver=leapfrg"], ["model.decoder_solver", "did you mean leapfrog?"]),
        (["model.solver=dlcl", "model.field=san"], ["dlcl", "san+ffn", "'san'"]),
        (["model.solver=leapfrog", "model.gamma=learned"], ["gamma", "'learned'", "leapfrog"]),
        (["model.decoder_solver=dlcl", "model.decoder_gamma=ones"], ["'ones'", "dlcl"]),
        (["train.best=bleu", "train.valid_bleu=false"], ["best = 'bleu'", "valid_bleu"]),
        (["data.max_length=100", "train.batch_tokens=100"], ["data.max_length = 100", "= 100"]),
    ],
)
def test_settings_that_do_not_go_together_are_told_apart(
    overrides: list[str], parts: list[str]
) -> None:
    sentence = mistake(*overrides)
    for part in parts:
        assert part in sentence


def test_a_sentence_of_the_longest_length_just_fits_into_a_batch() -> None:
    assert config("data.max_length=99", "train.batch_tokens=100").data.max_length == 99


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
    assert config(f"model.solver={method}").model.solver == method


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
    path.write_text(TOML + "[train]\nlr = fast\n")
    with pytest.raises(InputError, match=r"bad\.toml is not readable as TOML: .*line 7"):
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
        with pytest.raises(InputError, match=r"config\.json does not hold a table of settings"):
            Config.load(tmp_path / "config.json", overrides)


def test_a_file_without_an_ending_is_read_as_toml(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text(TOML + "seed 5\n")
    with pytest.raises(InputError, match=r"not readable as TOML: .*line 6"):
        Config.load(tmp_path / "mine")


def test_a_file_that_is_not_text_and_a_folder_are_told_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_bytes(b"run = \xff\xfe")
    for path in (tmp_path / "a.toml", tmp_path):
        with pytest.raises(InputError, match="Cannot read the config"):
            Config.load(path)


def test_a_mistake_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(TOML + "[model]\nsolvr = 'rk2'\n")
    with pytest.raises(InputError, match=r"mine\.toml: there is no setting model\.solvr"):
        Config.load(path)


def test_json_round_trip(tmp_path: Path) -> None:
    changed = config("train.adam_betas=[0.8, 0.95]", "data.test=['a']", "model.solver=rk4")
    (tmp_path / "config.json").write_text(changed.to_json())
    assert Config.load(tmp_path / "config.json") == changed
    assert Config.load(tmp_path / "config.json").hash() == changed.hash()


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


@given(st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.booleans())
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


@pytest.mark.parametrize("key", sorted(DEFAULTS))
def test_every_other_setting_changes_the_hash(key: str) -> None:
    assert changed(key).hash() != config().hash()


OTHER: dict[str, str] = {
    "data.tokenizer": "split",
    "data.max_length": "99",
    "model.gamma": "ones",
    "model.field": "san",
    "model.solver": "rk4",
    "model.decoder_solver": "rk2",
    "model.decoder_gamma": "learned",
    "train.precision": "bf16",
    "train.best": "bleu",
    "train.adam_betas": "[0.9, 0.98]",
}


def changed(key: str) -> Config:
    """The defaults with another value of `key`."""
    default = DEFAULTS[key]
    by_type: dict[type, str] = {
        bool: json.dumps(not default),
        int: str(default + 8) if isinstance(default, int) else "",
        float: str(default + 0.125) if isinstance(default, float) else "",
        list: '["x"]',
        str: "x",
    }
    return config(f"{key}={OTHER.get(key) or by_type[type(default)]}")


def test_the_hash_is_the_same_in_every_process_and_on_every_machine() -> None:
    """It names results, so a known one is written down; a new setting gives a new one."""
    assert config("model.solver=euler").hash() == "4e3775c676"


ALL = ("data", "model", "train")
FREE = {
    *("data.test", "train.max_steps", "train.device", "train.threads", "train.log_every"),
    *("train.save_every", "train.valid_every", "train.valid_bleu", "train.patience"),
    *("train.keep_last", "train.max_bad_steps", "train.tensorboard"),
}


@pytest.mark.parametrize("key", sorted(DEFAULTS))
def test_only_settings_that_do_not_touch_an_update_may_change(key: str) -> None:
    conflict = config().conflict(changed(key), ALL)
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


def test_the_example_of_the_design_is_accepted(tmp_path: Path) -> None:
    """Every name that a shipped config uses is a known key, section by section."""
    for path in CONFIGS:
        for name, value in tomllib.loads(path.read_text()).items():
            inner = [f"{name}.{key}" for key in value] if isinstance(value, dict) else [name]
            assert set(inner) <= set(known_keys())


def test_choices_are_spelled_out_in_the_answer() -> None:
    for key in ("model.gamma", "model.field", "train.precision", "train.best", "data.tokenizer"):
        section, name = key.split(".")
        annotation = Config.model_fields[section].annotation
        assert isinstance(annotation, type)
        assert issubclass(annotation, Section)
        sentence = mistake(f"{key}=nonsense")
        for choice in get_args(annotation.model_fields[name].annotation):
            assert str(choice) in sentence
