"""Placeholders of messages, which a translation must have as its source has them."""

import re
from collections import Counter

PLACEHOLDER = re.compile(
    r"""
    %\(\w+\)[-#0+]*\d*(?:\.\d+)?[a-zA-Z]                            # %(name)s
    | %(?:\d+\$)?[-#0+']*(?:\d+|\*)?(?:\.(?:\d+|\*))?
      (?:hh|h|ll|l|z|j|t|L|q)?[diouxXeEfFgGcsSpaA@](?![a-zA-Z])     # %d, %1$s, %-5.2f, %lu
    | %\w+%                                                         # %name%
    | %%
    | \$?\{\{?[^{}\s]*\}\}?                                         # {0}, {name!r:>5}, ${x}, {{x}}
    | &(?:\w+|\#\d+|\#[xX][0-9a-fA-F]+);                            # &amp;
    | </?[a-zA-Z][^<>]*>                                            # <b>
    | \\[abfnrtv]                                                   # an escape written out
    """,
    re.VERBOSE,
)


def placeholders(text: str) -> Counter[str]:
    """The placeholders of a message and how often each occurs."""
    return Counter(match[0] for match in PLACEHOLDER.finditer(text))


def keeps_placeholders(source: str, target: str) -> bool:
    """Whether a translation has exactly the placeholders of its source."""
    return placeholders(source) == placeholders(target)
