"""Where a grid of runs is carried out: processes on this machine, or a Ray cluster."""
