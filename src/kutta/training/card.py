"""The model card of a run."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kutta import __version__
from kutta.config import Config, ModelConfig
from kutta.ode.methods import CUSTOM
from kutta.training.final import Candidate
from kutta.training.loop import Trainer
from kutta.training.validate import Validation


def model_card(
    config: Config,
    trainer: Trainer,
    validation: Validation | None,
    weights: str,
    tried: Sequence[Candidate] = (),
) -> str:
    """The README.md of a run: the model, the origin of its weights, and how to use it.

    `validation` is that of these weights; `tried` are all candidates for the final model.
    """
    model, name = config.model, Path(config.run).name
    kind, use = "translation", f'echo "..." | kutta translate {name}'
    if config.language_model:
        kind, use = "language", f"kutta sample {name}"
    count = sum(parameter.numel() for parameter in trainer.model.parameters())
    lines = [
        f"# {direction(config)}, {model.solver}",
        "",
        f"A {kind} model trained with Kutta {__version__}.",
        "",
        "| | |",
        "|---|---|",
        f"| method | {method_of(model)} |",
        f"| size | d {model.d_model}, ffn {model.ffn}, {model.heads} heads, "
        f"{depth(config)} layers, {count:,} parameters |",
        f"| training | {trainer.step:,} steps, seed {config.train.seed}, config {config.hash()}"
        + (f", {trainer.per_batch} micro-batches per batch" if trainer.per_batch > 1 else "")
        + " |",
        f"| weights | {weights} |",
    ]
    if validation is not None:
        bleu = validation.bleu
        score = "" if bleu is None else f", BLEU {bleu.value:.2f} ({bleu.signature})"
        lines.append(f"| validation | perplexity {validation.perplexity:.2f}{score} |")
    if tried:
        lines += ["", "The final model is the best of these on the validation set:", ""]
        lines += _table(tried, weights)
    lines += [
        "",
        "Use it from the parent folder:",
        "",
        "```sh",
        use,
        "```",
        "",
    ]
    return "\n".join(lines)


def _table(tried: Sequence[Candidate], chosen: str) -> list[str]:
    """The candidates for the final model with their validations; the chosen one in bold."""
    scored = any(one.validation and one.validation.bleu for one in tried)
    lines = ["| candidate | perplexity |" + (" BLEU |" if scored else "")]
    lines.append("|---|---:|" + ("---:|" if scored else ""))
    for one in tried:
        assert one.validation is not None
        name = f"**{one.name}**" if one.name == chosen else one.name
        bleu = one.validation.bleu
        score = f" {bleu.value:.2f} |" if bleu is not None else ""
        lines.append(f"| {name} | {one.validation.perplexity:.2f} |{score}")
    return lines


def direction(config: Config) -> str:
    """The languages that the model reads and writes."""
    data = config.data
    return data.target if config.language_model else f"{data.source} to {data.target}"


def depth(config: Config) -> str:
    """The number of encoder and decoder layers, or of layers of a language model."""
    model = config.model
    layers = f"{model.encoder_layers}-{model.decoder_layers}"
    return str(model.decoder_layers) if config.language_model else layers


# Settings of the model that are shown with the method if they differ from the default.
_PLAIN = ("euler", "tableau")
_UNUSUAL = (
    *("replicate", "norm", "init", "share_gamma", "share_layers", "stage_parameters", "layer_drop"),
)


def method_of(model: ModelConfig) -> str:
    """The method in one line: solver, gamma, field, order of a custom tableau, other settings."""
    own = model.own_tableau()

    def named(method: str) -> str:
        return f"{method} ({own.description})" if own and method == CUSTOM else method

    other = (model.decoder_solver, model.decoder_gamma)
    return ", ".join(
        [
            named(model.solver),
            f"gamma {model.gamma}",
            f"field {model.field}",
            *([f"decoder {named(other[0])}, gamma {other[1]}"] if other != _PLAIN else []),
            *(f"{name} {str(value).lower()}" for name, value in unusual(model).items()),
        ]
    )


def unusual(model: ModelConfig) -> dict[str, Any]:
    """The settings besides the method that differ from the default."""
    usual = ModelConfig.model_fields
    values = {name: getattr(model, name) for name in _UNUSUAL}
    return {name: value for name, value in values.items() if value != usual[name].default}
