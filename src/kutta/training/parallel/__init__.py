"""Parallel training: process group, launcher, DDP and FSDP2, lanes and shards."""
