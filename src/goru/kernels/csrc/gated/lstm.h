// The LSTM of torch, with the gates i, f, o = sigma(...) and g = tanh(...), each of W x + b + R h' + b':
//
//   c = f c' + i g,  h = o tanh(c)
//
// Backward, with d = dL/dh and e = dL/dc from later steps:  e += d o (1 - tanh(c)^2),  do = d h (1 - o),
// di = e g i (1 - i),  df = e c' f (1 - f),  dg = e i (1 - g^2), and e f goes to c'. tanh(c) is h / o.
#pragma once

#include "base/simd.h"

namespace {

template <class T>
struct Lstm {
  static constexpr int kGates = 4;
  static constexpr bool kCell = true, kThrough = false, kOwnBias = false;
  static constexpr int kSaved = 4, kLocal = 5;  // i, f, g, o; and c, within a step: backward recomputes it
  static constexpr int kSums = 4;
  static constexpr int state_rows(int sum) { return sum; }
  static constexpr int input_rows(int sum) { return sum; }
  static constexpr int kFirstState = 0;
  static constexpr int state_block(int gate) { return gate; }
  static constexpr int input_block(int gate) { return gate; }

  static inline Vec<T> next_cell(const Vec<T>* save, Vec<T> cell) { return save[1] * cell + save[0] * save[2]; }

  // From the sums and c' to what backward needs, and c.
  static inline void gates(const Vec<T>* sum, Vec<T> cell, Vec<T>* save) {
    save[0] = sigmoid<T>(sum[0]), save[1] = sigmoid<T>(sum[1]), save[3] = sigmoid<T>(sum[3]);
    save[2] = hyperbolic_tangent<T>(sum[2]);
    save[4] = next_cell(save, cell);
  }
  static inline Vec<T> state(Vec<T>* save, Vec<T>) { return save[3] * hyperbolic_tangent<T>(save[4]); }

  // `before` is c', `through` the gradient of c: of this step's, then of the one before.
  static inline Vec<T> backward(Vec<T> d, const Vec<T>* save, Vec<T>, Vec<T> before, Vec<T> after, Vec<T>& through,
                                Vec<T>* gradient) {
    const Vec<T> i = save[0], f = save[1], g = save[2], o = save[3];
    // Where o has vanished, so has the whole product.
    const Vec<T> tangent = keep<T>(o != T(0), after / o);
    const Vec<T> e = through + d * (o - after * tangent);
    gradient[0] = e * g * i * (T(1) - i);
    gradient[1] = e * before * f * (T(1) - f);
    gradient[2] = e * i * (T(1) - g * g);
    gradient[3] = d * after * (T(1) - o);
    through = e * f;
    return Vec<T>{};
  }
};

}  // namespace
