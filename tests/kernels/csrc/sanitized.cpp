// The kernels over random shapes, as a program of its own: for AddressSanitizer and UndefinedBehaviorSanitizer, for
// machines without Python, and for vectors that this processor does not have. Every result has to be a number, since
// what is not written is NaN; given a file it also writes the results there, in an order that depends on no level.
#define GORU_LEVEL tested
#include "level_goru.cpp"
#include "level_rotations.cpp"
#include "problem.h"
#include "rotation_problem.h"

namespace {

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
       hh = Buffer<T>::drawn((G - 1) * H * H), u = Buffer<T>::drawn(H * H), bias = modrelu_bias<T>((G - 1) * H, H);
  Buffer<T> packed(sizes.packed), output(rows * H), saved(rows * saves * H, T(0));
  table.pack(ih.get(), hh.get(), u.get(), I, H, packed.get());
  GoruForward f = {s, x.get(), h0.get(), packed.get(), s.modrelu ? bias.get() : nullptr, output.get(), saved.get()};
  const int64_t half = s.steps / 2;
  f.shape.first = 0, f.shape.last = half;
  table.forward(&f);
  f.shape.first = half, f.shape.last = s.steps;
  table.forward(&f);
  output.result("output");

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
  const int64_t Hp = sizes.bias, Ip = sizes.weights / (G * Hp) - Hp;
  carry.result("grad_h0"), dx.result("grad_x");
  weights.without_padding(0, G, H, H, Hp, Hp).result("recurrent weights");
  weights.without_padding(G * Hp * Hp, G, H, I + 1, Hp, Ip).result("input weights");
  db.sum_of_rows(Hp).without_padding(0, 1, 1, H, 1, Hp).result("bias");
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? atoi(argv[1]) : 40;
  if (argc > 2 && !(record = fopen(argv[2], "wb"))) return perror(argv[2]), 1;
  for (int i = 0; i < rounds; ++i) {
    for (int gates = 0; gates < 4; ++gates) {
      goru_problem<float>(goru_tables_tested.of[0][gates], gates & 1, gates & 2);
      goru_problem<double>(goru_tables_tested.of[1][gates], gates & 1, gates & 2);
    }
    for (int complex = 0; complex < 2; ++complex) {
      rotation_problem<float>(rotation_tables_tested.of[0][complex], complex);
      rotation_problem<double>(rotation_tables_tested.of[1][complex], complex);
    }
  }
  if (record && fclose(record)) return perror(argv[2]), 1;
  printf("%d rounds\n", rounds);
}
