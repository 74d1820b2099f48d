"""A run: a folder that holds everything of one training, and the function that fills it.

config.json  tokenizer.model | vocab.txt  store/  checkpoints/  metrics.jsonl  train.log
model.safetensors (what `translate` uses)  README.md (model card)
"""

import warnings
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console

from kutta.config import Config
from kutta.data.batches import BatchStream
from kutta.data.corpus import read_pairs
from kutta.data.store import Store
from kutta.data.tokenizer import Tokenizers
from kutta.files import write_text
from kutta.metrics import Score
from kutta.model import TextModel, TranslationModel
from kutta.model.build import build_model
from kutta.training.beginning import begin, check_shallow
from kutta.training.card import direction, method_of, model_card
from kutta.training.checkpoint import (
    Progress,
    average,
    list_checkpoints,
    prune,
    regular_checkpoints,
    resume,
    save_checkpoint,
)
from kutta.training.folder import alone, check_same, check_text, is_prepared, open_run, prepare_run
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


def train(config: Config, overwrite: bool = False, console: Console | None = None) -> Outcome:
    """Prepare what is missing, train or go on where training stopped, and write the final model."""
    if config.train.threads:
        torch.set_num_threads(config.train.threads)
    with alone(Path(config.run)):
        return _train(config, overwrite, console or Console())


def _train(config: Config, overwrite: bool, console: Console) -> Outcome:
    device = choose_device(config.train.device)
    if device.type == "cpu" and config.train.precision == "fp16":
        warnings.warn(
            "fp16 is meant for GPUs and many times slower than fp32 on a CPU; "
            "set train.precision = 'fp32' here",
            stacklevel=3,
        )
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
    progress = resume(run, trainer)
    if progress is None:
        begin(trainer, config, stream)
        progress = Progress()
    if progress.by != config.train.best:  # a loss and a BLEU do not compare
        progress = Progress(by=config.train.best)
    # Read now: text that has moved away should not end a training at its first validation.
    pairs = _validation_text(config) if _translates(config) else []
    session = Session(config, run, trainer, tokenizers, pairs, progress, last_validation(run))
    return session.go(stream, console)


def _translates(config: Config) -> bool:
    """Whether validation translates: a language model has nothing to translate."""
    return config.train.valid_bleu and not config.language_model


def _validation_text(config: Config) -> list[tuple[str, str]]:
    data = config.data
    return list(read_pairs(Path(data.dir), data.valid, data.source, data.target))


def plan_of(config: Config) -> str:
    """What training this config would do, in words; checks that the text is there."""
    data, model, settings, run = config.data, config.model, config.train, Path(config.run)
    check_text(data, [data.train, data.valid, *data.test])
    done = list_checkpoints(run)
    check_same(config)
    if not done:
        check_shallow(config)
    beginning = f"go on from {done[-1].name}" if done else "start"
    return "\n".join(
        [
            f"run      {run} ({beginning}; config {config.hash()})",
            f"data     {data.dir}: {data.train}, {data.valid}; {direction(config)}"
            + ("; prepared" if is_prepared(run) else "; to be prepared"),
            f"method   {method_of(model)}",
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
        beginning = f"going on from step {step}" if step else "starting"
        return (
            f"{beginning}: {method_of(model)}, "
            f"{count:,} parameters, {stream.batches_per_epoch:,} batches an epoch, "
            f"device {self.trainer.device}"
        )

    def _validate(self, store: Store, reporter: Reporter) -> bool:
        """Look at the held-out data; return whether this is the best so far."""
        trainer, settings = self.trainer, self.config.train
        result = held_out_loss(trainer.model, store, settings, trainer.device)
        if _translates(self.config):
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

    def _bleu(self, model: TextModel) -> Score:
        """Greedy translations of the validation set, scored as the data asks for."""
        assert isinstance(model, TranslationModel), "a language model has nothing to translate"
        pairs = self.validation_text
        greedy = self.config.decode.model_copy(update={"beam": 1})
        cut = self.config.data.max_source
        translator = Translator(
            [model], self.tokenizers, greedy, self.trainer.device, max_source=cut
        )
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
