// What crosses the border between Python and the EURNN kernels; mirrored in kernels/eurnn/native.py (rotations) and
// kernels/eurnn/native_matrix.py (U as a matrix).
#pragma once

#include "base/shape.h"
#include "mesh/structures.h"

// EURNN by rotations. Each row is one lane, `lanes` rows at a time.
struct EurnnArguments {
  Shape shape;
  MeshArguments mesh;
  const void *x, *weight, *bias;  // weight (H, I), or (2H, I) with the imaginary rows last
  void* state;                    // (B, H): forward h0, at the end h_n; backward dL/dh_n, at the end dL/dh0
  void* output;                   // (T, B, H), real
  void* saved;                    // pre-activations, [t][block of lanes][component][unit][lane], or null
  void* scratch;                  // for each thread
  int64_t stream;                 // whether `output` is so large that it and `saved` are written past the caches
  // backward
  const void *grad_output, *h0;
  int64_t grad_step, grad_row;
  int64_t depth;   // capacity of the chunk buffers: blocks of lanes, all steps together
  void *gradients, *inputs;  // the chunk buffers, see lane_products.h
  void* sums;      // (blocks of lanes, angles + H): gradients of angles and bias
  void* weights;   // (components * H, I): gradient of the weight
  void* grad_x;    // or null
};

// In elements. `scratch` for each thread, `sums` for each block of `lanes` rows (the first `angles` are those of the
// angles), `gradients` and `inputs` for each block and step of a chunk.
struct EurnnSizes {
  int64_t lanes, scratch, gradients, inputs, sums, angles;
};

struct EurnnTable {
  void (*sizes)(int64_t inputs, int64_t hidden, int64_t rotations, EurnnSizes* sizes);
  void (*forward)(const EurnnArguments*);
  void (*backward)(const EurnnArguments*);
};

// Complex EURNN with U as a matrix, see eurnn_dense.h. Hp: H filled up to whole panels; a state is (B, 2, Hp).
struct DenseArguments {
  Shape shape;
  int64_t saved_step;     // distance of steps in `saved`; 0 in inference, where one step is enough
  const void *x, *packed, *bias;
  void* state;            // forward h0, at the end h_n; backward dL/dh_n, at the end dL/dh0
  void* output;           // (T, B, H), real
  void* saved;            // pre-activations, (T, B, 2, H)
  // backward
  int64_t grad_step, grad_row;
  ChunkLayout layout;
  const void *grad_output, *h0, *packed_input;
  void* chunk;            // gradients of the pre-activations, states and inputs of the chunk, in panels
  void* weights;          // sums for each group: (2 Hp, 2 Hp) of U's blocks, then (2 Hp, Ip)
  void* sums;             // (blocks of rows, Hp): gradient of the bias
  void* grad_x;           // or null
};

// In elements; `state` is Hp and `inputs` is Ip, H and I filled up to whole panels, `chunk_row` for each row,
// `weights` for each of at most `groups` groups.
struct DenseSizes {
  int64_t packed, packed_backward, packed_input, state, inputs, chunk_row, block_rows, weights, groups;
};

struct DenseTable {
  void (*sizes)(int64_t inputs, int64_t hidden, DenseSizes* sizes);
  void (*pack)(const void* blocks, const void* weight, int64_t inputs, int64_t hidden, void* out);
  void (*pack_input)(const void* weight, int64_t inputs, int64_t hidden, void* out);
  void (*forward)(const DenseArguments*);
  void (*backward)(const DenseArguments*);
};

struct EurnnTables {
  EurnnTable rotations[2][2];  // by dtype (float32, float64) and complex
  DenseTable matrix[2];        // by dtype
};
