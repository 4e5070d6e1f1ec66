// A GRU or an LSTM, forward and backward.
#pragma once

#include "gated/structures.h"
#include "problem.h"

namespace {

template <class T>
void gated_problem(const GatedTable& table, bool lstm) {
  Problem problem;
  Shape& s = problem.shape;
  if (between(0, 3) == 0) {  // a single row that fills whole panels
    s.batch = 1, s.hidden = between(1, 2) * 16, s.x_step = s.inputs;
    s.order = s.active = nullptr;
  }
  const int64_t B = s.batch, I = s.inputs, H = s.hidden, G = lstm ? 4 : 3, rows = s.steps * B, half = s.steps / 2;
  const bool pack = between(0, 3) > 0, biases = between(0, 1), stream = between(0, 1), plain = between(0, 1);
  GatedSizes sizes;
  table.sizes(I, H, &sizes);
  auto x = Buffer<T>::drawn(rows * I), h0 = Buffer<T>::drawn(B * H), c0 = Buffer<T>::drawn(lstm ? B * H : 0),
       ih = Buffer<T>::drawn(G * H * I), hh = Buffer<T>::drawn(G * H * H), bias_ih = Buffer<T>::drawn(G * H),
       bias_hh = Buffer<T>::drawn(G * H);
  Buffer<T> packed(sizes.packed), bias(sizes.bias), output(rows * H), saved(rows * sizes.saved), cell = c0,
      cells(lstm ? rows * H : 0);
  table.bias(biases ? bias_ih.get() : nullptr, biases ? bias_hh.get() : nullptr, H, bias.get());
  table.pack(ih.get(), hh.get(), I, H, packed.get());
  GatedForward f = {s, x.get(), h0.get(), bias.get(), pack ? packed.get() : nullptr, ih.get(), hh.get(), output.get(),
                    saved.get(), cell.get(), lstm ? cells.get() : nullptr, 1, 0, stream};
  f.shape.first = 0, f.shape.last = half;
  table.forward(&f);
  f.shape.first = half, f.shape.last = s.steps;
  table.forward(&f);
  output.result("output"), cell.result("c_n");

  const int64_t blocks = (B + sizes.block_rows - 1) / sizes.block_rows, squares = G * sizes.padded * sizes.padded;
  const ChunkLayout layout = least_layout(B, s.steps - half, sizes.block_rows, sizes.groups);
  auto grad = Buffer<T>::drawn(rows * H), carry = Buffer<T>::drawn(B * H), carry_cell = Buffer<T>::drawn(lstm ? B * H : 0);
  Buffer<T> backward(sizes.packed_backward), input(sizes.packed_input), buffer(sizes.chunk_row * layout.rows),
      through(sizes.through * blocks), wide(layout.groups * sizes.wide, T(0)), square(layout.groups * squares, T(0)),
      sums(sizes.bias_sums * blocks, T(0)), dx(rows * I);
  table.pack_backward(hh.get(), H, backward.get());
  table.pack_input(ih.get(), I, H, input.get());
  GatedBackward b = {s, B * H, H, layout, grad.get(), x.get(), h0.get(), output.get(), saved.get(),
                     input.get(), plain && B == 1 && sizes.padded == H ? nullptr : backward.get(), hh.get(), carry.get(), carry_cell.get(), buffer.get(), through.get(),
                     wide.get(), square.get(), sums.get(), dx.get(), cells.get(), 0};
  b.shape.first = half, b.shape.last = s.steps;
  if (lstm) b.cells = cells.get() + half * B * H, b.cells_from = half;
  table.cells(&b);
  table.backward(&b);
  b.shape.first = 0, b.shape.last = half, b.cells = cells.get(), b.cells_from = 0;
  if (half) table.cells(&b), table.backward(&b);
  Buffer<T> dih(G * H * I), dhh(G * H * H), dbias_ih(G * H), dbias_hh(G * H);
  const GatedFinish finish = {I, H, blocks, layout.groups, wide.get(), square.get(), sums.get(), dih.get(), dhh.get(),
                              dbias_ih.get(), dbias_hh.get()};
  table.finish(&finish);
  carry.result("grad_h0"), carry_cell.result("grad_c0"), dx.result("grad_x"), dih.result("input weights");
  dhh.result("recurrent weights");
  dbias_ih.result("input bias"), dbias_hh.result("recurrent bias");
}

}  // namespace
