"""Preparing the text of a run: beside what it has, and moved into place when it is complete.

.prepared/ has the tokenizers, store/ and text/ of a finished preparation. Whoever opens the run
next moves what a killed process has left there, so the run never has parts of two preparations.
"""

from pathlib import Path
from warnings import warn

from kutta.data.prepare import Report, prepare
from kutta.data.support import vocabulary_warnings
from kutta.data.tokenizer import Tokenizers
from kutta.files import atomic_path, discard, link_or_copy, write_json, writing
from kutta.integrity import write_manifest
from kutta.runs.run import Run

_READY = ".prepared"


def prepare_run(run: Run, overwrite: bool = False) -> Report | None:
    """Save the text to score, learn tokenizers and write stores; None if that is already done."""
    if run.is_prepared and not overwrite:
        return None
    # A model keeps its vocabulary, and a grown model has that of the shallow one.
    trained = run.checkpoints() or run.final_weights.is_file()
    known_by = run.path if trained else run.config.train.grow_from
    known = Tokenizers.load(Path(known_by)) if known_by else None
    with atomic_path(run.path / _READY) as folder:
        made = Run(folder, run.config)
        run.texts.keep(made.text, again=overwrite)
        report = prepare(run.config.data, made.stores, folder, known)
        write_json(made.report, report.to_dict())
        write_manifest(made.text)
        write_manifest(made.stores)
    install_prepared(run)
    if known is None:
        learned = Tokenizers.load(run.path)
        size = run.config.data.vocab_size
        for sentence in vocabulary_warnings(run.train_store(), learned, size):
            warn(sentence, stacklevel=3)
    return report


def share_prepared(made: Run, run: Run) -> None:
    """Give a run the prepared text of another one; large files are linked, not copied."""
    with atomic_path(run.path / _READY) as folder:
        made.tokenizers.save(folder)
        for part in (made.stores, made.text):
            for file in (path for path in sorted(part.rglob("*")) if path.is_file()):
                link_or_copy(file, folder / file.relative_to(made.path))
    install_prepared(run)


def install_prepared(run: Run) -> None:
    """Move a finished preparation into its run; each step may be repeated."""
    ready = run.path / _READY
    if not ready.is_dir() or ready.is_symlink():
        return
    with writing(run.path):
        Tokenizers.load(ready).save(run.path)
        for part in ("text", "store"):  # file by file: other files in these folders stay
            for file in (path for path in sorted((ready / part).rglob("*")) if path.is_file()):
                place = run.path / file.relative_to(ready)
                place.parent.mkdir(parents=True, exist_ok=True)
                file.replace(place)
        discard(ready)
