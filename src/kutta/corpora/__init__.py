"""Public corpora by name: downloaded, verified, cleaned and split."""
