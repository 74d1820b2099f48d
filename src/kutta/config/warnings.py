"""Settings that are valid but probably not what was meant: one sentence each."""

import json
from collections.abc import Callable, Iterator

from kutta.config.config import Config

# A condition, and a sentence with the settings in it.
_DOUBTFUL: tuple[tuple[Callable[[Config], bool], str], ...] = (
    (
        lambda config: config.train.warmup > config.train.max_steps,
        "train.warmup = {train.warmup} is longer than train.max_steps = {train.max_steps}, so the "
        "learning rate never reaches train.lr = {train.lr}; raise train.max_steps, or lower "
        "train.warmup before training begins.",
    ),
    (
        lambda config: (
            config.train.final_model in ("average", "validated")
            and config.decode.average > config.train.keep_last
        ),
        "decode.average = {decode.average} checkpoints cannot be averaged, because only "
        "train.keep_last = {train.keep_last} are kept; raise train.keep_last.",
    ),
)

_SEARCH = ("beam", "length_penalty", "min_length", "max_length", "no_repeat_ngram", "batch_tokens")

# Settings, where they have no effect, and why.
_WITHOUT_EFFECT: tuple[tuple[tuple[str, ...], Callable[[Config], bool], str], ...] = (
    (
        tuple(f"decode.{name}" for name in _SEARCH),
        lambda config: config.language_model,
        "a language model is not searched",
    ),
    (
        ("data.shared_vocab", "data.max_ratio"),
        lambda config: config.language_model,
        "a language model has no source",
    ),
    (
        ("data.split_compounds",),
        lambda config: config.language_model,
        "a language model is not scored by BLEU",
    ),
    (
        ("model.init",),
        lambda config: bool(config.train.grow_from),
        "the weights are those of train.grow_from",
    ),
    (
        ("model.stage_parameters",),
        lambda config: {config.model.solver, config.model.decoder_solver} == {"euler"},
        "an Euler step has one stage",
    ),
)


def warnings_about(config: Config) -> Iterator[str]:
    """What is doubtful about these settings, and which of them have no effect."""
    sections = dict(config)
    for applies, sentence in _DOUBTFUL:
        if applies(config):
            yield sentence.format(**sections)
    for keys, applies, reason in _WITHOUT_EFFECT:
        for key in keys if applies(config) else ():
            section, _, name = key.partition(".")
            value = config.value(key)
            if value != type(sections[section]).model_fields[name].default:
                yield f"{key} = {json.dumps(value)} has no effect: {reason}."
