// What crosses the border to Python: plain structures of 8-byte fields, mirrored in native.py.
//
// Legend: T steps, B batch, I input, H hidden. Steps are counted in the order in which they are taken: step s is time
// t = s, or T - 1 - s in the reverse direction. `order` lists the rows by falling length and `active` says for each
// time t how many of them have that step; both are null when all rows are complete.
#pragma once

#include <stdint.h>

struct Shape {
  int64_t steps, batch, inputs, hidden;
  int64_t reset, update, reverse, modrelu;  // switches; without modReLU the candidate is linear
  int64_t first, last;                      // the steps of this call: first <= s < last
  int64_t threads;
  const int64_t* order;
  const int64_t* active;
  int64_t x_step, x_row;  // strides of x in elements; its last dimension is dense
};

// How U acts on a row: as a product with the matrix, or by its rotations (see row_mesh.h).
enum { kMatrix = 0, kMeshFft = 1, kMeshTunable = 2 };

struct GoruMesh {
  int64_t kind, layers;
  const void* table;  // cosines and sines, or null
};

struct GoruForward {
  Shape shape;
  GoruMesh mesh;
  const void *x, *h0, *bias;                 // bias: b_r, b_z, b_h as far as they exist, or null
  const void* packed;                        // or null: then the weights as they are
  const void *weight_ih, *weight_hh, *u;
  void *output, *saved;                      // saved: null in inference
  void* turned;                              // a line for each row: U h
};

struct GoruBackward {
  Shape shape;
  GoruMesh mesh;
  int64_t grad_step, grad_row;  // strides of grad_output
  int64_t rows;                 // capacity of the chunk buffers in rows (t, b)
  const void *grad_output, *x, *h0, *output, *saved, *packed, *packed_input;
  void* carry;    // (B, H): gradient of the state after the steps done so far; grad_h_n at first, grad_h0 at the end
  void* chunk;    // gradients of the pre-activations, states and inputs of the chunk, in panels
  void* through;  // (B, H padded): what reaches the state before without a gate's product, g * z + dv U
  void* turned;   // two lines for each row: dv and U h, on their way back through the rotations
  void *wide, *square;  // sums of the weight gradients, see goru_backward.h
  void* bias;     // (blocks of rows, H padded): gradient of b_h
  void* angles;   // (blocks of rows, sums of a mesh), or null
  void* grad_x;   // or null
};

// Gradients as torch has them, from the sums of all chunks.
struct GoruFinish {
  int64_t inputs, hidden, gates, blocks;  // gates: 1 + reset + update
  GoruMesh mesh;
  const void *wide, *bias, *angles;
  void *grad_weight_ih, *grad_bias, *grad_angles;  // the last two or null
};

struct MeshArguments {
  int64_t size, rotations;
  const int32_t *p, *q;       // the pair of each rotation, in an order in which they can be applied
  const int32_t* reach;       // how far earlier layers can carry a unit, for each rotation
  const void* coefficients;   // see rotations.h
  const void* phases;         // cos and sin of omega, or null
};

struct MeshMatrixArguments {
  MeshArguments mesh;
  int64_t threads, slices, angles;
  void* u;
  const void* grad;
  void* scratch;  // for each thread
  void* sums;     // (slices, angles)
};

// EURNN by rotations. Rows sit in lanes, `lanes` at a time.
struct EurnnArguments {
  Shape shape;
  MeshArguments mesh;
  const void *x, *weight, *bias;  // weight (H, I), or (2H, I) with the imaginary rows last
  void* state;                    // (B, H): forward h0, at the end h_n; backward dL/dh_n, at the end dL/dh0
  void* output;                   // (T, B, H), real
  void* saved;                    // pre-activations, [t][block of lanes][component][unit][lane], or null
  void* scratch;                  // for each thread
  // backward
  const void *grad_output, *h0;
  int64_t grad_step, grad_row;
  int64_t depth;   // capacity of the chunk buffers: blocks of lanes, all steps together
  void *gradients, *inputs;  // the chunk buffers, see lane_products.h
  void* sums;      // (blocks of lanes, angles + H): gradients of angles and bias
  void* weights;   // (components * H, I): gradient of the weight
  void* grad_x;    // or null
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
  int64_t rows;           // capacity of the chunk buffer in rows (t, b)
  const void *grad_output, *h0, *packed_input;
  void* chunk;            // gradients of the pre-activations, states and inputs of the chunk, in panels
  void* weights;          // sums: (2 Hp, 2 Hp) of U's blocks, then (2 Hp, Ip)
  void* sums;             // (blocks of rows, Hp): gradient of the bias
  void* grad_x;           // or null
};
