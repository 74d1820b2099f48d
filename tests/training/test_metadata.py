"""The metadata of model cards, read by the library of the Hugging Face hub."""

import json
import math
from pathlib import Path

import pytest
from huggingface_hub import ModelCard

from kutta.config import Config
from kutta.metrics import Score
from kutta.training.metadata import front_matter, licence_of
from kutta.training.validate import Validation
from tests.conftest import toy_config

SCORE = Score("BLEU", 12.345, "", 'nrefs:1|case:mixed|kutta:0.1.0|"quoted": yes')


def card_of(config: Config, validation: Validation | None) -> ModelCard:
    return ModelCard("\n".join([*front_matter(config, validation), "# Title"]))


def test_the_hub_reads_languages_licence_datasets_and_metrics(tmp_path: Path) -> None:
    config = toy_config(tmp_path, data={"source": "en", "target": "de-AT"})
    (tmp_path / "text").mkdir()
    report = {"recipe": "tatoeba-en-de", "terms": "CC BY 2.0 FR: use it freely."}
    (tmp_path / "text" / "report.json").write_text(json.dumps(report))
    data = card_of(config, Validation(2.0, 1.0, 10, SCORE)).data
    assert data.language == ["en", "de"]
    assert data.license == "cc-by-2.0"
    assert data.library_name == "kutta"
    assert data.pipeline_tag == "translation"
    assert data.datasets == ["tatoeba-en-de"]
    bleu, perplexity = data.eval_results
    assert (bleu.metric_type, bleu.metric_value) == ("bleu", 12.35)
    assert bleu.metric_args == {"signature": SCORE.signature}
    assert (bleu.dataset_name, bleu.dataset_split) == ("tatoeba-en-de", "validation")
    assert (perplexity.metric_type, perplexity.metric_value) == ("perplexity", 2.72)


def test_text_of_ones_own_and_language_models(tmp_path: Path) -> None:
    config = toy_config(tmp_path, data={"source": "", "target": "src"}, model={"encoder_layers": 0})
    data = card_of(config, None).data
    assert (data.language, data.license, data.datasets) == (["src"], "unknown", ["text"])
    assert data.pipeline_tag == "text-generation"
    assert not data.eval_results
    assert not card_of(config, Validation(math.nan, math.nan, 10)).data.eval_results


def test_a_finished_run_has_them(toy_run: Path) -> None:
    card = ModelCard.load(toy_run / "README.md")
    assert card.data.language == ["xx", "yy"]
    assert card.data.eval_results[0].metric_type in ("bleu", "perplexity")
    assert card.text.lstrip().startswith("# xx to yy, rk2")


@pytest.mark.parametrize(
    ("terms", "licence"),
    [
        ("CC BY 2.0 FR: name the authors", "cc-by-2.0"),
        ("CC-BY-SA-4.0", "cc-by-sa-4.0"),
        ("CC BY-NC 4.0", "cc-by-nc-4.0"),
        ("For research only.", "other"),
        ("", "unknown"),
    ],
)
def test_licences(terms: str, licence: str) -> None:
    assert licence_of(terms) == licence
