"""From settings to a model."""

from typing import Any

from kutta.config import ModelConfig
from kutta.model.stack import StackShape
from kutta.model.transformer import TranslationModel


def build_model(
    config: ModelConfig, source_vocabulary: int, target_vocabulary: int, shared: bool
) -> TranslationModel:
    """A freshly initialised model of these settings."""
    sizes: dict[str, Any] = {
        "d_model": config.d_model,
        "ffn": config.ffn,
        "heads": config.heads,
        "clip": config.relative_positions,
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "relu_dropout": config.relu_dropout,
        "placement": config.field,
    }
    encoder = StackShape(
        layers=config.encoder_layers, method=config.solver, gamma=config.gamma, **sizes
    )
    decoder = StackShape(
        layers=config.decoder_layers,
        method=config.decoder_solver,
        gamma=config.decoder_gamma,
        cross=True,
        **sizes,
    )
    return TranslationModel(encoder, decoder, source_vocabulary, target_vocabulary, shared)
