"""The model card of a run."""

from pathlib import Path

from kutta import __version__
from kutta.config import Config
from kutta.training.loop import Trainer
from kutta.training.validate import Validation


def model_card(config: Config, trainer: Trainer, validation: Validation | None) -> str:
    """README.md of a run directory: what the model is and how to use it."""
    data, model = config.data, config.model
    count = sum(parameter.numel() for parameter in trainer.model.parameters())
    lines = [
        f"# {data.source} to {data.target}, {model.solver}",
        "",
        f"A translation model trained with Kutta {__version__}.",
        "",
        "| | |",
        "|---|---|",
        f"| method | {model.solver}, gamma {model.gamma}, field {model.field} |",
        f"| size | d {model.d_model}, ffn {model.ffn}, {model.heads} heads, "
        f"{model.encoder_layers}-{model.decoder_layers} layers, {count:,} parameters |",
        f"| training | {trainer.step:,} steps, seed {config.train.seed}, config {config.hash()} |",
    ]
    if validation is not None:
        bleu = validation.bleu
        score = "" if bleu is None else f", BLEU {bleu.value:.2f} ({bleu.signature})"
        lines.append(f"| validation | perplexity {validation.perplexity:.2f}{score} |")
    lines += [
        "",
        "Use it from this folder's parent:",
        "",
        "```sh",
        f'echo "..." | kutta translate {Path(config.run).name}',
        "```",
        "",
    ]
    return "\n".join(lines)
