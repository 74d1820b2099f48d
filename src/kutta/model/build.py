"""From settings to a model."""

from typing import Any

from kutta.config import ModelConfig
from kutta.model.decoding import TextModel
from kutta.model.language import LanguageModel
from kutta.model.stack import StackShape
from kutta.model.transformer import TranslationModel
from kutta.ode import ButcherTableau


def build_model(
    config: ModelConfig, source_vocabulary: int, target_vocabulary: int, shared: bool
) -> TextModel:
    """A freshly initialised model of these settings: without an encoder, a language model."""
    if config.encoder_layers == 0:
        shape = _shape(config, config.decoder_layers)
        return LanguageModel(shape, target_vocabulary, config.tie_embeddings)
    decoder = _shape(
        config,
        config.decoder_layers,
        method=config.decoder_solver,
        gamma=config.decoder_gamma,
        cross=True,
    )
    encoder = _shape(config, config.encoder_layers)
    return TranslationModel(
        encoder, decoder, source_vocabulary, target_vocabulary, shared, config.tie_embeddings
    )


def own_tableau(config: ModelConfig) -> ButcherTableau | None:
    """The tableau that the settings bring along, for the method "custom"."""
    own = config.tableau
    return None if own is None else ButcherTableau.own(own.a, own.b)


def _shape(config: ModelConfig, layers: int, **different: Any) -> StackShape:
    """A stack of the main method, or of what is `different`."""
    shape: dict[str, Any] = {
        "d_model": config.d_model,
        "ffn": config.ffn,
        "heads": config.heads,
        "layers": layers,
        "method": config.solver,
        "gamma": config.gamma,
        "start": config.gamma_start,
        "share_gamma": config.share_gamma,
        "tableau": own_tableau(config),
        "placement": config.field,
        "replicate": config.replicate,
        "norm": config.norm,
        "init": config.init,
        "share_layers": config.share_layers,
        "stage_parameters": config.stage_parameters,
        "layer_drop": config.layer_drop,
        "clip": config.relative_positions,
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "relu_dropout": config.relu_dropout,
    }
    return StackShape(**(shape | different))
