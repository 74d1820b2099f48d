"""A run: a folder that holds everything of one training, and the function that fills it.

config.json  tokenizer.model | vocab.txt  store/  checkpoints/  metrics.jsonl  train.log
model.safetensors (what `translate` uses)  README.md (model card)
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from kutta.config import Config, DataConfig, DecodeConfig
from kutta.data.batches import BatchStream
from kutta.data.corpus import read_pairs
from kutta.data.prepare import Report, prepare
from kutta.data.store import Store
from kutta.data.tokenizer import Tokenizers
from kutta.errors import InputError
from kutta.files import remove, write_json, write_text
from kutta.metrics import Score
from kutta.model import TranslationModel
from kutta.model.build import build_model
from kutta.training.card import model_card
from kutta.training.checkpoint import FOLDER as CHECKPOINTS
from kutta.training.checkpoint import (
    Progress,
    average,
    list_checkpoints,
    prune,
    regular_checkpoints,
    resume,
    save_checkpoint,
)
from kutta.training.loop import Trainer, fit, make_trainer
from kutta.training.report import Reporter, last_validation
from kutta.training.stopping import asked_to_stop
from kutta.training.validate import Validation, held_out_loss, improves
from kutta.translate.evaluate import valid_score
from kutta.translate.loading import choose_device
from kutta.translate.translator import Translator


@dataclass(frozen=True)
class Outcome:
    """How a training ended: "finished", "early stop" or "interrupted"."""

    run: Path
    step: int
    ended: str
    validation: Validation | None


def open_run(config: Config, overwrite: bool = False) -> Path:
    """Make the run folder, or check that what was made in it belongs to these settings."""
    run = Path(config.run)
    kept = run / "config.json"
    if run.exists() and not _is_ours(run):
        raise InputError(f"{run} is there but is not a run of Kutta; choose another folder.")
    if run.exists() and overwrite:
        _check_text(config.data, [config.data.train, config.data.valid])
        for path in run.iterdir():
            if path != kept:  # stays until it is replaced: half-emptied, this is still a run
                remove(path)
    if kept.is_file():
        # What is already there decides what may still change: text settings until the text is
        # prepared, all others until the first checkpoint.
        begun = bool(list_checkpoints(run))
        sections = ["data"] if is_prepared(run) or begun else []
        sections += ["model", "train"] if begun else []
        difference = Config.load(kept).conflict(config, sections)
        if difference:
            raise InputError(
                f"{run} holds a run of another config ({difference}); choose another run, or "
                "add --overwrite to throw that one away and begin anew."
            )
    for folder in (run, run / "store", run / CHECKPOINTS):
        for leftover in list(folder.glob(".*.tmp")):  # of a process that was killed
            remove(leftover)
    write_text(kept, config.to_json())
    return run


def is_prepared(run: Path) -> bool:
    """Whether the tokenizers and the stores of a run are complete."""
    return (run / "store" / "report.json").is_file()


def _is_ours(run: Path) -> bool:
    """Whether this is an empty folder or a run: no other is written to or thrown away."""
    try:
        values: Any = json.loads((run / "config.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        begun = (path.name.startswith(".config.json.") for path in run.glob("*"))
        return run.is_dir() and all(begun)
    except (OSError, ValueError):
        return False
    return isinstance(values, dict) and all(name in values for name in Config.model_fields)


def _check_text(data: DataConfig, names: Iterable[str]) -> None:
    """Read the first pair of each corpus: a missing file shows now, not in an hour."""
    for name in names:
        next(read_pairs(Path(data.dir), name, data.source, data.target))


def prepare_run(config: Config, run: Path) -> Report | None:
    """Learn the tokenizers and write the stores where they are missing; None if all is there."""
    if is_prepared(run):
        return None
    data = config.data
    report = prepare(
        Path(data.dir),
        data.source,
        data.target,
        out=run / "store",
        tokenizer_folder=run,
        train=data.train,
        valid=data.valid,
        tokenizer=data.tokenizer,
        vocab_size=data.vocab_size,
        shared_vocab=data.shared_vocab,
        max_length=data.max_length,
        max_ratio=data.max_ratio,
        dictionaries=tuple(Path(data.dir) / name for name in data.vocabulary),
        # A model that has begun to learn keeps the tokens it knows.
        tokenizers=Tokenizers.load(run) if list_checkpoints(run) else None,
    )
    write_json(run / "store" / "report.json", report.to_dict())
    return report


def prepared_report(run: Path) -> dict[str, Any]:
    """What preparing the data of this run did."""
    return json.loads((run / "store" / "report.json").read_text(encoding="utf-8"))


def train(config: Config, overwrite: bool = False, console: Console | None = None) -> Outcome:
    """Prepare what is missing, train or go on where training stopped, and write the final model."""
    console = console or Console()
    if config.train.threads:
        torch.set_num_threads(config.train.threads)
    device = choose_device(config.train.device)
    run = open_run(config, overwrite)
    report = prepare_run(config, run)
    if report is not None:
        console.print(str(report), highlight=False, markup=False)
    tokenizers = Tokenizers.load(run)
    resample = tokenizers.dropout(config.data.bpe_dropout) if config.data.bpe_dropout else None
    store = Store.open(run / "store" / "train.arrow")
    stream = BatchStream(store, config.train.batch_tokens, config.train.seed, resample=resample)
    torch.manual_seed(config.train.seed)
    model = build_model(
        config.model, len(tokenizers.source), len(tokenizers.target), tokenizers.shared
    )
    trainer = make_trainer(model, config.train, device)
    progress = resume(run, trainer) or Progress()
    if progress.by != config.train.best:  # a loss and a BLEU do not compare
        progress = Progress(by=config.train.best)
    # Read now: text that has moved away should not end a training at its first validation.
    pairs = _validation_text(config) if config.train.valid_bleu else []
    session = Session(config, run, trainer, tokenizers, pairs, progress, last_validation(run))
    return session.go(stream, console)


def _validation_text(config: Config) -> list[tuple[str, str]]:
    data = config.data
    return list(read_pairs(Path(data.dir), data.valid, data.source, data.target))


def plan_of(config: Config) -> str:
    """What training this config would do, in words; checks that the text is there."""
    data, model, settings, run = config.data, config.model, config.train, Path(config.run)
    _check_text(data, [data.train, data.valid, *data.test])
    done = list_checkpoints(run)
    begin = f"go on from {done[-1].name}" if done else "start"
    return "\n".join(
        [
            f"run      {run} ({begin}; config {config.hash()})",
            f"data     {data.dir}: {data.train}, {data.valid}; {data.source} to {data.target}"
            + ("; prepared" if is_prepared(run) else "; to be prepared"),
            f"method   {model.solver}, gamma {model.gamma}, field {model.field}",
            f"train    {settings.max_steps:,} steps of {settings.accumulate} x "
            f"{settings.batch_tokens:,} tokens, seed {settings.seed}, {settings.precision} on "
            f"{choose_device(settings.device)}",
            f"save     every {settings.save_every:,} steps, the last {settings.keep_last} kept",
        ]
    )


@dataclass
class Session:
    """One sitting of a run: from where it stands to its end or its interruption."""

    config: Config
    run: Path
    trainer: Trainer
    tokenizers: Tokenizers
    validation_text: list[tuple[str, str]]
    progress: Progress
    latest: Validation | None = None

    def go(self, stream: BatchStream, console: Console) -> Outcome:
        """Train, validate, save; then average the last checkpoints into model.safetensors."""
        settings, trainer = self.config.train, self.trainer
        validation_store = Store.open(self.run / "store" / "valid.arrow")
        ended = "finished"
        with (
            Reporter(
                self.run,
                trainer.step,
                settings.max_steps,
                settings.log_every,
                settings.tensorboard,
                console,
            ) as reporter,
            asked_to_stop() as asked,
        ):
            reporter.say(self._opening(stream))
            if self._out_of_patience():
                ended = "early stop"
            else:
                for step in fit(trainer, stream, settings):
                    reporter.step(step)
                    last = step.number == settings.max_steps
                    better = False
                    if last or step.number % (settings.valid_every or settings.save_every) == 0:
                        better = self._validate(validation_store, reporter)
                    if self._out_of_patience():
                        ended = "early stop"
                    elif asked:
                        ended = "interrupted"
                    stopping = ended != "finished"
                    scheduled = step.number % settings.save_every == 0
                    if last or stopping or better or scheduled:
                        save_checkpoint(self.run, trainer, self.progress, scheduled)
                        prune(self.run, settings.keep_last, self.progress.best_step)
                    if stopping:
                        break
            if ended == "interrupted":
                reporter.say(
                    f"{asked[0]}: saved at step {trainer.step}; run the same command to go on"
                )
            else:
                self._finish(reporter)
        return Outcome(self.run, trainer.step, ended, self.latest)

    def _opening(self, stream: BatchStream) -> str:
        count = sum(p.numel() for p in self.trainer.model.parameters())
        model, step = self.config.model, self.trainer.step
        begin = f"going on from step {step}" if step else "starting"
        return (
            f"{begin}: {model.solver} (gamma {model.gamma}, field {model.field}), "
            f"{count:,} parameters, {stream.batches_per_epoch:,} batches an epoch, "
            f"device {self.trainer.device}"
        )

    def _validate(self, store: Store, reporter: Reporter) -> bool:
        """Look at the held-out data; return whether this is the best so far."""
        trainer, settings = self.trainer, self.config.train
        result = held_out_loss(trainer.model, store, settings, trainer.device)
        if settings.valid_bleu:
            bleu = self._bleu(trainer.model)
            result = Validation(result.loss, result.nll, result.tokens, bleu)
        better, value = improves(result, self.progress.best, settings.best)
        if better:
            self.progress = Progress(value, trainer.step, 0, settings.best)
        else:
            self.progress.since_best += 1
        self.latest = result
        reporter.validation(trainer.step, result, better)
        return better

    def _bleu(self, model: TranslationModel) -> Score:
        """Greedy translations of the validation set, scored as the data asks for."""
        pairs = self.validation_text
        greedy = DecodeConfig(beam=1, length_penalty=self.config.decode.length_penalty)
        translator = Translator([model], self.tokenizers, greedy, self.trainer.device)
        hypotheses = translator.translate([source for source, _ in pairs])
        return valid_score(hypotheses, [target for _, target in pairs], self.config.data)

    def _out_of_patience(self) -> bool:
        patience = self.config.train.patience
        return patience > 0 and self.progress.since_best >= patience

    def _finish(self, reporter: Reporter) -> None:
        # No more than keep_last: a best that was kept from long ago is not among the last.
        count = min(self.config.decode.average, self.config.train.keep_last)
        chosen = regular_checkpoints(self.run)[-count:]
        average(chosen, self.run / "model.safetensors")
        write_text(self.run / "README.md", model_card(self.config, self.trainer, self.latest))
        reporter.say(
            f"{self.run / 'model.safetensors'}: the average of the last {len(chosen)} checkpoints"
        )
