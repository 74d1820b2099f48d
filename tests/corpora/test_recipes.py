"""Every recipe from download to finished folder, on small archives laid out as the true ones."""

import dataclasses
import gzip
import hashlib
import io
import json
import sys
import tarfile
import zipfile
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from kutta.cli import main
from kutta.corpora import assemble
from kutta.corpora.assemble import is_made, make_corpus, summary
from kutta.corpora.download import Patience
from kutta.corpora.recipes import RECIPES, Recipe, Table, find_recipe
from kutta.corpora.sources import SOURCES
from kutta.data.corpus import read_lines
from kutta.errors import InputError
from tests.texts import read_pairs

QUICK = Patience(attempts=2, wait=0, silence=5)

# What the publishers' archives look like inside, written down apart from the recipes: the path of
# the address, then every text in it. "en" and "xx" mark the side; sgm is a test set.
TRAINING = {
    "/wmt13/training-parallel-europarl-v7.tgz": "training/europarl-v7.{pair}.{side}",
    "/wmt13/training-parallel-commoncrawl.tgz": "commoncrawl.{pair}.{side}",
    "/wmt14/training-parallel-nc-v9.tgz": "training/news-commentary-v9.{pair}.{side}",
    "/wmt13/training-parallel-un.tgz": "un/undoc.2000.{pair}.{side}",
    "/wmt10/training-giga-fren.tar": "giga-fren.release2.fixed.{side}.gz",
    "/europarl/v7/ro-en.tgz": "europarl-v7.{pair}.{side}",
}
PAIRS = {
    "/wmt13/training-parallel-un.tgz": ["fr-en"],
    "/wmt10/training-giga-fren.tar": ["fr-en"],
    "/europarl/v7/ro-en.tgz": ["ro-en"],
}
TEST_SETS = {
    "/wmt12/test.tgz": {f"test/newstest2012-src.{end}.sgm": 3_003 for end in ("en", "de", "fr")},
    "/wmt13/test.tgz": {f"test/newstest2013-src.{end}.sgm": 3_000 for end in ("en", "de", "fr")},
    "/wmt14/test-full.tgz": {
        "test-full/newstest2014-deen-src.en.sgm": 3_003,
        "test-full/newstest2014-deen-ref.de.sgm": 3_003,
        "test-full/newstest2014-fren-src.en.sgm": 3_003,
        "test-full/newstest2014-fren-ref.fr.sgm": 3_003,
    },
    "/wmt16/translation-task/dev.tgz": {
        "dev/newsdev2016-enro-src.en.sgm": 1_999,
        "dev/newsdev2016-enro-ref.ro.sgm": 1_999,
    },
    "/wmt16/translation-task/test.tgz": {
        "test/newstest2016-enro-src.en.sgm": 1_999,
        "test/newstest2016-enro-ref.ro.sgm": 1_999,
    },
}
MULTI30K = {
    "train": 29_000,
    "val": 1_014,
    "test_2016_flickr": 1_000,
    "test_2017_flickr": 1_000,
    "test_2017_mscoco": 461,
}
PTB = {"train": 42_068, "valid": 3_370, "test": 3_761}


def packed_tar(members: dict[str, bytes], mode: str = "w:gz") -> bytes:
    buffer = io.BytesIO()
    level = {"compresslevel": 1} if mode == "w:gz" else {}
    with tarfile.open(fileobj=buffer, mode=mode, **level) as tar:  # pyright: ignore
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def packed_zip(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as zipped:
        for name, data in members.items():
            zipped.writestr(name, data)
    return buffer.getvalue()


def training_text(name: str, side: str) -> bytes:
    """Seven pairs: two good ones, one to tidy, and one for every reason to drop."""
    english = side == "en"
    lines = [
        f"{name} one {side}".encode(),
        f"  {name}\u00a0 two\t{side} ".encode(),
        ("Ţara şi" if side == "ro" else f"three {side}").encode(),
        b"" if english else b"alone",
        b"\xff" if english else b"not text",
        b"word " * (251 if english else 250),
        b"word " * (1 if english else 10),
    ]
    return b"\n".join(lines) + b"\n"


def sgm(name: str, lines: int) -> bytes:
    segments = "\n".join(f'<seg id="{n}">{name} &amp; {n}</seg>' for n in range(lines))
    return (
        f'<srcset setid="x">\n<doc docid="d">\n<p>\n{segments}\n</p>\n</doc>\n</srcset>\n'.encode()
    )


def plain(name: str, lines: int) -> bytes:
    return "".join(f" {name}  {n} \n" for n in range(lines)).encode()


@cache
def archives() -> dict[str, bytes]:
    """Every archive by the path of its true address."""
    files: dict[str, bytes] = {}
    for path, pattern in TRAINING.items():
        members: dict[str, bytes] = {}
        for pair in PAIRS.get(path, ["cs-en", "de-en", "fr-en"]):
            for side in pair.split("-"):
                text = training_text(path, side)
                member = pattern.format(pair=pair, side=side)
                members[member] = gzip.compress(text) if member.endswith(".gz") else text
        files[path] = packed_tar(members, "w" if path.endswith(".tar") else "w:gz")
    for path, sets in TEST_SETS.items():
        files[path] = packed_tar({name: sgm(name, lines) for name, lines in sets.items()})
    files["/OPUS-SETIMES/v2/moses/en-ro.txt.zip"] = packed_zip(
        {
            "README": b"",
            "SETIMES.en-ro.en": training_text("setimes", "en"),
            "SETIMES.en-ro.ro": training_text("setimes", "ro"),
            "SETIMES.en-ro.ids": b"",
        }
    )
    for name, lines in MULTI30K.items():
        for end in ("en", "de", "fr"):
            text = plain(f"{name} {end}", lines)
            files[f"/multi30k/dataset/master/data/task1/raw/{name}.{end}.gz"] = gzip.compress(
                text, 1
            )
    files["/~imikolov/rnnlm/simple-examples.tgz"] = packed_tar(
        {f"./simple-examples/data/ptb.{name}.txt": plain(name, n) for name, n in PTB.items()}
        | {"./simple-examples/1-train/README": b"not this"}
    )
    for code, credit in (("deu", ""), ("fra", "\tCC-BY #{n}"), ("ron", "\tCC-BY #{n} (ă & b)")):
        pairs = [f"Sentence {n // 3}.\tşi {n}{credit.format(n=n)}" for n in range(9_000)]
        table = "\n".join([*pairs, "No translation.", "Empty.\t", ""])
        files[f"/anki/{code}-eng.zip"] = packed_zip(
            {"_about.txt": b"terms", f"{code}.txt": table.encode()}
        )
    return files


@pytest.fixture
def published(server: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The server with everything on it, and the addresses leading there."""
    server.files.update(archives())
    for name, source in SOURCES.items():
        address = server.url + urlsplit(source.url).path
        monkeypatch.setitem(SOURCES, name, dataclasses.replace(source, url=address, checksum=""))
    return server


def without_checksums(recipe: Recipe) -> Recipe:
    """The same recipe for made-up text."""
    if isinstance(recipe.text, Table):
        return recipe
    splits = tuple(dataclasses.replace(split, sha256={}) for split in recipe.text)
    return dataclasses.replace(recipe, text=splits)


def get(name: str, root: Path, **options: Any) -> dict[str, Any]:
    recipe = without_checksums(RECIPES[name])
    report = make_corpus(recipe, root, patience=QUICK, **options)
    assert report is not None
    return report


def lines_of(path: Path) -> list[str]:
    return list(read_lines(path))


@pytest.mark.parametrize(
    ("name", "other", "parts", "valid"),
    [
        ("wmt14-en-de", "de", 3, ["wmt13"]),
        ("wmt14-en-fr", "fr", 5, ["wmt12", "wmt13"]),
    ],
)
def test_wmt14(
    published: Any, tmp_path: Path, name: str, other: str, parts: int, valid: list[str]
) -> None:
    report = get(name, tmp_path)
    folder = tmp_path / name
    files = {f"{split}.{end}" for split in ("valid", "test") for end in ("en", other)}
    assert {path.name for path in folder.iterdir()} == files | {
        *("train.en.gz", f"train.{other}.gz", "report.json")
    }
    train = list(read_pairs(folder, "train", "en", other))
    assert len(train) == 3 * parts
    assert train[0][0].endswith("europarl-v7.tgz one en")
    assert train[1][1].endswith(f"europarl-v7.tgz two {other}"), "white space is normalised"
    assert report["splits"]["train"]["dropped"] == {
        "empty": parts,
        "not text": parts,
        "too long": parts,
        "unequal": parts,
    }
    assert [line.split("/")[1] for line in lines_of(folder / "valid.en")[::3_003]] == [
        f"newstest20{year[-2:]}-src.en.sgm & 0" for year in valid
    ]
    assert len(lines_of(folder / f"valid.{other}")) == (3_000 if other == "de" else 6_003)
    test = list(read_pairs(folder, "test", "en", other))
    assert len(test) == 3_003
    assert test[7] == (
        f"test-full/newstest2014-{other}en-src.en.sgm & 7",
        f"test-full/newstest2014-{other}en-ref.{other}.sgm & 7",
    )


def test_the_two_wmt14_corpora_share_their_downloads(published: Any, tmp_path: Path) -> None:
    get("wmt14-en-de", tmp_path)
    get("wmt14-en-fr", tmp_path)
    paths = [request.path for request in published.seen]
    assert len(paths) == len(set(paths)) == 8
    assert not list((tmp_path / "downloads").glob("*.part*"))


def test_wmt16_romanian(published: Any, tmp_path: Path) -> None:
    report = get("wmt16-en-ro", tmp_path)
    folder = tmp_path / "wmt16-en-ro"
    train = list(read_pairs(folder, "train", "en", "ro"))
    assert [pair[0] for pair in train[::3]] == ["/europarl/v7/ro-en.tgz one en", "setimes one en"]
    assert train[2] == ("three en", "Țara și"), "comma below, not cedilla"
    assert len(lines_of(folder / "valid.ro")) == len(lines_of(folder / "test.en")) == 1_999
    assert lines_of(folder / "valid.ro")[0] == "dev/newsdev2016-enro-ref.ro.sgm & 0"
    assert lines_of(folder / "test.en")[0] == "test/newstest2016-enro-src.en.sgm & 0"
    assert report["cleaning"] == {"max_words": 250, "max_ratio": 9.0}


def test_multi30k(published: Any, tmp_path: Path) -> None:
    get("multi30k", tmp_path)
    folder = tmp_path / "multi30k"
    ours = ("train", "valid", "test2016", "test2017", "testcoco")
    expected = {f"{name}.{end}" for name in ours for end in ("en", "de", "fr")}
    assert {path.name for path in folder.iterdir()} == expected | {"report.json"}
    for name, theirs in zip(ours, MULTI30K, strict=True):
        text = plain(f"{theirs} fr", MULTI30K[theirs])
        assert (folder / f"{name}.fr").read_bytes() == text, "not a byte is changed"


def test_multi30k_in_subwords(published: Any, tmp_path: Path) -> None:
    """Without the training text and the validation set, which take long: test2016 serves as one."""
    recipe = without_checksums(RECIPES["multi30k-bpe"])
    assert isinstance(recipe.text, tuple)
    small = dataclasses.replace(recipe, text=recipe.text[2:])
    report = make_corpus(small, tmp_path, patience=QUICK)
    assert report is not None
    folder = tmp_path / "multi30k-bpe"
    assert {path.name for path in folder.iterdir()} == {"en-de", "en-fr", "report.json"}
    sets = {"test2016": "test_2016_flickr", "test2017": "test_2017_flickr"}
    sets["testcoco"] = "test_2017_mscoco"
    for other in ("de", "fr"):
        place = folder / f"en-{other}"
        files = {f"{name}.{end}" for name in sets for end in ("en", other)}
        assert {path.name for path in place.iterdir()} == files | {"codes.bpe"}
        assert (place / "codes.bpe").read_text().startswith("#version: 0.2\n")
        for name, theirs in sets.items():
            text = (place / f"{name}.{other}").read_text()
            assert len(text.splitlines()) == MULTI30K[theirs]
            words = text.replace("@@ ", "").split("\n")[7].split()
            assert words == [*theirs.replace("_", " _ ").split(), other, "7"]
            facts = report["splits"][f"en-{other}/{name}"]
            assert facts["sha256"][other] == hashlib.sha256(text.encode()).hexdigest()


def test_ptb(published: Any, tmp_path: Path) -> None:
    get("ptb", tmp_path)
    for name, lines in PTB.items():
        text = (tmp_path / "ptb" / f"ptb.{name}.txt").read_bytes()
        assert text == plain(name, lines), "not a byte is changed"


@pytest.mark.parametrize("name", ["multi30k", "ptb"])
def test_text_of_another_content_is_refused(published: Any, tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=r"train\.\w+ has the checksum \w{64} instead of"):
        make_corpus(RECIPES[name], tmp_path, patience=QUICK)
    assert [path.name for path in tmp_path.iterdir()] == ["downloads"]
    assert not (tmp_path / "downloads" / "checksums.json").exists(), "what failed is not trusted"


@pytest.mark.parametrize("language", ["de", "fr", "ro"])
def test_tatoeba(published: Any, tmp_path: Path, language: str) -> None:
    report = get(f"tatoeba-en-{language}", tmp_path)
    folder = tmp_path / f"tatoeba-en-{language}"
    splits = {
        name: list(read_pairs(folder, name, "en", language)) for name in ("train", "valid", "test")
    }
    english = {name: {pair[0] for pair in pairs} for name, pairs in splits.items()}
    assert not english["train"] & english["valid"] | english["train"] & english["test"]
    assert not english["valid"] & english["test"]
    assert sum(len(pairs) for pairs in splits.values()) == 9_000
    share = 9_000 / (15 if language == "ro" else 200)
    assert all(share / 3 < len(splits[name]) < share * 3 for name in ("valid", "test"))
    assert splits["train"][0][1].startswith("și" if language == "ro" else "şi")
    assert report["splits"]["train"]["dropped"] == {"empty": 2}
    if language == "de":
        assert not (folder / "attribution.tsv").exists()
        return
    for line in lines_of(folder / "attribution.tsv"):
        split, number, credit = line.split("\t")
        other = splits[split][int(number) - 1][1].removeprefix("și ").removeprefix("şi ")
        assert credit.split(" (")[0] == f"CC-BY #{other}"


def test_the_splits_of_tatoeba_do_not_depend_on_order_or_growth(
    published: Any, tmp_path: Path
) -> None:
    get("tatoeba-en-ro", tmp_path)
    before = set(lines_of(tmp_path / "tatoeba-en-ro" / "test.en"))
    rows = [f"Sentence {n}.\tx {n}" for n in range(4_000)][::-1]
    published.files["/anki/ron-eng.zip"] = packed_zip({"ron.txt": "\n".join(rows).encode()})
    get("tatoeba-en-ro", tmp_path / "later")
    after = set(lines_of(tmp_path / "later" / "tatoeba-en-ro" / "test.en"))
    assert before == {line for line in after if int(line[9:-1]) < 3_000}


# What is kept beside the text


def test_the_report_tells_what_was_made_of_what(published: Any, tmp_path: Path) -> None:
    report = get("wmt16-en-ro", tmp_path)
    folder = tmp_path / "wmt16-en-ro"
    assert json.loads((folder / "report.json").read_text()) == report
    assert (report["recipe"], report["version"]) == ("wmt16-en-ro", 1)
    for split, end, suffix in (("train", "ro", ".gz"), ("test", "en", "")):
        data = (folder / f"{split}.{end}{suffix}").read_bytes()
        text = gzip.decompress(data) if suffix else data
        assert report["splits"][split]["sha256"][end] == hashlib.sha256(text).hexdigest()
        assert report["splits"][split]["lines"] == text.count(b"\n")
    served = published.files["/europarl/v7/ro-en.tgz"]
    sha256 = hashlib.sha256(served).hexdigest()
    assert report["sources"]["europarl-v7-ro-en.tgz"]["sha256"] == sha256
    record = json.loads((tmp_path / "downloads" / "checksums.json").read_text())
    assert record == {name: facts["sha256"] for name, facts in report["sources"].items()}
    told = "\n".join(summary(report))
    assert "8 dropped: 2 empty, 2 not text, 2 too long, 2 unequal" in told
    assert "the paper has about 602,000" in told


def test_the_same_files_make_the_same_bytes(published: Any, tmp_path: Path) -> None:
    for place in ("a", "b"):
        get("wmt16-en-ro", tmp_path / place)
    for path in (tmp_path / "a" / "wmt16-en-ro").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / "wmt16-en-ro" / path.name).read_bytes()
        assert path.suffix != ".gz" or path.read_bytes()[4:8] == bytes(4), "no date inside"


def test_a_finished_folder_is_not_made_again(published: Any, tmp_path: Path) -> None:
    recipe = RECIPES["tatoeba-en-ro"]
    get(recipe.name, tmp_path)
    assert is_made(recipe, tmp_path)
    requests = len(published.seen)
    assert make_corpus(recipe, tmp_path) is None
    (tmp_path / recipe.name / "train.en").write_text("spoilt")
    assert make_corpus(recipe, tmp_path, overwrite=True) is not None
    assert len(published.seen) == requests, "the download served again"
    assert len(lines_of(tmp_path / recipe.name / "train.en")) > 1


def test_a_folder_of_another_hand_is_not_touched(published: Any, tmp_path: Path) -> None:
    (tmp_path / "tatoeba-en-ro").mkdir()
    (tmp_path / "tatoeba-en-ro" / "mine").write_text("x")
    with pytest.raises(InputError, match="move it, or add --overwrite"):
        get("tatoeba-en-ro", tmp_path)
    assert published.seen == []
    get("tatoeba-en-ro", tmp_path, overwrite=True)
    newer = dataclasses.replace(RECIPES["tatoeba-en-ro"], version=2)
    assert not is_made(newer, tmp_path)


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left on device")])
def test_an_interrupted_extraction_leaves_no_half_folder(
    published: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Any
) -> None:
    def fail(*_: Any) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(assemble, "held_out", fail)
        with pytest.raises((KeyboardInterrupt, InputError)):
            get("tatoeba-en-ro", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["downloads"]
    get("tatoeba-en-ro", tmp_path)
    assert len(published.seen) == 1, "the download was kept"


def test_a_test_set_of_another_length_is_refused(published: Any, tmp_path: Path) -> None:
    published.files["/wmt13/test.tgz"] = packed_tar(
        {f"test/newstest2013-src.{end}.sgm": sgm("x", 2_999) for end in ("en", "de")}
    )
    with pytest.raises(InputError, match=r"valid has 2,999 lines instead of 3,000, so wmt13-test"):
        get("wmt14-en-de", tmp_path)


def test_a_page_instead_of_an_archive_is_not_trusted(published: Any, tmp_path: Path) -> None:
    good = published.files["/anki/ron-eng.zip"]
    published.files["/anki/ron-eng.zip"] = b"<html>Too many visitors</html>"
    with pytest.raises(InputError, match=r"ron-eng\.zip is damaged"):
        get("tatoeba-en-ro", tmp_path)
    published.files["/anki/ron-eng.zip"] = good
    (tmp_path / "downloads" / "ron-eng.zip").unlink()
    get("tatoeba-en-ro", tmp_path)


def test_too_few_pairs_are_told(published: Any, tmp_path: Path) -> None:
    published.files["/anki/ron-eng.zip"] = packed_zip({"ron.txt": b"Hi.\tBun\xc4\x83!\n"})
    with pytest.raises(InputError, match="too few pairs"):
        get("tatoeba-en-ro", tmp_path)


def test_files_got_by_hand_need_no_network(published: Any, tmp_path: Path) -> None:
    (tmp_path / "hand").mkdir()
    for source in RECIPES["wmt16-en-ro"].sources.values():
        path = urlsplit(source.url).path
        (tmp_path / "hand" / path.rpartition("/")[2]).write_bytes(published.files[path])
    get("wmt16-en-ro", tmp_path, by_hand=tmp_path / "hand")
    assert published.seen == []
    assert [path.name for path in (tmp_path / "downloads").iterdir()] == ["checksums.json"]
    with pytest.raises(InputError, match="There is no folder"):
        get("wmt16-en-ro", tmp_path / "x", by_hand=tmp_path / "nowhere")


# Recipes as data


def test_every_source_serves_a_recipe_and_is_named_once() -> None:
    used = {name for recipe in RECIPES.values() for name in recipe.sources}
    assert used == set(SOURCES)
    for name, source in SOURCES.items():
        assert source.url.startswith(("https://", "http://www.fit.vutbr.cz/"))
        assert name.endswith((".tgz", ".tar", ".zip", ".gz"))
        algorithm, _, digest = source.checksum.partition(":")
        assert len(digest) == {"": 0, "md5": 32, "sha256": 64}[algorithm]
    addresses = [source.url for source in SOURCES.values()]
    assert len(addresses) == len(set(addresses))


def test_test_sets_are_those_that_sacrebleu_names() -> None:
    """Addresses, checksums and members of the test sets, against an independent list."""
    from sacrebleu.dataset import DATASETS

    def known(name: str, pair: str) -> tuple[str, str, list[str]]:
        dataset: Any = DATASETS[name]
        return urlsplit(dataset.data[0]).path, f"md5:{dataset.md5[0]}", dataset.langpairs[pair]

    for recipe, split, part, name in (
        ("wmt14-en-de", 1, 0, "wmt13"),
        ("wmt14-en-de", 2, 0, "wmt14/full"),
        ("wmt14-en-fr", 1, 0, "wmt12"),
        ("wmt14-en-fr", 1, 1, "wmt13"),
        ("wmt14-en-fr", 2, 0, "wmt14/full"),
        ("wmt16-en-ro", 1, 0, "wmt16/dev"),
        ("wmt16-en-ro", 2, 0, "wmt16"),
    ):
        text = RECIPES[recipe].text
        assert isinstance(text, tuple)
        members = list(text[split].parts[part].values())
        source = SOURCES[members[0].source]
        found = urlsplit(source.url).path, source.checksum, [member.path for member in members]
        assert found == known(name, recipe.removeprefix("wmt14-").removeprefix("wmt16-"))


def test_an_unknown_name_is_told() -> None:
    with pytest.raises(InputError, match="did you mean wmt14-en-de"):
        find_recipe("wmt14-ende")
    with pytest.raises(InputError, match=r"did you mean multi30k\?$"):
        find_recipe("Multi30K")
    with pytest.raises(InputError, match=r"there are wmt14-en-de, wmt14-en-fr.*-ro\.$"):
        find_recipe("flores")


# The command line


def kutta(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["kutta", *arguments])
    with pytest.raises(SystemExit) as exit:
        main()
    return exit.value.code if isinstance(exit.value.code, int) else 1


def test_get_and_list(
    published: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    root = str(tmp_path)
    assert kutta(monkeypatch, "data", "get", "tatoeba-en-ro", "--dir", root) == 0
    told = capsys.readouterr()
    assert "CC BY 2.0 FR" in told.out
    assert "2 dropped: 2 empty" in told.out
    assert f"written to {tmp_path / 'tatoeba-en-ro'}" in told.out
    assert told.err == "", "quiet where nobody watches"
    assert kutta(monkeypatch, "data", "get", "tatoeba-en-ro", "--dir", root) == 0
    assert "already exists; add --overwrite" in capsys.readouterr().out
    assert kutta(monkeypatch, "data", "list", "--dir", root, "--json") == 0
    listed = json.loads(capsys.readouterr().out)
    assert [corpus["name"] for corpus in listed] == list(RECIPES)
    assert [corpus["name"] for corpus in listed if corpus["here"]] == ["tatoeba-en-ro"]
    assert all(corpus["terms"] and corpus["sources"] for corpus in listed)
    assert kutta(monkeypatch, "data", "list", "--dir", root) == 0
    told = capsys.readouterr()
    assert f"in {tmp_path / 'tatoeba-en-ro'}" in told.out
    assert "about 1,660 MB to download" in told.out


def test_a_failed_get_is_one_sentence(
    published: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    del published.files["/anki/ron-eng.zip"]
    assert kutta(monkeypatch, "data", "get", "tatoeba-en-ro", "--dir", str(tmp_path)) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert told.startswith("kutta: Cannot download ron-eng.zip from http://127.0.0.1")
    assert "404" in told
    assert "--from DIR" in told


def test_an_interrupted_get_says_how_to_resume(
    published: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(assemble, "held_out", interrupt)
    assert kutta(monkeypatch, "data", "get", "tatoeba-en-ro", "--dir", str(tmp_path)) == 130
    assert "run the same command to resume" in capsys.readouterr().err


# The real texts, where they are


def real(path: Path) -> bytes:
    return gzip.decompress(path.read_bytes())


def test_the_checksums_of_the_texts_are_those_of_the_real_ones(shared_data: Path) -> None:
    checked = 0
    for name, suffix in (("multi30k", "gz"), ("ptb", "gz")):
        for split in RECIPES[name].text:  # pyright: ignore
            for language, sha256 in split.sha256.items():
                text = real(shared_data / name / f"{split.name}.{language}.{suffix}")
                assert hashlib.sha256(text).hexdigest() == sha256
                assert text.count(b"\n") == split.lines
                checked += 1
    assert checked == 12


def test_real_texts_come_through_unchanged(
    published: Any, shared_data: Path, tmp_path: Path
) -> None:
    published.files["/~imikolov/rnnlm/simple-examples.tgz"] = packed_tar(
        {
            f"./simple-examples/data/ptb.{name}.txt": real(shared_data / f"ptb/ptb.{name}.txt.gz")
            for name in PTB
        }
    )
    raw = "/multi30k/dataset/master/data/task1/raw"
    for theirs, ours in (("train", "train"), ("val", "valid"), ("test_2016_flickr", "test2016")):
        for end in ("en", "de", "fr"):
            data = (shared_data / "multi30k" / f"{ours}.{end}.gz").read_bytes()
            published.files[f"{raw}/{theirs}.{end}.gz"] = data
    for name in ("ptb", "multi30k"):
        assert make_corpus(RECIPES[name], tmp_path, patience=QUICK) is not None
    assert (tmp_path / "multi30k" / "train.de").read_bytes() == real(
        shared_data / "multi30k" / "train.de.gz"
    )


@pytest.mark.slow
def test_the_published_subwords_are_made_from_the_real_text(
    published: Any, shared_data: Path, tmp_path: Path
) -> None:
    """All merges and all tokens; one line was published with a space at its end."""
    raw = "/multi30k/dataset/master/data/task1/raw"
    names = {"train": "train", "val": "valid", "test_2016_flickr": "test2016"}
    for theirs, ours in names.items():
        for end in ("en", "de", "fr"):
            data = (shared_data / "multi30k" / f"{ours}.{end}.gz").read_bytes()
            published.files[f"{raw}/{theirs}.{end}.gz"] = data
    assert make_corpus(RECIPES["multi30k-bpe"], tmp_path, patience=QUICK) is not None
    for pair in ("en-de", "en-fr"):
        made, given = tmp_path / "multi30k-bpe" / pair, shared_data / "multi30k-bpe" / pair
        assert (made / "codes.bpe").read_bytes() == real(given / "codes.bpe.gz")
        for name in names.values():
            for end in pair.split("-"):
                lines = zip(
                    (made / f"{name}.{end}").read_bytes().split(b"\n"),
                    real(given / f"{name}.{end}.gz").split(b"\n"),
                    strict=True,
                )
                different = [(ours, theirs) for ours, theirs in lines if ours != theirs]
                assert len(different) == ((name, end) == ("train", "en"))
                assert all(ours == theirs.rstrip() for ours, theirs in different)


def test_real_test_sets_come_through_sgm_unchanged(
    published: Any, shared_data: Path, tmp_path: Path
) -> None:
    def as_sgm(path: Path) -> bytes:
        segments = [f'<seg id="1">{line}</seg>' for line in real(path).decode().split("\n")[:-1]]
        return "\n".join(["<refset>", *segments, "</refset>"]).encode()

    wmt = shared_data / "wmt"
    published.files["/wmt16/translation-task/test.tgz"] = packed_tar(
        {
            "test/newstest2016-enro-src.en.sgm": as_sgm(wmt / "newstest2016.en.gz"),
            "test/newstest2016-enro-ref.ro.sgm": as_sgm(wmt / "newstest2016.ro.gz"),
        }
    )
    get("wmt16-en-ro", tmp_path)
    for end in ("en", "ro"):
        text = (tmp_path / "wmt16-en-ro" / f"test.{end}").read_bytes()
        assert text == real(wmt / f"newstest2016.{end}.gz")


def test_real_tatoeba_splits_are_about_a_thousand(
    published: Any, shared_data: Path, tmp_path: Path
) -> None:
    table = real(shared_data / "tatoeba" / "en-ro.tsv.gz")
    published.files["/anki/ron-eng.zip"] = packed_zip({"ron.txt": table})
    report = get("tatoeba-en-ro", tmp_path)
    sizes = {name: split["lines"] for name, split in report["splits"].items()}
    assert sum(sizes.values()) == 14_237
    assert 700 < sizes["valid"] < 1_300
    assert 700 < sizes["test"] < 1_300
    folder = tmp_path / "tatoeba-en-ro"
    assert len(lines_of(folder / "attribution.tsv")) == 14_237
    assert not set("şţŞŢ") & set((folder / "train.ro").read_text(encoding="utf-8"))
