// The matrix of a mesh and an EURNN by rotations, forward and backward.
#pragma once

#include "eurnn/structures.h"
#include "problem.h"

namespace {

template <class T>
void rotation_problem(const MeshTable& mesh_table, const EurnnTable& table, bool complex) {
  Problem problem;
  Shape& s = problem.shape;
  const int64_t B = s.batch, I = s.inputs, H = s.hidden, rows = s.steps * B, parts = 1 + complex;
  std::vector<int32_t> p, q, reach;
  for (int layer = 0, layers = int(between(1, H)); layer < layers; ++layer)
    for (int64_t j = layer % 2; j + 1 < H; j += 2) p.push_back(j), q.push_back(j + 1), reach.push_back(layer);
  const int64_t N = p.size(), angles = complex ? 2 * N + H : N;
  MeshSizes mesh_sizes;
  mesh_table.sizes(H, &mesh_sizes);
  EurnnSizes sizes;
  table.sizes(I, H, N, &sizes);
  // The inverse of a rotation is its transpose, so the coefficients have to be those of angles.
  Buffer<T> coefficients(N * (complex ? 6 : 2)), phases(2 * H);
  T* k = coefficients.get();
  for (int64_t n = 0; n < N; ++n) {
    const auto angle = Buffer<double>::drawn(2, 3.0);
    const double c = cos(angle.values[0]), s = sin(angle.values[0]), e = cos(angle.values[1]), f = sin(angle.values[1]);
    *k++ = T(c), *k++ = T(s);
    if (complex) *k++ = T(e * s), *k++ = T(f * s), *k++ = T(e * c), *k++ = T(f * c);
  }
  const auto omega = Buffer<double>::drawn(H, 3.0);
  for (int64_t u = 0; u < H; ++u) phases.values[2 * u] = T(cos(omega.values[u])), phases.values[2 * u + 1] = T(sin(omega.values[u]));
  const MeshArguments mesh = {H, N, p.data(), q.data(), reach.data(), coefficients.get(), phases.get()};

  Buffer<T> u(H * H * parts), matrix_scratch(mesh_sizes.scratch * s.threads), sums(8 * angles, T(0));
  auto du = Buffer<T>::drawn(H * H * parts);
  MeshMatrixArguments m = {mesh, s.threads, 8, angles, u.get(), du.get(), matrix_scratch.get(), sums.get()};
  mesh_table.matrix(&m);
  mesh_table.matrix_backward(&m);
  u.result("u"), sums.sum_of_rows(angles).result("angles");

  const int64_t blocks = (B + sizes.lanes - 1) / sizes.lanes, lanes = sizes.lanes;
  auto x = Buffer<T>::drawn(rows * I), weight = Buffer<T>::drawn(parts * H * I), bias = modrelu_bias<T>(0, H),
       h0 = Buffer<T>::drawn(B * H * parts), grad = Buffer<T>::drawn(rows * H), dstate = Buffer<T>::drawn(B * H * parts);
  Buffer<T> state = h0, output(rows * H), saved(complex ? s.steps * blocks * lanes * H * 2 : 0),
            scratch(sizes.scratch * s.threads);
  EurnnArguments e = {};
  e.shape = s, e.mesh = mesh, e.x = x.get(), e.weight = weight.get(), e.bias = s.modrelu ? bias.get() : nullptr;
  e.state = state.get(), e.output = output.get(), e.saved = complex ? saved.get() : nullptr, e.scratch = scratch.get(), e.stream = between(0, 1);
  e.shape.first = 0, e.shape.last = s.steps;
  table.forward(&e);
  output.result("output"), state.result("h_n");
  Buffer<T> gradients(sizes.gradients * s.steps * blocks), inputs(sizes.inputs * s.steps * blocks),
      totals(blocks * sizes.sums, T(0)), dweight(parts * H * I, T(0)), dx(rows * I);
  e.state = dstate.get(), e.grad_output = grad.get(), e.h0 = h0.get(), e.grad_step = B * H, e.grad_row = H;
  e.depth = s.steps * blocks, e.gradients = gradients.get(), e.inputs = inputs.get(), e.sums = totals.get();
  e.weights = dweight.get(), e.grad_x = dx.get();
  table.backward(&e);
  dstate.result("grad_h0"), totals.sum_of_rows(angles + H).result("angles"), dweight.result("weight"), dx.result("grad_x");
}

}  // namespace
