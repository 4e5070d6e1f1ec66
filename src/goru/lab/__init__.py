"""The laboratory: the paper's experiments on top of the layers (`goru ls` lists them)."""
