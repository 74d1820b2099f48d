"""Train a small model on the built-in corpus, follow it, and translate with it.

python examples/train_and_translate.py [FOLDER]

Two minutes on a CPU. The model is small and its training short, so translations are rough; more
`max_steps` give better ones. Run it again, and it continues with the finished model.
"""

import sys
from pathlib import Path

from rich.console import Console

from kutta import Config, Step, Translator, train
from kutta.demo.grammar import write_corpus

STEPS = 1_000


def main(folder: Path, steps: int = STEPS) -> None:
    text = folder / "text"
    if not text.exists():
        write_corpus(text, train=8_000, valid=200, test=200, seed=1)
    config = Config.parse(
        {
            "run": str(folder / "run"),
            "data": {"dir": str(text), "source": "en", "target": "de", "vocab_size": 800},
            "model": {
                "d_model": 64,
                "ffn": 128,
                "heads": 4,
                "encoder_layers": 2,
                "decoder_layers": 1,
                "solver": "rk2",
                "gamma": "learned",
            },
            "train": {
                "max_steps": steps,
                "batch_tokens": 1024,
                "lr": 0.005,
                "warmup": max(1, steps // 4),
                "save_every": max(1, steps // 3),
            },
        }
    )

    def follow(step: Step) -> None:
        """Called after every update: a place for a dashboard, or for rules of your own."""
        if step.validation:
            print(f"update {step.number}: validation perplexity {step.validation.perplexity:.1f}")

    train(config, console=Console(quiet=True), on_step=follow)
    translator = Translator.load(config.run)
    lines = (text / "test.en").read_text(encoding="utf-8").splitlines()[:3]
    for line, candidates in zip(lines, translator.hypotheses(lines, n_best=2, beam=4), strict=True):
        print(line)
        for translation, score in candidates:
            print(f"    {score:6.2f}  {translation}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "example"))
