"""Reading corpora: exactly the lines of the file, or one sentence that says what is wrong."""

import gzip
import pickle
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from kutta.data.corpus import MissingText, locate, read_lines
from kutta.errors import InputError
from tests.texts import count_pairs, read_pairs

PACK = {"": bytes, ".gz": gzip.compress, ".zst": zstandard.ZstdCompressor().compress}
# Everything a line may hold: all but the newline, the NUL byte and lone surrogates.
LINES = st.lists(st.text(st.characters(exclude_characters="\n\r\0", exclude_categories=["Cs"])))


def write(path: Path, content: str | bytes) -> Path:
    raw = content.encode() if isinstance(content, str) else content
    path.write_bytes(PACK[path.suffix if path.suffix in PACK else ""](raw))
    return path


@pytest.mark.parametrize("suffix", PACK)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@given(lines=LINES)
@settings(deadline=None)
def test_lines_come_back_as_written(tmp_path_factory, suffix, newline, lines):
    lines = [line.lstrip("\ufeff") for line in lines]
    path = tmp_path_factory.mktemp("lines") / f"train.en{suffix}"
    write(path, "".join(line + newline for line in lines))
    assert list(read_lines(path)) == lines


def test_unicode_separators_do_not_split_a_line(tmp_path):
    text = "a\u2028b\u2029c\u0085d\x0be\x0cf\x1cg\rh"
    assert list(read_lines(write(tmp_path / "x", text + "\nnext\n"))) == [text, "next"]


def test_the_last_line_needs_no_newline_and_empty_lines_stay(tmp_path):
    assert list(read_lines(write(tmp_path / "x", "a\n\n b "))) == ["a", "", " b "]


def test_a_byte_order_mark_is_dropped_at_the_start_alone(tmp_path):
    assert list(read_lines(write(tmp_path / "x", "\ufeffa\n\ufeffb\n"))) == ["a", "\ufeffb"]


def test_several_zstandard_frames_are_read_through(tmp_path):
    path = tmp_path / "x.zst"
    path.write_bytes(PACK[".zst"](b"one\ntw") + PACK[".zst"](b"o\nthree\n"))
    assert list(read_lines(path)) == ["one", "two", "three"]


@pytest.mark.parametrize("suffix", PACK)
@pytest.mark.parametrize(
    ("bad", "reason"), [(b"caf\xe9", "not valid UTF-8"), (b"a\0b", "NUL byte")]
)
def test_bytes_that_are_not_text_name_file_and_line(tmp_path, suffix, bad, reason):
    path = write(tmp_path / f"train.de{suffix}", b"good\nalso good\n" + bad + b"\ngood\n")
    with pytest.raises(InputError, match=rf"train\.de.*line 3 .*{reason}"):
        list(read_lines(path))


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_a_compressed_file_cut_short_is_an_error_not_a_shorter_corpus(tmp_path, suffix):
    path = tmp_path / f"x{suffix}"
    whole = PACK[suffix](b"".join(b"line %d\n" % n for n in range(50_000)))
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match="damaged or truncated"):
        list(read_lines(path))


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_a_file_that_only_claims_to_be_compressed_is_reported(tmp_path, suffix):
    path = tmp_path / f"x{suffix}"
    path.write_bytes(b"plain text\n")
    with pytest.raises(InputError, match="damaged or truncated"):
        list(read_lines(path))


def test_an_unreadable_file_is_reported(tmp_path):
    with pytest.raises(InputError, match="Cannot read"):
        list(read_lines(tmp_path / "absent"))


@pytest.mark.parametrize("suffix", PACK)
def test_locate_finds_plain_and_compressed_files(tmp_path, suffix):
    path = write(tmp_path / f"train.en{suffix}", "a\n")
    assert locate(tmp_path, "train", "en") == path


def test_a_missing_file_is_named_with_those_that_are_there(tmp_path):
    write(tmp_path / "train.en.gz", "a\n")
    with pytest.raises(InputError, match=r"no train\.de .*\.gz.*\.zst.*train\.en\.gz"):
        locate(tmp_path, "train", "de")


def test_a_missing_folder_and_an_empty_one_are_told_apart(tmp_path):
    with pytest.raises(InputError, match="no folder"):
        locate(tmp_path / "nowhere", "train", "de")
    with pytest.raises(InputError, match="has no files"):
        locate(tmp_path, "train", "de")


def test_pairs_of_parallel_files(tmp_path):
    write(tmp_path / "t.en", "a\nb\n")
    write(tmp_path / "t.de.zst", "A\nB\n")
    assert list(read_pairs(tmp_path, "t", "en", "de")) == [("a", "A"), ("b", "B")]


@pytest.mark.parametrize(
    ("source", "target", "counts"),
    [(3, 5, "3 lines .* 5"), (4, 1, "4 lines .* 1"), (0, 2, "0 lines .* 2")],
)
def test_files_of_unequal_length_tell_both_counts(tmp_path, source, target, counts):
    write(tmp_path / "t.en", "x\n" * source)
    write(tmp_path / "t.de", "y\n" * target)
    with pytest.raises(InputError, match=counts):
        list(read_pairs(tmp_path, "t", "en", "de"))


@pytest.mark.parametrize("name", ["p.tsv", "p.tsv.gz"])
def test_pairs_of_a_tsv_take_its_first_two_columns(tmp_path, name):
    write(tmp_path / "p.tsv.gz", 'a "x\tA\nb\tB\tattribution\tmore\n\tempty source\n')
    expected = [('a "x', "A"), ("b", "B"), ("", "empty source")]
    assert list(read_pairs(tmp_path, name, "en", "de")) == expected


def test_a_tsv_line_of_one_column_is_named(tmp_path):
    write(tmp_path / "p.tsv", "a\tA\nb B\n")
    with pytest.raises(InputError, match=r"p\.tsv, line 2 has 1 of the 2 columns"):
        list(read_pairs(tmp_path, "p.tsv", "en", "de"))
    write(tmp_path / "p.tsv", "en\tfr\tde\na\tb\tA\nb\tB\n")
    with pytest.raises(InputError, match=r"p\.tsv, line 3 has 2 of the 3 columns"):
        list(read_pairs(tmp_path, "p.tsv", "en", "de"))


COLUMNS = {
    "no header": ("", []),
    "named": ("", ["en", "de", "fr"]),
    "a header": ("en\tde\tfr\n", []),
    "a header that is named too": ("en\tde\tfr\n", ["en", "de", "fr"]),
    "Windows": ("\ufeffen\tde\tfr\r\n", []),
}


@pytest.mark.parametrize(("header", "named"), COLUMNS.values(), ids=COLUMNS)
@pytest.mark.parametrize("suffix", PACK)
def test_the_columns_of_a_tsv_are_found_by_language(tmp_path, suffix, header, named):
    write(tmp_path / f"train.tsv{suffix}", header + "a dog\tein Hund\tun chien\nb\tB\tbb\n")
    there = [("a dog", "ein Hund"), ("b", "B")]
    assert list(read_pairs(tmp_path, "train.tsv", "en", "de", named)) == there
    if not header and not named:  # then the order is source, target
        assert list(read_pairs(tmp_path, "train.tsv", "de", "en")) == there
        return
    back = [(target, source) for source, target in there]
    assert list(read_pairs(tmp_path, "train.tsv", "de", "en", named)) == back
    french = [("un chien", "ein Hund"), ("bb", "B")]
    assert list(read_pairs(tmp_path, "train", "fr", "de", named)) == french
    assert count_pairs(tmp_path, "train", "fr", "de", named) == 2


def test_both_columns_of_a_tsv_may_have_one_language(tmp_path):
    write(tmp_path / "p.tsv", "en\ten\na\tA\n")
    assert list(read_pairs(tmp_path, "p.tsv", "en", "en")) == [("a", "A")]
    assert list(read_pairs(tmp_path, "p.tsv", "en", "en", ["en", "en"])) == [("a", "A")]


def test_words_that_are_codes_of_other_languages_are_text(tmp_path):
    pairs = [("it", "es"), ("to be", "sein")]
    write(tmp_path / "p.tsv", "".join(f"{one}\t{other}\n" for one, other in pairs))
    assert list(read_pairs(tmp_path, "p.tsv", "en", "de")) == pairs


@pytest.mark.parametrize(
    ("header", "named", "said"),
    [
        ("en\tfr", [], r"p\.tsv names the columns en, fr, but data\.source = 'en', data\.target"),
        (
            "de\ten",
            ["en", "de"],
            r"names the columns de, en, but .* data\.columns = \['en', 'de'\]",
        ),
    ],
)
def test_a_header_that_contradicts_the_settings_is_an_error(tmp_path, header, named, said):
    write(tmp_path / "p.tsv", f"{header}\na\tA\n")
    with pytest.raises(InputError, match=said):
        list(read_pairs(tmp_path, "p.tsv", "en", "de", named))


def test_a_tsv_is_used_where_neither_file_of_the_corpus_exists(tmp_path):
    write(tmp_path / "t.tsv.gz", "a\tA\n")
    assert list(read_pairs(tmp_path, "t", "en", "de")) == [("a", "A")]
    write(tmp_path / "t.en", "b\n")
    with pytest.raises(InputError, match=r"There is no t\.de "):
        list(read_pairs(tmp_path, "t", "en", "de"))
    write(tmp_path / "t.de", "B\n")
    assert list(read_pairs(tmp_path, "t", "en", "de")) == [("b", "B")]


def test_a_language_model_reads_no_tsv(tmp_path):
    write(tmp_path / "t.tsv", "a\tA\n")
    with pytest.raises(InputError, match=r"There is no t\.en "):
        list(read_pairs(tmp_path, "t", "", "en"))


def test_a_tsv_with_nothing_but_a_header_is_empty(tmp_path):
    write(tmp_path / "p.tsv", "en\tde\n")
    with pytest.raises(InputError, match="is empty"):
        list(read_pairs(tmp_path, "p.tsv", "en", "de"))


def test_the_error_for_missing_text_survives_pickling(tmp_path):
    with pytest.raises(MissingText) as caught:
        locate(tmp_path / "nowhere", "train", "de")
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (str(copy), copy.folder) == (str(caught.value), tmp_path / "nowhere")


def test_a_file_for_the_folder_and_an_extension_too_many_are_explained(tmp_path):
    file = write(tmp_path / "train.en", "a\n")
    with pytest.raises(InputError, match=r"train\.en is a file; set data\.dir to the folder"):
        locate(file, "train", "en")
    with pytest.raises(InputError, match=r"it has train\.en; leave \.en out of the name"):
        locate(tmp_path, "train.en", "en")


def test_an_empty_corpus_is_an_error(tmp_path):
    for name in ("t.en", "t.de", "p.tsv"):
        write(tmp_path / name, "")
    for name in ("t", "p.tsv"):
        with pytest.raises(InputError, match="is empty"):
            list(read_pairs(tmp_path, name, "en", "de"))


def test_real_corpora_have_the_documented_number_of_pairs(shared_data):
    multi30k = read_pairs(shared_data / "multi30k-bpe" / "en-de", "train", "en", "de")
    assert sum(1 for _ in multi30k) == 29_000
    tatoeba = read_pairs(shared_data / "tatoeba", "en-ro.tsv", "en", "ro")
    assert sum(1 for _ in tatoeba) == 14_237
