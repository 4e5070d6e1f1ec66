// The GRU of torch:
//
//   r = sigma(W_r x + b_r + R_r h' + c_r),  z likewise,  v = R_n h' + c_n,  n = tanh(W_n x + b_n + r v)
//   h = (1 - z) n + z h'
//
// Backward, with g = dL/dh:  da = g (1 - z)(1 - n^2),  dv = da r,  dr = dv v (1 - r),  dz = g (h' - n) z (1 - z), and
// g z goes straight to h'.
#pragma once

#include "base/simd.h"

namespace {

template <class T>
struct Gru {
  static constexpr int kGates = 3;
  static constexpr bool kCell = false, kThrough = true, kOwnBias = true;
  static constexpr int kSaved = 4;  // r, z, n, v
  // Sums of a step: r, z, v from the state, and what n has from the input. Their rows in either weight, or none.
  static constexpr int kSums = 4;
  static constexpr int state_rows(int sum) { return sum < 3 ? sum : -1; }
  static constexpr int input_rows(int sum) { return sum < 2 ? sum : sum == 3 ? 2 : -1; }
  // Gradients of the sums in the chunk buffer: da, dr, dz, dv. The first three meet x, the last three h'.
  static constexpr int kFirstState = 1;
  static constexpr int state_block(int gate) { return gate + 1; }
  static constexpr int input_block(int gate) { return gate == 2 ? 0 : gate + 1; }

  // From the sums to what backward needs, but for n: in its place is what tanh is applied to.
  static inline void gates(const Vec<T>* sum, Vec<T>, Vec<T>* save) {
    save[0] = sigmoid<T>(sum[0]), save[1] = sigmoid<T>(sum[1]), save[3] = sum[2];
    save[2] = sum[3] + save[0] * sum[2];
  }
  static inline Vec<T> state(Vec<T>* save, Vec<T> before) {
    save[2] = hyperbolic_tangent<T>(save[2]);
    return save[2] + save[1] * (before - save[2]);
  }

  // From g to the gradients of the sums; `through` becomes what reaches h' directly. Returns dv, c_n's own gradient.
  static inline Vec<T> backward(Vec<T> g, const Vec<T>* save, Vec<T> before, Vec<T>, Vec<T>, Vec<T>& through,
                                Vec<T>* gradient) {
    const Vec<T> r = save[0], z = save[1], n = save[2], v = save[3], rest = g * (T(1) - z);
    const Vec<T> da = rest * (T(1) - n * n), dv = da * r;
    through = g * z;
    gradient[0] = da;
    gradient[1] = dv * v * (T(1) - r);
    gradient[2] = rest * z * (before - n);
    gradient[3] = dv;
    return dv;
  }
};

}  // namespace
