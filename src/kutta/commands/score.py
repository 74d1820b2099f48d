"""`kutta score`: files of translations against references, or two systems against each other."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kutta.commands.progress import remark
from kutta.config.data import GERMAN, language_of
from kutta.data.corpus import read_lines
from kutta.errors import InputError
from kutta.metrics import (
    BLEU,
    CHRF,
    METRICS,
    Comparison,
    Metric,
    Score,
    moses_rules,
    multi_bleu,
    paired_bootstrap,
    sacre,
)
from kutta.metrics.texts import metrics_of, reference_texts
from kutta.runs import Run
from kutta.translate.evaluate import eval_sets

USUAL = ("bleu", "sacrebleu", "chrf")
SAMPLES, SEED = 1000, 1

Lines = list[str]


@dataclass(frozen=True)
class Bootstrap:
    """A comparison with the translations of another system."""

    against: Path
    samples: int = SAMPLES
    seed: int = SEED


@dataclass(frozen=True)
class Tokens:
    """What `kutta score` does to the text before it counts n-grams."""

    lowercase: bool = False
    language: str | None = None  # of Moses' rules for BLEU; None if the text is tokenised
    split_compounds: bool = False

    def metrics(self) -> dict[str, Metric]:
        """All metrics by name."""
        cased = {
            "sacrebleu": sacre(BLEU, lowercase=self.lowercase),
            "chrf": sacre(CHRF, lowercase=self.lowercase),
            "chrf++": sacre(CHRF, word_order=2, lowercase=self.lowercase),
        }
        bleu = multi_bleu(self.lowercase, self.language, self.split_compounds)
        return {**METRICS, "bleu": bleu, **cased}


def score_files(
    hypothesis: Path,
    references: Sequence[Path],
    names: Sequence[str] = (),
    tokens: Tokens | None = None,
    bootstrap: Bootstrap | None = None,
) -> list[Score] | list[Comparison]:
    """Score a file against references, or compare it with another system's file."""
    tokens, names = tokens or Tokens(), names or USUAL
    _check(tokens, names)
    table = tokens.metrics()
    metrics = _chosen(table, names)
    if not references:
        raise InputError("Give a reference file, or --run RUN for the references of a test set.")
    texts = [list(read_lines(path)) for path in references]
    system = list(read_lines(hypothesis))
    results = _results(system, [(metric, texts) for metric in metrics], bootstrap)
    _explain(hypothesis, system, texts, names, tokens)
    return results


def score_like_run(
    hypothesis: Path,
    references: Sequence[Path],
    folder: Path,
    test: str | None = None,
    names: Sequence[str] = (),
    bootstrap: Bootstrap | None = None,
) -> list[Score] | list[Comparison]:
    """Score a file as `kutta evaluate` does: with the settings and the references of a run.

    Given `references` stand for those of the test set; they have the form of the run's text.
    """
    run = Run.load(folder)
    data = run.config.data
    if run.config.language_model:
        raise InputError(f"{run.path} is a language model, which has no translations to score.")
    if references:
        if test:
            raise InputError(f"Give reference files or --test {test}, not both.")
        texts, raw = [reference_texts([*read_lines(path)], data) for path in references], None
        if data.raw_references:
            remark(
                f"`kutta evaluate {folder}` scores sacreBLEU and chrF with data.raw_references; "
                "give no reference file for the same numbers."
            )
    else:
        (found,) = eval_sets(run, [test or _test_of(hypothesis, run)])
        texts, raw = [found.references(data)], found.raw
    table = metrics_of(data, raw is not None)
    metrics = dict(zip(names or USUAL, _chosen(table, names or USUAL), strict=True))
    scored = [
        (metric, texts if raw is None or name == "bleu" else [raw])
        for name, metric in metrics.items()
    ]
    return _results(list(read_lines(hypothesis)), scored, bootstrap)


def _test_of(hypothesis: Path, run: Run) -> str:
    """The test set of a run whose translations a file has, by the name of the file."""
    name = hypothesis.name.removesuffix(".gz").removesuffix(".zst")
    tests, target = run.config.data.test, run.config.data.target
    same = [test for test in tests if f"{Path(test).name}.{target}" == name]
    if len(same or tests) != 1:
        known = f"it has {', '.join(tests)}" if tests else "its config lists none"
        raise InputError(
            f"It is not clear which test set of {run.path} {hypothesis} translates; add --test "
            f"NAME ({known}), or give a reference file."
        )
    return (same or tests)[0]


def _chosen(table: dict[str, Metric], names: Sequence[str]) -> list[Metric]:
    for name in names:
        if name not in table:
            raise InputError(f"There is no metric {name!r}; choose from {', '.join(table)}.")
    return [table[name] for name in names]


def _results(
    system: Lines,
    scored: Sequence[tuple[Metric, Sequence[Lines]]],
    bootstrap: Bootstrap | None,
) -> list[Score] | list[Comparison]:
    if bootstrap is None:
        return [metric(system, texts) for metric, texts in scored]
    other, samples, seed = list(read_lines(bootstrap.against)), bootstrap.samples, bootstrap.seed
    return [
        paired_bootstrap(system, other, texts, metric, samples, seed) for metric, texts in scored
    ]


def _check(tokens: Tokens, names: Sequence[str]) -> None:
    """Reject options that do not apply to the text or to the metrics."""
    if tokens.split_compounds and language_of(tokens.language or "de") not in GERMAN:
        raise InputError(
            f"--split-compounds is for translations into German, but --tokenize is "
            f"{tokens.language!r}; remove it."
        )
    given = {
        "--tokenize": (tokens.language is not None, ("bleu",)),
        "--split-compounds": (tokens.split_compounds, ("bleu",)),
        "--lowercase": (tokens.lowercase, (*USUAL, "chrf++")),
    }
    for option, (used, metrics) in given.items():
        if used and not set(metrics) & set(names):
            raise InputError(
                f"{option} has no effect on {', '.join(names)}, only on {', '.join(metrics)}; "
                "remove it."
            )


def _explain(
    hypothesis: Path, system: Lines, references: list[Lines], names: Sequence[str], tokens: Tokens
) -> None:
    """Say where a score is not what the user is likely to expect."""
    subwords = any("@@ " in line for text in (system, *references) for line in text)
    owner = _run_of(hypothesis)
    if owner and (differences := _differences(owner, names, tokens, subwords)):
        remark(
            f"`kutta evaluate` scored {hypothesis} otherwise ({', '.join(differences)}); add "
            f"--run {owner.path} for its numbers."
        )
        return
    if subwords:
        remark("the text has subwords (@@), which are scored as words; join them first.")
        return
    tokenised = [_is_tokenised(text) for text in (system, *references)]
    if False in tokenised and "bleu" in names and not tokens.language:
        remark(
            "BLEU is for tokenised text, but this text looks raw; add --tokenize LANGUAGE, or use "
            "sacreBLEU."
        )
    if True in tokenised and {"sacrebleu", "chrf"} & set(names):
        remark("sacreBLEU and chrF are for raw text, but this text looks tokenised; use BLEU.")


def _run_of(hypothesis: Path) -> Run | None:
    """The run whose folder of hypotheses a file is in."""
    for folder in hypothesis.absolute().parents:
        if folder.name == "hypotheses" and Run.is_at(folder.parent):
            return Run.load(folder.parent)
    return None


def _differences(run: Run, names: Sequence[str], tokens: Tokens, subwords: bool) -> list[str]:
    """What `kutta evaluate` does otherwise."""
    data, found = run.config.data, list[str]()
    split = data.tokenizer == "split"
    if "bleu" in names:
        language = None if split else moses_rules(data.target)
        if tokens.language != language:
            found.append(f"with --tokenize {language}" if language else "without --tokenize")
        if tokens.split_compounds != data.split_compounds:
            found.append(f"with{'' if data.split_compounds else 'out'} --split-compounds")
    if tokens.lowercase:
        found.append("without --lowercase")
    if split and subwords:
        found.append("with subwords joined")
    if data.raw_references and {"sacrebleu", "chrf"} & set(names):
        found.append("detokenised, against raw references")
    return found


def _is_tokenised(lines: Lines) -> bool | None:
    """Whether the last punctuation mark of most lines stands alone; None if few lines have one."""
    ends = [line.rstrip()[-2:] for line in lines if line.rstrip()[-1:] in {".", "!", "?"}]
    if 2 * len(ends) < len(lines) or not ends:
        return None
    return 2 * sum(end[0] == " " for end in ends) > len(ends)
