"""The programs that translate side by side, one module each."""
