// Matrices of meshes: their kernels for one instruction set, or their entry points (see base/levels.h).
#include "base/levels.h"
#include "mesh/structures.h"

#ifdef GORU_LEVEL

#include "mesh/rotations.h"

namespace {

template <class T, bool C>
constexpr MeshTable mesh_table() {
  return {
      [](int64_t H, MeshSizes* s) { *s = {MeshMatrix<T, C>::scratch(H), MeshMatrix<T, C>::L}; },
      mesh_matrix<T, C>,
      mesh_matrix_backward<T, C>,
  };
}

}  // namespace

LEVEL_TABLE(MeshTables, mesh) = {
    {{mesh_table<float, false>(), mesh_table<float, true>()}, {mesh_table<double, false>(), mesh_table<double, true>()}},
};

#else

LEVEL_TABLES(MeshTables, mesh);

static const MeshTable& mesh(int dtype, int complex) { return mesh_levels[goru_level]->of[dtype][complex]; }

GORU_API void goru_mesh_sizes(int dtype, int complex, int64_t hidden, MeshSizes* sizes) {
  mesh(dtype, complex).sizes(hidden, sizes);
}
GORU_API void goru_mesh_matrix(int dtype, int complex, const MeshMatrixArguments* a) { mesh(dtype, complex).matrix(a); }
GORU_API void goru_mesh_matrix_backward(int dtype, int complex, const MeshMatrixArguments* a) {
  mesh(dtype, complex).matrix_backward(a);
}

GORU_STRUCTURE(Transition)
GORU_STRUCTURE(MeshArguments)
GORU_STRUCTURE(MeshMatrixArguments)
GORU_STRUCTURE(MeshSizes)

#endif
