"""Word documents: text in every place is translated, with its formatting."""

import io
import zipfile
from pathlib import Path
from typing import Any

import pytest
from docx import Document
from docx.opc.constants import RELATIONSHIP_TYPE
from docx.oxml import OxmlElement
from docx.oxml.ns import qn

from kutta.documents import docx as module
from kutta.documents.formats import Job, translate_file
from kutta.errors import InputError
from tests.documents.translators import Dictionary, upper


@pytest.fixture
def document() -> Any:
    document = Document()
    document.add_heading("A title", 1)
    paragraph = document.add_paragraph("The ")
    paragraph.add_run("red").bold = True
    paragraph.add_run(" dog. ")
    paragraph.add_run("It ")  # the same format as before, in another run
    paragraph.add_run("runs\tfast\nhome").italic = True
    table = document.add_table(rows=1, cols=2)
    table.cell(0, 0).text = "in a cell"
    table.cell(0, 1).add_table(rows=1, cols=1).cell(0, 0).text = "in a table of a cell"
    document.sections[0].header.paragraphs[0].text = "the header"
    document.sections[0].footer.paragraphs[0].text = "the footer, page 1"
    add_link(document, document.add_paragraph("See "), "this page", "https://example.org/a")
    document.add_paragraph("12 345")
    return document


def test_text_of_all_places_is_translated(tmp_path: Path, document: Any) -> None:
    new = translated(tmp_path, document)
    assert [p.text for p in new.paragraphs] == [
        "A TITLE", "THE RED DOG. IT RUNS\tFAST\nHOME", "SEE THIS PAGE", "12 345",
    ]  # fmt: skip
    table = new.tables[0]
    assert table.cell(0, 0).text == "IN A CELL"
    assert table.cell(0, 1).tables[0].cell(0, 0).text == "IN A TABLE OF A CELL"
    assert new.sections[0].header.paragraphs[0].text == "THE HEADER"
    assert new.sections[0].footer.paragraphs[0].text == "THE FOOTER, PAGE 1"


def test_formatting_stays_with_its_words(tmp_path: Path, document: Any) -> None:
    new = translated(tmp_path, document)
    assert new.paragraphs[0].style.name == "Heading 1"
    runs = [(run.text, run.bold, run.italic) for run in new.paragraphs[1].runs if run.text]
    assert runs == [
        ("THE ", None, None),
        ("RED", True, None),
        (" DOG. IT ", None, None),
        ("RUNS\tFAST\nHOME", None, True),
    ]
    link = new.paragraphs[2].hyperlinks[0]
    assert (link.text, link.address) == ("THIS PAGE", "https://example.org/a")


def test_formatting_moves_with_the_word_order(tmp_path: Path) -> None:
    document = Document()
    paragraph = document.add_paragraph("The dog ")
    paragraph.add_run("runs").bold = True
    paragraph.add_run(" home today.")
    known = {"The dog runs home today.": "Heute läuft der Hund heim.", "runs": "läuft"}
    new = translated(tmp_path, document, Dictionary(known))
    runs = [(run.text, run.bold) for run in new.paragraphs[0].runs]
    assert runs == [("Heute ", None), ("läuft", True), (" der Hund heim.", None)]


def test_text_boxes_and_notes(tmp_path: Path) -> None:
    document = Document()
    run = document.add_paragraph("outside").runs[0]
    box, inner = OxmlElement("w:txbxContent"), OxmlElement("w:p")
    inner.append(text_run("inside"))
    box.append(inner)
    run._r.append(box)
    new = translated(tmp_path, document)
    texts = [element.text for element in new.element.body.iter(qn("w:t"))]
    assert texts == ["OUTSIDE", "INSIDE"]


NOTES = (
    '<w:footnotes xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main">'
    '<w:footnote w:id="2"><w:p><w:r><w:t>a note</w:t></w:r></w:p></w:footnote></w:footnotes>'
)


def test_footnotes(tmp_path: Path) -> None:
    kind = "application/vnd.openxmlformats-officedocument.wordprocessingml.footnotes+xml"
    link = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/footnotes"
    changed = {
        "[Content_Types].xml": lambda text: text.replace(
            "</Types>", f'<Override PartName="/word/footnotes.xml" ContentType="{kind}"/></Types>'
        ),
        "word/_rels/document.xml.rels": lambda text: text.replace(
            "</Relationships>",
            f'<Relationship Id="rId99" Type="{link}" Target="footnotes.xml"/></Relationships>',
        ),
    }
    document = Document()
    document.add_paragraph("text")
    rewrite(document, tmp_path / "mine.docx", changed, {"word/footnotes.xml": NOTES})
    translate_file(tmp_path / "mine.docx", tmp_path / "new.docx", Job(upper, "en", "de"))
    with zipfile.ZipFile(tmp_path / "new.docx") as archive:
        assert b"<w:t>A NOTE</w:t>" in archive.read("word/footnotes.xml").replace(
            b' xml:space="preserve"', b""
        )


def test_what_is_not_a_document_is_one_sentence(tmp_path: Path, document: Any) -> None:
    whole = saved(document)
    empty = io.BytesIO()
    zipfile.ZipFile(empty, "w").close()
    damaged = bytearray(whole)
    damaged[len(damaged) // 3 : len(damaged) // 3 + 2000] = b"\xff" * 2000
    for data in (b"", b"text", whole[: len(whole) // 2], bytes(damaged), empty.getvalue()):
        (tmp_path / "mine.docx").write_bytes(data)
        with pytest.raises(InputError, match=r"mine\.docx is not a valid Word document \("):
            translate_file(tmp_path / "mine.docx", tmp_path / "new.docx", Job(upper, "en", "de"))
        assert [path.name for path in tmp_path.iterdir()] == ["mine.docx"]


def test_a_zip_bomb_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "XML_BYTES", 1 << 20)
    bomb = {"word/bomb.xml": "<a>" + " " * (2 << 20) + "</a>"}
    rewrite(Document(), tmp_path / "mine.docx", {}, bomb)
    with pytest.raises(InputError, match=r"has .* parts of .* MB unpacked, which is too much"):
        translate_file(tmp_path / "mine.docx", tmp_path / "new.docx", Job(upper, "en", "de"))


def test_entities_are_refused(tmp_path: Path) -> None:
    declared = '<!DOCTYPE w [<!ENTITY x SYSTEM "file:///etc/passwd">]>'
    changed = {"word/document.xml": lambda text: text.replace("?>", f"?>{declared}", 1)}
    rewrite(Document(), tmp_path / "mine.docx", changed)
    with pytest.raises(InputError, match=r"declares XML entities \(in word/document.xml\)"):
        translate_file(tmp_path / "mine.docx", tmp_path / "new.docx", Job(upper, "en", "de"))


def translated(folder: Path, document: Any, translate: Any = upper) -> Any:
    (folder / "mine.docx").write_bytes(saved(document))
    translate_file(folder / "mine.docx", folder / "new.docx", Job(translate, "en", "de"))
    return Document(str(folder / "new.docx"))


def saved(document: Any) -> bytes:
    buffer = io.BytesIO()
    document.save(buffer)
    return buffer.getvalue()


def rewrite(document: Any, path: Path, changed: Any, added: dict[str, str] | None = None) -> None:
    """Save a document with some of its XML changed, and with further parts."""
    with (
        zipfile.ZipFile(io.BytesIO(saved(document))) as old,
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new,
    ):
        for name in old.namelist():
            data = old.read(name)
            new.writestr(name, changed[name](data.decode()) if name in changed else data)
        for name, text in (added or {}).items():
            new.writestr(name, text)


def text_run(text: str) -> Any:
    run, element = OxmlElement("w:r"), OxmlElement("w:t")
    element.text = text
    run.append(element)
    return run


def add_link(document: Any, paragraph: Any, text: str, address: str) -> None:
    link = OxmlElement("w:hyperlink")
    link.set(qn("r:id"), document.part.relate_to(address, RELATIONSHIP_TYPE.HYPERLINK, True))
    link.append(text_run(text))
    paragraph._p.append(link)
