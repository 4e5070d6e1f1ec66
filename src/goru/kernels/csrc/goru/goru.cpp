// GORU: its kernels for one instruction set, or its entry points (see base/levels.h).
#include "base/levels.h"
#include "goru/structures.h"

#ifdef GORU_LEVEL

#include "goru/goru_backward.h"
#include "goru/goru_forward.h"

namespace {

template <class T, bool R, bool Z>
constexpr GoruTable goru_table() {
  return {
      [](const Transition* m, int64_t I, int64_t H, GoruSizes* s) {
        const int64_t Hp = panels<T>(H) * W<T>;
        const bool matrix = m->kind == kMatrix;
        const int64_t wide = kGates<R, Z> * Hp * panels<T>(I + 1) * W<T>;
        *s = {goru_pack_size<T, R, Z>(I, H, matrix), goru_pack_backward_size<T, R, Z>(H, matrix),
              goru_pack_input_size<T, R, Z>(I, H), goru_chunk_panels<T, R, Z>(I, H, matrix) * W<T>,
              block_size<T>(Hp), block_size<T>(line<T>(H)),
              wide, Hp * Hp, most_groups(sizeof(T) * (wide + (R + Z + matrix) * Hp * Hp)),
              bias_size<T>(H), kRows, saved_blocks<R, Z>(matrix) * H,
              RowMesh<T>::table_size(H, m->layers), RowMesh<T>::sums_size(H, m->layers)};
      },
      [](const void* weight_ih, const void* weight_hh, const void* u, int64_t I, int64_t H, void* out) {
        goru_pack<T, R, Z>((const T*)weight_ih, (const T*)weight_hh, (const T*)u, I, H, (T*)out);
      },
      [](const void* weight_hh, const void* u, int64_t H, void* out) {
        goru_pack_backward<T, R, Z>((const T*)weight_hh, (const T*)u, H, (T*)out);
      },
      [](const void* weight_ih, int64_t I, int64_t H, void* out) {
        goru_pack_input<T, R, Z>((const T*)weight_ih, I, H, (T*)out);
      },
      goru_forward<T, R, Z>,
      goru_backward<T, R, Z>,
      [](const Transition* m, int64_t H, const void* angles, void* out) {
        RowMesh<T>(H, *m).fill((const T*)angles, (T*)out);
      },
      goru_finish<T>,
  };
}

}  // namespace

// Constant, so that no code of this level runs when the library is loaded.
LEVEL_TABLE(GoruTables, goru) = {
    {{goru_table<float, false, false>(), goru_table<float, true, false>(), goru_table<float, false, true>(),
      goru_table<float, true, true>()},
     {goru_table<double, false, false>(), goru_table<double, true, false>(), goru_table<double, false, true>(),
      goru_table<double, true, true>()}},
};

#else

#include "base/scratch.h"

LEVEL_TABLES(GoruTables, goru);

static const GoruTable& goru(int dtype, int64_t gates) { return goru_levels[goru_level]->of[dtype][gates]; }

GORU_API void goru_goru_sizes(int dtype, int gates, const Transition* mesh, int64_t inputs, int64_t hidden,
                              GoruSizes* sizes) {
  goru(dtype, gates).sizes(mesh, inputs, hidden, sizes);
}
GORU_API void goru_goru_pack(int dtype, int gates, const void* weight_ih, const void* weight_hh, const void* u,
                             int64_t inputs, int64_t hidden, void* out) {
  goru(dtype, gates).pack(weight_ih, weight_hh, u, inputs, hidden, out);
}
GORU_API void goru_goru_pack_backward(int dtype, int gates, const void* weight_hh, const void* u, int64_t hidden,
                                      void* out) {
  goru(dtype, gates).pack_backward(weight_hh, u, hidden, out);
}
GORU_API void goru_goru_pack_input(int dtype, int gates, const void* weight_ih, int64_t inputs, int64_t hidden,
                                   void* out) {
  goru(dtype, gates).pack_input(weight_ih, inputs, hidden, out);
}
GORU_API void goru_goru_mesh(int dtype, const Transition* mesh, int64_t hidden, const void* angles, void* out) {
  goru(dtype, 0).mesh_table(mesh, hidden, angles, out);
}
GORU_API void goru_goru_finish(int dtype, const GoruFinish* f) { goru(dtype, 0).finish(f); }
GORU_API void goru_goru_forward(int dtype, const GoruForward* f) {
  goru(dtype, f->shape.reset + 2 * f->shape.update).forward(f);
}
GORU_API void goru_goru_backward(int dtype, const GoruBackward* b) {
  goru(dtype, b->shape.reset + 2 * b->shape.update).backward(b);
}
// One step of a stream; 0 if the stream is out of date, or memory is missing.
GORU_API int goru_goru_step(const Step* step) {
  const GoruStream& stream = *(const GoruStream*)step->stream;
  if (stream.angles.changed() || stream.bias.changed() || stream.memory.changed()) return 0;
  Scratch turned((step->rows + stream.block_rows - 1) / stream.block_rows * stream.turned);
  if (!turned.memory) return 0;
  GoruForward f = stream.forward;
  f.shape.batch = step->rows;
  f.x = step->x, f.h0 = step->h, f.output = step->new_h, f.turned = turned.memory;
  goru_goru_forward((int)stream.dtype, &f);
  return 1;
}

GORU_STRUCTURE(Step)
GORU_STRUCTURE(Compared)
GORU_STRUCTURE(GoruStream)
GORU_STRUCTURE(GoruForward)
GORU_STRUCTURE(GoruBackward)
GORU_STRUCTURE(GoruFinish)
GORU_STRUCTURE(GoruSizes)

#endif
