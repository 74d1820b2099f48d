"""A text of a request: what of it is translated, and the text with translations in it.

`kutta.documents` knows the formats and wants a function from sentences to translations. Here
sentences wait in a queue. So a text is written with the translations that are known; what it lacks
is translated, and it is written again.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from kutta.documents.html import translate_html
from kutta.documents.sentences import Fits, SplitText, is_short, split_text
from kutta.server.batching import Scored
from kutta.server.languages import Detected
from kutta.server.models import Route

FORMATS = ("text", "html")

Known = Mapping[str, list[Scored]]  # the hypotheses of sentences


class Lacking(Exception):
    """Sentences whose translations are not known yet."""

    def __init__(self, sentences: list[str]) -> None:
        super().__init__(f"{len(sentences)} sentences are not translated")
        self.sentences = sentences


@dataclass(frozen=True)
class Text:
    """One text of a request: its language, its format and the models that translate it."""

    text: str
    format: str
    language: Detected
    route: Route

    @property
    def fits(self) -> Fits:
        """Whether a sentence is short enough for the first model."""
        return self.route[0].model.fits if self.route else is_short

    @cached_property
    def split(self) -> SplitText:
        """The sentences of plain text."""
        return split_text(self.text, self.language.language, self.fits)

    def write(self, known: Known, rank: int = 0) -> str:
        """The text with the hypotheses of this rank; raises Lacking if sentences are not known.

        A sentence with fewer hypotheses has its best one.
        """

        def look_up(sentences: list[str]) -> list[str]:
            if lacking := [sentence for sentence in sentences if sentence not in known]:
                raise Lacking(lacking)
            found = (known[sentence] for sentence in sentences)
            return [best[rank if rank < len(best) else 0][0] for best in found]

        if not self.route:  # from a language to itself
            return self.text
        if self.format == "html":
            return translate_html(self.text, look_up, self.language.language, self.fits)
        return self.split.join(look_up(self.split.sentences)).text
