"""Weights in 8 bits: what is read is within half a scale of what was written, or is refused."""

import json
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from safetensors.torch import load_file
from torch import Tensor

from kutta import __version__
from kutta.config import ModelConfig
from kutta.errors import InputError
from kutta.model import TranslationModel
from kutta.model.int8 import SMALL, quantised, restored
from kutta.model.transformer import build_model
from kutta.model.weights import (
    fill,
    own_tensors,
    read_origin,
    read_shapes,
    read_tensors,
    write_int8,
    write_tensors,
)

V1 = "weights:int8-rows-v1"
ROUNDING = 2e-5  # of a scale: w / scale and code * scale are rounded, each by 127 * 2**-24

shapes = st.tuples(st.integers(1, 8), st.integers(SMALL, SMALL + 3)).map(
    lambda s: (s[0], s[1] // s[0] + 1)
)
weights = st.floats(-(2.0**126), 2.0**126, width=32)


@st.composite
def matrices(draw: st.DrawFn) -> Tensor:
    """A matrix that is large enough, filled by a few drawn values, with some rows of zeros."""
    rows, columns = draw(shapes)
    few = draw(arrays(np.float32, (rows, 24), elements=weights))
    matrix = torch.from_numpy(np.resize(few, (rows, columns)).copy())
    matrix[draw(st.lists(st.integers(0, rows - 1)))] = 0
    return matrix


def header(path: Path) -> dict[str, dict[str, str]]:
    """The header of a safetensors file, read by hand: its length in 8 bytes, then JSON."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + length])


def model(seed: int, shared: bool = True, **settings: object) -> TranslationModel:
    torch.manual_seed(seed)
    sizes = {"d_model": 64, "ffn": 128, "heads": 2, "encoder_layers": 2, "decoder_layers": 1}
    return build_model(ModelConfig.model_validate(sizes | settings), 90, 90, shared)


@given(matrices())
def test_the_error_in_a_row_is_at_most_half_its_scale(matrix: Tensor) -> None:
    stored = quantised({"w": matrix})
    found = restored(stored, V1, "file")["w"].double()
    largest = matrix.abs().amax(dim=1).double()
    bound = (largest / 127).clamp(min=1.2e-38) * (0.5 + ROUNDING)
    assert ((found - matrix.double()).abs().amax(dim=1) <= bound).all()
    assert stored["w"].dtype == torch.int8
    assert stored["w"].abs().max() <= 127  # -128 has no positive counterpart
    assert stored["w:scale"].shape == (matrix.shape[0],)


@given(matrices())
def test_rows_of_zeros_stay_zero_and_signs_are_symmetric(matrix: Tensor) -> None:
    found = restored(quantised({"w": matrix}), V1, "file")["w"]
    assert (found[matrix.abs().amax(dim=1) == 0] == 0).all()
    mirrored = restored(quantised({"w": -matrix}), V1, "file")["w"]
    assert torch.equal(mirrored, -found)


@pytest.mark.parametrize("value", [0.0, 1e-45, 1e-40, 1e-37])
def test_rows_whose_scale_would_vanish_are_within_the_smallest_scale(value: float) -> None:
    """value / 127 is zero or has few digits in fp32, and codes must not divide by it."""
    matrix = torch.full((2, SMALL), value)
    matrix[1] = 1
    stored = quantised({"w": matrix})
    assert (stored["w:scale"] > 0).all()
    assert stored["w"][1].eq(127).all()
    found = restored(stored, V1, "file")["w"].double()
    assert (found[0] - matrix[0].double()).abs().max() <= 1.2e-38 / 2 * (1 + 1e-6)


@given(matrices())
def test_what_was_read_is_stored_without_a_further_error(matrix: Tensor) -> None:
    once = restored(quantised({"w": matrix}), V1, "file")["w"]
    codes = quantised({"w": matrix})["w"]
    normal = matrix.abs().amax(dim=1) > 1e-35  # smaller rows have the smallest scale there is
    again = quantised({"w": once})["w"]
    assert torch.equal(again[normal], codes[normal])


@given(
    st.dictionaries(
        st.text("abc.", min_size=1),
        arrays(np.float32, array_shapes(max_dims=3, max_side=15), elements=weights),
        max_size=4,
    )
)
def test_small_tensors_stay_as_they_are(small: dict[str, np.ndarray]) -> None:
    tensors = {name: torch.from_numpy(array) for name, array in small.items()}
    stored = quantised(tensors)
    assert stored.keys() == tensors.keys()
    assert all(torch.equal(stored[name], tensors[name]) for name in tensors)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize(
    "settings", [{}, {"solver": "rk2", "gamma": "learned"}, {"tie_embeddings": False}], ids=str
)
def test_names_and_shapes_make_the_round_trip(
    tmp_path: Path, shared: bool, settings: dict[str, object]
) -> None:
    saved, loaded = model(1, shared, **settings), model(2, shared, **settings)
    tensors, path = own_tensors(saved), tmp_path / "model.safetensors"
    write_int8(tensors, path, "average:5")
    assert read_shapes(path) == {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    assert read_tensors(path).keys() == tensors.keys()
    fill(loaded, read_tensors(path), str(path))
    for name, tensor in own_tensors(loaded).items():
        wanted = tensors[name]
        assert tensor.dtype == torch.float32
        if wanted.dim() < 2 or wanted.numel() < SMALL:
            assert torch.equal(tensor, wanted), name
        else:
            assert not torch.equal(tensor, wanted)
            error = (tensor - wanted).abs().amax(dim=1)
            assert (error <= wanted.abs().amax(dim=1) / 127 * (0.5 + ROUNDING)).all(), name


def test_tied_weights_are_stored_once_and_in_a_quarter_of_the_space(tmp_path: Path) -> None:
    tied = model(1, d_model=128, ffn=256)
    write_int8(own_tensors(tied), tmp_path / "small")
    write_tensors(own_tensors(tied), tmp_path / "full")
    names = [name for name in header(tmp_path / "small") if "embedding" in name]
    assert sorted(names) == [
        "target_embedding.tokens.weight",
        "target_embedding.tokens.weight:scale",
    ]
    assert (tmp_path / "small").stat().st_size < 0.3 * (tmp_path / "full").stat().st_size
    loaded = model(2, d_model=128, ffn=256)
    fill(loaded, read_tensors(tmp_path / "small"), str(tmp_path / "small"))
    assert loaded.source_embedding is loaded.target_embedding


def test_the_header_names_format_version_and_origin(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_int8(own_tensors(model(1)), tmp_path / name, "average:5")
    assert header(tmp_path / "a")["__metadata__"] == {"kutta": f"{__version__} average:5|{V1}"}
    assert read_origin(tmp_path / "a") == f"average:5|{V1}"
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    write_int8(own_tensors(model(1)), tmp_path / "c")
    assert read_origin(tmp_path / "c") == V1


def test_only_large_matrices_have_codes(tmp_path: Path) -> None:
    write_int8(own_tensors(model(1, gamma="learned", solver="rk2")), tmp_path / "file")
    kinds = {name: tensor.dtype for name, tensor in load_file(tmp_path / "file").items()}
    full = [name for name, kind in kinds.items() if kind == torch.float32]
    assert all(
        name.endswith((":scale", ".bias", "norm.weight", ".relative", "gamma")) for name in full
    )
    assert {name for name, kind in kinds.items() if kind == torch.int8} == {
        name.removesuffix(":scale") for name in full if name.endswith(":scale")
    }


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), float("-inf"), 1e300])
@pytest.mark.parametrize("shape", [(64, 64), (3,), ()], ids=str)
def test_values_that_are_not_finite_are_refused_and_nothing_is_written(
    tmp_path: Path, wrong: float, shape: tuple[int, ...]
) -> None:
    tensor = torch.ones(shape, dtype=torch.float64)
    tensor.view(-1)[-1] = wrong
    with pytest.raises(InputError, match=r"The tensor layer\.weight has values that are infinite"):
        write_int8({"fine": torch.ones(3), "layer.weight": tensor}, tmp_path / "file")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"w": torch.ones(64, 64, dtype=torch.int8)}, r"w \(torch.int8\) cannot be stored"),
        ({"steps": torch.ones(2, dtype=torch.long)}, r"steps \(torch.int64\) cannot be stored"),
        ({"w:scale": torch.ones(2)}, "w:scale"),
        ({"w": torch.ones(16, 16, 16)}, "w has 3 dimensions, but only matrices"),
    ],
)
def test_what_is_not_a_model_s_weight_is_refused(tensors: dict[str, Tensor], message: str) -> None:
    with pytest.raises(InputError, match=message):
        quantised(tensors)


def test_a_format_of_a_later_version_is_refused(tmp_path: Path) -> None:
    stored = quantised(own_tensors(model(1)))
    write_tensors(stored, tmp_path / "file", "average:5|weights:int8-rows-v2")
    with pytest.raises(InputError, match=r"file has the format 'int8-rows-v2'.*newer version"):
        read_tensors(tmp_path / "file")


@pytest.mark.parametrize("change", ["no scales", "no codes", "fewer scales", "one scale"])
def test_a_file_whose_codes_and_scales_differ_is_refused(tmp_path: Path, change: str) -> None:
    stored = quantised({"w": torch.ones(64, 64), "bias": torch.ones(64)})
    if change == "no codes":
        del stored["w"]
    elif change == "no scales":
        del stored["w:scale"]
    else:
        stored["w:scale"] = stored["w:scale"][: 1 if change == "one scale" else 63]
    write_tensors(stored, tmp_path / "file", V1)
    with pytest.raises(InputError, match="file is damaged: its codes and scales differ"):
        read_tensors(tmp_path / "file")


def test_codes_without_the_format_in_the_header_do_not_become_weights(tmp_path: Path) -> None:
    write_tensors(quantised(own_tensors(model(1))), tmp_path / "file", "average:5")
    with pytest.raises(InputError, match=r"unknown tensor .*:scale"):
        fill(model(2), read_tensors(tmp_path / "file"), str(tmp_path / "file"))
