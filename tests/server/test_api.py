"""The API of LibreTranslate as its clients use it, languages, pivots, streams, keys and logs."""

import json
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from libretranslatepy import LibreTranslateAPI

from kutta import Translator
from kutta.server.languages import Detector, match, name_of
from kutta.server.limits import Limits
from tests.server.conftest import Running, engine_of, fake_model, running, until


def events(answer: httpx.Response) -> list[tuple[str, Any]]:
    """The events of a stream."""
    blocks = answer.text.strip().split("\n\n")
    lines = [block.split("\n") for block in blocks]
    return [(kind.removeprefix("event: "), json.loads(data[6:])) for kind, data in lines]


def test_the_client_of_the_registry_works(served: Running) -> None:
    client = LibreTranslateAPI(served.url)
    assert client.translate("Hello there.", "en", "de") == "Hello there.>de"
    assert client.detect("Wo ist der Bahnhof?")[0]["language"] == "de"
    assert [one["code"] for one in client.languages()] == ["de", "en", "fr"]


def test_a_batch_of_weblate(served: Running) -> None:
    """Weblate sends JSON with a list and an empty key, and wants as many texts back."""
    texts = ["Save", "Are you sure?\nThis cannot be undone.", "%d files", ""]
    answer = served.post("/translate", api_key="", q=texts, source="en", target="de").json()
    assert answer == {
        "translatedText": [
            "Save>de",
            "Are you sure?>de\nThis cannot be undone.>de",
            "%d files>de",
            "",
        ]
    }


def test_placeholders_of_weblate_are_kept() -> None:
    """Weblate sends [X0X] for %d, and a model may know numbers only."""
    model = fake_model("en", "de")
    plain = engine_of(model).hypotheses
    engine_of(model).hypotheses = lambda lines, *more, **options: plain(  # type: ignore[method-assign]
        [line.replace("[X0X]", "") for line in lines], *more, **options
    )
    with running([model]) as one:
        answer = one.translate(["[X0X] files", "Save"])["translatedText"]
    assert answer == ["[X0X] files>de", "Save>de"]


def test_a_real_model_answers_as_the_translator(toy_served: Running, toy_run: Path) -> None:
    lines = ["ba be bi", "da do. Du ba!", ""]
    translator = Translator.load(toy_run)
    first, second = translator.translate(["da do.", "Du ba!"])
    answer = toy_served.translate(lines, "xx", "yy")["translatedText"]
    assert answer == [*translator.translate(["ba be bi"]), f"{first} {second}", ""]


def test_real_alternatives_are_the_hypotheses(toy_served: Running, toy_run: Path) -> None:
    found = Translator.load(toy_run).hypotheses(["ba be bi"], n_best=4, beam=4)[0]
    texts = list(dict.fromkeys(text for text, _ in found))
    answer = toy_served.translate("ba be bi", "xx", "yy", alternatives=3)
    assert [answer["translatedText"], *answer["alternatives"]] == texts


def test_alternatives_are_capped_and_shaped_as_q(served: Running) -> None:
    assert served.translate("One. Two.", alternatives=2)["alternatives"] == [
        "One.>de2 Two.>de2",
        "One.>de3 Two.>de3",
    ]
    most = served.service.limits.alternatives
    many = served.translate(["One.", "Two."], alternatives=1000)["alternatives"]
    assert [len(one) for one in many] == [most, most]
    assert "alternatives" not in served.translate("One.")


def test_alternatives_need_a_beam_that_wide() -> None:
    model = fake_model("en", "de")
    with running([model]) as one:
        one.translate("Hi.")
        one.translate("Hi.", alternatives=5)
    assert engine_of(model).calls == [(["Hi."], 1, 4), (["Hi."], 6, 6)]


def test_html(served: Running) -> None:
    answer = served.translate("<b>Fish &amp; chips</b><br>", format="html")
    assert answer["translatedText"] == "<b>Fish &amp; chips&gt;de</b><br>"


def test_html_has_its_tags_in_alternatives_too(served: Running) -> None:
    page = '<p title="A dog">One <a href="x">two</a>.<script>a < b</script></p>'
    answer = served.translate(page, format="html", alternatives=1)
    assert answer["translatedText"] == (
        '<p title="A dog&gt;de">One <a href="x">two.&gt;de</a><script>a < b</script></p>'
    )
    assert answer["alternatives"] == [answer["translatedText"].replace("&gt;de", "&gt;de2")]


@pytest.mark.parametrize("text", ["<!--" * 5000, '<a "' * 5000, "<b>a</b> " * 2200, "a. " * 6600])
def test_hostile_html_takes_no_time(served: Running, text: str) -> None:
    started = time.perf_counter()
    served.translate(text, format="html", alternatives=5)
    assert time.perf_counter() - started < 3.0


def test_a_sentence_that_comes_twice_is_translated_once() -> None:
    model = fake_model("en", "de")
    with running([model]) as one:
        assert one.translate(["No. Yes. No.", "No."])["translatedText"] == [
            "No.>de Yes.>de No.>de",
            "No.>de",
        ]
    assert [sentences for sentences, _, _ in engine_of(model).calls] == [["No.", "Yes."]]


def test_what_is_too_long_for_the_model_is_split_not_cut(served: Running) -> None:
    text = "a few words, " * 200
    answer = served.translate(text)["translatedText"]
    assert answer.count(",>de") > 3
    assert answer.replace(">de", "") == text


def test_scripts_without_spaces_get_them_in_the_translation() -> None:
    model = fake_model("zh", "en")
    engine_of(model).target = "en."
    with running([model]) as one:
        fields = {"q": "今日は。元気？", "source": "zh", "target": "en"}
        answer = one.client.post("/translate/stream", json=fields)
        sentences = [data for kind, data in events(answer) if kind == "sentence"]
        assert [data["gap"] for data in sentences] == ["", " "]
        assert events(answer)[-1][1]["translatedText"] == "今日は。>en. 元気？>en."


def test_forms_of_both_kinds(served: Running) -> None:
    fields = {"q": "Hi.", "source": "en", "target": "de", "alternatives": "1"}
    expected = {"translatedText": "Hi.>de", "alternatives": ["Hi.>de2"]}
    assert served.client.post("/translate", data=fields).json() == expected
    parts = {name: (None, value) for name, value in fields.items()}
    assert served.client.post("/translate", files=parts).json() == expected


def test_the_source_is_detected(served: Running) -> None:
    german, english = (
        "Wo ist denn hier bitte der nächste Bahnhof?",
        "The weather is very nice today.",
    )
    answer = served.translate([german, english], "auto", "en")
    assert answer["translatedText"] == [f"{german}>en", english], "English stays as it is"
    assert [one["language"] for one in answer["detectedLanguage"]] == ["de", "en"]
    assert answer["detectedLanguage"][0]["confidence"] > 90
    single = served.translate("The weather is very nice today.", "auto", "de")
    assert single["detectedLanguage"]["language"] == "en"


def test_languages_and_their_targets(served: Running) -> None:
    assert served.client.get("/languages").json() == [
        {"code": "de", "name": "German", "targets": ["en"]},
        {"code": "en", "name": "English", "targets": ["de"]},
        {"code": "fr", "name": "French", "targets": ["de", "en"]},
    ]


def test_a_pair_without_a_model_goes_through_a_third_language(served: Running) -> None:
    assert served.translate("Bonjour.", "fr", "de")["translatedText"] == "Bonjour.>en>de"
    two = served.translate("Bonjour.", "fr", "de", alternatives=1)
    assert two["alternatives"] == ["Bonjour.>en>de2"], "of the last model only"
    refused = served.post("/translate", q="Hallo", source="de", target="fr")
    assert (refused.status_code, refused.json()["error"]) == (
        400,
        "There is no model from de to fr; see /languages.",
    )


def test_english_is_the_preferred_pivot() -> None:
    pairs = [("fr", "cs"), ("cs", "de"), ("fr", "en"), ("en", "de")]
    with running([fake_model(*pair) for pair in pairs]) as one:
        assert one.translate("Oui.", "fr", "de")["translatedText"] == "Oui.>en>de"


def test_settings_of_the_page(served: Running) -> None:
    settings = served.client.get("/frontend/settings").json()
    assert settings["charLimit"] == served.service.limits.characters
    assert settings["language"]["source"] == {"code": "en", "name": "English"}
    assert not settings["keyRequired"]


def test_codes_with_a_region_and_other_spellings() -> None:
    assert match("en-US", ["de", "en"]) == match("EN_gb", ["de", "en"]) == "en"
    assert match("pt-br", ["pt", "pt-BR"]) == "pt-BR"
    assert match("english", ["en"]) is None
    assert (name_of("de"), name_of("xx"), name_of("qqq")) == ("German", "xx", "qqq")


def test_languages_that_the_detector_does_not_know_are_guessed_evenly() -> None:
    assert [one.confidence for one in Detector(["xx", "yy"]).detect("text")] == [50.0, 50.0]


def test_a_stream_sends_sentences_in_order_and_the_whole_text(served: Running) -> None:
    fields = {"q": "One. Two!\n\n  Three?", "source": "en", "target": "de", "alternatives": 1}
    answer = served.client.post("/translate/stream", json=fields)
    assert answer.headers["content-type"].startswith("text/event-stream")
    first, *sentences, last = events(answer)
    assert first[0] == "start"
    assert first[1]["gaps"] == ["", " ", "\n\n  ", ""]
    assert first[1]["sentences"] == ["One.", "Two!", "Three?"]
    assert sentences[1] == (
        "sentence",
        {"index": 1, "gap": " ", "translatedText": "Two!>de", "alternatives": ["Two!>de2"]},
    )
    assert [data["index"] for _, data in sentences] == [0, 1, 2]
    assert last == ("done", {"translatedText": "One.>de Two!>de\n\n  Three?>de"})


def test_a_stream_does_not_wait_for_its_end() -> None:
    model = fake_model("en", "de", seconds=0.3)
    text = " ".join(f"Sentence {n}." for n in range(100))
    with running([model]) as one:
        fields = {"q": text, "source": "en", "target": "de"}
        started, times = time.perf_counter(), list[float]()
        with one.client.stream("POST", "/translate/stream", json=fields) as answer:
            for line in answer.iter_lines():
                if line == "event: sentence":
                    times.append(time.perf_counter() - started)
        assert len(times) == 100
        assert times[0] < times[-1] - 0.5, "three more batches of 0.3 s"


def test_requests_of_many_clients_share_batches() -> None:
    model = fake_model("en", "de")
    engine = engine_of(model)
    engine.gate.clear()
    with running([model]) as one:
        texts = [f"Client {n}." for n in range(12)]
        answers: list[str] = []

        def ask(text: str) -> None:
            answer = httpx.post(
                f"{one.url}/translate",
                json={"q": text, "source": "en", "target": "de"},
                timeout=20,
                trust_env=False,
            )
            answers.append(answer.json()["translatedText"])

        threads = [threading.Thread(target=ask, args=(text,)) for text in texts]
        threads[0].start()
        until(lambda: len(engine.calls) == 1)
        for thread in threads[1:]:
            thread.start()
        batcher = one.service.models.served[0].batcher
        until(lambda: batcher.waiting + len("".join(engine.calls[0][0])) == len("".join(texts)))
        engine.gate.set()
        for thread in threads:
            thread.join()
        metrics = one.client.get("/metrics").text
    assert sorted(answers) == sorted(f"{text}>de" for text in texts)
    assert len(engine.calls) <= 3, "twelve clients, two or three batches"
    assert 'kutta_sentences_total{pair="en-de"} 12.0' in metrics


def test_keys() -> None:
    with running([fake_model("en", "de")], keys=["secret", "other"]) as one:
        fields = {"q": "Hi.", "source": "en", "target": "de"}
        for wrong in ({}, {"api_key": ""}, {"api_key": "secre"}, {"api_key": 5}):
            refused = one.client.post("/translate", json={**fields, **wrong})
            assert refused.status_code == 403
            assert "API key" in refused.json()["error"]
        for path in ("/detect", "/translate/stream", "/inside/states"):
            assert one.client.post(path, json=fields).status_code == 403
        assert one.client.post("/translate", json={**fields, "api_key": "other"}).is_success
        bearer = {"authorization": "Bearer secret"}
        assert one.client.post("/translate", json=fields, headers=bearer).is_success
        assert LibreTranslateAPI(one.url, "secret").translate("Hi.", "en", "de") == "Hi.>de"
        assert one.client.get("/frontend/settings").json()["keyRequired"]
        assert one.client.get("/health").is_success
        assert "secret" not in "".join(one.lines)


def test_the_log_has_no_texts_and_no_keys(served: Running) -> None:
    served.translate("Confidential words.", alternatives=1)
    served.client.post(
        "/translate?q=Confidential", json={"q": "Confidential", "source": "Confidential"}
    )
    served.client.get("/Confidential/path")
    entries = served.log()[-3:]
    assert "onfidential" not in json.dumps(entries)
    assert [entry["status"] for entry in entries] == [200, 400, 404]
    assert entries[0]["pair"] == "en-de"
    assert entries[0]["characters"] == 19
    assert {"time", "client", "method", "path", "ms"} <= entries[0].keys()


def test_metrics_are_those_of_prometheus(served: Running) -> None:
    served.translate("Count me.")
    answer = served.client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    assert 'kutta_requests_total{path="/translate",status="200"}' in answer.text
    assert 'kutta_waiting_characters{pair="en-de"} 0.0' in answer.text
    assert "Count me" not in answer.text


def test_the_api_is_described_without_external_assets(served: Running) -> None:
    document = served.client.get("/openapi.json").json()
    assert {"/translate", "/languages", "/detect", "/translate/stream"} <= document["paths"].keys()
    body = document["paths"]["/translate"]["post"]["requestBody"]["content"]
    assert set(body) == {"application/json", "application/x-www-form-urlencoded"}


def test_cors_is_off_unless_an_origin_is_named(served: Running) -> None:
    origin = {"origin": "https://example.org"}
    assert "access-control-allow-origin" not in served.client.get("/health", headers=origin).headers
    with running([fake_model("en", "de")], cors=["https://example.org"]) as one:
        answer = one.client.get("/health", headers=origin)
        assert answer.headers["access-control-allow-origin"] == "https://example.org"
        other = one.client.get("/health", headers={"origin": "https://example.com"})
        assert "access-control-allow-origin" not in other.headers


def test_every_answer_has_the_security_headers(served: Running) -> None:
    for path in ("/", "/docs", "/health", "/nothing", "/static/none.js"):
        headers = served.client.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"


def test_limits_have_room_for_the_largest_text() -> None:
    limits = Limits()
    assert limits.body >= 12 * limits.characters
