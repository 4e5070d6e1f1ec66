"""GORU by Triton: what surrounds the programs. Importing this file imports Triton.

Everything without recurrence is a product over all steps at once: x W before the walk; after the walk back the
gradients of x, of the weights and of U from the deltas. `saved` has the layout of the manual backend.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.runtime.interpreter import InterpretedFunction

from ...activation import smallest_magnitude
from ..goru import GoruInputs, GoruOptions
from ..lengths import valid_steps
from ..mesh import manual as mesh_manual
from . import programs

OPERANDS = {torch.float32: tl.float32, torch.bfloat16: tl.bfloat16}


@dataclass(frozen=True)
class Blocks:
    """The tile of a program: rows of the batch, columns of the result, length of a piece of each dot product."""

    rows: int
    columns: int
    inner: int
    warps: int = 4
    stages: int = 2

    def arguments(self) -> dict[str, int]:
        return {
            "BLOCK_B": self.rows, "BLOCK_N": self.columns, "BLOCK_K": self.inner,
            "num_warps": self.warps, "num_stages": self.stages,
        }  # fmt: skip

    def config(self) -> triton.Config:
        arguments = self.arguments()
        return triton.Config(arguments, num_warps=arguments.pop("num_warps"), num_stages=arguments.pop("num_stages"))


# What is tried on a device. 16 rows is the least that a tensor core takes: few rows make many programs, which is what
# a recurrence needs to fill a device; many rows read the weights less often. Each compiles for seconds when a shape is
# new, and fits into the shared memory of sm_80 in float32.
CANDIDATES = (
    Blocks(16, 32, 32, 4, 3),
    Blocks(16, 64, 32, 4, 2),
    Blocks(16, 128, 32, 8, 2),
    Blocks(32, 64, 32, 4, 2),
    Blocks(64, 64, 32, 8, 2),
)


def _worth_trying(configs: list[triton.Config], named: dict[str, Any], **more: Any) -> list[triton.Config]:
    """Without the tiles that are mostly padding, for this batch and hidden size."""
    hidden, batch = more["H"], more["TUNING"]

    def fits(config: triton.Config) -> bool:
        tile = config.kwargs
        return tile["BLOCK_B"] <= max(16, batch) and tile["BLOCK_N"] < max(64, 2 * hidden)

    return [config for config in configs if fits(config)]


def tuned(program: Any, candidates: tuple[Blocks, ...], **options: Any) -> Any:
    """The program with the fastest of the candidates for a device, hidden size, dtype and class of batch sizes."""
    return triton.autotune(
        [blocks.config() for blocks in candidates],
        key=["H", "TUNING", "RESET", "UPDATE", "OPERAND", "PRECISION"],
        prune_configs_by={"early_config_prune": _worth_trying},
        **options,
    )(program)


def interpreting() -> bool:
    """Whether TRITON_INTERPRET was set when the programs were made: they then run on the CPU, in NumPy."""
    return isinstance(programs.goru_forward, InterpretedFunction)


# The interpreter has no device clock to tune by, and takes nearly the same time for a tile of any size.
TUNED = {
    program.__name__: tuned(program, (Blocks(16, 64, 64),) if interpreting() else CANDIDATES)
    for program in (programs.goru_forward, programs.goru_backward)
}


def _launch(name: str, blocks: Blocks | None, tensors: tuple[Tensor | None, ...], T: int, B: int, **more: Any) -> None:
    if blocks is None:
        TUNED[name][lambda chosen: (triton.cdiv(B, chosen["BLOCK_B"]),)](*tensors, T, B, **more)
    else:
        getattr(programs, name)[(triton.cdiv(B, blocks.rows),)](*tensors, T, B, **more, **blocks.arguments())


def _switches(x: Tensor, options: GoruOptions) -> dict[str, Any]:
    # NumPy has no bfloat16, and the interpreter multiplies its bit patterns: there the operands are widened, after they
    # were rounded. A tensor core does the same, it adds the exact products up in float32.
    operand = tl.float32 if interpreting() else OPERANDS[x.dtype]
    return {
        "H": options.mesh.size, "RESET": int(options.reset_gate), "UPDATE": int(options.update_gate),
        "REVERSE": int(options.reverse),
        "OPERAND": operand, "PRECISION": _precision(),
        "TUNING": min(1024, triton.next_power_of_2(max(1, x.shape[1]))),
    }  # fmt: skip


def _precision() -> str:
    """How float32 is multiplied: as torch's own products on this device are, exactly unless the user enabled TF32."""
    settings = torch.backends.cuda.matmul
    if hasattr(settings, "fp32_precision"):  # since torch 2.9; reading the older setting fails where this one is in use
        return "tf32" if settings.fp32_precision == "tf32" else "ieee"
    return "tf32" if settings.allow_tf32 else "ieee"


def _recurrent(inputs: GoruInputs, options: GoruOptions) -> tuple[Tensor, Tensor]:
    """U, and the rows U W_r W_z in one matrix."""
    u = inputs.u
    if u is None:
        assert inputs.angles is not None
        u = mesh_manual.matrix(inputs.angles, options.mesh)
    return u, u if inputs.weight_hh is None else torch.cat([u, inputs.weight_hh])


def forward(
    inputs: GoruInputs, options: GoruOptions, save: bool, blocks: Blocks | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """output, h_n and what is saved; `blocks` sets a tile, else the fastest one is found and used from then on."""
    x, h0, weight_ih, _, bias, _, _, lengths = inputs
    T, B, I = x.shape
    H = options.mesh.size
    _, recurrent = _recurrent(inputs, options)
    pre = torch.mm(x.reshape(T * B, I), weight_ih.T)
    output = x.new_empty((T, B, H))
    saved = x.new_empty((T, B, pre.shape[1] + H)) if save else None
    state = x.new_empty((2, B, H), dtype=torch.float32)
    if B > 0:
        _launch(
            "goru_forward", blocks,
            (
                pre, h0.contiguous(), recurrent.T.contiguous(), _contiguous(bias), _contiguous(lengths), output, saved,
                state,
            ),
            T, B, TINY=smallest_magnitude(torch.float32), **_switches(x, options),
        )  # fmt: skip
    return output, state[T % 2].to(x.dtype, copy=True), x.new_empty(0) if saved is None else saved


def backward(
    inputs: GoruInputs,
    options: GoruOptions,
    output: Tensor,
    saved: Tensor,
    grads: tuple[Tensor, ...],
    needs_x: bool,
    blocks: Blocks | None = None,
) -> tuple[Tensor | None, ...]:
    """The gradients of the inputs."""
    x, h0, weight_ih, weight_hh, bias, _, angles, lengths = inputs
    grad_output, grad_h_n = grads
    T, B, I = x.shape
    H = options.mesh.size
    u, recurrent = _recurrent(inputs, options)
    h0 = h0.contiguous()
    deltas = torch.empty_like(saved)
    carry, keep = (x.new_empty((B, H), dtype=torch.float32) for _ in range(2))
    if B > 0:
        _launch(
            "goru_backward", blocks,
            (
                grad_output.contiguous(), grad_h_n.contiguous(), h0, recurrent.contiguous(), _contiguous(lengths),
                output.contiguous(), saved.contiguous(), deltas, carry, keep,
            ),
            T, B, BIAS=int(bias is not None), **_switches(x, options),
        )  # fmt: skip
    from_x = deltas.flatten(0, 1)[:, H:]
    # Beyond a row's end the deltas are 0, but x may be anything.
    steps = x if lengths is None else x.masked_fill(~valid_steps(lengths, T)[..., None], 0)
    drecurrent = _recurrent_gradient(deltas[..., :-H], h0, output, lengths, options.reverse)
    dbias = None
    if bias is not None:
        outward = from_x[:, -H:] * saved.flatten(0, 1)[:, -H:].sign()
        dbias = torch.cat([part.sum(0, dtype=torch.float32) for part in (from_x[:, :-H], outward)]).to(x.dtype)
    du = drecurrent[:H]
    return (
        torch.mm(from_x, weight_ih).view(x.shape) if needs_x else None,
        carry.to(x.dtype),
        torch.mm(from_x.T, steps.reshape(T * B, I)),
        None if weight_hh is None else drecurrent[H:].clone(),
        dbias,
        du.clone() if angles is None else None,
        None if angles is None else mesh_manual.matrix_backward(du, u, angles, options.mesh),
    )


def _recurrent_gradient(deltas: Tensor, h0: Tensor, output: Tensor, lengths: Tensor | None, reverse: bool) -> Tensor:
    """Sum over steps of deltas (T, B, P H) times the state before the step, (P H, H): output one step earlier in the
    order of the walk, h0 at each row's first step."""
    B = deltas.shape[1]
    first, rest, states = deltas[0], deltas[1:], output[:-1]
    if reverse:
        rest, states = deltas[:-1], output[1:]  # at a row's last step this output is 0: the row has started from h0
        first = deltas[-1] if lengths is None else deltas[lengths - 1, torch.arange(B, device=lengths.device)]
    return torch.addmm(first.T @ h0, rest.flatten(0, 1).T, states.flatten(0, 1))


def _contiguous(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.contiguous()
