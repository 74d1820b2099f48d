"""The built-in corpus: English and German sentences from a grammar of our own, by a seed."""

from kutta.demo.grammar.corpus import generate, write_corpus

__all__ = ["generate", "write_corpus"]
