"""One file for each toolkit: how it is installed, prepared and started, and what its log says."""
