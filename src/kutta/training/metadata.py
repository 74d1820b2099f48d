"""The metadata of a model card, as the Hugging Face hub reads it: YAML at the top of README.md."""

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kutta.config import Config
from kutta.config.data import language_of
from kutta.parsing import read_json
from kutta.training.validate import Validation

REPORT = "report.json"  # what `kutta data get` writes beside the text
_LANGUAGE = re.compile(r"[a-z]{2,3}")
_CREATIVE_COMMONS = re.compile(r"CC[ -](BY(?:-(?:NC|SA|ND))*)[ -](\d\.\d)")


def front_matter(config: Config, validation: Validation | None) -> list[str]:
    """The lines of the block; strings are written as JSON, which is YAML."""
    data, kind = config.data, "text-generation" if config.language_model else "translation"
    codes = [language_of(name) for name in (data.source, data.target) if name]
    corpus = _corpus(config)
    facts: dict[str, Any] = {
        "language": [code for code in dict.fromkeys(codes) if _LANGUAGE.fullmatch(code)],
        "license": licence_of(str(corpus.get("terms", ""))),
        "library_name": "kutta",
        "pipeline_tag": kind,
        "tags": ["kutta", "ode-transformer", config.model.solver],
        "datasets": [str(corpus.get("recipe", Path(data.dir).name))],
    }
    results = list(_metrics(validation)) if validation else []
    results = [result for result in results if math.isfinite(result["value"])]
    if results:
        name = facts["datasets"][0]
        measured = {"type": name, "name": name, "split": "validation"}
        result = {"task": {"type": kind}, "dataset": measured, "metrics": results}
        facts["model-index"] = [{"name": Path(config.run).name, "results": [result]}]
    return ["---", *(f"{key}: {json.dumps(value)}" for key, value in facts.items()), "---", ""]


def licence_of(terms: str) -> str:
    """The hub's name of a licence, from the terms of a corpus; "unknown" if there are none."""
    found = _CREATIVE_COMMONS.search(terms)
    if found:
        return f"cc-{found[1].lower()}-{found[2]}"
    return "other" if terms else "unknown"


def _corpus(config: Config) -> dict[str, Any]:
    """The report of `kutta data get` on the training text; empty for text of one's own."""
    try:
        report: Any = read_json(Path(config.data.dir) / REPORT)
        return {"recipe": report["recipe"], "terms": report["terms"]}
    except (OSError, ValueError, LookupError, TypeError):
        return {}


def _metrics(validation: Validation) -> Iterator[dict[str, Any]]:
    if validation.bleu is not None:
        bleu = validation.bleu
        signature = {"signature": bleu.signature}
        yield {"type": "bleu", "name": bleu.name, "value": round(bleu.value, 2), "args": signature}
    yield {
        "type": "perplexity",
        "name": "perplexity per token",
        "value": round(validation.perplexity, 2),
    }
