"""Named public corpora: fetched, verified, cleaned and split, before the straight line begins."""
