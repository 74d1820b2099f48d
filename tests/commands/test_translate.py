"""`kutta translate` on terminals, when it is interrupted, and with compressed files."""

import contextlib
import fcntl
import gzip
import io
import json
import os
import signal
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import zstandard

from kutta.cli import main
from kutta.commands import translate as module
from kutta.commands.progress import uninterrupted
from kutta.data.corpus import read_lines
from tests.test_cli import ENVIRONMENT, is_one_sentence, kutta

LINES = [f"{'ba be bi do du'[: 2 + 3 * (n % 5)]}" for n in range(150)]
TEXT = "".join(f"{line}\n" for line in LINES)


class Terminal:
    """A pseudo-terminal: `stream` is the program's side, `seen` what a person sees."""

    def __init__(self) -> None:
        self.person, self.program = os.openpty()
        self.open = True
        self.seen = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self.person, 4096)
            except OSError:  # the program's side is closed
                return
            if not data:
                return
            self.seen += data.decode("utf-8", "replace")

    def type(self, text: str) -> None:
        os.write(self.person, text.encode())

    def wait_for(self, text: str, seconds: float = 60.0) -> None:
        """Wait until the person sees the text."""
        end = time.monotonic() + seconds
        while text not in self.seen:
            assert time.monotonic() < end, f"{text!r} is not in {self.seen!r}"
            time.sleep(0.01)

    def close(self) -> None:
        if self.open:
            self.open = False
            os.close(self.program)
            self._reader.join(timeout=10)
            os.close(self.person)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Terminal]]:
    """A function that opens a terminal."""
    opened: list[Terminal] = []
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")

    def make() -> Terminal:
        opened.append(Terminal())
        return opened[-1]

    yield make
    for one in opened:
        one.close()


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str


def kutta_on(streams: dict[str, Terminal], *words: object) -> Ended:
    """Run the command line in this process with terminals as some of its standard streams."""
    plain = {name: io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for name in NAMES}
    opened: dict[str, Any] = {
        name: open(os.dup(one.program), "r" if name == "stdin" else "w")  # noqa: SIM115
        for name, one in streams.items()
    }
    code = 0
    with contextlib.ExitStack() as held:
        held.enter_context(patch.object(sys, "argv", ["kutta", *map(str, words)]))
        for name in NAMES:
            held.enter_context(patch.object(sys, name, opened.get(name, plain[name])))
        try:
            main()
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    for stream in opened.values():
        stream.close()
    for one in streams.values():
        one.close()
    out, err = (plain[name].buffer.getvalue().decode() for name in ("stdout", "stderr"))
    return Ended(code, out, err)


NAMES = ("stdin", "stdout", "stderr")


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "in.txt"
    path.write_text(TEXT)
    return path


# ---- progress -------------------------------------------------------------------------------


def test_a_terminal_shows_lines_done_of_how_many(
    toy_run: Path, text: Path, tmp_path: Path, terminal: Callable[[], Terminal]
) -> None:
    screen = terminal()
    ended = kutta_on(
        {"stderr": screen}, "translate", toy_run, "--input", text, "--output", tmp_path / "out"
    )
    assert (ended.code, ended.out) == (0, "")
    assert "150 of 150 lines" in screen.seen
    assert "lines/s" in screen.seen
    assert (tmp_path / "out").read_text() == kutta("translate", toy_run, stdin=TEXT.encode()).out


def test_standard_output_is_not_mixed_with_progress(
    toy_run: Path, text: Path, terminal: Callable[[], Terminal]
) -> None:
    """Nor is the number of lines of a pipe known, which can be read only once."""
    expected = kutta("translate", toy_run, "--input", text).out
    screen = terminal()
    assert kutta_on({"stderr": screen}, "translate", toy_run, "--input", text).out == expected
    assert "150 of 150" in screen.seen
    pipe, screen = text.with_name("pipe"), terminal()
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=(TEXT,))
    writer.start()
    assert kutta_on({"stderr": screen}, "translate", toy_run, "--input", pipe).out == expected
    writer.join()
    assert "150 lines" in screen.seen
    assert " of " not in screen.seen


def test_lines_on_the_terminal_are_progress_enough(
    toy_run: Path, text: Path, terminal: Callable[[], Terminal]
) -> None:
    screen, errors = terminal(), terminal()
    kutta_on({"stdout": screen, "stderr": errors}, "translate", toy_run, "--input", text)
    assert screen.seen.count("\n") == 150
    assert errors.seen == ""


def test_pipes_show_nothing_even_if_colours_are_forced(
    toy_run: Path, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert kutta("translate", toy_run, "--input", text).err == ""
    assert kutta("evaluate", toy_run).err == ""


def test_evaluation_shows_progress_by_test_set(
    toy_run: Path, terminal: Callable[[], Terminal]
) -> None:
    screen = terminal()
    ended = kutta_on({"stderr": screen}, "evaluate", toy_run, "--json")
    assert "8 of 8 lines" in screen.seen
    assert json.loads(ended.out)[0]["sentences"] == 8


# ---- a person who types ---------------------------------------------------------------------


def test_a_person_is_told_what_to_type_and_gets_each_line_at_once(
    toy_run: Path, terminal: Callable[[], Terminal]
) -> None:
    keyboard, screen, errors = terminal(), terminal(), terminal()
    first, second = kutta("translate", toy_run, stdin=b"ba be\nbi do du\n").out.splitlines()
    problems: list[BaseException] = []

    def person() -> None:
        try:
            errors.wait_for("Ctrl-D")
            keyboard.type("ba be\n")
            screen.wait_for(f"{first}\r\n")
            keyboard.type("bi do du\n\x04")
        except BaseException as problem:
            problems.append(problem)
            keyboard.type("\x04")

    types = threading.Thread(target=person)
    types.start()
    streams = {"stdin": keyboard, "stdout": screen, "stderr": errors}
    ended = kutta_on(streams, "translate", toy_run)
    types.join()
    assert problems == []
    assert ended.code == 0
    assert screen.seen == f"{first}\r\n{second}\r\n"
    assert errors.seen == (
        "kutta: type a sentence (xx) and press Enter to translate it; Ctrl-D ends.\r\n"
    )


# ---- Ctrl-C ---------------------------------------------------------------------------------


def interrupted_lines(path: Path) -> Iterator[str]:
    """The lines of a file; Ctrl-C is pressed while line 100 is read."""
    for number, line in enumerate(read_lines(path), start=1):
        if number == 100:
            signal.raise_signal(signal.SIGINT)
        yield line


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_ctrl_c_keeps_the_lines_that_are_translated(
    suffix: str, toy_run: Path, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = kutta("translate", toy_run, "--input", text).out.splitlines(keepends=True)
    monkeypatch.setattr(module, "read_lines", interrupted_lines)
    out = text.with_name(f"out.txt{suffix}")
    answer = kutta("translate", toy_run, "--input", text, "--output", out)
    assert answer.code == 130
    assert answer.out == ""
    assert answer.err == f"kutta: interrupted after 64 lines, which are in {out}\n"
    assert "".join(f"{line}\n" for line in read_lines(out)) == "".join(whole[:64])
    assert sorted(path.name for path in out.parent.iterdir()) == ["in.txt", out.name]
    answer = kutta("translate", toy_run, "--input", text)
    assert answer.code == 130
    assert answer.out == "".join(whole[:64])
    assert answer.err == "kutta: interrupted after 64 lines\n"


def test_ctrl_c_on_a_real_terminal(toy_run: Path, tmp_path: Path) -> None:
    """The whole program, stopped by the key itself while it waits for more input."""
    screen = Terminal()
    source = tmp_path / "source"
    os.mkfifo(source)
    words = ["translate", toy_run, "--input", source, "--output", tmp_path / "out"]
    process = subprocess.Popen(
        [sys.executable, "-m", "kutta", *map(str, words)],
        stdin=screen.program,
        stdout=screen.program,
        stderr=screen.program,
        env=ENVIRONMENT | {"TERM": "xterm"},
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    with open(source, "w") as pipe:
        pipe.write("ba be\n" * 70)
        pipe.flush()
        screen.wait_for("64 lines")
        screen.type("\x03")
        assert process.wait(timeout=60) == 130
    screen.close()
    assert "interrupted after 64 lines" in screen.seen.replace("\r\n", " ")
    assert "Traceback" not in screen.seen
    assert (tmp_path / "out").read_text().count("\n") == 64


def test_ctrl_c_waits_until_a_line_is_written() -> None:
    steps: list[str] = []

    def write() -> None:
        with uninterrupted():
            signal.raise_signal(signal.SIGINT)
            steps.append("written")
        steps.append("not reached")

    with pytest.raises(KeyboardInterrupt):
        write()
    assert steps == ["written"]
    with pytest.raises(KeyboardInterrupt):  # as before
        signal.raise_signal(signal.SIGINT)


def test_wrong_input_leaves_the_output_as_it_was(toy_run: Path, tmp_path: Path) -> None:
    source, out = tmp_path / "in", tmp_path / "out"
    source.write_bytes(b"ba\n" * 200 + b"\xff\n")
    out.write_text("before\n")
    is_one_sentence(kutta("translate", toy_run, "--input", source, "--output", out), "line 201")
    assert out.read_text() == "before\n"
    is_one_sentence(kutta("translate", toy_run, "--output", tmp_path, stdin=b"ba\n"), "a folder")


# ---- compressed files -----------------------------------------------------------------------


def test_files_are_compressed_as_their_names_say(toy_run: Path, tmp_path: Path) -> None:
    expected = kutta("translate", toy_run, stdin=TEXT.encode()).out
    packed = tmp_path / "in.gz"
    packed.write_bytes(gzip.compress(TEXT.encode()))
    for name in ("a.gz", "b.zst", "c.txt", "d.gz"):
        assert kutta("translate", toy_run, "--input", packed, "--output", tmp_path / name).code == 0
    assert gzip.decompress((tmp_path / "a.gz").read_bytes()).decode() == expected
    unpacked = zstandard.ZstdDecompressor().decompressobj()
    assert unpacked.decompress((tmp_path / "b.zst").read_bytes()).decode() == expected
    assert (tmp_path / "c.txt").read_text() == expected
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "d.gz").read_bytes()


# ---- options that do nothing ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (("--temperature", 0.5), ("--temperature", "without --sample")),
        (("--seed", 2), ("--seed", "without --sample")),
        (("--sample", "--beam", 4), ("--beam", "with --sample")),
        (("--sample", "--length-penalty", 1), ("--length-penalty", "with --sample")),
    ],
)
def test_an_option_without_effect_is_refused(
    options: tuple[object, ...], parts: tuple[str, ...], toy_run: Path
) -> None:
    is_one_sentence(kutta("translate", toy_run, *options, stdin=b"ba\n"), *parts)


def test_limits_apply_to_samples(toy_run: Path) -> None:
    answer = kutta("translate", toy_run, "--sample", "--max-length", 2, stdin=b"ba\n")
    assert answer.code == 0, answer.err
