// What crosses the border between Python and the kernels of GRU and LSTM; see base/shape.h.
#pragma once

#include "base/shape.h"

// Sizes of the buffers that the caller provides, in elements.
struct GatedSizes {
  int64_t packed, packed_backward, packed_input;
  int64_t bias;         // the biases of the sums
  int64_t saved;        // for each row and step
  int64_t chunk_row;    // chunk buffer, for each row
  int64_t through;      // for each block of `block_rows` rows
  int64_t wide;         // sums of the gradients of weight_ih and the biases
  int64_t padded;       // hidden units, filled up: the sums of a gate's rows of weight_hh are a square of them
  int64_t groups;       // of rows with their own sums, at most
  int64_t bias_sums;    // for each block of `block_rows` rows
  int64_t block_rows;
};

struct GatedForward {
  Shape shape;
  const void *x, *h0;
  const void* bias;                  // of the sums, see gated_bias
  const void* packed;                // or null: then the weights as they are
  const void *weight_ih, *weight_hh;
  void *output, *saved;              // saved: null in inference
  void* cell;                        // (B, H), LSTM: c_0, at the end c_n
  void* cells;                       // or null: c before every `cell_steps`-th step from `cells_from` on, (B, H) each
  int64_t cell_steps, cells_from;
  int64_t stream;                    // whether `saved` is so large that it is written past the caches
};

struct GatedBackward {
  Shape shape;
  int64_t grad_step, grad_row;  // strides of grad_output
  ChunkLayout layout;
  const void *grad_output, *x, *h0, *output, *saved, *packed_input;
  const void *packed, *weight_hh;  // packed: null for a single row that fills whole panels
  void* carry;       // (B, H): gradient of h after the steps done so far; grad_h_n at first, grad_h_0 at the end
  void* carry_cell;  // the same for c, or null
  void* chunk;       // gradients of the sums, states and inputs of the chunk, in panels
  void* through;     // H padded, for each row: what reaches the state before without a product, or null
  void *wide, *square;  // sums of the weight gradients for each group
  void* bias_sums;
  void* grad_x;      // or null
  void* cells;       // LSTM: c before every step from `cells_from` on, (B, H) each; gated_cells fills it from the first
  int64_t cells_from;
};

// A step of a few rows without gradients, prepared once for many calls.
struct GatedStream {
  GatedForward forward;  // without x, h0, bias, output and cell
  int64_t dtype, cell;
  int64_t bias_bytes;    // of the biases of the sums
  const void *bias_ih, *bias_hh;  // or null
};

// Gradients as torch has them, from the sums of all chunks and groups.
struct GatedFinish {
  int64_t inputs, hidden, blocks, groups;
  void *wide, *square;  // `square` may be grad_weight_hh, where there is one group and nothing is filled up
  const void* bias_sums;
  void *grad_weight_ih, *grad_weight_hh, *grad_bias_ih, *grad_bias_hh;  // the last two or null
};

struct GatedTable {
  void (*sizes)(int64_t inputs, int64_t hidden, GatedSizes* sizes);
  void (*bias)(const void* bias_ih, const void* bias_hh, int64_t hidden, void* out);
  void (*pack)(const void* weight_ih, const void* weight_hh, int64_t inputs, int64_t hidden, void* out);
  void (*pack_backward)(const void* weight_hh, int64_t hidden, void* out);
  void (*pack_input)(const void* weight_ih, int64_t inputs, int64_t hidden, void* out);
  void (*forward)(const GatedForward*);
  void (*cells)(const GatedBackward*);
  void (*backward)(const GatedBackward*);
  void (*finish)(const GatedFinish*);
};

enum { kGru = 0, kLstm = 1 };

struct GatedTables {
  GatedTable of[2][2];  // by dtype (float32, float64) and cell
};
