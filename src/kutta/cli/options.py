"""What is meant by an option that a command does not have: a setting, or another toolkit's name."""

from collections.abc import Collection, Sequence
from shlex import quote

from kutta.cli.resolved import default_of
from kutta.config import known_keys
from kutta.config.mistakes import meant_settings, near

# Names of other toolkits whose value is none for our setting: they count epochs or sentences, or
# they are flags.
_OTHER_VALUES = {
    *("epochs", "max_epoch", "max_epochs", "num_epochs", "num_train_epochs"),
    *("after", "after_epochs", "keep_last_epochs", "save_interval", "validate_interval"),
    *("batch_size", "max_sentences", "mini_batch", "train_batch_size"),
    *("per_device_train_batch_size", "warmup_ratio"),
    *("fp16", "bf16", "amp", "memory_efficient_fp16", "mini_batch_fit"),
    *("cpu", "use_cpu", "no_cuda", "use_cuda", "use_gpu"),
    *("encoder_normalize_before", "decoder_normalize_before", "param_init_glorot"),
}


def meant_instead(words: Sequence[str], options: Collection[str]) -> str | None:
    """One sentence about the first word that stands for a setting; None if there is none.

    `words` are those after the name of a command, `options` what it has ("--set", "--beam", ...).
    """
    for before, word, after in zip(("", *words), words, (*words[1:], ""), strict=False):
        name, equals, value = word.partition("=")
        if name.startswith("-"):
            given = value if equals else "" if after.startswith("--") else after
            meant = [] if name in options else _meant(name.lstrip("-"), given, options)
            if meant:
                return f"There is no option {name}; did you mean {' or '.join(meant)}?"
        elif "--set" not in options:
            continue
        elif equals and name in known_keys() and not before.startswith("-"):
            return f"A setting needs --set before it; did you mean --set {quote(word)}?"
        elif before == "--set" and not equals and after and not after.startswith("-"):
            written = quote(f"{word}={after}")
            return f"--set takes a key and its value in one word; did you mean --set {written}?"
    return None


def _meant(name: str, value: str, options: Collection[str]) -> list[str]:
    """The options to write instead of one that a command does not have."""
    plain = name.lower().replace("-", "_")
    settings = meant_settings(plain, known_keys())
    if not settings and not near(name, [option.lstrip("-") for option in options], 0.6):
        short = {key.rpartition(".")[2]: key for key in known_keys()}
        settings = [short[word] for word in near(plain, short, 0.75)[:1]]
    value = "" if plain in _OTHER_VALUES else value
    if "--set" in options:
        return [f"--set {quote(f'{key}={_value(key, value)}')}" for key in settings]
    own = [f"--{key.rpartition('.')[2].replace('_', '-')}" for key in settings]
    return [f"{option} {quote(value)}" if value else option for option in own if option in options]


def _value(key: str, given: str) -> str:
    """The value to write for a setting; a flag has none, and a flag elsewhere is a word here."""
    if isinstance(default_of(key), bool):
        return given if given in ("true", "false") else "true"
    return given or "VALUE"
