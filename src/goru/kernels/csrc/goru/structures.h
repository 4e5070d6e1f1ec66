// What crosses the border between Python and the GORU kernels; see base/shape.h.
#pragma once

#include <string.h>

#include "base/shape.h"
#include "mesh/structures.h"

struct GoruForward {
  Shape shape;
  Transition mesh;
  const void *x, *h0, *bias;                 // bias: b_r, b_z, b_h as far as they exist, or null
  const void* packed;                        // or null: then the weights as they are
  const void *weight_ih, *weight_hh, *u;
  void *output, *saved;                      // saved: null in inference
  void* turned;                              // a line for each row: U h
  int64_t stream;                            // whether `saved` is so large that it is written past the caches
};

struct GoruBackward {
  Shape shape;
  Transition mesh;
  int64_t grad_step, grad_row;  // strides of grad_output
  ChunkLayout layout;
  const void *grad_output, *x, *h0, *output, *saved, *packed, *packed_input;
  void* carry;    // (B, H): gradient of the state after the steps done so far; grad_h_n at first, grad_h0 at the end
  void* chunk;    // gradients of the pre-activations, states and inputs of the chunk, in panels
  void* through;  // H padded, for each row: what reaches the state before without a gate's product, g * z + dv U
  void* turned;   // two lines for each row: dv and U h, on their way back through the rotations
  void *wide, *square;  // sums of the weight gradients for each group, see goru_backward.h
  void* bias;     // for each block of rows: gradient of b_h
  void* angles;   // (blocks of rows, sums of a mesh), or null
  void* grad_x;   // or null
};

// The source of a cached value: its address, and a copy from when the value was computed. bytes = 0: not in use.
struct Compared {
  const void *now, *before;
  int64_t bytes;
  bool changed() const { return bytes && memcmp(now, before, bytes); }
};

// A step of a few rows without gradients, prepared once for many calls.
struct GoruStream {
  GoruForward forward;             // without x, h0, output and turned
  int64_t dtype;
  int64_t turned, block_rows;      // bytes of `turned` for each block of rows
  Compared angles, bias, memory;   // what the table, or U, and a scaled bias were computed from
};

// Gradients as torch has them, from the sums of all chunks and groups.
struct GoruFinish {
  int64_t inputs, hidden, gates, blocks, groups;  // gates: 1 + reset + update
  Transition mesh;
  // `square` may be grad_weight_hh, where U is no matrix, there is one group and nothing is filled up.
  void *wide, *square;
  const void *bias, *angles;
  void* grad_weight_ih;
  void *grad_weight_hh, *grad_u, *grad_bias, *grad_angles;  // or null
};

// Sizes of the buffers that the caller provides, in elements.
struct GoruSizes {
  int64_t packed, packed_backward, packed_input;
  int64_t chunk_row;         // chunk buffer, for each row
  int64_t through, turned;   // for each block of rows; backward has twice as much of `turned`
  int64_t wide, square;      // sums of the weight gradients; `square` for each matrix
  int64_t groups;            // of rows with their own sums, at most
  int64_t bias, block_rows;  // sums of `bias` for each block of `block_rows` rows
  int64_t saved;             // for each row and step
  int64_t mesh, angles;      // the table of a mesh, and its sums for each block of rows
};

// `mesh` says how U acts; with rotations `u` is not read.
struct GoruTable {
  void (*sizes)(const Transition* mesh, int64_t inputs, int64_t hidden, GoruSizes* sizes);
  void (*pack)(const void* weight_ih, const void* weight_hh, const void* u, int64_t inputs, int64_t hidden, void* out);
  void (*pack_backward)(const void* weight_hh, const void* u, int64_t hidden, void* out);
  void (*pack_input)(const void* weight_ih, int64_t inputs, int64_t hidden, void* out);
  void (*forward)(const GoruForward*);
  void (*backward)(const GoruBackward*);
  void (*mesh_table)(const Transition* mesh, int64_t hidden, const void* angles, void* out);
  void (*finish)(const GoruFinish*);
};

struct GoruTables {
  GoruTable of[2][4];  // by dtype (float32, float64) and gates (reset + 2 * update)
};
