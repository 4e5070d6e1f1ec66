// GRU and LSTM: their kernels for one instruction set, or their entry points (see base/levels.h).
#include "base/levels.h"
#include "gated/structures.h"

#ifdef GORU_LEVEL

#include "gated/backward.h"
#include "gated/forward.h"
#include "gated/gru.h"
#include "gated/lstm.h"

namespace {

template <class T, class Cell>
constexpr GatedTable gated_table() {
  return {
      [](int64_t I, int64_t H, GatedSizes* s) {
        const int64_t HP = panels<T>(H), Hp = HP * W<T>;
        const int64_t wide = Cell::kGates * Hp * panels<T>(I + 1) * W<T>;
        *s = {gated_pack_size<T, Cell>(I, H), gated_pack_backward_size<T, Cell>(H), gated_pack_input_size<T, Cell>(I, H),
              Cell::kSums * Hp, Cell::kSaved * H, gated_chunk_panels<T, Cell>(I, H) * W<T>, Cell::kThrough ? block_size<T>(Hp) : 0,
              wide, Hp, most_groups(sizeof(T) * (wide + Cell::kGates * Hp * Hp)), Cell::kOwnBias ? bias_size<T>(H) : 0, kRows};
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
      gated_cells<T, Cell>,
      gated_backward<T, Cell>,
      gated_finish<T, Cell>,
  };
}

}  // namespace

LEVEL_TABLE(GatedTables, gated) = {
    {{gated_table<float, Gru<float>>(), gated_table<float, Lstm<float>>()},
     {gated_table<double, Gru<double>>(), gated_table<double, Lstm<double>>()}},
};

#else

#include <string.h>

#include "base/scratch.h"

LEVEL_TABLES(GatedTables, gated);

static const GatedTable& gated(int dtype, int cell) { return gated_levels[goru_level]->of[dtype][cell]; }

GORU_API void goru_gated_sizes(int dtype, int cell, int64_t inputs, int64_t hidden, GatedSizes* sizes) {
  gated(dtype, cell).sizes(inputs, hidden, sizes);
}
GORU_API void goru_gated_bias(int dtype, int cell, const void* bias_ih, const void* bias_hh, int64_t hidden, void* out) {
  gated(dtype, cell).bias(bias_ih, bias_hh, hidden, out);
}
GORU_API void goru_gated_pack(int dtype, int cell, const void* weight_ih, const void* weight_hh, int64_t inputs,
                              int64_t hidden, void* out) {
  gated(dtype, cell).pack(weight_ih, weight_hh, inputs, hidden, out);
}
GORU_API void goru_gated_pack_backward(int dtype, int cell, const void* weight_hh, int64_t hidden, void* out) {
  gated(dtype, cell).pack_backward(weight_hh, hidden, out);
}
GORU_API void goru_gated_pack_input(int dtype, int cell, const void* weight_ih, int64_t inputs, int64_t hidden,
                                    void* out) {
  gated(dtype, cell).pack_input(weight_ih, inputs, hidden, out);
}
GORU_API void goru_gated_forward(int dtype, int cell, const GatedForward* f) { gated(dtype, cell).forward(f); }
GORU_API void goru_gated_backward(int dtype, int cell, const GatedBackward* b) { gated(dtype, cell).backward(b); }
GORU_API void goru_gated_cells(int dtype, int cell, const GatedBackward* b) { gated(dtype, cell).cells(b); }
GORU_API void goru_gated_finish(int dtype, int cell, const GatedFinish* f) { gated(dtype, cell).finish(f); }
// One step of a stream; 0 if memory is missing.
GORU_API int goru_gated_step(const Step* step) {
  const GatedStream& stream = *(const GatedStream*)step->stream;
  GatedForward f = stream.forward;
  const GatedTable& table = gated((int)stream.dtype, (int)stream.cell);
  Scratch bias(stream.bias_bytes);
  if (!bias.memory) return 0;
  table.bias(stream.bias_ih, stream.bias_hh, f.shape.hidden, bias.memory);
  f.shape.batch = step->rows;
  f.x = step->x, f.h0 = step->h, f.bias = bias.memory, f.output = step->new_h, f.cell = step->new_c;
  if (stream.cell == kLstm) memcpy(step->new_c, step->c, step->rows * f.shape.hidden * (stream.dtype ? 8 : 4));
  table.forward(&f);
  return 1;
}

GORU_STRUCTURE(GatedStream)
GORU_STRUCTURE(GatedSizes)
GORU_STRUCTURE(GatedForward)
GORU_STRUCTURE(GatedBackward)
GORU_STRUCTURE(GatedFinish)

#endif
