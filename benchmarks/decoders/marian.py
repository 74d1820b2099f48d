"""Marian, through the translator of its Python package, with weights from a run of Kutta."""

from pathlib import Path
from typing import cast

import numpy as np
from environments import Absent, python_of
from numpy.typing import NDArray
from peers.marian import TOOLKIT
from torch import Tensor, nn

from decoders.decoder import Case, Job, Model, Place, Program, Way, script
from kutta.data.tokenizer import BOS, EOS, UNK
from kutta.export.ctranslate2 import obstacle, one_by_one, residual_layers
from kutta.model import TranslationModel
from kutta.model.attention import CrossAttention, SelfAttention
from kutta.model.field import FeedForwardField
from kutta.model.stack import Stack
from kutta.runs import Run

WEIGHTS, WORDS = "model.npz", "vocab.yml"
Arrays = dict[str, NDArray[np.float32]]


def ways(case: Case, threads: int) -> list[Way]:
    """A worker of one thread on every core, as Marian has it on a CPU."""
    return [Way("Marian", case, "fp32", f"{threads} x 1")]


def job(place: Place, model: Model, way: Way) -> Job:
    folder = place.work / "marian"
    if not folder.exists():
        write(model.run, folder)
    python = python_of(TOOLKIT.name, TOOLKIT.install, place.envs, place.install)
    options = {"threads": place.threads}
    # Its threads are workers, so that each has one for its products.
    return Job(script(python, "marian", folder, options), {"OMP_NUM_THREADS": "1"}, folder)


def write(run: Run, folder: Path) -> None:
    """Write the weights and the vocabulary in Marian's format, or say why that is impossible."""
    model = cast(TranslationModel, run.load_model())
    settings = run.config.model
    if reason := obstacle(settings):
        raise Absent(reason)
    if settings.relative_positions:
        raise Absent("Marian has no relative positions, which this model has")
    if settings.norm == "post":
        raise Absent("only pre-norm weights are converted to Marian's format")
    if not (run.tokenizers.shared and settings.tie_embeddings):
        raise Absent("only tied embeddings are converted to Marian's format")
    embedding = model.target_embedding.tokens.weight
    if embedding[BOS].any():
        raise Absent("Marian begins with a zero vector, but this model has learned one for <s>")
    order = marian_order(len(run.tokenizers.target))
    arrays: Arrays = {"Wemb": array(embedding)[order]}
    arrays["decoder_ff_logit_out_b"] = np.zeros((1, len(order)), np.float32)
    for name, stack in (("encoder", model.encoder), ("decoder", model.decoder)):
        arrays |= arrays_of(name, stack)
    layers = [sum(1 for _ in residual_layers(s)) for s in (model.encoder, model.decoder)]
    config = {
        "type": "transformer",
        "dim-vocabs": [len(order)] * 2,
        "dim-emb": settings.d_model,
        "enc-depth": layers[0],
        "dec-depth": layers[1],
        "transformer-heads": settings.heads,
        "transformer-dim-ffn": settings.ffn,
        "transformer-ffn-activation": "relu",
        "transformer-preprocess": "n",
        "transformer-postprocess": "da",
        "transformer-postprocess-top": "n",
        "transformer-postprocess-emb": "d",
        "tied-embeddings-all": True,
        "version": "v1.12.0",
    }
    text = "".join(f"{key}: {yaml_of(value)}\n" for key, value in config.items())
    settings_of = np.frombuffer(text.encode() + b"\0", np.int8)
    folder.mkdir()
    np.savez(folder / WEIGHTS, **arrays, **{"special:model.yml": settings_of})
    tokens = run.tokenizers.target.tokens
    quoted = (tokens[i].replace("\\", "\\\\").replace('"', '\\"') for i in order)
    lines = (f'"{word}": {number}\n' for number, word in enumerate(quoted))
    (folder / WORDS).write_text("".join(lines), encoding="utf-8")


def marian_order(size: int) -> list[int]:
    """Kutta's ids in the order of Marian's, which has the end and the unknown word first."""
    return [EOS, UNK, *(i for i in range(size) if i not in (EOS, UNK))]


def yaml_of(value: object) -> str:
    """A value as YAML writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)


def arrays_of(name: str, stack: Stack) -> Arrays:
    """The weights of a stack by Marian's names."""
    found: Arrays = {}
    for number, layer in enumerate(residual_layers(stack), start=1):
        scope = f"{name}_l{number}"
        attention = cast(SelfAttention, layer["san"].attention)
        found |= linears(f"{scope}_self", "qkv", attention.qkv, attention.heads)
        found |= linears(f"{scope}_self", "o", attention.out)
        found |= norm_of(f"{scope}_self_Wo", layer["san"].norm, "_pre")
        if "cross" in layer:
            cross = cast(CrossAttention, layer["cross"].attention)
            found |= linears(f"{scope}_context", "q", cross.q)
            found |= linears(f"{scope}_context", "kv", cross.kv, cross.heads)
            found |= linears(f"{scope}_context", "o", cross.out)
            found |= norm_of(f"{scope}_context_Wo", layer["cross"].norm, "_pre")
        ffn = cast(FeedForwardField, layer["ffn"])
        found |= linears(f"{scope}_ffn", "1", ffn.up) | linears(f"{scope}_ffn", "2", ffn.down)
        found |= norm_of(f"{scope}_ffn_ffn", ffn.norm, "_pre")
    return found | norm_of(f"{name}_top", stack.norm, "")


def linears(scope: str, names: str, linear: nn.Linear, heads: int = 1) -> Arrays:
    """A linear layer, or several in one interleaved by head: a letter of `names` for each."""
    weight, bias = (one_by_one(x, heads, len(names)) for x in (linear.weight, linear.bias))
    found: Arrays = {}
    for n, w, b in zip(names, weight.chunk(len(names)), bias.chunk(len(names)), strict=True):
        found |= {f"{scope}_W{n}": array(w).T.copy(), f"{scope}_b{n}": array(b)[None]}
    return found


def norm_of(scope: str, norm: nn.Module, end: str) -> Arrays:
    layer_norm = cast(nn.LayerNorm, norm)
    return {
        f"{scope}_ln_scale{end}": array(layer_norm.weight)[None],
        f"{scope}_ln_bias{end}": array(layer_norm.bias)[None],
    }


def array(tensor: Tensor) -> NDArray[np.float32]:
    return tensor.detach().numpy()


PROGRAM = Program("Marian", lambda: TOOLKIT.version, ways, job)
