"""Where a training begins: at a shallower model's weights, or with ADMIN's profile."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from rich.console import Console

from kutta.config import Config
from kutta.errors import InputError
from kutta.model.weights import read_tensors
from kutta.runs import Run, open_run, prepare_run
from kutta.training.run import dry_run_summary, train

Configure = Callable[..., Config]
ADMIN = ("model.norm=post", "model.init=admin", "model.encoder_layers=2")


def losses(config: Config) -> list[float]:
    return [r["loss"] for r in Run.load(config.run).records() if r["kind"] == "train"]


def test_a_grown_model_starts_where_the_shallow_one_ended(
    configure: Configure, silent: Console, tmp_path: Path
) -> None:
    """Twice as many steps of half the size: its first loss is near the shallow model's last."""
    shallow = configure(
        f"run='{tmp_path / 'shallow'}'",
        *("train.max_steps=60", "train.save_every=60", "decode.average=1", "model.dropout=0.0"),
        *("model.attention_dropout=0.0", "model.relu_dropout=0.0", "train.lr=0.01"),
    )
    train(shallow, console=silent)
    settings = (*("model.dropout=0.0", "model.attention_dropout=0.0", "model.relu_dropout=0.0"),)
    deep = ("model.encoder_layers=2", "model.decoder_layers=4", *settings, "train.max_steps=2")
    grown = configure(f"run='{tmp_path / 'grown'}'", f"train.grow_from='{shallow.run}'", *deep)
    fresh = configure(f"run='{tmp_path / 'fresh'}'", *deep)
    for config in (grown, fresh):
        train(config, console=silent)
    last = sum(losses(shallow)[-5:]) / 5
    assert losses(grown)[0] < last + 0.15
    assert losses(fresh)[0] > last + 0.5


def test_a_grown_model_keeps_the_vocabulary_of_the_shallow_one(
    configure: Configure, silent: Console, tmp_path: Path, corpus: Path
) -> None:
    """Even where its own training text would give another one."""
    shallow = configure(f"run='{tmp_path / 'shallow'}'", "train.max_steps=1")
    train(shallow, console=silent)
    text = tmp_path / "text"
    text.mkdir()
    for name in ("train", "valid"):
        for language in ("aa", "bb"):
            lines = (corpus / f"{name}.{language}").read_text()
            (text / f"{name}.{language}").write_text(lines + "new words here\n")
    grown = configure(
        f"run='{tmp_path / 'grown'}'",
        f"train.grow_from='{shallow.run}'",
        f"data.dir='{text}'",
        "data.test=[]",
        "model.encoder_layers=3",
        "train.max_steps=1",
    )
    train(grown, console=silent)
    vocabularies = [(Path(c.run) / "vocab.txt").read_text() for c in (shallow, grown)]
    assert vocabularies[0] == vocabularies[1]


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        (("model.encoder_layers=2", "train.grow_from='no/run'"), "not a finished run"),
        (("train.grow_from='{grown}'",), "the run itself"),
        (("data.shared_vocab=false", "train.grow_from='{shallow}'"), "shared_vocab"),
        (("model.heads=4", "train.grow_from='{shallow}'"), r"model\.heads"),
        (
            ("model.d_model=12", "train.grow_from='{shallow}'"),
            r"d_model is 8 there and 12 here",
        ),
        (("model.field=macaron", "train.grow_from='{shallow}'"), "no parameters to grow"),
        (
            ("model.stage_parameters=separate", "train.grow_from='{shallow}'"),
            r"model\.stage_parameters is 'shared' there and 'separate' here",
        ),
    ],
)
def test_a_run_that_cannot_be_grown_from_is_told(
    configure: Configure,
    silent: Console,
    tmp_path: Path,
    changes: tuple[str, ...],
    complaint: str,
) -> None:
    shallow = configure(f"run='{tmp_path / 'shallow'}'", "train.max_steps=1")
    train(shallow, console=silent)
    grown = tmp_path / "grown"
    changes = tuple(change.format(shallow=shallow.run, grown=grown) for change in changes)
    config = configure(f"run='{grown}'", *changes)
    with pytest.raises(InputError, match=complaint):
        train(config, console=silent)


def test_a_wrong_growth_throws_nothing_away(
    configure: Configure, silent: Console, tmp_path: Path
) -> None:
    trained = configure("train.max_steps=1")
    train(trained, console=silent)
    before = sorted(path.name for path in Path(trained.run).rglob("*"))
    for wrong in (trained.run, tmp_path / "no-run"):
        with pytest.raises(InputError, match=r"train\.grow_from"):
            train(configure(f"train.grow_from='{wrong}'"), overwrite=True, console=silent)
    with pytest.raises(InputError, match=r"train\.grow_from"):
        dry_run_summary(
            configure(f"run='{tmp_path / 'new'}'", f"train.grow_from='{tmp_path / 'no'}'")
        )
    assert sorted(path.name for path in Path(trained.run).rglob("*")) == before


def test_a_text_prepared_with_another_vocabulary_is_not_grown_on(
    configure: Configure, silent: Console, tmp_path: Path
) -> None:
    shallow = configure(f"run='{tmp_path / 'shallow'}'", "train.max_steps=1")
    train(shallow, console=silent)
    deep = configure("model.encoder_layers=2", f"train.grow_from='{shallow.run}'")
    prepare_run(open_run(deep))
    vocabulary = Path(deep.run) / "vocab.txt"
    vocabulary.write_text(vocabulary.read_text().replace("cato", "gato"))
    (Path(deep.run) / "checksums.json").unlink()
    with pytest.raises(InputError, match="another vocabulary"):
        train(deep, console=silent)


def test_admin_profiles_once_and_resumes_exactly(
    configure: Configure, silent: Console, tmp_path: Path
) -> None:
    whole = configure(*ADMIN)
    train(whole, console=silent)
    for steps in (4, 8):
        part = configure(*ADMIN, f"run='{tmp_path / 'parts'}'", f"train.max_steps={steps}")
        train(part, console=silent)
    first, second = (read_tensors(Path(c.run) / "model.safetensors") for c in (whole, part))
    assert all(torch.equal(first[name], second[name]) for name in first)
    omegas = [tensor for name, tensor in first.items() if name.endswith("omega")]
    assert len(omegas) == 2 * 2 + 3  # two sublayers in each encoder layer, three in the decoder's
    assert max(float(omega.mean()) for omega in omegas) > 1.05


def test_ones_own_tableau_is_trained_and_its_order_told(
    configure: Configure, silent: Console
) -> None:
    own = "model.tableau={a=[['1/2'],[0,'3/4']],b=['2/9','1/3','4/9']}"
    config = configure("model.solver=custom", own)
    assert "custom (3 stages, order 3)" in dry_run_summary(config)
    train(config, console=silent)
    log = (Path(config.run) / "train.log").read_text()
    assert "custom (3 stages, order 3)" in log
    same = configure("model.solver=ralston3", f"run='{config.run}-ralston'")
    train(same, console=silent)
    first, second = (read_tensors(Path(c.run) / "model.safetensors") for c in (config, same))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_another_tableau_on_the_same_run_is_refused(configure: Configure, silent: Console) -> None:
    first = configure("model.solver=custom", "model.tableau={a=[[1]],b=['1/2','1/2']}")
    train(first, console=silent)
    with pytest.raises(InputError, match=r"model\.tableau = .* there"):
        train(
            configure("model.solver=custom", "model.tableau={a=[['1/2']],b=[0,1]}"), console=silent
        )


@pytest.mark.parametrize(
    "settings",
    [
        ("model.solver=rk2", "model.gamma=gated"),
        ("model.solver=rk4", "model.gamma=ema", "model.share_gamma=true"),
        ("model.solver=rk4", "model.gamma=learned", "model.gamma_start=tableau"),
        ("model.solver=pc2", "model.encoder_layers=3"),
        ("model.solver=rk2", "model.replicate=release"),
        ("model.field=macaron", "model.solver=rk2"),
        ("model.share_layers=true", "model.encoder_layers=3", "model.solver=rk2"),
        ("model.solver=rk2", "model.stage_parameters=separate"),
        ("model.layer_drop=0.4", "model.encoder_layers=3"),
        ("model.init=depth-scaled", "model.encoder_layers=3"),
        ("model.norm=post",),
    ],
    ids=lambda settings: settings[-1],
)
def test_every_kind_of_model_resumes_exactly(
    configure: Configure, silent: Console, tmp_path: Path, settings: tuple[str, ...]
) -> None:
    whole = configure(*settings)
    train(whole, console=silent)
    for steps in (4, 8):
        part = configure(*settings, f"run='{tmp_path / 'parts'}'", f"train.max_steps={steps}")
        train(part, console=silent)
    first, second = (read_tensors(Path(c.run) / "model.safetensors") for c in (whole, part))
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_the_line_of_the_method_names_both_sides(configure: Configure) -> None:
    own = "model.tableau={a=[['1/2']],b=[0,1]}"
    plan = dry_run_summary(configure("model.decoder_solver=custom", own, "model.layer_drop=0.1"))
    assert "euler, gamma tableau, field san+ffn, decoder custom (2 stages, order 2)" in plan
    assert "layer_drop 0.1" in plan


def test_a_dry_run_refuses_what_the_training_would(configure: Configure, silent: Console) -> None:
    train(configure(), console=silent)
    with pytest.raises(InputError, match=r"model\.solver"):
        dry_run_summary(configure("model.solver=rk4"))
