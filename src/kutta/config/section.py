"""The base class of all sections of a config."""

from collections.abc import Iterator
from inspect import signature
from typing import TYPE_CHECKING, Annotated, Any, Self, cast, get_args

from pydantic import BaseModel, ConfigDict, Field, model_validator

from kutta.config.mistakes import in_one_sentence
from kutta.errors import InputError
from kutta.limits import COUNT, TEXT

Natural = Annotated[int, Field(ge=0, le=COUNT)]
Positive = Annotated[int, Field(ge=1, le=COUNT)]
Rate = Annotated[float, Field(ge=0.0, lt=1.0)]


def setting(default: Any, description: str, **limits: Any) -> Any:
    """A setting with its default, its meaning for help and docs, and its limits (ge, lt, ...)."""
    return Field(default=default, description=description, **limits)


class Section(BaseModel):
    """A group of settings: unknown names are errors, and values cannot be changed."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        allow_inf_nan=False,
        str_max_length=TEXT,
    )

    if not TYPE_CHECKING:  # type checkers derive the parameters from the fields

        def __init__(self, *values: Any, **settings: Any) -> None:
            kind = type(self)
            if values:
                first, load = next(iter(kind.model_fields)), getattr(kind, "load", None)
                reads = f"; {kind.__name__}.load reads a file or a preset" if load else ""
                raise InputError(
                    f"{kind.__name__} takes settings by name, e.g. {first}=..., not "
                    f"{values[0]!r}{reads}."
                )
            with in_one_sentence([*names_in(kind)]):
                super().__init__(**settings)

        # pydantic derives the signature of a section from this one, and the fields.
        __init__.__signature__ = signature(BaseModel.__init__)
        # Sections in a section are validated without it, so that a mistake has its full name.
        __init__.__pydantic_base_init__ = True

    def mistakes(self) -> Iterator[str]:
        """What is wrong with these settings taken together; the first one is reported."""
        yield from ()

    @model_validator(mode="after")
    def _fits(self) -> Self:
        for name in type(self).model_fields:
            if any(not text.isprintable() for text in _texts(getattr(self, name))):
                raise ValueError(f"{name} has a character that cannot be printed; remove it")
        for sentence in self.mistakes():
            raise ValueError(sentence)
        return self

    def __repr_args__(self) -> Iterator[tuple[str, Any]]:
        """Only settings that differ from their defaults: others would hide them."""
        for name, info in type(self).model_fields.items():
            if (value := getattr(self, name)) != info.default:
                yield name, value

    def __str__(self) -> str:
        return repr(self)


def _texts(value: Any) -> Iterator[str]:
    """The texts in a setting: it may be a list or a table of them."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from (text for pair in cast(dict[str, Any], value).items() for text in _texts(pair))
    elif isinstance(value, list | tuple):
        yield from (text for one in cast(list[Any], value) for text in _texts(one))


def names_in(section: type[Section], prefix: str = "") -> Iterator[str]:
    """Every valid name, of sections and of their settings."""
    for name, info in section.model_fields.items():
        yield prefix + name
        for kind in (info.annotation, *get_args(info.annotation)):
            if isinstance(kind, type) and issubclass(kind, Section):
                yield from names_in(kind, f"{prefix}{name}.")
