"""LibreTranslate but for its splitter of sentences: serve_libretranslate.py PORT LANGUAGES.

Its splitter downloads a model when it starts. Every text of the benchmark is one sentence, so here
it splits nothing, which takes no time. Runs in LibreTranslate's own environment.
"""

import logging
import sys
from typing import Any

from argostranslate.sbd import MiniSBDSentencizer


def begin(self: Any, package: Any) -> None:
    self.pkg = package


MiniSBDSentencizer.__init__ = begin
MiniSBDSentencizer.split_sentences = lambda self, text: [text]

from libretranslate.main import main  # noqa: E402  it reads the classes above

port, languages = sys.argv[1:]
print(f"http://127.0.0.1:{port}", flush=True)
logging.disable(logging.INFO)
sys.argv = ["libretranslate", "--port", port, "--disable-web-ui", "--load-only", languages]
main()
