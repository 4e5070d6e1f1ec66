"""Where a grid of runs is run: processes on this machine, or a Ray cluster."""
