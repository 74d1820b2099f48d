"""The model card of a run."""

from collections.abc import Sequence
from typing import Any

from kutta import __version__
from kutta.config import Config, ModelConfig
from kutta.ode.methods import CUSTOM
from kutta.training.final import Candidate
from kutta.training.metadata import front_matter
from kutta.training.validate import Validation


def model_card(
    config: Config,
    step: int,
    count: int,
    validation: Validation | None,
    weights: str,
    tried: Sequence[Candidate] = (),
) -> str:
    """The README.md of a run: metadata, the model, the origin of its weights, and how to use it.

    `count` is the number of parameters, `validation` that of these weights, if they were validated;
    `tried` are all candidates for the final model.
    """
    model, pieces = config.model, config.train.pieces
    kind, use = "translation", 'echo "..." | kutta translate .'
    if config.language_model:
        kind, use = "language", "kutta sample ."
    lines = [
        *front_matter(config, validation),
        f"# {direction(config)}, {model.solver}",
        "",
        f"A {kind} model trained with Kutta {__version__}.",
        "",
        "| | |",
        "|---|---|",
        f"| method | {method_of(model)} |",
        f"| size | d {model.d_model}, ffn {model.ffn}, {model.heads} heads, "
        f"{depth(config)} layers, {count:,} parameters |",
        f"| training | {step:,} steps, seed {config.train.seed}, config {config.hash()}"
        + (f", {pieces} micro-batches per batch" if pieces > 1 else "")
        + " |",
        f"| weights | {weights} |",
    ]
    if validation is not None:
        bleu = validation.bleu
        score = "" if bleu is None else f", BLEU {bleu.value:.2f} ({bleu.signature})"
        score = score.replace("|", "\\|")  # within a cell of a table
        lines.append(f"| validation | perplexity {validation.perplexity:.2f}{score} |")
    if tried:
        scored = any(one.validation and one.validation.bleu for one in tried)
        lines += ["", "The final model is the best of these on the validation set:", ""]
        lines += ["| candidate | perplexity |" + (" BLEU |" if scored else "")]
        lines += ["|---|---:|" + ("---:|" if scored else "")]
    for one in tried:
        assert one.validation is not None
        name = f"**{one.name}**" if one.name == weights else one.name
        bleu = one.validation.bleu
        score = f" {bleu.value:.2f} |" if bleu is not None else ""
        lines.append(f"| {name} | {one.validation.perplexity:.2f} |{score}")
    lines += ["", "Use it from this folder:", "", "```sh", use, "```", ""]
    return "\n".join(lines)


def direction(config: Config) -> str:
    """The languages that the model reads and writes."""
    data = config.data
    return data.target if config.language_model else f"{data.source} to {data.target}"


def depth(config: Config) -> str:
    """The number of encoder and decoder layers, or of layers of a language model."""
    model = config.model
    layers = f"{model.encoder_layers}-{model.decoder_layers}"
    return str(model.decoder_layers) if config.language_model else layers


def method_of(model: ModelConfig) -> str:
    """The method in one line: solver, gamma, field, order of a custom tableau, other settings."""
    own = model.own_tableau()
    named = {CUSTOM: f"{CUSTOM} ({own.description})"} if own else {}
    solver, decoder = (named.get(m, m) for m in (model.solver, model.decoder_solver))
    parts = [solver, f"gamma {model.gamma}", f"field {model.field}"]
    if (model.decoder_solver, model.decoder_gamma) != ("euler", "tableau"):
        parts += [f"decoder {decoder}", f"gamma {model.decoder_gamma}"]
    parts += [f"{name} {str(value).lower()}" for name, value in unusual(model).items()]
    return ", ".join(parts)


def unusual(model: ModelConfig) -> dict[str, Any]:
    """The settings besides the method that differ from the default."""
    changed = model.model_dump(exclude_defaults=True)
    names = ("replicate", "norm", "init", "share_gamma", "share_layers", "stage_parameters")
    return {name: changed[name] for name in (*names, "layer_drop") if name in changed}
