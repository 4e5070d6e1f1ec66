// The kernels over random shapes, as a program of its own: for AddressSanitizer and UndefinedBehaviorSanitizer, for
// machines without Python, and for vectors that this processor does not have. Every result has to be a number, since
// what is not written is NaN; given a file it also writes the results there, in an order that depends on no level.
#define GORU_LEVEL tested
#include "dense_problem.h"
#include "eurnn/eurnn.cpp"
#include "gated/gated.cpp"
#include "gated_problem.h"
#include "goru/goru.cpp"
#include "mesh/mesh.cpp"
#include "problem.h"
#include "rotation_problem.h"

namespace {

template <class T>
void goru_problem(const GoruTable& table, bool reset, bool update) {
  Problem problem;
  Shape& s = problem.shape;
  s.reset = reset, s.update = update;
  const int64_t B = s.batch, I = s.inputs, H = s.hidden, G = 1 + reset + update, rows = s.steps * B;
  Transition mesh = {};
  mesh.kind = between(kMatrix, kMeshTunable);
  if (mesh.kind == kMeshTunable && H > 1) mesh.layers = between(1, H < 5 ? H : 5);
  if (mesh.kind == kMeshFft)
    while (int64_t(1) << mesh.layers < H) ++mesh.layers;
  const bool matrix = mesh.kind == kMatrix, pack = between(0, 3) > 0, stream = between(0, 1);
  GoruSizes sizes;
  table.sizes(&mesh, I, H, &sizes);
  const int64_t blocks = (B + sizes.block_rows - 1) / sizes.block_rows;
  auto x = Buffer<T>::drawn(rows * I), h0 = Buffer<T>::drawn(B * H), ih = Buffer<T>::drawn(G * H * I),
       hh = Buffer<T>::drawn((G - 1) * H * H), u = Buffer<T>::drawn(H * H), bias = modrelu_bias<T>((G - 1) * H, H),
       angles = Buffer<T>::drawn(mesh.layers * H);
  Buffer<T> packed(sizes.packed), output(rows * H), saved(rows * sizes.saved, T(0)), turned(sizes.turned * blocks),
      cosines(sizes.mesh);
  if (!matrix) table.mesh_table(&mesh, H, angles.get(), cosines.get());
  mesh.table = cosines.get();
  const T* matrix_u = matrix ? u.get() : nullptr;
  table.pack(ih.get(), hh.get(), matrix_u, I, H, packed.get());
  GoruForward f = {s, mesh, x.get(), h0.get(), s.modrelu ? bias.get() : nullptr, pack ? packed.get() : nullptr,
                   ih.get(), hh.get(), matrix_u, output.get(), saved.get(), turned.get(), stream};
  const int64_t half = s.steps / 2;
  f.shape.first = 0, f.shape.last = half;
  table.forward(&f);
  f.shape.first = half, f.shape.last = s.steps;
  table.forward(&f);
  output.result("output");

  const int64_t chunk = half > s.steps - half ? half : s.steps - half;
  const ChunkLayout layout = least_layout(B, chunk, sizes.block_rows, sizes.groups);
  auto grad = Buffer<T>::drawn(rows * H), carry = Buffer<T>::drawn(B * H);
  Buffer<T> backward(sizes.packed_backward), input(sizes.packed_input), buffer(sizes.chunk_row * layout.rows),
      through(sizes.through * blocks), lines(2 * sizes.turned * blocks),
      wide(layout.groups * sizes.wide, T(0)), square(layout.groups * sizes.square * (G - 1 + matrix), T(0)),
      db(sizes.bias * blocks, T(0)), turns(sizes.angles * blocks, T(0)), dx(rows * I);
  table.pack_backward(hh.get(), matrix_u, H, backward.get());
  table.pack_input(ih.get(), I, H, input.get());
  GoruBackward b = {s, mesh, B * H, H, layout, grad.get(), x.get(), h0.get(), output.get(), saved.get(),
                    backward.get(), input.get(), carry.get(), buffer.get(), through.get(), lines.get(), wide.get(),
                    square.get(), db.get(), turns.get(), dx.get()};
  b.shape.first = half, b.shape.last = s.steps;
  table.backward(&b);
  b.shape.first = 0, b.shape.last = half;
  if (half) table.backward(&b);
  Buffer<T> dih(G * H * I), dhh((G - 1) * H * H), du(matrix ? H * H : 0), dbias(G * H), dangles(mesh.layers * H, T(0));
  const GoruFinish finish = {I, H, G, blocks, layout.groups, mesh, wide.get(), square.get(), db.get(), turns.get(),
                             dih.get(), dhh.get(), matrix ? du.get() : nullptr, dbias.get(),
                             matrix ? nullptr : dangles.get()};
  table.finish(&finish);
  carry.result("grad_h0"), dx.result("grad_x"), dih.result("input weights"), dbias.result("bias");
  dangles.result("angles"), dhh.result("recurrent weights"), du.result("u");
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
      rotation_problem<float>(mesh_tables_tested.of[0][complex], eurnn_tables_tested.rotations[0][complex], complex);
      rotation_problem<double>(mesh_tables_tested.of[1][complex], eurnn_tables_tested.rotations[1][complex], complex);
    }
    dense_problem<float>(eurnn_tables_tested.matrix[0]);
    dense_problem<double>(eurnn_tables_tested.matrix[1]);
    for (int lstm = 0; lstm < 2; ++lstm) {
      gated_problem<float>(gated_tables_tested.of[0][lstm], lstm);
      gated_problem<double>(gated_tables_tested.of[1][lstm], lstm);
    }
  }
  if (record && fclose(record)) return perror(argv[2]), 1;
  printf("%d rounds\n", rounds);
}
