// The functions that exist once per instruction set, as a table; entry.cpp chooses one at run time.
#pragma once

#include "arguments.h"

// Sizes of the buffers that the caller provides, in elements.
struct GoruSizes {
  int64_t packed, packed_backward, packed_input;
  int64_t chunk_row;         // chunk buffer, for each row
  int64_t through_row;       // for each row of the batch
  int64_t line;              // of `turned`
  int64_t wide, square;      // sums of the weight gradients; `square` for each matrix
  int64_t bias, block_rows;  // one vector of `bias` for each block of `block_rows` rows
  int64_t width;             // units of a panel
  int64_t mesh, angles;      // the table of a mesh, and its sums for each block of rows
};

// `mesh` says how U acts; with rotations `u` is not looked at.
struct GoruTable {
  void (*sizes)(const GoruMesh* mesh, int64_t inputs, int64_t hidden, GoruSizes* sizes);
  void (*pack)(const void* weight_ih, const void* weight_hh, const void* u, int64_t inputs, int64_t hidden, void* out);
  void (*pack_backward)(const void* weight_hh, const void* u, int64_t hidden, void* out);
  void (*pack_input)(const void* weight_ih, int64_t inputs, int64_t hidden, void* out);
  void (*forward)(const GoruForward*);
  void (*backward)(const GoruBackward*);
  void (*mesh_table)(const GoruMesh* mesh, int64_t hidden, const void* angles, void* out);
  void (*finish)(const GoruFinish*);
};

struct GoruTables {
  GoruTable of[2][4];  // by dtype (float32, float64) and gates (reset + 2 * update)
};

// In elements, for each thread: scratch of the EURNN and of the mesh matrix. `columns` are built at a time.
struct RotationSizes {
  int64_t lanes, eurnn_scratch, matrix_scratch, columns;
};

struct RotationTable {
  void (*sizes)(int64_t inputs, int64_t hidden, int64_t rotations, RotationSizes* sizes);
  void (*matrix)(const MeshMatrixArguments*);
  void (*matrix_backward)(const MeshMatrixArguments*);
  void (*eurnn_forward)(const EurnnArguments*);
  void (*eurnn_backward)(const EurnnArguments*);
};

struct RotationTables {
  RotationTable of[2][2];  // by dtype and complex
};

// In elements; `state` is Hp and `inputs` is Ip, H and I filled up to whole panels, `chunk_row` for each row.
struct DenseSizes {
  int64_t packed, packed_backward, packed_input, state, inputs, chunk_row, block_rows;
};

struct DenseTable {
  void (*sizes)(int64_t inputs, int64_t hidden, DenseSizes* sizes);
  void (*pack)(const void* blocks, const void* weight, int64_t inputs, int64_t hidden, void* out);
  void (*pack_input)(const void* weight, int64_t inputs, int64_t hidden, void* out);
  void (*forward)(const DenseArguments*);
  void (*backward)(const DenseArguments*);
};

struct DenseTables {
  DenseTable of[2];  // by dtype
};

#define GORU_JOIN_(a, b) a##_##b
#define GORU_JOIN(a, b) GORU_JOIN_(a, b)
#define GORU_DECLARE(level)                                                                         \
  extern __attribute__((visibility("hidden"))) const GoruTables GORU_JOIN(goru_tables, level); \
  extern __attribute__((visibility("hidden"))) const RotationTables GORU_JOIN(rotation_tables, level); \
  extern __attribute__((visibility("hidden"))) const DenseTables GORU_JOIN(dense_tables, level);

#ifdef GORU_LEVEL
// The name of a table at the level that is being compiled.
#define LEVEL_TABLE(name) GORU_JOIN(name, GORU_LEVEL)
GORU_DECLARE(GORU_LEVEL)
#endif
