"""HTML: only text and translatable attributes change."""

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kutta.documents.formats import Job, translate_file
from kutta.documents.html import translate_html
from kutta.documents.sentences import Translate
from kutta.errors import InputError
from tests.documents.translators import fail, upper

CASES = {
    "inline": ("<p>Hello <b>big  dog</b>.</p>", "<p>HELLO <b>BIG DOG</b>.</p>"),
    "nested": (
        '<p><a href="x?a=1&amp;b=2"><i>One</i> two</a> three</p>',
        '<p><a href="x?a=1&amp;b=2"><i>ONE</i> TWO</a> THREE</p>',
    ),
    "entities": ("5 &lt; 6 &amp; so&nbsp;on", "5 &lt; 6 &amp; SO ON"),
    "unchanged entities": ("&copy; 2020 &#8212;", "&copy; 2020 &#8212;"),
    "translation is escaped": ("a &lt;script&gt;", "A &lt;SCRIPT&gt;"),
    "list without end tags": ("<ul><li>One<li>Two</ul>", "<ul><li>ONE<li>TWO</ul>"),
    "line break": ("One<br>two<br/>three", "ONE<br>TWO<br/>THREE"),
    "indentation": ("<p>\n  One\n  two.\n  Three.\n</p>", "<p>\n  ONE TWO.\n  THREE.\n</p>"),
    "pre": ("<pre>a\n  b</pre> c", "<pre>A\n  B</pre> C"),
    "attributes": (
        """<img src=a alt="A dog" title='"so"' data-alt="b"><input placeholder="Name" value="v">""",
        """<img src=a alt="A DOG" title='&quot;SO&quot;' data-alt="b">"""
        """<input placeholder="NAME" value="v">""",
    ),
    "meta": (
        '<meta name="description" content="A page"><meta name="author" content="Nobody">',
        '<meta name="description" content="A PAGE"><meta name="author" content="Nobody">',
    ),
    "script and style": (
        "<style>p > a {b: c}</style>a<script>if (a<b) f('<p>text</p>')</script>b",
        "<style>p > a {b: c}</style>A<script>if (a<b) f('<p>text</p>')</script>B",
    ),
    "code": ("Run <code>make <b>all</b></code> now", "RUN <code>make <b>all</b></code> NOW"),
    "translate=no": (
        '<div translate="no" title="t">a <div>b</div> c</div> d <b translate=no>e</b> f',
        '<div translate="no" title="t">a <div>b</div> c</div> D <b translate=no>e</b> F',
    ),
    "notranslate": ('<p class="x notranslate">a</p>b', '<p class="x notranslate">a</p>B'),
    "comment and doctype": (
        "<!DOCTYPE html><!-- <p>a</p> --><?php x ?>b",
        "<!DOCTYPE html><!-- <p>a</p> --><?php x ?>B",
    ),
    "title": ("<title>A &amp; b</title>", "<title>A &amp; B</title>"),
    "no tags": ("just text, 1 < 2 and a<b", "JUST TEXT, 1 &lt; 2 AND A&lt;B"),
    "unfinished": ("a <p title='b", "A &lt;P TITLE='B"),
    "unclosed comment": ("a <!-- b", "A <!-- b"),
    "unclosed script": ("a <script>b", "A <script>b"),
}


@pytest.mark.parametrize(("page", "expected"), CASES.values(), ids=CASES.keys())
def test_only_text_changes(page: str, expected: str) -> None:
    assert translate_html(page, upper, "en") == expected


def test_a_sentence_is_translated_across_inline_tags() -> None:
    asked: list[str] = []

    def note(sentences: list[str]) -> list[str]:
        asked.extend(sentences)
        return sentences

    page = "<p>The <b>red</b> dog. It\n runs.</p><p>Yes.</p>"
    assert translate_html(page, note, "en") == page.replace("\n", "")
    assert asked == ["The red dog.", "red", "It runs.", "Yes."]


def test_nothing_to_translate() -> None:
    page = "<p>1 &nbsp;2</p><hr><script>a</script><code>b</code>"
    assert translate_html(page, fail) == page


MARKUP = """<p>|</p>|<b>|</b>|<br>|<code>|</code>|<pre>|</pre>|&amp;|<!--|-->|<script>|</script>|
<div translate=no>|</div>|<|>|a|B. |\n|<a title="x y">|<img alt='|"|'"""


@given(st.lists(st.sampled_from(MARKUP.split("|")), max_size=25).map("".join))
def test_a_page_without_words_that_change_stays(page: str) -> None:
    same = translate_html(page, list)
    assert same.split() == page.split() or "&" in same  # a stray < or & is written as an entity
    markup = [tag for tag in ("<p>", "<b>", "<br>", "<pre>", "</div>") if page.count(tag)]
    for tag in markup:
        assert same.count(tag) == page.count(tag)


@pytest.mark.parametrize(
    "unit",
    ["<", "<a ", "<!--", "<a b='", "&#", "<p>", "<script>", '<a b="c" ', "<b>a ", "</", "<i a"],
)
def test_time_grows_with_the_length_only(unit: str) -> None:
    begin = time.perf_counter()
    translate_html(unit * 5_000, upper, "en")
    assert time.perf_counter() - begin < 3


def test_the_encoding_of_a_file_is_kept(tmp_path: Path) -> None:
    page = '<meta charset="iso-8859-2"><p>zł</p>'.encode("iso-8859-2")
    expected = '<meta charset="iso-8859-2"><p>ZŁ</p>'.encode("iso-8859-2")
    assert file_of(tmp_path, page) == expected
    assert file_of(tmp_path, page, lambda _: ["да"]).endswith(b"<p>&#1076;&#1072;</p>")
    assert file_of(tmp_path, b"\xef\xbb\xbfa") == b"\xef\xbb\xbfA"


@pytest.mark.parametrize("page", [b"<p>\xff</p>", b'<meta charset="none-such">a'])
def test_a_wrong_encoding_is_one_sentence(tmp_path: Path, page: bytes) -> None:
    with pytest.raises(InputError, match=r"page.html is not valid"):
        file_of(tmp_path, page)
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


def file_of(folder: Path, page: bytes, translate: Translate = upper) -> bytes:
    (folder / "page.html").write_bytes(page)
    translate_file(folder / "page.html", folder / "new.html", Job(translate, "en", "de"))
    return (folder / "new.html").read_bytes()
