"""Weights on disk: what is loaded is what was saved, or nothing changes."""

from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from kutta import __version__
from kutta.config import ModelConfig
from kutta.errors import InputError
from kutta.model import TranslationModel
from kutta.model.transformer import build_model
from kutta.model.weights import fill, own_tensors, read_shapes, read_tensors, write_tensors


def tiny(seed: int, shared: bool = True, **settings: object) -> TranslationModel:
    torch.manual_seed(seed)
    sizes = {"d_model": 8, "ffn": 16, "heads": 2, "encoder_layers": 2, "decoder_layers": 1}
    return build_model(ModelConfig.model_validate(sizes | settings), 11, 11, shared)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize(
    "settings",
    [{}, {"gamma": "learned"}, {"solver": "dlcl"}, {"tie_embeddings": False}],
    ids=str,
)
def test_loading_gives_the_saved_weights(
    tmp_path: Path, shared: bool, settings: dict[str, object]
) -> None:
    saved, loaded = tiny(1, shared, **settings), tiny(2, shared, **settings)
    write_tensors(own_tensors(saved), tmp_path / "model.safetensors")
    fill(loaded, read_tensors(tmp_path / "model.safetensors"), str(tmp_path / "model.safetensors"))
    assert saved.state_dict().keys() == loaded.state_dict().keys()
    for name, tensor in saved.state_dict().items():
        assert torch.equal(tensor, loaded.state_dict()[name])
    assert (loaded.source_embedding is loaded.target_embedding) == shared
    assert (loaded.output is None) == settings.get("tie_embeddings", True)
    assert all(parameter.requires_grad for parameter in loaded.parameters())


def test_a_shared_tensor_is_stored_once(tmp_path: Path) -> None:
    model = tiny(1)
    write_tensors(own_tensors(model), tmp_path / "model.safetensors")
    shapes = read_shapes(tmp_path / "model.safetensors")
    assert shapes == {name: tuple(tensor.shape) for name, tensor in own_tensors(model).items()}
    assert [name for name in shapes if "embedding" in name] == ["target_embedding.tokens.weight"]
    numbers = sum(parameter.numel() for parameter in model.parameters())
    size = (tmp_path / "model.safetensors").stat().st_size
    assert 4 * numbers < size < 4 * numbers + 8192


def test_equal_weights_are_equal_files_and_name_the_version(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_tensors(own_tensors(tiny(1)), tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    with safe_open(tmp_path / "a", framework="pt") as file:
        assert file.metadata() == {"kutta": __version__}


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"ffn": 24}, "is 16 x 8 but the config asks for 24 x 8|is 16 but the config asks for 24"),
        ({"encoder_layers": 3}, "lacks the tensor encoder.layers.2"),
        ({"encoder_layers": 1}, "unknown tensor encoder.layers.1"),
        ({"tie_embeddings": False}, "lacks the tensor output.weight"),
    ],
    ids=str,
)
def test_weights_of_another_model_are_refused_and_change_nothing(
    tmp_path: Path, other: dict[str, object], message: str
) -> None:
    write_tensors(own_tensors(tiny(1)), tmp_path / "model.safetensors")
    model = tiny(2, **other)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(InputError, match=message):
        fill(
            model, read_tensors(tmp_path / "model.safetensors"), str(tmp_path / "model.safetensors")
        )
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name])


def test_unreadable_files_are_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"There is no .*absent"):
        fill(tiny(1), read_tensors(tmp_path / "absent"), str(tmp_path / "absent"))
    (tmp_path / "noise").write_bytes(b"\x00" * 64)
    for read in (read_shapes, lambda path: fill(tiny(1), read_tensors(path), str(path))):
        with pytest.raises(InputError, match=r"noise is damaged"):
            read(tmp_path / "noise")
        with pytest.raises(InputError, match=r"Cannot read|damaged"):
            read(tmp_path)


def test_a_failed_save_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.safetensors"
    write_tensors(own_tensors(tiny(1)), path)
    before = path.read_bytes()

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(InputError, match="No space left"):
        write_tensors(own_tensors(tiny(2)), path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
