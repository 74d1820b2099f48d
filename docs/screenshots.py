"""Takes the screenshots of the page in docs/images: `python docs/screenshots.py`.

It serves the models in the box on loopback, and needs the extra `dev` and Chromium.
"""

import shutil
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))  # for the server of the tests

from kutta.server.models import load_models  # noqa: E402
from tests.server.conftest import running  # noqa: E402

IMAGES = ROOT / "docs" / "images"
TEXT = (
    "Where is the station? I would like two tickets to Berlin, please.\n\n"
    "The weather is beautiful today. Let's go to the lake."
)
SENTENCE = "Where is the old station?"
DESKTOP, PHONE = {"width": 1280, "height": 540}, {"width": 390, "height": 700}
FLAGS = ["--no-sandbox", "--disable-quic", "--no-first-run", "--disable-background-networking"]


def main() -> None:
    """Both views in light and dark colours and at the size of a phone."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    with running(load_models(["en-de", "de-en"], "cpu")) as server, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        for name, size, colours in (
            ("light", DESKTOP, "light"),
            ("dark", DESKTOP, "dark"),
            ("phone", PHONE, "light"),
        ):
            with opened(browser, server.url, size, colours) as page:
                take_translation(page, IMAGES / f"translate-{name}.png")
                take_inside(page, IMAGES / f"inside-{name}.png")
        browser.close()
    for file in IMAGES.glob("*.png"):  # with 256 colours they have a third of the bytes
        Image.open(file).convert("RGB").quantize(256, kmeans=2).save(file, optimize=True)


@contextmanager
def opened(browser: Any, url: str, size: dict[str, int], colours: str) -> Any:
    context = browser.new_context(viewport=size, color_scheme=colours)
    page = context.new_page()
    page.goto(url)
    yield page
    context.close()


def take_translation(page: Any, file: Path) -> None:
    """A text, its translation, and a pair of sentences that is lit."""
    page.locator("#source").fill(TEXT)
    page.locator("#target [data-sentence]").nth(3).wait_for()
    page.locator("#target[aria-busy=false]").wait_for()
    page.locator("#target [data-sentence]").nth(1).hover()
    page.wait_for_timeout(400)  # colours fade in
    page.screenshot(path=file)


def take_inside(page: Any, file: Path) -> None:
    """All charts of a sentence."""
    page.locator("#to-inside").click()
    page.locator("#sentence").fill(SENTENCE)
    page.wait_for_timeout(600)  # the page waits for the end of the typing
    page.locator("#truncation circle.rk4").nth(1).wait_for()
    page.wait_for_timeout(400)
    page.screenshot(path=file, full_page=True)


if __name__ == "__main__":
    main()
