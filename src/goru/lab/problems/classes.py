"""How often each class occurs, and what can be said without reading the input."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def shares(classes: Tensor, count: int) -> Tensor:
    """The share of each of `count` classes."""
    counts = torch.bincount(classes, minlength=count).double()
    return counts / counts.sum()


def entropy(shares: Tensor) -> float:
    """The loss of always answering with these shares.

    >>> round(entropy(torch.tensor([0.5, 0.5, 0.0])), 4)
    0.6931
    """
    return -sum(share * math.log(share) for share in shares.tolist() if share > 0)


def majority(train: Tensor, test: Tensor) -> float:
    """The accuracy of the most common class of one set on another, given the shares of both."""
    return test[int(train.argmax())].item()
