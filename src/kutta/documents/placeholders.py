"""Placeholders of messages, which a translation must have as its source has them."""

import re
from collections import Counter
from collections.abc import Callable

# What a program replaces by a value when it shows the message.
_VALUE = r"""
    %\(\w+\)[-#0+]*\d*(?:\.\d+)?[a-zA-Z]                            # %(name)s
    | %(?:\d+\$)?[-#0+']*(?:\d+|\*)?(?:\.(?:\d+|\*))?
      (?:hh|h|ll|l|z|j|t|L|q)?[diouxXeEfFgGcsSpaA@](?![a-zA-Z])     # %d, %1$s, %-5.2f, %lu
    | %\w+%                                                         # %name%
    | \$?\{\{?[^{}\s]*\}\}?                                         # {0}, {name!r:>5}, ${x}, {{x}}
    | \[X\d+X\]                                                     # [X7X], which Weblate sends
"""
VALUE = re.compile(_VALUE, re.VERBOSE)
PLACEHOLDER = re.compile(
    _VALUE
    + r"""
    | %%
    | &(?:\w+|\#\d+|\#[xX][0-9a-fA-F]+);                            # &amp;
    | </?[a-zA-Z][^<>]*>                                            # <b>
    | \\[abfnrtv]                                                   # an escape written out
    """,
    re.VERBOSE,
)

Scored = tuple[str, float]
Search = Callable[[list[str]], list[list[Scored]]]  # the hypotheses of each sentence, best first


def placeholders(text: str) -> Counter[str]:
    """The placeholders of a message and how often each occurs."""
    return Counter(match[0] for match in PLACEHOLDER.finditer(text))


def keeps_placeholders(source: str, target: str) -> bool:
    """Whether a translation has exactly the placeholders of its source."""
    return placeholders(source) == placeholders(target)


def search_with_values(sentences: list[str], search: Search) -> list[list[Scored]]:
    """The hypotheses of sentences that may have placeholders of values.

    Models that have not seen placeholders lose them, but copy numbers. So where the best hypothesis
    lost one, the sentence is translated once more with numbers in their place.
    """
    found = search(sentences)
    lost = [
        place
        for place, (sentence, best) in enumerate(zip(sentences, found, strict=True))
        if _values(sentence) != _values(best[0][0])
    ]
    numbered = [_numbered(sentences[place]) for place in lost]
    again = search([text for text, _ in numbered]) if lost else []
    for place, (_, values), hypotheses in zip(lost, numbered, again, strict=True):
        written = ((_with_values(text, values), score) for text, score in hypotheses)
        kept = [one for one in written if _values(one[0]) == _values(sentences[place])]
        found[place] = kept or found[place]
    return found


def _values(text: str) -> Counter[str]:
    return Counter(VALUE.findall(text))


def _numbered(sentence: str) -> tuple[str, dict[str, str]]:
    """A sentence with a number of two digits for each value, and which value each stands for."""
    free = (str(number) for number in range(21, 1000) if str(number) not in sentence)
    values: dict[str, str] = {}

    def number(match: re.Match[str]) -> str:
        chosen = next(free, "1000")
        values[chosen] = match[0]
        return chosen

    return VALUE.sub(number, sentence), values


def _with_values(text: str, values: dict[str, str]) -> str:
    """A translation with the values in place of their numbers."""
    return re.sub(r"\d+", lambda match: values.get(match[0], match[0]), text)
