// A real mesh applied to a state stored as a row: vectors along the units, each angle used once for all rows.
//
// A layer turns unit u with its partner:  h'[u] = c[u] h[u] + s[u] h[partner(u)].  Three kinds of layers:
//
//   far      distance d >= W: partners are d / W vectors apart, so pairs of vectors are turned
//   near     distance d < W: partners are lanes of the same vector; a shuffle swaps them
//   shifted  odd layers of a tunable mesh: the pairs (1, 2)(3, 4)... cross the borders of the vectors
//
// An FFT mesh is far layers, then near ones; a tunable mesh alternates near layers of distance 1 and shifted ones.
// Consecutive near layers are applied together, vector by vector, in registers. The inverse of a layer is the same with
// -s, so backward inverts the layers in reverse order, for state y and gradient g together; with y and g after the
// layer the gradient of an angle is g[q] y[p] - g[p] y[q].
//
// Several rows are taken at once, `step` values apart: the cosines and sines, and backward the sums, are loaded once for
// all of them. How many there are may change the last bit of a state: the compiler fuses products and sums differently.
//
// A row is copied into a *line*: padded to whole vectors, with a vector of space on either side that shifted layers
// read. Padding and space are 0 and stay 0 (c = 1, s = 0 there and where a unit has no partner).
#pragma once

#include <math.h>

#include "base/simd.h"
#include "mesh/structures.h"

namespace {

// partner[i] = v[i ^ D]
template <class T, int D>
inline Vec<T> swapped(Vec<T> v) {
#if defined(__clang__)
  Vec<T> w;
  for (int i = 0; i < W<T>; ++i) w[i] = v[i ^ D];
  return w;
#else
  IVec<T> index;
  GORU_UNROLL
  for (int i = 0; i < W<T>; ++i) index[i] = i ^ D;
  return __builtin_shuffle(v, index);
#endif
}

// Values of a line, and its row.
template <class T>
constexpr int64_t line(int64_t hidden) {
  return (panels<T>(hidden) + 2) * W<T>;
}

template <class T>
struct RowMesh {
  const int64_t H, P, layers;  // P: vectors of a row
  const bool fft;
  const T* table;  // for each layer c and s, P vectors each

  RowMesh(int64_t hidden, const Transition& mesh)
      : H(hidden), P(panels<T>(hidden)), layers(mesh.layers), fft(mesh.kind == kMeshFft), table((const T*)mesh.table) {}

  static int64_t table_size(int64_t hidden, int64_t layers) { return 2 * layers * panels<T>(hidden) * W<T>; }
  static int64_t sums_size(int64_t hidden, int64_t layers) { return layers * panels<T>(hidden) * W<T>; }

  const T* c(int64_t layer) const { return table + 2 * layer * P * W<T>; }
  const T* s(int64_t layer) const { return c(layer) + P * W<T>; }

  int64_t distance(int64_t layer) const { return fft ? int64_t(1) << (layers - 1 - layer) : 1; }
  bool shifted(int64_t layer) const { return !fft && layer % 2; }
  bool far(int64_t layer) const { return distance(layer) >= W<T>; }

  // Calls body(number, layer, p, q) for every rotation, in the order in which the angles are stored.
  template <class Body>
  void each(Body&& body) const {
    int64_t number = 0;
    for (int64_t layer = 0; layer < layers; ++layer) {
      const int64_t d = distance(layer), first = shifted(layer);
      for (int64_t p = first; p + d < H; ++p)
        if (((p - first) / d) % 2 == 0) body(number++, layer, p, p + d);
    }
  }

  // Cosines and sines of the angles, each at the places of its units.
  void fill(const T* angles, T* out) const {
    for (int64_t i = 0; i < layers * P * W<T>; ++i) {
      const int64_t layer = i / (P * W<T>), u = i % (P * W<T>);
      out[2 * layer * P * W<T> + u] = T(1);
      out[(2 * layer + 1) * P * W<T> + u] = T(0);
    }
    each([&](int64_t n, int64_t layer, int64_t p, int64_t q) {
      T *c = out + 2 * layer * P * W<T>, *s = c + P * W<T>;
      c[p] = c[q] = sizeof(T) == 4 ? cosf(angles[n]) : cos(angles[n]);
      s[q] = sizeof(T) == 4 ? sinf(angles[n]) : sin(angles[n]);
      s[p] = -s[q];
    });
  }

  // The gradient of the angles from the sums of all slices.
  void gradient(const T* sums, int64_t slices, T* out) const {
    const int64_t size = sums_size(H, layers);
    each([&](int64_t n, int64_t layer, int64_t p, int64_t q) {
      T total = T(0);
      for (int64_t i = 0; i < slices; ++i) {
        const T* at = sums + i * size + layer * P * W<T>;
        total += far(layer) ? at[q] : at[q] - at[p];
      }
      out[n] = total;
    });
  }

  template <int D>
  inline Vec<T> near_layer(Vec<T> v, int64_t layer, int64_t at) const {
    return load(c(layer) + at) * v + load(s(layer) + at) * swapped<T, D>(v);
  }

  // One near layer backward: adds to the sums of its angles and inverts the layer for y and g.
  template <int N, int D>
  inline void near_back(Vec<T>* y, Vec<T>* g, int64_t layer, int64_t at, T* sums) const {
    const Vec<T> cos = load(c(layer) + at), sin = load(s(layer) + at);
    T* sum = sums + layer * P * W<T> + at;
    Vec<T> total = load(sum);
    GORU_UNROLL
    for (int n = 0; n < N; ++n) {
      const Vec<T> other = swapped<T, D>(y[n]);
      total += g[n] * other;
      y[n] = cos * y[n] - sin * other;
      g[n] = cos * g[n] - sin * swapped<T, D>(g[n]);
    }
    store(sum, total);
  }

  // v becomes U v, for N rows.
  template <int N>
  void apply(T* v, int64_t step) const {
    int64_t layer = 0;
    if (fft) {
      for (; layer < layers && far(layer); ++layer) far_layer<N>(v, step, layer);
      if (layer < layers) near_layers<N>(v, step, layer);
      return;
    }
    for (; layer < layers; ++layer)
      for (int n = 0; n < N; ++n) {
        T* row = v + n * step;
        if (shifted(layer)) shifted_layer(row, layer);
        else
          for (int64_t at = 0; at < P * W<T>; at += W<T>) store(row + at, near_layer<1>(load(row + at), layer, at));
      }
  }

  template <int N>
  void far_layer(T* v, int64_t step, int64_t layer) const {
    const int64_t d = distance(layer);
    const T *cos = c(layer), *sin = s(layer);
    for (int64_t start = 0; start + d < P * W<T>; start += 2 * d)
      for (int64_t p = start, q = start + d; p < start + d && q < P * W<T>; p += W<T>, q += W<T>) {
        const Vec<T> x = load(cos + q), y = load(sin + q);
        GORU_UNROLL
        for (int n = 0; n < N; ++n) {
          T* row = v + n * step;
          const Vec<T> a = load(row + p), b = load(row + q);
          store(row + p, x * a - y * b);
          store(row + q, x * b + y * a);
        }
      }
  }

  template <int N, int D>
  inline void near_layers_of(Vec<T>* x, int64_t layer, int64_t at) const {
    GORU_UNROLL
    for (int n = 0; n < N; ++n) x[n] = near_layer<D>(x[n], layer, at);
  }

  template <int N>
  void near_layers(T* v, int64_t step, int64_t first) const {
    const int64_t most = distance(first);
    for (int64_t at = 0; at < P * W<T>; at += W<T>) {
      Vec<T> x[N];
      GORU_UNROLL
      for (int n = 0; n < N; ++n) x[n] = load(v + n * step + at);
      int64_t layer = first;
      if constexpr (W<T> > 8)
        if (most >= 8) near_layers_of<N, 8>(x, layer++, at);
      if constexpr (W<T> > 4)
        if (most >= 4) near_layers_of<N, 4>(x, layer++, at);
      if constexpr (W<T> > 2)
        if (most >= 2) near_layers_of<N, 2>(x, layer++, at);
      near_layers_of<N, 1>(x, layer, at);
      GORU_UNROLL
      for (int n = 0; n < N; ++n) store(v + n * step + at, x[n]);
    }
  }

  // Even units look to the left, odd ones to the right.
  static inline Vec<T> shifted_partner(const T* v) {
    IVec<T> odd;
    GORU_UNROLL
    for (int i = 0; i < W<T>; ++i) odd[i] = i % 2 ? -1 : 0;
    return choose<T>(odd, load(v + 1), load(v - 1));
  }

  void shifted_layer(T* v, int64_t layer) const {
    const T *cos = c(layer), *sin = s(layer);
    // The values at the border of the next vector are read before this one is written.
    Vec<T> partner = shifted_partner(v);
    for (int64_t at = 0; at < P * W<T>; at += W<T>) {
      const Vec<T> next = at + W<T> < P * W<T> ? shifted_partner(v + at + W<T>) : partner;
      store(v + at, load(cos + at) * load(v + at) + load(sin + at) * partner);
      partner = next;
    }
  }

  // From y = U h and g = dL/dy back to g = dL/dh, for N rows; y is lost. Adds to the sums.
  template <int N>
  void back(T* y, T* g, int64_t step, T* sums) const {
    int64_t layer = layers;
    if (fft) {
      int64_t first = layers;
      while (first > 0 && !far(first - 1)) --first;
      if (first < layers) near_layers_back<N>(y, g, step, first, sums);
      for (layer = first; layer-- > 0;) far_layer_back<N>(y, g, step, layer, sums);
      return;
    }
    while (layer-- > 0)
      for (int n = 0; n < N; ++n) {
        T *state = y + n * step, *gradient = g + n * step;
        if (shifted(layer)) shifted_layer_back(state, gradient, layer, sums);
        else
          for (int64_t at = 0; at < P * W<T>; at += W<T>) {
            Vec<T> a = load(state + at), b = load(gradient + at);
            near_back<1, 1>(&a, &b, layer, at, sums);
            store(state + at, a), store(gradient + at, b);
          }
      }
  }

  template <int N>
  void far_layer_back(T* y, T* g, int64_t step, int64_t layer, T* sums) const {
    const int64_t d = distance(layer);
    const T *cos = c(layer), *sin = s(layer);
    T* sum = sums + layer * P * W<T>;
    for (int64_t start = 0; start + d < P * W<T>; start += 2 * d)
      for (int64_t p = start, q = start + d; p < start + d && q < P * W<T>; p += W<T>, q += W<T>) {
        const Vec<T> x = load(cos + q), z = load(sin + q);
        Vec<T> total = load(sum + q);
        GORU_UNROLL
        for (int n = 0; n < N; ++n) {
          T *state = y + n * step, *gradient = g + n * step;
          const Vec<T> a = load(state + p), b = load(state + q), e = load(gradient + p), f = load(gradient + q);
          total += f * a - e * b;
          if (layer > 0) {  // in front of the first layer the state is of no use
            store(state + p, x * a + z * b);
            store(state + q, x * b - z * a);
          }
          store(gradient + p, x * e + z * f);
          store(gradient + q, x * f - z * e);
        }
        store(sum + q, total);
      }
  }

  template <int N>
  void near_layers_back(T* y, T* g, int64_t step, int64_t first, T* sums) const {
    const int64_t most = distance(first);
    for (int64_t at = 0; at < P * W<T>; at += W<T>) {
      Vec<T> a[N], b[N];
      GORU_UNROLL
      for (int n = 0; n < N; ++n) a[n] = load(y + n * step + at), b[n] = load(g + n * step + at);
      int64_t layer = layers - 1;
      near_back<N, 1>(a, b, layer--, at, sums);
      if constexpr (W<T> > 2)
        if (most >= 2) near_back<N, 2>(a, b, layer--, at, sums);
      if constexpr (W<T> > 4)
        if (most >= 4) near_back<N, 4>(a, b, layer--, at, sums);
      if constexpr (W<T> > 8)
        if (most >= 8) near_back<N, 8>(a, b, layer--, at, sums);
      GORU_UNROLL
      for (int n = 0; n < N; ++n) store(y + n * step + at, a[n]), store(g + n * step + at, b[n]);
    }
  }

  void shifted_layer_back(T* y, T* g, int64_t layer, T* sums) const {
    const T *cos = c(layer), *sin = s(layer);
    T* sum = sums + layer * P * W<T>;
    Vec<T> py = shifted_partner(y), pg = shifted_partner(g);
    for (int64_t at = 0; at < P * W<T>; at += W<T>) {
      const bool more = at + W<T> < P * W<T>;
      const Vec<T> next_y = more ? shifted_partner(y + at + W<T>) : py, next_g = more ? shifted_partner(g + at + W<T>) : pg;
      const Vec<T> a = load(y + at), b = load(g + at), x = load(cos + at), z = load(sin + at);
      store(sum + at, load(sum + at) + b * py);
      store(y + at, x * a - z * py);
      store(g + at, x * b - z * pg);
      py = next_y, pg = next_g;
    }
  }
};

}  // namespace
