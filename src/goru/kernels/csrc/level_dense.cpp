// EURNN with a complex U as a matrix, for one instruction set.
#include "eurnn_dense.h"
#include "table.h"

namespace {

template <class T>
constexpr DenseTable dense_table() {
  return {
      [](int64_t I, int64_t H, DenseSizes* s) {
        const int64_t HP = panels<T>(H), IP = panels<T>(I);
        *s = {dense_pack_size<T>(I, H), dense_pack_size<T>(0, H), dense_pack_input_size<T>(I, H), HP * W<T>, IP * W<T>,
              (4 * HP + IP) * W<T>, kRows};
      },
      [](const void* blocks, const void* weight, int64_t I, int64_t H, void* out) {
        dense_pack<T>((const T*)blocks, (const T*)weight, I, H, (T*)out);
      },
      [](const void* weight, int64_t I, int64_t H, void* out) {
        dense_pack_input<T>((const T*)weight, I, H, (T*)out);
      },
      dense_forward<T>,
      dense_backward<T>,
  };
}

}  // namespace

constexpr DenseTables LEVEL_TABLE(dense_tables) = {{dense_table<float>(), dense_table<double>()}};
