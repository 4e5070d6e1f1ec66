// A complex EURNN with U as a matrix, forward and backward.
#pragma once

#include "eurnn/structures.h"
#include "problem.h"

namespace {

template <class T>
void dense_problem(const DenseTable& table) {
  Problem problem;
  Shape& s = problem.shape;
  const int64_t B = s.batch, I = s.inputs, H = s.hidden, rows = s.steps * B, half = s.steps / 2;
  DenseSizes sizes;
  table.sizes(I, H, &sizes);
  const int64_t Hp = sizes.state, Ip = sizes.inputs, blocks = (B + sizes.block_rows - 1) / sizes.block_rows;
  // States and their gradients come filled up with zeros.
  auto padded = [&](const Buffer<T>& plain) {
    Buffer<T> out(B * 2 * Hp, T(0));
    for (int64_t i = 0; i < B * 2 * H; ++i) out.values[i / H * Hp + i % H] = plain.values[i];
    return out;
  };
  auto x = Buffer<T>::drawn(rows * I), weight = Buffer<T>::drawn(2 * H * I), bias = modrelu_bias<T>(0, H),
       u = Buffer<T>::drawn(4 * H * H, T(0.3)), back = Buffer<T>::drawn(4 * H * H, T(0.3)),
       grad = Buffer<T>::drawn(rows * H);
  Buffer<T> h0 = padded(Buffer<T>::drawn(B * 2 * H)), state = h0, dstate = padded(Buffer<T>::drawn(B * 2 * H));
  Buffer<T> packed(sizes.packed), output(rows * H), saved(rows * 2 * H);
  table.pack(u.get(), weight.get(), I, H, packed.get());
  DenseArguments d = {};
  d.shape = s, d.x = x.get(), d.packed = packed.get(), d.bias = s.modrelu ? bias.get() : nullptr;
  d.state = state.get(), d.output = output.get(), d.saved = saved.get(), d.saved_step = B * 2 * H;
  d.shape.first = 0, d.shape.last = half;
  table.forward(&d);
  d.shape.first = half, d.shape.last = s.steps;
  table.forward(&d);
  output.result("output"), state.without_padding(0, 1, 2 * B, H, 2 * B, Hp).result("h_n");

  const ChunkLayout layout = least_layout(B, s.steps - half, sizes.block_rows, sizes.groups);
  Buffer<T> packed_back(sizes.packed_backward), packed_input(sizes.packed_input), buffer(sizes.chunk_row * layout.rows),
      weights(layout.groups * sizes.weights, T(0)), db(blocks * Hp, T(0)), dx(rows * I);
  table.pack(back.get(), nullptr, 0, H, packed_back.get());
  table.pack_input(weight.get(), I, H, packed_input.get());
  d.packed = packed_back.get(), d.packed_input = packed_input.get(), d.state = dstate.get(), d.h0 = h0.get();
  d.grad_output = grad.get(), d.grad_step = B * H, d.grad_row = H, d.layout = layout, d.chunk = buffer.get();
  d.weights = weights.get(), d.sums = db.get(), d.grad_x = dx.get();
  table.backward(&d);
  d.shape.first = 0, d.shape.last = half;
  if (half) table.backward(&d);
  weights = weights.sum_of_rows(sizes.weights);
  dstate.without_padding(0, 1, 2 * B, H, 2 * B, Hp).result("grad_h0"), dx.result("grad_x");
  for (int part = 0; part < 2; ++part)
    weights.without_padding(part * Hp, 2, H, H, Hp, 2 * Hp).result("u");
  weights.without_padding(4 * Hp * Hp, 2, H, I, Hp, Ip).result("weight");
  db.sum_of_rows(Hp).without_padding(0, 1, 1, H, 1, Hp).result("bias");
}

}  // namespace
