"""The paper's tables and figures as experiments: planned, run, and compared with the paper."""
