// The functions that Python calls, and the choice of the instruction set.
#include <string.h>

#include "table.h"

#ifndef GORU_SOURCE_HASH
#define GORU_SOURCE_HASH "unknown"
#endif

// Those that hatch_build.py compiles for this machine, from the plainest to the widest.
#ifndef GORU_LEVELS
#define GORU_LEVELS(one) one(generic)
#endif

#define GORU_API extern "C" __attribute__((visibility("default")))

GORU_LEVELS(GORU_DECLARE)

namespace {

struct Level {
  const char* name;
  const GoruTables* goru;
  const RotationTables* rotations;
  const DenseTables* dense;
};

#define GORU_ROW(level) {#level, &goru_tables_##level, &rotation_tables_##level, &dense_tables_##level},
const Level levels[] = {GORU_LEVELS(GORU_ROW)};
constexpr int kLevels = sizeof levels / sizeof levels[0];

// Asks for everything that the level is compiled with, see hatch_build.py.
bool can_run(const char* name) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
                    __builtin_cpu_supports("bmi2");
  if (!strcmp(name, "avx2")) return avx2;
  if (!strcmp(name, "avx512"))
    return avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512cd");
#endif
  return !strcmp(name, "generic");
}

int chosen = 0;

const RotationTable& rotations(int dtype, int complex) { return levels[chosen].rotations->of[dtype][complex]; }

const DenseTable& dense(int dtype) { return levels[chosen].dense->of[dtype]; }

const GoruTable& goru(int dtype, int64_t gates) { return levels[chosen].goru->of[dtype][gates]; }

}  // namespace

GORU_API const char* goru_source_hash() { return GORU_SOURCE_HASH; }

GORU_API int goru_levels() { return kLevels; }
GORU_API const char* goru_level_name(int i) { return levels[i].name; }
GORU_API int goru_level_runs(int i) { return can_run(levels[i].name); }
GORU_API void goru_choose(int i) { chosen = i; }
GORU_API int goru_chosen() { return chosen; }

GORU_API void goru_goru_sizes(int dtype, int gates, const GoruMesh* mesh, int64_t inputs, int64_t hidden,
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
GORU_API void goru_goru_mesh(int dtype, const GoruMesh* mesh, int64_t hidden, const void* angles, void* out) {
  goru(dtype, 0).mesh_table(mesh, hidden, angles, out);
}
GORU_API void goru_goru_finish(int dtype, const GoruFinish* f) { goru(dtype, 0).finish(f); }
GORU_API void goru_goru_forward(int dtype, const GoruForward* f) {
  goru(dtype, f->shape.reset + 2 * f->shape.update).forward(f);
}
GORU_API void goru_goru_backward(int dtype, const GoruBackward* b) {
  goru(dtype, b->shape.reset + 2 * b->shape.update).backward(b);
}

GORU_API void goru_rotation_sizes(int dtype, int complex, int64_t inputs, int64_t hidden, int64_t count,
                                  RotationSizes* sizes) {
  rotations(dtype, complex).sizes(inputs, hidden, count, sizes);
}
GORU_API void goru_mesh_matrix(int dtype, int complex, const MeshMatrixArguments* a) {
  rotations(dtype, complex).matrix(a);
}
GORU_API void goru_mesh_matrix_backward(int dtype, int complex, const MeshMatrixArguments* a) {
  rotations(dtype, complex).matrix_backward(a);
}
GORU_API void goru_eurnn_forward(int dtype, int complex, const EurnnArguments* a) {
  rotations(dtype, complex).eurnn_forward(a);
}
GORU_API void goru_eurnn_backward(int dtype, int complex, const EurnnArguments* a) {
  rotations(dtype, complex).eurnn_backward(a);
}

GORU_API void goru_dense_sizes(int dtype, int64_t inputs, int64_t hidden, DenseSizes* sizes) {
  dense(dtype).sizes(inputs, hidden, sizes);
}
GORU_API void goru_dense_pack(int dtype, const void* blocks, const void* weight, int64_t inputs, int64_t hidden,
                              void* out) {
  dense(dtype).pack(blocks, weight, inputs, hidden, out);
}
GORU_API void goru_dense_pack_input(int dtype, const void* weight, int64_t inputs, int64_t hidden, void* out) {
  dense(dtype).pack_input(weight, inputs, hidden, out);
}
GORU_API void goru_dense_forward(int dtype, const DenseArguments* a) { dense(dtype).forward(a); }
GORU_API void goru_dense_backward(int dtype, const DenseArguments* a) { dense(dtype).backward(a); }
