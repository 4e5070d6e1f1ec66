// The kernels over random shapes, for AddressSanitizer and UndefinedBehaviorSanitizer: every buffer is allocated at
// exactly the size that the caller is told to provide, so that a step beyond it is seen. Values are compared elsewhere;
// here every result only has to be a number, since everything that is not written would be NaN.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <random>
#include <vector>

#define GORU_LEVEL sanitized
#include "table.h"
GORU_DECLARE(sanitized)
#include "level_goru.cpp"
#include "level_rotations.cpp"

namespace {

std::mt19937 random_bits(2017);

int64_t between(int64_t low, int64_t high) { return low + int64_t(random_bits() % uint64_t(high - low + 1)); }

// A buffer of its own allocation; NaN until written, unless drawn or zeroed.
template <class T>
struct Buffer {
  std::vector<T> values;
  explicit Buffer(int64_t n, T fill = T(NAN)) : values(n, fill) { values.shrink_to_fit(); }
  static Buffer drawn(int64_t n, T scale = T(0.5)) {
    Buffer b(n);
    std::normal_distribution<double> normal;
    for (T& v : b.values) v = T(normal(random_bits)) * scale;
    return b;
  }
  T* get() { return values.data(); }
  void check(const char* name) const {
    for (T v : values)
      if (!(v == v)) {
        printf("%s holds a NaN\n", name);
        exit(1);
      }
  }
};

struct Problem {
  Shape shape = {};
  std::vector<int64_t> order, active;
  Problem() {
    shape.steps = between(1, 6), shape.batch = between(1, 19), shape.inputs = between(1, 18);
    shape.hidden = between(1, 36), shape.reverse = between(0, 1), shape.modrelu = between(0, 1);
    shape.threads = between(1, 3);
    shape.x_row = shape.inputs, shape.x_step = shape.batch * shape.inputs;
    if (between(0, 1)) return;
    std::vector<int64_t> lengths(shape.batch);
    for (int64_t& l : lengths) l = between(1, shape.steps);
    for (int64_t length = shape.steps; length > 0; --length)
      for (int64_t i = 0; i < shape.batch; ++i)
        if (lengths[i] == length) order.push_back(i);
    for (int64_t t = 0; t < shape.steps; ++t) {
      active.push_back(0);
      for (int64_t l : lengths) active.back() += l > t;
    }
    shape.order = order.data(), shape.active = active.data();
  }
};

template <class T>
void goru_problem(const GoruTable& table, bool reset, bool update) {
  Problem problem;
  Shape& s = problem.shape;
  s.reset = reset, s.update = update;
  const int64_t B = s.batch, I = s.inputs, H = s.hidden, G = 1 + reset + update, rows = s.steps * B;
  const int64_t saves = reset && update ? 3 : reset || update ? 2 : 0;
  GoruSizes sizes;
  table.sizes(I, H, &sizes);
  auto x = Buffer<T>::drawn(rows * I), h0 = Buffer<T>::drawn(B * H), ih = Buffer<T>::drawn(G * H * I),
       hh = Buffer<T>::drawn((G - 1) * H * H), u = Buffer<T>::drawn(H * H), bias = Buffer<T>::drawn(G * H);
  Buffer<T> packed(sizes.packed), output(rows * H), saved(rows * saves * H, T(0));
  table.pack(ih.get(), hh.get(), u.get(), I, H, packed.get());
  GoruForward f = {s, x.get(), h0.get(), packed.get(), s.modrelu ? bias.get() : nullptr, output.get(), saved.get()};
  const int64_t half = s.steps / 2;
  f.shape.first = 0, f.shape.last = half;
  table.forward(&f);
  f.shape.first = half, f.shape.last = s.steps;
  table.forward(&f);
  output.check("output");

  const int64_t chunk = half > s.steps - half ? half : s.steps - half, blocks = (B + sizes.block_rows - 1) / sizes.block_rows;
  auto grad = Buffer<T>::drawn(rows * H), carry = Buffer<T>::drawn(B * H);
  Buffer<T> backward(sizes.packed_backward), input(sizes.packed_input), buffer(sizes.chunk_row * chunk * B),
      through(sizes.through_row * B), weights(sizes.weights, T(0)), db(sizes.bias * blocks, T(0)), dx(rows * I);
  table.pack_backward(hh.get(), u.get(), H, backward.get());
  table.pack_input(ih.get(), I, H, input.get());
  GoruBackward b = {s, B * H, H, chunk * B, grad.get(), x.get(), h0.get(), output.get(), saved.get(), backward.get(),
                    input.get(), carry.get(), buffer.get(), through.get(), weights.get(), db.get(), dx.get()};
  b.shape.first = half, b.shape.last = s.steps;
  table.backward(&b);
  b.shape.first = 0, b.shape.last = half;
  if (half) table.backward(&b);
  carry.check("grad_h0"), weights.check("weights"), db.check("bias"), dx.check("grad_x");
}

template <class T>
void rotation_problem(const RotationTable& table, bool complex) {
  Problem problem;
  Shape& s = problem.shape;
  const int64_t B = s.batch, I = s.inputs, H = s.hidden, rows = s.steps * B, parts = 1 + complex;
  std::vector<int32_t> p, q, reach;
  for (int layer = 0, layers = int(between(1, H)); layer < layers; ++layer)
    for (int64_t j = layer % 2; j + 1 < H; j += 2) p.push_back(j), q.push_back(j + 1), reach.push_back(layer);
  const int64_t N = p.size(), angles = complex ? 2 * N + H : N;
  RotationSizes sizes;
  table.sizes(I, H, N, &sizes);
  auto coefficients = Buffer<T>::drawn(N * (complex ? 6 : 2)), phases = Buffer<T>::drawn(2 * H);
  const MeshArguments mesh = {H, N, p.data(), q.data(), reach.data(), coefficients.get(), phases.get()};

  Buffer<T> u(H * H * parts), matrix_scratch(sizes.matrix_scratch * s.threads), sums(8 * angles, T(0));
  auto du = Buffer<T>::drawn(H * H * parts);
  MeshMatrixArguments m = {mesh, s.threads, 8, angles, u.get(), du.get(), matrix_scratch.get(), sums.get()};
  table.matrix(&m);
  table.matrix_backward(&m);
  u.check("u"), sums.check("angles");

  const int64_t blocks = (B + sizes.lanes - 1) / sizes.lanes, lanes = sizes.lanes;
  auto x = Buffer<T>::drawn(rows * I), weight = Buffer<T>::drawn(parts * H * I), bias = Buffer<T>::drawn(H),
       h0 = Buffer<T>::drawn(B * H * parts), grad = Buffer<T>::drawn(rows * H), dstate = Buffer<T>::drawn(B * H * parts);
  Buffer<T> state = h0, output(rows * H), saved(complex ? s.steps * blocks * lanes * H * 2 : 0),
            scratch(sizes.eurnn_scratch * s.threads);
  EurnnArguments e = {};
  e.shape = s, e.mesh = mesh, e.x = x.get(), e.weight = weight.get(), e.bias = s.modrelu ? bias.get() : nullptr;
  e.state = state.get(), e.output = output.get(), e.saved = complex ? saved.get() : nullptr, e.scratch = scratch.get();
  e.shape.first = 0, e.shape.last = s.steps;
  table.eurnn_forward(&e);
  output.check("output"), state.check("h_n");
  Buffer<T> gradients((parts * H + 3) / 4 * 4 * lanes * s.steps * blocks), inputs((I + 2) / 3 * 3 * lanes * s.steps * blocks),
      totals(blocks * (angles + H), T(0)), dweight(parts * H * I, T(0)), dx(rows * I);
  e.state = dstate.get(), e.grad_output = grad.get(), e.h0 = h0.get(), e.grad_step = B * H, e.grad_row = H;
  e.depth = s.steps * blocks, e.gradients = gradients.get(), e.inputs = inputs.get(), e.sums = totals.get();
  e.weights = dweight.get(), e.grad_x = dx.get();
  table.eurnn_backward(&e);
  dstate.check("grad_h0"), totals.check("angles"), dweight.check("weight"), dx.check("grad_x");
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? atoi(argv[1]) : 40;
  for (int i = 0; i < rounds; ++i) {
    for (int gates = 0; gates < 4; ++gates) {
      goru_problem<float>(goru_tables_sanitized.of[0][gates], gates & 1, gates & 2);
      goru_problem<double>(goru_tables_sanitized.of[1][gates], gates & 1, gates & 2);
    }
    for (int complex = 0; complex < 2; ++complex) {
      rotation_problem<float>(rotation_tables_sanitized.of[0][complex], complex);
      rotation_problem<double>(rotation_tables_sanitized.of[1][complex], complex);
    }
  }
  printf("%d rounds\n", rounds);
}
