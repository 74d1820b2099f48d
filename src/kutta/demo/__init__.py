"""`kutta demo`: a corpus from a built-in grammar, and a small model trained on it."""
