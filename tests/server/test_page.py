"""The page in a real browser: Debian's Chromium, driven by playwright."""

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kutta.server.models import load_models
from tests.server.conftest import Running, engine_of, fake_model, running

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="Chromium is not installed (Debian: apt install chromium)"
)
expect = sync_api.expect
expect.set_options(timeout=15_000)  # the machine may be busy


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Closed at the end of this file, as its event loop would disturb other tests."""
    with sync_api.sync_playwright() as playwright:
        one = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield one
        one.close()


@contextmanager
def opened(browser: Any, one: Running, path: str = "/", **options: Any) -> Iterator[Any]:
    """A page of a server. It must load nothing from elsewhere and complain about nothing."""
    context = browser.new_context(**options)
    context.set_default_timeout(15_000)
    page, trouble = context.new_page(), list[str]()
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.on("console", lambda said: said.type == "error" and trouble.append(said.text))
    page.on("request", lambda asked: asked.url.startswith(one.url) or trouble.append(asked.url))
    page.goto(one.url + path)
    page.locator("#from option").first.wait_for(state="attached")
    yield page
    context.close()
    assert [text for text in trouble if "status of 4" not in text] == []


def type_text(page: Any, text: str) -> None:
    page.locator("#source").press_sequentially(text, delay=5)


def test_it_translates_while_one_types(browser: Any, served: Running) -> None:
    with opened(browser, served) as page:
        type_text(page, "Hello. How are you?")
        expect(page.locator("#target")).to_have_text("Hello.>de How are you?>de")
        expect(page.locator("#count")).to_have_text("19 / 20,000")
        page.locator("#clear").click()
        expect(page.locator("#target")).to_have_text("")
        shown = "getComputedStyle(document.getElementById('target'), '::before').content"
        assert page.evaluate(shown) == '"Translation"'
        assert page.evaluate("document.activeElement.id") == "source"


def test_line_breaks_are_kept(browser: Any, served: Running) -> None:
    with opened(browser, served) as page:
        page.locator("#source").fill("One.\n\n  Two.")
        expect(page.locator("#target [data-sentence]")).to_have_count(2)
        text = page.locator("#target").evaluate("node => node.textContent")
        assert text == "One.>de\n\n  Two.>de"


def test_answers_that_are_out_of_date_are_dropped(browser: Any) -> None:
    model = fake_model("en", "de", seconds=0.5)
    with running([model]) as one, opened(browser, one) as page:
        page.locator("#source").fill("Alpha.")
        page.wait_for_timeout(400)  # its request is on the way
        page.locator("#source").fill("Beta.")
        expect(page.locator("#target")).to_have_text("Beta.>de")
        page.wait_for_timeout(700)
        expect(page.locator("#target")).to_have_text("Beta.>de")
    assert [call[0] for call in engine_of(model).calls] == [["Alpha."], ["Beta."]]


def test_pairs_of_sentences_light_up(browser: Any, served: Running) -> None:
    lit = "#translate-view .lit"
    with opened(browser, served) as page:
        page.locator("#source").fill("First one. Second one.")
        page.locator("#target [data-sentence]").nth(1).hover()
        expect(page.locator(lit)).to_have_text(["Second one.", "Second one.>de"])
        box = page.locator("#mirror [data-sentence]").nth(0).bounding_box()
        page.mouse.move(box["x"] + 20, box["y"] + 10)
        expect(page.locator(lit)).to_have_text(["First one.", "First one.>de"])
        page.mouse.move(5, 5)
        expect(page.locator(lit)).to_have_count(0)


def test_alternatives_by_mouse(browser: Any, served: Running) -> None:
    with opened(browser, served) as page:
        page.locator("#source").fill("First. Second.")
        page.locator("#target [data-sentence]").nth(1).click()
        options = page.locator("#popover [role=option]")
        expect(options).to_have_text([f"Second.>de{k}" for k in ("", 2, 3, 4, 5)])
        options.nth(2).click()
        expect(page.locator("#target")).to_have_text("First.>de Second.>de3")
        expect(page.locator("#popover")).to_be_hidden()


def test_alternatives_by_keyboard(browser: Any, served: Running) -> None:
    with opened(browser, served) as page:
        page.locator("#source").fill("First. Second.")
        page.locator("#target [data-sentence]").nth(0).focus()
        page.keyboard.press("Enter")
        expect(page.locator("#popover [role=option]").nth(0)).to_be_focused()
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Enter")
        expect(page.locator("#target")).to_have_text("First.>de2 Second.>de")
        expect(page.locator("#target [data-sentence]").nth(0)).to_be_focused()
        page.keyboard.press("Enter")
        expect(page.locator("#popover [role=option]").nth(0)).to_be_focused()
        page.keyboard.press("Escape")
        expect(page.locator("#popover")).to_be_hidden()
        expect(page.locator("#target [data-sentence]").nth(0)).to_be_focused()


def test_swap_and_copy(browser: Any, served: Running) -> None:
    with opened(browser, served, permissions=["clipboard-read", "clipboard-write"]) as page:
        page.locator("#source").fill("Hello.")
        expect(page.locator("#target")).to_have_text("Hello.>de")
        page.locator("#copy").click()
        expect(page.locator("#copy")).to_have_text("Copied")
        assert page.evaluate("navigator.clipboard.readText()") == "Hello.>de"
        page.locator("#swap").click()
        expect(page.locator("#from")).to_have_value("de")
        expect(page.locator("#to")).to_have_value("en")
        expect(page.locator("#source")).to_have_value("Hello.>de")
        expect(page.locator("#target")).to_have_text("Hello.>de>en")
        page.locator("#from").select_option("fr")
        expect(page.locator("#swap")).to_be_disabled()


def test_the_language_is_detected(browser: Any, served: Running) -> None:
    with opened(browser, served) as page:
        page.locator("#from").select_option("auto")
        page.locator("#to").select_option("en")
        page.locator("#source").fill("Wo ist denn hier der Bahnhof?")
        expect(page.locator("#target")).to_have_text("Wo ist denn hier der Bahnhof?>en")
        expect(page.locator("#status")).to_have_text(re.compile("^German"))


def test_the_theme_is_chosen_and_kept(browser: Any, served: Running) -> None:
    background = "getComputedStyle(document.body).backgroundColor"
    with opened(browser, served, color_scheme="light") as page:
        light = page.evaluate(background)
        page.locator("#theme").click()
        dark = page.evaluate(background)
        assert dark != light
        page.reload()
        assert page.evaluate(background) == dark
        assert page.locator("#theme").get_attribute("aria-label") == "Switch to the light theme"
    with opened(browser, served, color_scheme="dark") as page:
        assert page.evaluate(background) == dark, "that of the system, unless one is chosen"


def test_errors_are_said_and_pass(browser: Any) -> None:
    model = fake_model("en", "de")
    with running([model]) as one, opened(browser, one) as page:
        engine_of(model).error = RuntimeError()
        page.locator("#source").fill("Hello.")
        expect(page.locator("#target .error")).to_have_text(re.compile("fault of its own"))
        engine_of(model).error = None
        type_text(page, " Again.")
        expect(page.locator("#target")).to_have_text(re.compile("Again.>de$"))


def test_a_key_is_asked_for_and_sent(browser: Any) -> None:
    with running([fake_model("en", "de")], keys=["secret"]) as one, opened(browser, one) as page:
        page.locator("#source").fill("Hello.")
        expect(page.locator("#target .error")).to_have_text(re.compile("needs an API key"))
        page.locator("#key").fill("secret")
        page.locator("#key").press("Tab")
        expect(page.locator("#target")).to_have_text("Hello.>de")


# For each control that a reader can reach: its tag, where it has no name for screen readers.
NAMELESS = """() => [...document.querySelectorAll('button, select, input, textarea, a, [role]')]
  .filter((one) => one.checkVisibility() && one.role !== 'status' && one.role !== 'region')
  .filter((one) => !(one.ariaLabel || one.title || one.textContent.trim() || one.labels?.length))
  .map((one) => one.outerHTML)"""


@pytest.mark.parametrize("size", [(390, 844), (768, 900), (1280, 800)])
def test_it_fits_phones_and_every_control_has_a_name(
    browser: Any, toy_served: Running, size: tuple[int, int]
) -> None:
    view = {"width": size[0], "height": size[1]}
    with opened(browser, toy_served, viewport=view) as page:
        page.locator("#source").fill("Ba be bi. " * 12)
        expect(page.locator("#target [data-sentence]")).to_have_count(12)
        wide = "document.documentElement.scrollWidth"
        assert page.evaluate(wide) <= size[0]
        assert page.evaluate(NAMELESS) == []
        heights = "id => document.getElementById(id).getBoundingClientRect().height"
        assert page.evaluate(heights, "source") == page.evaluate(heights, "mirror")
        page.locator("#to-inside").click()
        page.locator("#trajectory svg").wait_for()
        assert page.evaluate(wide) <= size[0]
        assert page.evaluate(NAMELESS) == []


def test_the_view_of_the_solver(browser: Any, toy_served: Running) -> None:
    with opened(browser, toy_served) as page:
        page.locator("#source").fill("ba be bi bo")
        expect(page.locator("#target [data-sentence]")).to_have_count(1)
        page.locator("#to-inside").click()
        expect(page.locator("#sentence")).to_have_value("ba be bi bo")
        words = page.locator("#trajectory .token text").all_text_contents
        expect(page.locator("#trajectory .token").first).to_be_visible()
        assert len(words()) >= 4
        assert page.locator("#norms .token").count() == len(words()) + 1, "and the end mark"
        expect(page.locator("#stages rect")).to_have_count(2)  # one block with two stages
        expect(page.locator("#methods dt")).to_have_text(["as trained", "Euler", "RK2", "RK4"])
        expect(page.locator("#truncation circle.rk4")).to_have_count(2)  # and in the legend
        page.locator("#time").fill("0")
        expect(page.locator("#depth")).to_have_text("embedding")
        page.locator("#play").click()
        expect(page.locator("#depth")).to_have_text("after block 1 of 1")
        page.locator("#trajectory .token circle").first.hover(force=True)
        expect(page.locator("#norms .token.on")).to_have_count(1)
        # Drawn again under the pointer; fill() would scroll the page.
        draw = "node => { node.value = 0.5; node.dispatchEvent(new Event('input')); }"
        page.locator("#time").evaluate(draw)
        expect(page.locator("#depth")).to_have_text("after block 0.5 of 1")
        expect(page.locator("#trajectory .token.on")).to_have_count(1)
        page.mouse.move(5, 5)
        expect(page.locator("#inside-view .focused")).to_have_count(0)
        page.locator("#stack label", has_text="decoder").click()
        expect(page.locator("#stages rect")).to_have_count(3)  # three sublayers by Euler
        page.locator("#substeps label", has_text="4").click()
        expect(page.locator("#methods dt")).to_have_count(4)


def test_the_view_says_why_it_is_not_there(browser: Any, served: Running) -> None:
    reason = re.compile("needs a run directory or an exported model; en-de has none")
    asked: list[str] = []
    with opened(browser, served) as page:
        page.on("request", lambda request: asked.append(request.url))
        page.locator("#source").fill("Hello.")
        expect(page.locator("#target")).to_have_text("Hello.>de")
        page.locator("#to-inside").click()
        expect(page.locator("#inside-notice")).to_have_text(reason)
        expect(page.locator("#sentence-form")).to_be_hidden()
        page.wait_for_timeout(600)  # longer than the page waits before it asks
        expect(page.locator("#inside-notice")).to_have_text(reason)
    assert not [url for url in asked if "/inside/" in url]


def test_the_view_tells_models_that_it_shows_from_others(browser: Any, toy_run: Path) -> None:
    models = [fake_model("en", "de"), *load_models([str(toy_run)], "cpu")]
    with running(models) as one, opened(browser, one) as page:
        page.locator("#to-inside").click()
        expect(page.locator("#inside-notice")).to_have_text(re.compile("en-de has none"))
        expect(page.locator("#pair option")).to_have_text(["xx → yy"])
        page.locator("#sentence").fill("ba be bi")
        page.locator("#trajectory svg").wait_for()
        expect(page.locator("#inside-notice")).to_be_hidden()


def test_the_page_of_the_api(browser: Any, served: Running) -> None:
    context = browser.new_context()
    page, trouble = context.new_page(), list[str]()
    page.on("console", lambda said: said.type == "error" and trouble.append(said.text))
    page.goto(f"{served.url}/docs")
    expect(page.locator("summary code").first).to_have_text("/translate")
    assert "/translate/stream" in page.locator("summary code").all_text_contents()
    context.close()
    assert trouble == []
