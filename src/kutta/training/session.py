"""Train, validate, save, until the run ends or is interrupted."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from rich.console import Console

from kutta.config import Config, TrainConfig
from kutta.data.batches import BatchStream
from kutta.files import write_text
from kutta.metrics import Score
from kutta.model import TextModel, TranslationModel
from kutta.model.weights import fill
from kutta.runs import Run
from kutta.runs.checkpoints import average, mean_weights, prune
from kutta.training.card import method_of, model_card
from kutta.training.checkpoint import Progress, save_checkpoint
from kutta.training.final import Candidate, candidates, choose
from kutta.training.loop import Step, Trainer, fit, try_largest_batch
from kutta.training.parallel.distributed import is_sharded
from kutta.training.parallel.shards import whole_tensors
from kutta.training.report import NullReporter, Reporter, validation_at
from kutta.training.stopping import asked_to_stop
from kutta.training.validate import Validation, held_out_loss, improves
from kutta.translate.evaluate import valid_score
from kutta.translate.translator import Translator


@dataclass(frozen=True)
class Outcome:
    """How a training ended: "finished", "early stop" or "interrupted"."""

    run: Path
    step: int
    ended: str
    validation: Validation | None


@dataclass
class Session:
    """Training from a checkpoint until it ends or is interrupted, as one rank; rank 0 reports."""

    run: Run
    trainer: Trainer
    validation_text: list[tuple[str, str]]
    progress: Progress
    plain: TextModel | None  # on rank 0, an unsharded copy of sharded parameters
    latest: Validation | None = None

    @property
    def config(self) -> Config:
        return self.run.config

    @property
    def settings(self) -> TrainConfig:
        return self.config.train

    def run_to_end(self, stream: BatchStream, console: Console) -> Outcome:
        """Train, validate, save; then write the final model to model.safetensors."""
        trainer, ended = self.trainer, "finished"
        with self._reporter(console) as reporter, asked_to_stop() as asked:
            reporter.info(self._opening(stream))
            if self._out_of_patience():
                ended = "early stop"
            elif trainer.step < self.settings.max_steps:
                try_largest_batch(trainer, stream, self.settings)
                for step in fit(trainer, stream, self.settings):
                    reporter.step(step)
                    ended = self._after(step, reporter, bool(asked))
                    if ended != "finished":
                        break
            if ended == "interrupted":
                reason = asked[0] if asked else "another process was asked to stop"
                reporter.info(
                    f"{reason}: saved at step {trainer.step}; run the same command to resume"
                )
            elif trainer.group.is_main:
                self._finish(reporter)
        return Outcome(self.run.path, trainer.step, ended, self.latest)

    def _after(self, step: Step, reporter: Reporter | NullReporter, asked: bool) -> str:
        """Validate and save if it is time; return whether and how training ends here."""
        settings, group = self.settings, self.trainer.group
        last = step.number == settings.max_steps
        scheduled = step.number % settings.save_every == 0
        better, enough = False, False
        if last or step.number % (settings.valid_every or settings.save_every) == 0:
            model = self._whole_model()
            if group.is_main:
                better = self._validate(model, reporter)
                enough = self._out_of_patience()
            better, enough = group.broadcast_flags(better, enough)
        ended = "early stop" if enough else "interrupted" if group.any(asked) else "finished"
        if last or scheduled or better or ended != "finished":
            save_checkpoint(self.run.path, self.trainer, self.progress, scheduled)
            if group.is_main:
                prune(self.run.path, settings.keep_last, self.progress.best_step)
        return ended

    def _reporter(self, console: Console) -> Reporter | NullReporter:
        if not self.trainer.group.is_main:
            return NullReporter()
        settings = self.settings
        return Reporter(
            self.run,
            self.trainer.step,
            settings.max_steps,
            settings.log_every,
            settings.tensorboard,
            console,
        )

    def _opening(self, stream: BatchStream) -> str:
        count = sum(p.numel() for p in self.trainer.model.parameters())
        model, step, group = self.config.model, self.trainer.step, self.trainer.group
        beginning = f"resuming from step {step}" if step else "starting"
        processes = f", {group.world_size} processes" if group.world_size > 1 else ""
        lanes = f", {self.trainer.at_once} lanes" if self.trainer.lanes else ""
        return (
            f"{beginning}: {method_of(model)}, "
            f"{count:,} parameters, {stream.batches_per_epoch:,} micro-batches of "
            f"{self.settings.micro_tokens:,} tokens per epoch, "
            f"device {self.trainer.device}{processes}{lanes}"
        )

    def _whole_model(self) -> TextModel:
        """The model to validate; sharded parameters are gathered on rank 0."""
        model, group = self.trainer.model, self.trainer.group
        if not is_sharded(self.trainer.module):
            return model
        whole = whole_tensors(model, keep=group.is_main)
        if self.plain is None:
            return model
        fill(self.plain, whole, "the model in training")
        return self.plain.to(self.trainer.device)

    def _validate(self, model: TextModel, reporter: Reporter | NullReporter) -> bool:
        """Evaluate the validation set; return whether this is the best so far."""
        trainer, settings = self.trainer, self.settings
        result = self._measure(model)
        if self.plain is not None:
            self.plain.cpu()  # frees GPU memory for training
        better, value = improves(result, self.progress.best, settings.best)
        if better:
            self.progress = Progress(value, trainer.step, 0, settings.best)
        else:
            self.progress.since_best += 1
        self.latest = result
        reporter.validation(trainer.step, result, better)
        return better

    def _measure(self, model: TextModel, bleu: bool = True) -> Validation:
        """Loss on the validation set and, where validation translates, its BLEU."""
        trainer = self.trainer
        with _threads(torch.get_num_threads() * trainer.group.local_world_size):  # the others wait
            result = held_out_loss(model, self.run.valid_store(), self.settings, trainer.device)
            if bleu and translates(self.config):
                result = replace(result, bleu=self._bleu(model))
        return result

    def _bleu(self, model: TextModel) -> Score:
        """The score of greedy translations of the validation set."""
        assert isinstance(model, TranslationModel), "a language model has nothing to translate"
        pairs = self.validation_text
        greedy = self.config.decode.changed(beam=1)
        cut = self.config.data.max_source
        translator = Translator(
            [model], self.run.tokenizers, greedy, self.trainer.device, max_source=cut
        )
        hypotheses = translator.translate([source for source, _ in pairs])
        return valid_score(hypotheses, [target for _, target in pairs], self.config.data)

    def _out_of_patience(self) -> bool:
        patience = self.settings.patience
        return patience > 0 and self.progress.since_best >= patience

    def _finish(self, reporter: Reporter | NullReporter) -> None:
        """Write the final model and its card; where several are possible, validate them."""
        found, by = candidates(self.run, self.progress.best_step), self.settings.best
        chosen, measured = found[0], list[Candidate]()
        if len(found) > 1:
            reporter.info(f"validating {len(found)} candidates for the final model")
            chosen, measured = choose(found, partial(self._try, bleu=by == "bleu"), by)
        validation = validation_at(self.run, chosen.checkpoints[-1].step)
        if measured:
            validation = self._try(chosen, bleu=True)
        average(chosen.checkpoints, self.run.final_weights)
        card = model_card(self.config, self.trainer, validation, chosen.name, measured)
        write_text(self.run.card, card)
        reporter.info(f"{self.run.final_weights}: {chosen.name}")

    def _try(self, candidate: Candidate, bleu: bool) -> Validation:
        """The validation of weights that the final model could have."""
        model = (self.plain or self.trainer.model).to(self.trainer.device)
        fill(model, mean_weights(candidate.checkpoints), candidate.name)
        return self._measure(model, bleu)


def translates(config: Config) -> bool:
    """Whether validation translates: a language model has nothing to translate."""
    return config.train.valid_bleu and not config.language_model


def validation_text(run: Run) -> list[tuple[str, str]]:
    """The validation pairs to translate, as text."""
    return run.texts.valid() if translates(run.config) else []


@contextmanager
def _threads(count: int) -> Generator[None]:
    """Use this many threads temporarily."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
