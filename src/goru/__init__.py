"""Gated orthogonal recurrent units for PyTorch."""
