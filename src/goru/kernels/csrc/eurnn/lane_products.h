// Products for states that hold a row in each lane: x W before the recurrence, dW and dx after it.
#pragma once

#include "base/tile.h"

namespace {

// sum[u][lanes] = sum over i of weight[u][i] * x[i][lanes], for kUnits rows of the weight.
template <class T, int N>
inline void weigh(const T* weight, int64_t stride, const T* x, int64_t I, Vec<T>* sum) {
  GORU_UNROLL
  for (int n = 0; n < N; ++n) sum[n] = Vec<T>{};
  for (int64_t i = 0; i < I; ++i) {
    const Vec<T> value = load(x + i * W<T>);
    GORU_UNROLL
    for (int n = 0; n < N; ++n) sum[n] += weight[n * stride + i] * value;
  }
}

// sum[i][lanes] = sum over units of weight[unit][i] * gradient[unit][lanes], for N columns of the weight.
template <class T, int N>
inline void weigh_back(const T* weight, int64_t stride, const T* gradient, int64_t step, int64_t units, Vec<T>* sum) {
  GORU_UNROLL
  for (int n = 0; n < N; ++n) sum[n] = Vec<T>{};
  for (int64_t u = 0; u < units; ++u) {
    const Vec<T> value = load(gradient + u * step);
    GORU_UNROLL
    for (int n = 0; n < N; ++n) sum[n] += weight[u * stride + n] * value;
  }
}

// dW[unit][i] += sum over k and lanes of gradients[unit][k][lane] * inputs[i][k][lane], both in groups that are stored
// together: gradients [unit / 4][k][4][lane], inputs [i / 3][k][3][lane]. One task is a group of four units.
template <class T>
struct LaneProducts {
  static constexpr int NG = 4, NI = 3;
  // Elements of either buffer for each k: the last group is filled up.
  static int64_t gradients_size(int64_t units) { return (units + NG - 1) / NG * NG * W<T>; }
  static int64_t inputs_size(int64_t columns) { return (columns + NI - 1) / NI * NI * W<T>; }
  const T *gradients, *inputs;
  int64_t units, columns, depth, capacity;  // k in use, k between groups
  T* out;

  void group(int64_t g) const {
    const T* left = gradients + g * capacity * NG * W<T>;
    for (int64_t c = 0; c * NI < columns; ++c) {
      const T *a = left, *b = inputs + c * capacity * NI * W<T>;
      Vec<T> sum[NG * NI] = {};
      for (int64_t k = 0; k < depth; ++k, a += NG * W<T>, b += NI * W<T>) {
        Vec<T> x[NI];
        GORU_UNROLL
        for (int i = 0; i < NI; ++i) x[i] = load(b + i * W<T>);
        GORU_UNROLL
        for (int u = 0; u < NG; ++u) {
          const Vec<T> value = load(a + u * W<T>);
          GORU_UNROLL
          for (int i = 0; i < NI; ++i) sum[u * NI + i] += value * x[i];
        }
      }
      for (int u = 0; u < NG && g * NG + u < units; ++u)
        for (int i = 0; i < NI && c * NI + i < columns; ++i)
          out[(g * NG + u) * columns + c * NI + i] += sum_of_lanes<T>(sum[u * NI + i]);
    }
  }

  static void thread(void* context, int index, int count) {
    FlushDenormals flush;
    const LaneProducts& self = *(const LaneProducts*)context;
    for (int64_t g = index; g * NG < self.units; g += count) self.group(g);
  }
};

}  // namespace
