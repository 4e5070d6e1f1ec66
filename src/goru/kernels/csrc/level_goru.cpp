// GORU for one instruction set. Every level_*.cpp is compiled once per level, GORU_LEVEL being its name.
#include "goru_backward.h"
#include "goru_forward.h"
#include "table.h"

namespace {

template <class T, bool R, bool Z>
constexpr GoruTable goru_table() {
  return {
      [](const GoruMesh* m, int64_t I, int64_t H, GoruSizes* s) {
        const int64_t Hp = panels<T>(H) * W<T>;
        const bool matrix = m->kind == kMatrix;
        *s = {goru_pack_size<T, R, Z>(I, H, matrix), goru_pack_backward_size<T, R, Z>(H, matrix),
              goru_pack_input_size<T, R, Z>(I, H), goru_chunk_panels<T, R, Z>(I, H, matrix) * W<T>, Hp, line<T>(H),
              kGates<R, Z> * Hp * panels<T>(I + 1) * W<T>, Hp * Hp, Hp, kRows, W<T>, RowMesh<T>::table_size(H, m->layers),
              RowMesh<T>::sums_size(H, m->layers)};
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
      [](const GoruMesh* m, int64_t H, const void* angles, void* out) {
        RowMesh<T>(H, *m).fill((const T*)angles, (T*)out);
      },
      goru_finish<T>,
  };
}

}  // namespace

// Constant, so that no code of this level runs when the library is loaded.
constexpr GoruTables LEVEL_TABLE(goru_tables) = {
    {{goru_table<float, false, false>(), goru_table<float, true, false>(), goru_table<float, false, true>(),
      goru_table<float, true, true>()},
     {goru_table<double, false, false>(), goru_table<double, true, false>(), goru_table<double, false, true>(),
      goru_table<double, true, true>()}},
};
