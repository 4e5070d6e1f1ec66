// EURNN: its kernels for one instruction set, or its entry points (see base/levels.h).
#include "base/levels.h"
#include "eurnn/structures.h"

#ifdef GORU_LEVEL

#include "eurnn/eurnn_dense.h"
#include "eurnn/eurnn_rotations.h"

namespace {

template <class T, bool C>
constexpr EurnnTable rotation_table() {
  return {
      [](int64_t I, int64_t H, int64_t rotations, EurnnSizes* s) {
        using Products = LaneProducts<T>;
        const int64_t angles = C ? 2 * rotations + H : rotations;
        *s = {W<T>, Eurnn<T, C>::scratch(I, H, rotations), Products::gradients_size((C + 1) * H),
              Products::inputs_size(I), angles + H, angles};
      },
      eurnn_forward<T, C>,
      eurnn_backward<T, C>,
  };
}

template <class T>
constexpr DenseTable matrix_table() {
  return {
      [](int64_t I, int64_t H, DenseSizes* s) {
        const int64_t HP = panels<T>(H), IP = panels<T>(I), weights = 2 * HP * W<T> * (2 * HP + IP) * W<T>;
        *s = {dense_pack_size<T>(I, H), dense_pack_size<T>(0, H), dense_pack_input_size<T>(I, H), HP * W<T>, IP * W<T>,
              (4 * HP + IP) * W<T>, kRows, weights, most_groups(sizeof(T) * weights)};
      },
      [](const void* blocks, const void* weight, int64_t I, int64_t H, void* out) {
        dense_pack<T>((const T*)blocks, (const T*)weight, I, H, (T*)out);
      },
      [](const void* weight, int64_t I, int64_t H, void* out) {
        dense_pack_input<T>((const T*)weight, I, H, (T*)out);
      },
      dense_forward<T>,
      dense_backward<T>,
  };
}

}  // namespace

LEVEL_TABLE(EurnnTables, eurnn) = {
    {{rotation_table<float, false>(), rotation_table<float, true>()},
     {rotation_table<double, false>(), rotation_table<double, true>()}},
    {matrix_table<float>(), matrix_table<double>()},
};

#else

LEVEL_TABLES(EurnnTables, eurnn);

static const EurnnTable& rotations(int dtype, int complex) {
  return eurnn_levels[goru_level]->rotations[dtype][complex];
}

static const DenseTable& dense(int dtype) { return eurnn_levels[goru_level]->matrix[dtype]; }

GORU_API void goru_eurnn_sizes(int dtype, int complex, int64_t inputs, int64_t hidden, int64_t count,
                               EurnnSizes* sizes) {
  rotations(dtype, complex).sizes(inputs, hidden, count, sizes);
}
GORU_API void goru_eurnn_forward(int dtype, int complex, const EurnnArguments* a) { rotations(dtype, complex).forward(a); }
GORU_API void goru_eurnn_backward(int dtype, int complex, const EurnnArguments* a) {
  rotations(dtype, complex).backward(a);
}

GORU_API void goru_dense_sizes(int dtype, int64_t inputs, int64_t hidden, DenseSizes* sizes) {
  dense(dtype).sizes(inputs, hidden, sizes);
}
GORU_API void goru_dense_pack(int dtype, const void* blocks, const void* weight, int64_t inputs, int64_t hidden,
                              void* out) {
  dense(dtype).pack(blocks, weight, inputs, hidden, out);
}
GORU_API void goru_dense_pack_input(int dtype, const void* weight, int64_t inputs, int64_t hidden, void* out) {
  dense(dtype).pack_input(weight, inputs, hidden, out);
}
GORU_API void goru_dense_forward(int dtype, const DenseArguments* a) { dense(dtype).forward(a); }
GORU_API void goru_dense_backward(int dtype, const DenseArguments* a) { dense(dtype).backward(a); }

GORU_STRUCTURE(EurnnArguments)
GORU_STRUCTURE(EurnnSizes)
GORU_STRUCTURE(DenseArguments)
GORU_STRUCTURE(DenseSizes)

#endif
