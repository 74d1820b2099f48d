"""From settings to a model."""

from kutta.config import ModelConfig
from kutta.model.decoding import TextModel
from kutta.model.language import LanguageModel
from kutta.model.shape import StackShape
from kutta.model.transformer import TranslationModel


def build_model(
    config: ModelConfig, source_vocabulary: int, target_vocabulary: int, shared: bool
) -> TextModel:
    """A freshly initialised model of these settings: without an encoder, a language model."""
    main = config.solver, config.gamma
    if config.encoder_layers == 0:
        shape = StackShape.of(config, config.decoder_layers, *main)
        return LanguageModel(shape, target_vocabulary, config.tie_embeddings)
    other = config.decoder_solver, config.decoder_gamma
    return TranslationModel(
        StackShape.of(config, config.encoder_layers, *main),
        StackShape.of(config, config.decoder_layers, *other, cross=True),
        source_vocabulary,
        target_vocabulary,
        shared,
        config.tie_embeddings,
    )
