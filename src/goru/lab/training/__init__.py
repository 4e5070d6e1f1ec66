"""Training one run: its configuration, the loop, the optimizers, the run directory."""
