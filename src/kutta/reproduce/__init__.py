"""The paper's tables and figures as experiments: planned, run, and set beside its numbers."""
