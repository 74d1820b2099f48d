"""Sharing an update: the process group, its launcher, DDP and FSDP2, lanes and shards."""
