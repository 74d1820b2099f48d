"""A translation model in the format of CTranslate2, written by CTranslate2's own converter.

CTranslate2 computes layers in which every sublayer is one residual step. Such a layer is an Euler
step, and a Runge-Kutta step whose stages form a chain is several of them: with beta_ij = 1 and
gamma_i = 1, RK2 is y1 = y + F(y), y' = y1 + F(y1). Other methods have no equal there.
"""

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from kutta.config import DataConfig, ModelConfig
from kutta.data.tokenizer import BOS, BPE, EOS, SPECIALS, UNK, Tokenizer
from kutta.errors import InputError
from kutta.files import atomic_path
from kutta.model import TranslationModel
from kutta.model.attention import CrossAttention, SelfAttention
from kutta.model.decoding import sinusoids
from kutta.model.field import FeedForwardField, Sublayer
from kutta.model.shape import StackShape, blocks_of
from kutta.model.stack import Layer, Stack
from kutta.ode.gamma import GAMMAS
from kutta.ode.methods import tableau_of
from kutta.runs import Run
from kutta.translate.segments import longest_source

_LONGEST_SOURCE = 1024  # tokens of a line, at least; CTranslate2 does not split lines
QUANTIZATIONS = ("float32", "float16", "bfloat16", "int8", "int8_float32")
INSTEAD = "export it without --to ctranslate2, for Kutta's own runtime"
Array = NDArray[np.float32]


def export_ctranslate2(run: Run, folder: Path, quantization: str = "float32") -> None:
    """Write the model of a run to a new folder, for `ctranslate2.Translator`."""
    converters, specs = _library("converters"), _library("specs")
    if reason := obstacle(run.config.model):
        raise InputError(f"CTranslate2 cannot compute {run.folder}: {reason}; {INSTEAD}.")
    if folder.exists():
        raise InputError(f"{folder} exists already; give the name of a new folder.")
    model = cast(TranslationModel, run.load_model())
    known = run.tokenizers
    spec = _spec(specs, model, positions_of(run.config.data))
    spec.register_source_vocabulary(vocabulary(known.source))
    spec.register_target_vocabulary(vocabulary(known.target))

    class Converter(converters.Converter):
        def _load(self) -> Any:
            return spec

    with atomic_path(folder) as temporary:
        Converter().convert(str(temporary), quantization=quantization)
        if isinstance(known.source, BPE):  # the words of split text are registered above
            for name, content in run.vocabulary().items():
                (temporary / name).write_bytes(content)


def _library(part: str) -> Any:
    try:
        return import_module(f"ctranslate2.{part}")
    except ImportError as error:
        raise InputError(
            f"CTranslate2 is not installed ({error}); run `pip install 'kutta[ctranslate2]'`."
        ) from error


# --- what CTranslate2 can compute


def obstacle(model: ModelConfig) -> str:
    """Why CTranslate2 cannot compute a model with these settings; empty if it can."""
    if model.encoder_layers == 0:
        return "it is a language model (model.encoder_layers = 0), and only translation models fit"
    if model.replicate == "release":
        return "model.replicate = 'release' mixes the outputs of all earlier layers"
    if model.init == "admin":
        return "model.init = 'admin' weighs the residual connections"
    if model.norm == "post" and model.relative_positions:
        return (
            "with model.norm = 'post' it does not add sinusoidal positions beside relative ones "
            f"(model.relative_positions = {model.relative_positions})"
        )
    sides = ("", model.solver, model.gamma), ("decoder_", model.decoder_solver, model.decoder_gamma)
    for side, method, gamma in sides:
        shape = StackShape(model, 1, method, gamma, cross=bool(side))
        if not chain_of(shape, method, gamma):
            return (
                f"model.{side}solver = {method!r} with model.{side}gamma = {gamma!r} and "
                f"model.field = {model.field!r} is not a chain of residual layers, as Euler and "
                "RK2 with gamma = 'ones' and field = 'san+ffn' are"
            )
    return ""


def chain_of(shape: StackShape, method: str, gamma: str) -> int:
    """How many residual layers one layer is; 0 if it is not a chain of them."""
    tableau, kind = tableau_of(method, shape.settings.own_tableau()), GAMMAS[gamma]
    blocks = blocks_of(shape)
    if tableau is None or kind.learned or any(block.h != 1 for block in blocks):
        return 0
    b = [float(x) for x in tableau.b]
    chained = all(x == 1 for row in tableau.a for x in row)
    if not chained or any(weight != 1 for weight in kind.weights(b, {}, ())):
        return 0
    stages = {True: tableau.stages, False: 1}  # of a block with the chosen method, and without
    steps = [part for block in blocks for part in block.parts * stages[block.chosen]]
    layer = ["san", "cross", "ffn"] if shape.cross else ["san", "ffn"]
    count = len(steps) // len(layer)
    return count if steps == layer * count else 0


def residual_layers(stack: Stack) -> Iterator[dict[str, Sublayer]]:
    """The layers that the stack's layers unfold to, each as its sublayers by name."""
    shape = stack.shape
    names = ("san", "cross", "ffn") if shape.cross else ("san", "ffn")
    for layer in stack.each_layer():
        for stage in range(chain_of(shape, shape.method, shape.gamma)):
            yield {name: _of_stage(layer, name, stage) for name in names}


def _of_stage(layer: Layer, name: str, stage: int) -> Sublayer:
    """The sublayer of one evaluation of F: all have the same, or each its own."""
    each = layer.sublayers(name)
    return each[stage % len(each)]


# --- vocabulary and positions


def vocabulary(tokenizer: Tokenizer) -> list[str]:
    """The tokens by id."""
    tokens = tokenizer.tokens
    if len(set(tokens)) < len(tokens):
        twice = next(token for token in SPECIALS if tokens.count(token) > 1)
        raise InputError(
            f"The vocabulary has the word {twice}, which CTranslate2 cannot tell from the mark of "
            f"that name; {INSTEAD}."
        )
    return tokens


def positions_of(data: DataConfig) -> int:
    """The number of positions: the longest source or translation, and its end mark."""
    return 2 * (data.max_source or max(longest_source(data.max_length), _LONGEST_SOURCE)) + 20 + 1


# --- weights


def _fill_opening(spec: Any, d: int, heads: int) -> None:
    """Fill a layer that adds nothing, with heads and a feed-forward sublayer of width 1.

    CTranslate2 adds sinusoidal positions unless its first layer has relative ones. Kutta has both,
    so a layer without relative positions comes first, and all that it adds is 0.
    """
    attentions = {"self_attention": [3 * heads], "attention": [heads, 2 * heads]}
    for name, widths in attentions.items():
        if attention := getattr(spec, name, None):
            shapes = [*((width, d) for width in widths), (d, heads)]
            for linear, shape in zip(attention.linear, shapes, strict=True):
                _zero(linear, shape)
            _unit(attention.layer_norm, d)
    _zero(spec.ffn.linear_0, (1, d))
    _zero(spec.ffn.linear_1, (d, 1))
    _unit(spec.ffn.layer_norm, d)


def _zero(spec: Any, shape: tuple[int, int]) -> None:
    spec.weight, spec.bias = np.zeros(shape, np.float32), np.zeros(shape[0], np.float32)


def _unit(spec: Any, width: int) -> None:
    spec.gamma, spec.beta = np.ones(width, np.float32), np.zeros(width, np.float32)


def _spec(specs: Any, model: TranslationModel, positions: int) -> Any:
    """The model as CTranslate2 describes it."""
    parts = specs.transformer_spec
    kinds = parts.TransformerEncoderSpec, parts.TransformerEncoderLayerSpec
    encoder = _stack(*kinds, model.encoder, positions)
    encoder.embeddings[0].weight = _array(model.source_embedding.tokens.weight)
    kinds = parts.TransformerDecoderSpec, parts.TransformerDecoderLayerSpec
    decoder = _stack(*kinds, model.decoder, positions)
    decoder.embeddings.weight = _array(model.target_embedding.tokens.weight)
    decoder.projection.weight = _array(model.output_weight)
    whole = specs.TransformerSpec(encoder, decoder)
    config = whole.config
    config.layer_norm_epsilon = 1e-5
    config.add_source_eos = True
    config.unk_token, config.bos_token, config.eos_token = (SPECIALS[i] for i in (UNK, BOS, EOS))
    config.decoder_start_token = config.bos_token
    return whole


def _stack(kind: Any, layer_kind: Any, stack: Stack, positions: int) -> Any:
    """The layers of an encoder or a decoder, its positions and its final LayerNorm."""
    shape, d = stack.shape, stack.shape.settings.d_model
    relative, pre_norm = bool(shape.settings.relative_positions), shape.settings.norm == "pre"
    spec = kind(0, num_heads=shape.settings.heads, pre_norm=pre_norm)
    spec.position_encodings.encodings = _array(sinusoids(0, positions, d, torch.device("cpu")))
    if relative:
        spec.layer.append(layer_kind(head_dim=1))
        _fill_opening(spec.layer[0], d, shape.settings.heads)
    for sublayers in residual_layers(stack):
        spec.layer.append(layer_kind(relative_position=relative))
        _fill_layer(spec.layer[-1], sublayers)
    if pre_norm:
        _fill_norm(spec.layer_norm, stack.norm)
    return spec


def _fill_layer(spec: Any, sublayers: dict[str, Sublayer]) -> None:
    """Copy the sublayers of one residual layer."""
    attention = cast(SelfAttention, sublayers["san"].attention)
    heads = attention.heads
    _fill_linear(spec.self_attention.linear[0], attention.qkv, heads, 3)
    _fill_linear(spec.self_attention.linear[1], attention.out)
    _fill_norm(spec.self_attention.layer_norm, sublayers["san"].norm)
    if attention.relative is not None:
        spec.self_attention.relative_position_keys = _array(attention.relative)
        del spec.self_attention.relative_position_values  # keys only
    if "cross" in sublayers:
        cross = cast(CrossAttention, sublayers["cross"].attention)
        _fill_linear(spec.attention.linear[0], cross.q)
        _fill_linear(spec.attention.linear[1], cross.kv, heads, 2)
        _fill_linear(spec.attention.linear[2], cross.out)
        _fill_norm(spec.attention.layer_norm, sublayers["cross"].norm)
    ffn = cast(FeedForwardField, sublayers["ffn"])
    _fill_linear(spec.ffn.linear_0, ffn.up)
    _fill_linear(spec.ffn.linear_1, ffn.down)
    _fill_norm(spec.ffn.layer_norm, ffn.norm)


def _fill_linear(spec: Any, linear: nn.Linear, heads: int = 1, joined: int = 1) -> None:
    """Copy a linear layer; `joined` projections lie interleaved by head here, one by one there."""
    spec.weight = _array(one_by_one(linear.weight, heads, joined))
    spec.bias = _array(one_by_one(linear.bias, heads, joined))


def one_by_one(rows: Tensor, heads: int, joined: int) -> Tensor:
    """Rows (H * n * d_h, ...) in the order (n * H * d_h, ...)."""
    return rows.view(heads, joined, -1, *rows.shape[1:]).transpose(0, 1).flatten(0, 2)


def _fill_norm(spec: Any, norm: nn.Module) -> None:
    layer_norm = cast(nn.LayerNorm, norm)
    spec.gamma, spec.beta = _array(layer_norm.weight), _array(layer_norm.bias)


def _array(tensor: Tensor) -> Array:
    return tensor.detach().float().contiguous().numpy()
