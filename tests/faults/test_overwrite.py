"""Overwriting loses nothing: at every moment the old run is whole, or the new one is."""

import errno
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from kutta.config import Config
from kutta.errors import InputError
from kutta.integrity import verify
from kutta.runs import Run, locked, open_run, prepare_run
from kutta.training.run import train
from tests.conftest import toy_config, write_toy_corpus
from tests.faults.faults import Killed, Operations, killed_at, operations, refused_from

QUIET = Console(quiet=True)
FEW = {"max_steps": 2, "save_every": 1, "log_every": 1}
Fails = Callable[[Operations, str], None]


def old_config(folder: Path) -> Config:
    return toy_config(folder, train=FEW | {"seed": 1})


def new_config(folder: Path) -> Config:
    return toy_config(folder, train=FEW | {"seed": 2}, data={"vocab_size": 290})


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with text, a finished run, and beside it the run that is to replace it."""
    folder = tmp_path_factory.mktemp("overwrite")
    write_toy_corpus(folder / "text")
    train(old_config(folder), console=QUIET)
    (folder / "run").rename(folder / "old")
    train(new_config(folder), console=QUIET)
    (folder / "run").rename(folder / "new")
    shutil.copytree(folder / "old", folder / "run")
    (folder / "run" / "notes.txt").write_text("of the user")
    return folder


def essence(run: Path) -> dict[str, bytes]:
    """What a run has learned and was made of."""
    files = ("model.safetensors", "tokenizer.model", "store/train.arrow", "store/valid.arrow")
    return {name: (run / name).read_bytes() for name in files}


def assert_whole(run: Path) -> None:
    """All its files are as they were written."""
    for folder in (run, run / "store", run / "text", *(run / "checkpoints").glob("step-*")):
        assert verify(folder), folder
    Run.load(run).load_model()


def replace(folder: Path) -> None:
    train(new_config(folder), overwrite=True, console=QUIET)


def prepare_again(folder: Path) -> None:
    config = old_config(folder)
    with locked(Path(config.run)):
        prepare_run(open_run(config), overwrite=True)


def disturbed(folder: Path, act: Callable[[Path], None], fails: Fails) -> bool:
    """Act with faults; whether it ended as if there had been none."""
    with operations(folder, fails):
        try:
            act(folder)
        except (Killed, InputError):
            return False
    return True


def count_of(origin: Path, place: Path, act: Callable[[Path], None]) -> int:
    shutil.copytree(origin, place)
    with operations(place) as seen:
        act(place)
    return seen.count


def moments(count: int, some: int) -> list[int]:
    """Numbers of operations, evenly spread; the last ones are where folders are swapped."""
    spread = [round(1 + (count - 1) * i / some) for i in range(some)]
    return sorted({*spread, *range(max(1, count - 8), count + 1)})


def check_replacing(origin: Path, place: Path, fails: Fails) -> bool:
    shutil.copytree(origin, place)
    done = disturbed(place, replace, fails)
    (run,) = [one for one in (place / "run", place / "run.new") if one == place / "run"]
    assert run.is_dir()
    if not done:
        assert essence(run) in (essence(origin / "old"), essence(origin / "new"))
    assert_whole(run)
    replace(place)
    assert essence(run) == essence(origin / "new")
    assert_whole(run)
    assert (run / "notes.txt").read_text() == "of the user"
    assert {path.name for path in place.iterdir()} == {"text", "old", "new", "run"}
    return done


def check_preparing(origin: Path, place: Path, fails: Fails) -> bool:
    shutil.copytree(origin, place)
    done = disturbed(place, prepare_again, fails)
    open_run(old_config(place))
    assert essence(place / "run") == essence(origin / "old"), "the same text"
    assert_whole(place / "run")
    prepare_again(place)
    assert_whole(place / "run")
    assert (place / "run" / "notes.txt").is_file()
    return done


KINDS = {"replace": (replace, check_replacing), "prepare": (prepare_again, check_preparing)}


@pytest.mark.parametrize("kind", KINDS)
def test_a_kill_at_some_moments_loses_nothing(origin: Path, tmp_path: Path, kind: str) -> None:
    act, check = KINDS[kind]
    total = count_of(origin, tmp_path / "whole", act)
    assert total > 20
    for number in moments(total, 0)[::3] if kind == "replace" else moments(total, 6)[::2]:
        check(origin, tmp_path / str(number), killed_at(number))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_kill_at_every_operation_loses_nothing(origin: Path, tmp_path: Path, kind: str) -> None:
    act, check = KINDS[kind]
    total = count_of(origin, tmp_path / "whole", act)
    for number in range(1, total + 1):
        check(origin, tmp_path / "place", killed_at(number))
        shutil.rmtree(tmp_path / "place")


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EROFS], ids=errno.errorcode.get)
@pytest.mark.parametrize("kind", KINDS)
def test_a_failing_disk_is_one_sentence_and_loses_nothing(
    origin: Path, tmp_path: Path, kind: str, code: int
) -> None:
    act, check = KINDS[kind]
    total = count_of(origin, tmp_path / "whole", act)
    for number in (2, total // 2, total - 5):
        check(origin, tmp_path / str(number), refused_from(number, code))


@pytest.mark.slow
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EROFS], ids=errno.errorcode.get)
@pytest.mark.parametrize("kind", KINDS)
def test_a_disk_failing_at_every_operation_loses_nothing(
    origin: Path, tmp_path: Path, kind: str, code: int
) -> None:
    act, check = KINDS[kind]
    total = count_of(origin, tmp_path / "whole", act)
    for number in range(1, total + 1):
        check(origin, tmp_path / "place", refused_from(number, code))
        shutil.rmtree(tmp_path / "place")


@pytest.mark.parametrize("broken", ["train.xx", "valid.yy", "test.xx"])
def test_broken_text_is_found_before_anything_is_changed(
    origin: Path, tmp_path: Path, broken: str
) -> None:
    shutil.copytree(origin, tmp_path / "place")
    place = tmp_path / "place"
    text = place / "text" / broken
    text.write_bytes(text.read_bytes()[:-3] + b"\xff\xfe\n")
    for act in (replace, prepare_again):
        with pytest.raises(InputError, match=broken):
            act(place)
        assert essence(place / "run") == essence(origin / "old")
        assert_whole(place / "run")


@pytest.mark.parametrize("where", ["corpus", "text", "."])
def test_text_inside_the_run_survives(origin: Path, tmp_path: Path, where: str) -> None:
    shutil.copytree(origin, tmp_path / "place")
    place = tmp_path / "place"
    home = place / "run" / where
    shutil.copytree(place / "text", home, dirs_exist_ok=True)
    config = new_config(place)
    inside = config.model_copy(update={"data": config.data.model_copy(update={"dir": str(home)})})
    for _ in range(2):
        train(inside, overwrite=True, console=QUIET)
        assert essence(place / "run") == essence(origin / "new")
        for file in (place / "text").iterdir():
            assert (home / file.name).read_bytes() == file.read_bytes()


def test_what_could_not_be_deleted_is_not_taken_for_a_file_of_the_user(
    origin: Path, tmp_path: Path
) -> None:
    shutil.copytree(origin, tmp_path / "place")
    run = tmp_path / "place" / "run"
    for folder in (run, run / "checkpoints"):
        left = folder / ".kutta-00000000-1-step-00000001-1.tmp" / "model.safetensors"
        left.parent.mkdir()
        left.write_bytes(b"")
    replace(tmp_path / "place")
    assert not list(run.rglob(".kutta-*"))
    assert (run / "notes.txt").is_file()


def test_a_linked_run_stays_a_link(origin: Path, tmp_path: Path) -> None:
    shutil.copytree(origin, tmp_path / "place")
    place = tmp_path / "place"
    (place / "run").rename(tmp_path / "elsewhere")
    (place / "run").symlink_to(tmp_path / "elsewhere")
    replace(place)
    assert (place / "run").is_symlink()
    assert essence(tmp_path / "elsewhere") == essence(origin / "new")
    assert not (tmp_path / "elsewhere.new").exists()


def test_a_folder_of_the_user_is_not_taken_for_ours(origin: Path, tmp_path: Path) -> None:
    shutil.copytree(origin, tmp_path / "place")
    precious = tmp_path / "place" / "run.new"
    shutil.copytree(origin / "new", precious)
    with pytest.raises(InputError, match=r"run\.new .* move it elsewhere"):
        replace(tmp_path / "place")
    assert essence(precious) == essence(origin / "new")


def test_an_empty_folder_is_what_a_command_that_failed_at_once_has_left(
    origin: Path, tmp_path: Path
) -> None:
    shutil.copytree(origin, tmp_path / "place")
    (tmp_path / "place" / "run.new").mkdir()
    replace(tmp_path / "place")
    assert essence(tmp_path / "place" / "run") == essence(origin / "new")


def test_an_interrupted_replacement_is_resumed(
    origin: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(origin, tmp_path / "place")
    place = tmp_path / "place"

    def stop(step: object) -> None:
        raise ValueError("enough")

    with pytest.raises(ValueError, match="enough"):
        train(new_config(place), overwrite=True, console=QUIET, on_step=stop)
    assert essence(place / "run") == essence(origin / "old")
    assert [one.step for one in Run.load(place / "run.new").checkpoints()] == [1]
    train(new_config(place), overwrite=True, console=Console())
    assert "resuming from step 1" in capsys.readouterr().out
    assert essence(place / "run") == essence(origin / "new")
