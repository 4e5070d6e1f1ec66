"""The networks around a recurrent layer.

Legend: T steps, B batch, H hidden, S input symbols, O outputs of the head.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

import goru
from goru.lab.tasks.task import MakeRecurrent

HEAD_BIAS = 0.01


class StepTagger(nn.Module):
    """One-hot symbols -> recurrent layer -> linear head at every step: (T, B) symbols to (T, B, O) logits."""

    def __init__(self, make_recurrent: MakeRecurrent, symbols: int, outputs: int) -> None:
        super().__init__()
        self.symbols = symbols
        self.recurrent: Any = make_recurrent(symbols)
        self.head = nn.Linear(self.recurrent.hidden_size, outputs)
        # The authors' code takes the numbers of symbols in and out as the fans of the head.
        bound = math.sqrt(6 / (symbols + outputs))
        nn.init.uniform_(self.head.weight, -bound, bound)
        nn.init.constant_(self.head.bias, HEAD_BIAS)

    def forward(self, symbols: Tensor) -> Tensor:
        return self.head(self.recurrent(one_hot(symbols, self.symbols, self.head.weight))[0])


class WithHead(nn.Module):
    """A recurrent layer with a linear head."""

    def __init__(self, make_recurrent: MakeRecurrent, inputs: int, outputs: int) -> None:
        super().__init__()
        self.recurrent: Any = make_recurrent(inputs)
        self.head = glorot_head(self.recurrent.hidden_size, outputs)


class LanguageModel(WithHead):
    """One-hot symbols and a state -> logits of the next symbol at every step, and the state at the end."""

    def forward(self, symbols: Tensor, state: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """(T, B) symbols to (T, B, S) logits; the state is a list of tensors, empty where a text begins."""
        hx = None if not state else state[0] if len(state) == 1 else tuple(state)
        output, after = self.recurrent(one_hot(symbols, self.head.out_features, self.head.weight), hx)
        return self.head(output), [after] if isinstance(after, Tensor) else list(after)


class Dropout(nn.Dropout):
    """Dropout that draws from the random state of checkpoints, the CPU's, on every device."""

    def forward(self, input: Tensor) -> Tensor:
        if not self.training:
            return input
        kept = torch.empty(input.shape).bernoulli_(1 - self.p).div_(1 - self.p)
        return input * kept.to(input)


class QuestionReader(nn.Module):
    """Three recurrent layers of one kind: over the statements, the question, and their two outputs joined.

    The last outputs of the first two are concatenated into a single input of the third, whose output gives the answer.
    With `sequence`, the third reads the outputs over the statements at every step, each beside the last output over the
    question, and its last output gives the answer. Word vectors start uniform in +-`word_scale`. `dropout` acts on them
    and on what the head reads.
    """

    def __init__(
        self,
        make_recurrent: MakeRecurrent,
        words: int,
        embedding: int,
        answers: int,
        *,
        word_scale: float = 0.05,
        sequence: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.sequence = sequence
        self.dropout = Dropout(dropout) if dropout else nn.Identity()
        self.embedding = nn.Embedding(words, embedding)
        nn.init.uniform_(self.embedding.weight, -word_scale, word_scale)
        self.statements: Any = make_recurrent(embedding)
        self.question: Any = make_recurrent(embedding)
        H = self.statements.hidden_size
        self.joined: Any = make_recurrent(2 * H)
        self.head = glorot_head(H, answers)

    def forward(
        self, statements: Tensor, statement_lengths: Tensor, question: Tensor, question_lengths: Tensor
    ) -> Tensor:
        """Words (T, B) with their lengths (B), twice, to logits of the answer (B, O)."""
        device = self.head.weight.device
        lengths, question_lengths = statement_lengths.to(device), question_lengths.to(device)
        read = run_padded(self.statements, self.dropout(self.embedding(statements.to(device))), lengths)
        asked = run_padded(self.question, self.dropout(self.embedding(question.to(device))), question_lengths)
        asked = last_output(asked, question_lengths)
        if self.sequence:
            both = torch.cat([read, asked.expand(len(read), -1, -1)], -1)
            answer = last_output(run_padded(self.joined, both, lengths), lengths)
        else:
            answer = self.joined(torch.cat([last_output(read, lengths), asked], -1).unsqueeze(0))[0][0]
        return self.head(self.dropout(answer))


class LastStep(WithHead):
    """A recurrent layer with a linear head on its last output: (T, B, I) to (B, O)."""

    def forward(self, inputs: Tensor) -> Tensor:
        output, _ = self.recurrent(inputs.to(self.head.weight.device))
        return self.head(output[-1])


class FrameRegressor(WithHead):
    """Frames -> recurrent layer -> linear head: a prediction of the next frame at every step."""

    def forward(self, frames: Tensor, lengths: Tensor) -> Tensor:
        """(T, B, bins) frames, of which `lengths` (B) count, to (T, B, bins)."""
        device = self.head.weight.device
        return self.head(run_padded(self.recurrent, frames.to(device), lengths.to(device)))


def one_hot(symbols: Tensor, count: int, like: Tensor) -> Tensor:
    """(T, B) symbols as (T, B, count) one-hot vectors, of the type and on the device of `like`."""
    symbols = symbols.to(like.device)
    return like.new_zeros(*symbols.shape, count).scatter_(-1, symbols.unsqueeze(-1), 1.0)


def glorot_head(inputs: int, outputs: int) -> nn.Linear:
    """A linear layer with TensorFlow 1's initialization: Glorot-uniform, bias 0."""
    head = nn.Linear(inputs, outputs)
    nn.init.xavier_uniform_(head.weight)
    nn.init.zeros_(head.bias)
    return head


def run_padded(recurrent: nn.Module, x: Tensor, lengths: Tensor) -> Tensor:
    """The output of a layer over a padded batch; the values after each row's end are meaningless.

    torch's layers have no `lengths` argument and need none here: in one direction, a step does not see later steps.
    """
    if isinstance(recurrent, nn.RNNBase):
        return recurrent(x)[0]
    return recurrent(x, lengths=lengths)[0]


def last_output(output: Tensor, lengths: Tensor) -> Tensor:
    """The output (B, H) at the last step of each row, from (T, B, H)."""
    return output[lengths - 1, torch.arange(len(lengths), device=output.device)]


def update_gates(network: nn.Module, symbols: Tensor) -> Tensor | None:
    """The update gate (T, B, H) of a tagger on a batch; None if its layer has none."""
    recurrent = getattr(network, "recurrent", None)
    if not (isinstance(recurrent, nn.GRU | goru.GRU) or getattr(recurrent, "update_gate", False)):
        return None
    with goru.gates.record(network) as records:
        network(symbols)
    return records[0].update


@torch.no_grad()
def initialize_as_tensorflow(layer: goru.GRU | goru.LSTM) -> None:
    """TensorFlow 1's initial values: Glorot over the joined [x, h] matrices, biases 0 except for open gates.

    TensorFlow's GRU has one matrix for r and z together and one for the candidate, its LSTM one for all four.
    """
    H = layer.hidden_size
    is_gru = isinstance(layer, goru.GRU)
    parts = ((0, 2), (2, 3)) if is_gru else ((0, 4),)
    opened = slice(0, 2 * H) if is_gru else slice(H, 2 * H)  # r, z or the forget gate
    parameters = dict(layer.named_parameters())
    weights = parameters["weight_ih_l0"], parameters["weight_hh_l0"]
    for first, last in parts:
        bound = math.sqrt(6 / (weights[0].shape[1] + H + (last - first) * H))
        for weight in weights:
            weight[first * H : last * H].uniform_(-bound, bound)
    parameters["bias_ih_l0"].zero_()[opened] = 1.0
    parameters["bias_hh_l0"].zero_()


@torch.no_grad()
def initialize_chrono(layer: goru.GRU | goru.LSTM, memory: int) -> None:
    """Biases for times up to `memory` steps, after Tallec and Ollivier (2018): the gate that preserves the state starts
    at ln u, u uniform in [1, memory - 1], an LSTM's input gate at -ln u."""
    H = layer.hidden_size
    keeps = torch.empty(H).uniform_(1, max(1, memory - 1)).log_()
    bias = layer.get_parameter("bias_ih_l0")
    bias[H : 2 * H] = keeps  # z of the GRU, the forget gate of the LSTM
    if isinstance(layer, goru.LSTM):
        bias[:H] = -keeps


def count_parameters(network: nn.Module) -> dict[str, int]:
    """All parameters, and those that act on the state (what the paper matched between models)."""
    sizes = {name: p.numel() for name, p in network.named_parameters()}
    hidden = sum(size for name, size in sizes.items() if "weight_hh" in name or "angles" in name)
    return {"parameters": sum(sizes.values()), "hidden_to_hidden_parameters": hidden}
