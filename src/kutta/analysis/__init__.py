"""Analysis of trained models."""
