"""Train, validate, save, until the run ends or is interrupted."""

import math
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch

from kutta.config import TrainConfig
from kutta.data.batches import BatchStream
from kutta.files import write_text
from kutta.metrics.texts import valid_score
from kutta.model import TextModel, TranslationModel
from kutta.model.weights import fill
from kutta.runs import Run
from kutta.runs.checkpoints import average, mean_weights, prune
from kutta.training.card import method_of, model_card
from kutta.training.checkpoint import save_checkpoint
from kutta.training.final import Candidate, candidates, choose, final_record
from kutta.training.loop import Step, Trainer, fit, try_largest_batch
from kutta.training.parallel.distributed import is_sharded
from kutta.training.parallel.shards import whole_tensors
from kutta.training.report import NullReporter, Reporter, recorded_validation
from kutta.training.state import Progress
from kutta.training.stopping import asked_to_stop
from kutta.training.validate import Validation, held_out_loss, improves
from kutta.translate.translator import Translator

OnStep = Callable[[Step], object]


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
    reporter: Reporter | NullReporter
    progress: Progress
    pairs: list[tuple[str, str]]  # validation text to translate, if any
    plain: TextModel | None  # on rank 0, an unsharded copy of sharded parameters
    latest: Validation | None
    on_step: OnStep | None = None  # called on rank 0
    failure: Exception | None = None  # raised by it

    def run_to_end(self, stream: BatchStream) -> Outcome:
        """Train, validate, save; then write the final model to model.safetensors."""
        trainer, settings, ended = self.trainer, self.run.config.train, "finished"
        with self.reporter, asked_to_stop() as asked:
            self.reporter.info(self._opening(stream))
            self.reporter.info(_explained(settings))
            if self._out_of_patience():
                ended = "early stop"
            elif trainer.step < settings.max_steps:
                try_largest_batch(trainer, stream, settings)
                for step in fit(trainer, stream, settings):
                    self.reporter.step(step)
                    ended = self._after(step, asked)
                    if ended != "finished":
                        break
            if ended == "interrupted":
                reason = asked[0] if asked else "another process was asked to stop"
                self.reporter.info(
                    f"{reason}: saved at step {trainer.step}; run the same command to resume"
                )
            if self.failure is not None:
                raise self.failure
            if ended != "interrupted" and trainer.group.is_main:
                # Again, because a process may have been killed before it could.
                prune(self.run.path, settings.keep_last, self.progress.best_step)
                self._write_final_model(ended)
        return Outcome(self.run.path, trainer.step, ended, self.latest)

    def _opening(self, stream: BatchStream) -> str:
        trainer, config = self.trainer, self.run.config
        settings = config.train
        beginning = f"resuming from step {trainer.step}" if trainer.step else "starting"
        count = sum(p.numel() for p in trainer.model.parameters())
        batches = f"{settings.accumulate} x " if settings.accumulate > 1 else ""
        updates = stream.batches_per_epoch / settings.micro_batches
        details = {
            "processes": trainer.group.world_size,
            "lanes": trainer.at_once,
            "micro-batches per batch": trainer.per_batch,
        }
        divided = "".join(f", {n} {name}" for name, n in details.items() if n > 1)
        return (
            f"{beginning}: {method_of(config.model)}, {count:,} parameters, updates of {batches}"
            f"{settings.batch_tokens:,} tokens, about {math.ceil(updates):,} updates per epoch, "
            f"device {trainer.device}{divided}"
        )

    def _after(self, step: Step, asked: list[str]) -> str:
        """Validate and save if it is time; return whether and how training ends here."""
        settings, group = self.run.config.train, self.trainer.group
        last = step.number == settings.max_steps
        scheduled = step.number % settings.save_every == 0
        better, enough = False, False
        if last or step.number % (settings.valid_every or settings.save_every) == 0:
            better = self._validate()
            better, enough = group.broadcast(better, self._out_of_patience())
            step = replace(step, validation=self.latest)
        self._call_back(step, asked)
        ended = "early stop" if enough else "interrupted" if group.any(bool(asked)) else "finished"
        if last or scheduled or better or ended != "finished":
            progress = replace(self.progress, window=self.reporter.window)
            self.reporter.sync()
            save_checkpoint(self.run.path, self.trainer, progress, scheduled)
            if group.is_main:
                prune(self.run.path, settings.keep_last, self.progress.best_step)
        return ended

    def _call_back(self, step: Step, asked: list[str]) -> None:
        """Call the user's function; an exception stops training as a signal does."""
        try:
            if self.on_step is not None and self.trainer.group.is_main:
                self.on_step(step)
        except Exception as error:
            self.failure = error
            asked.append(f"on_step raised {type(error).__name__}")

    def _out_of_patience(self) -> bool:
        patience = self.run.config.train.patience
        return patience > 0 and self.progress.since_best >= patience

    def _validate(self) -> bool:
        """Evaluate the validation set on rank 0; return whether this is the best so far."""
        trainer, by, model = self.trainer, self.run.config.train.best, self.trainer.model
        if is_sharded(trainer.module):
            whole = whole_tensors(model, keep=trainer.group.is_main)
            if self.plain is not None:
                fill(self.plain, whole, "the model in training")
                model = self.plain.to(trainer.device)
        if not trainer.group.is_main:
            return False
        self.latest = self._measure(model)
        if self.plain is not None:
            self.plain.cpu()  # frees GPU memory for training
        better, value = improves(self.latest, self.progress.best, by)
        if better:
            self.progress = Progress(value, trainer.step, 0, by)
        else:
            self.progress.since_best += 1
        self.reporter.validation(trainer.step, self.latest, better)
        return better

    def _measure(self, model: TextModel, bleu: bool = True) -> Validation:
        """Loss on the validation set and, where validation translates, BLEU of greedy search."""
        run, device = self.run, self.trainer.device
        with ExitStack() as stack:
            threads = torch.get_num_threads()
            stack.callback(torch.set_num_threads, threads)
            # The other ranks of this machine wait.
            torch.set_num_threads(threads * self.trainer.group.local_world_size)
            result = held_out_loss(model, run.valid_store(), run.config.train, device)
            if not (bleu and self.pairs):
                return result
            assert isinstance(model, TranslationModel), "a language model has nothing to translate"
            greedy, data = run.config.decode.changed(beam=1), run.config.data
            translator = Translator(
                [model],
                run.tokenizers,
                greedy,
                device,
                max_source=data.max_source,
                max_length=data.max_length,
            )
            sources, references = zip(*self.pairs, strict=True)
            score = valid_score(translator.translate(sources), references, data)
            return replace(result, bleu=score)

    def _write_final_model(self, ended: str) -> None:
        """Write the final model and its card; where several are possible, validate them."""
        run, step, by = self.run, self.trainer.step, self.run.config.train.best
        if ended == "early stop":
            count = self.progress.since_best
            self.reporter.info(f"early stop at step {step}: {count} validations without a new best")
        found = candidates(run, self.progress.best_step)
        chosen, measured = found[0], list[Candidate]()
        if len(found) > 1:
            self.reporter.info(f"validating {len(found)} candidates for the final model")
            chosen, measured = choose(found, partial(self._try, bleu=by == "bleu"), by)
            validation = self._try(chosen, bleu=True)
        else:
            validation = recorded_validation(run, chosen.checkpoints[-1].step)
        average(chosen.checkpoints, run.final_weights)
        count = sum(parameter.numel() for parameter in self.trainer.model.parameters())
        card = model_card(run.config, step, count, validation, chosen.name, measured)
        write_text(run.card, card)
        record = final_record(run, step, ended, chosen.name)
        self.reporter.final(record, f"{run.final_weights}: {chosen.name}")

    def _try(self, candidate: Candidate, bleu: bool) -> Validation:
        """The validation of weights that the final model could have."""
        model = (self.plain or self.trainer.model).to(self.trainer.device)
        fill(model, mean_weights(candidate.checkpoints), candidate.name)
        return self._measure(model, bleu)


def _explained(settings: TrainConfig) -> str:
    """What the numbers of the log are."""
    if not settings.label_smoothing:
        return "loss is the cross-entropy per target token, ppl (perplexity) is exp(loss)"
    return (
        "loss is the cross-entropy per target token with label smoothing "
        f"{settings.label_smoothing:g}, ppl (perplexity) is exp(cross-entropy) without it"
    )
