// GORU for one instruction set. Every level_*.cpp is compiled once per level, GORU_LEVEL being its name.
#include "goru_backward.h"
#include "goru_forward.h"
#include "table.h"

namespace {

template <class T, bool R, bool Z>
constexpr GoruTable goru_table() {
  return {
      [](int64_t I, int64_t H, GoruSizes* s) {
        const int64_t Hp = panels<T>(H) * W<T>;
        *s = {goru_pack_size<T, R, Z>(I, H), goru_pack_backward_size<T, R, Z>(H), goru_pack_input_size<T, R, Z>(I, H),
              goru_chunk_panels<T, R, Z>(I, H) * W<T>, Hp, goru_weights_size<T, R, Z>(I, H), Hp, kRows, W<T>};
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
