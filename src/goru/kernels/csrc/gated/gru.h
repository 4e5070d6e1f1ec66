// The GRU of torch:
//
//   r = sigma(W_r x + b_r + R_r h' + c_r),  z likewise,  v = R_n h' + c_n,  n = tanh(W_n x + b_n + r v)
//   h = (1 - z) n + z h'
//
// Backward, with g = dL/dh:  da = g (1 - z)(1 - n^2),  dv = da r,  dr = dv v (1 - r),  dz = g (h' - n) z (1 - z), and
// g z goes straight to h'. n is not saved: it is (h - z h') / (1 - z), held between -1 and 1. What that loses as z
// approaches 1, the factor 1 - z takes away again; a gate that is shut has gradients of exactly 0.
#pragma once

#include "base/simd.h"

namespace {

template <class T>
struct Gru {
  static constexpr int kGates = 3;
  static constexpr bool kCell = false, kThrough = true, kOwnBias = true;
  static constexpr int kSaved = 3, kLocal = 4;  // r, z, v; and n, within a step
  // Sums of a step: r, z, v from the state, and what n has from the input. Their rows in either weight, or none.
  static constexpr int kSums = 4;
  static constexpr int state_rows(int sum) { return sum < 3 ? sum : -1; }
  static constexpr int input_rows(int sum) { return sum < 2 ? sum : sum == 3 ? 2 : -1; }
  // Gradients of the sums in the chunk buffer: da, dr, dz, dv. The first three meet x, the last three h'.
  static constexpr int kFirstState = 1;
  static constexpr int state_block(int gate) { return gate + 1; }
  static constexpr int input_block(int gate) { return gate == 2 ? 0 : gate + 1; }

  // From the sums to what backward needs, and what tanh is applied to.
  static inline void gates(const Vec<T>* sum, Vec<T>, Vec<T>* save) {
    save[0] = sigmoid<T>(sum[0]), save[1] = sigmoid<T>(sum[1]), save[2] = sum[2];
    save[3] = sum[3] + save[0] * sum[2];
  }
  static inline Vec<T> state(Vec<T>* save, Vec<T> before) {
    const Vec<T> n = hyperbolic_tangent<T>(save[3]);
    return n + save[1] * (before - n);
  }

  // From g to the gradients of the sums; `through` becomes what reaches h' directly. Returns dv, c_n's own gradient.
  static inline Vec<T> backward(Vec<T> g, const Vec<T>* save, Vec<T> before, Vec<T>, Vec<T> after, Vec<T>& through,
                                Vec<T>* gradient) {
    const Vec<T> r = save[0], z = save[1], v = save[2], rest = T(1) - z;
    const Vec<T> n = clamp<T>(keep<T>(rest != T(0), (after - z * before) / rest), T(-1), T(1));
    const Vec<T> da = g * rest * (T(1) - n * n), dv = da * r;
    through = g * z;
    gradient[0] = da;
    gradient[1] = dv * v * (T(1) - r);
    gradient[2] = through * rest * (before - n);
    gradient[3] = dv;
    return dv;
  }
};

}  // namespace
