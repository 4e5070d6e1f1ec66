// GRU and LSTM for one instruction set.
#include "gated.h"
#include "table.h"

namespace {

template <class T, class Cell>
constexpr GatedTable gated_table() {
  return {
      [](int64_t I, int64_t H, GatedSizes* s) {
        const int64_t HP = panels<T>(H), Hp = HP * W<T>;
        *s = {gated_pack_size<T, Cell>(I, H), gated_pack_backward_size<T, Cell>(H), gated_pack_input_size<T, Cell>(I, H),
              Cell::kSums * Hp, Cell::kSaved, gated_chunk_panels<T, Cell>(I, H) * W<T>, Cell::kThrough ? Hp : 0,
              Cell::kGates * Hp * panels<T>(I + 1) * W<T>, Cell::kGates * Hp * Hp, Cell::kOwnBias ? Hp : 0, kRows};
      },
      [](const void* bias_ih, const void* bias_hh, int64_t H, void* out) {
        gated_bias<T, Cell>((const T*)bias_ih, (const T*)bias_hh, H, (T*)out);
      },
      [](const void* weight_ih, const void* weight_hh, int64_t I, int64_t H, void* out) {
        gated_pack<T, Cell>((const T*)weight_ih, (const T*)weight_hh, I, H, (T*)out);
      },
      [](const void* weight_hh, int64_t H, void* out) { gated_pack_backward<T, Cell>((const T*)weight_hh, H, (T*)out); },
      [](const void* weight_ih, int64_t I, int64_t H, void* out) {
        gated_pack_input<T, Cell>((const T*)weight_ih, I, H, (T*)out);
      },
      gated_forward<T, Cell>,
      gated_backward<T, Cell>,
      gated_finish<T, Cell>,
  };
}

}  // namespace

constexpr GatedTables LEVEL_TABLE(gated_tables) = {
    {{gated_table<float, Gru<float>>(), gated_table<double, Gru<double>>()},
     {gated_table<float, Lstm<float>>(), gated_table<double, Lstm<double>>()}},
};
