// What crosses the border between Python and the kernels of meshes; see base/shape.h.
#pragma once

#include <stdint.h>

// How U acts on a row: as a product with the matrix, or by its rotations (see row_mesh.h).
enum { kMatrix = 0, kMeshFft = 1, kMeshTunable = 2 };

struct Transition {
  int64_t kind, layers;
  const void* table;  // cosines and sines, or null
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

// In elements: scratch of the mesh matrix for each thread. `columns` are built at a time.
struct MeshSizes {
  int64_t scratch, columns;
};

struct MeshTable {
  void (*sizes)(int64_t hidden, MeshSizes* sizes);
  void (*matrix)(const MeshMatrixArguments*);
  void (*matrix_backward)(const MeshMatrixArguments*);
};

struct MeshTables {
  MeshTable of[2][2];  // by dtype (float32, float64) and complex
};
