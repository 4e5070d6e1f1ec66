// Meshes and EURNN by rotations, for one instruction set.
#include "eurnn_rotations.h"
#include "rotations.h"
#include "table.h"

namespace {

template <class T, bool C>
constexpr RotationTable rotation_table() {
  return {
      [](int64_t I, int64_t H, int64_t rotations, RotationSizes* s) {
        *s = {W<T>, Eurnn<T, C>::scratch(I, H, rotations), MeshMatrix<T, C>::scratch(H), MeshMatrix<T, C>::L};
      },
      mesh_matrix<T, C>,
      mesh_matrix_backward<T, C>,
      eurnn_forward<T, C>,
      eurnn_backward<T, C>,
  };
}

}  // namespace

constexpr RotationTables LEVEL_TABLE(rotation_tables) = {
    {{rotation_table<float, false>(), rotation_table<float, true>()},
     {rotation_table<double, false>(), rotation_table<double, true>()}},
};
