// Between rows as torch has them and lanes: element u of row l is lane l of vector u.
#pragma once

#include "base/simd.h"

namespace {

// Exchanges the halves of W x W values that differ in the bit D of row and lane, for each D: then rows are lanes.
template <class T, int D = W<T> / 2>
__attribute__((always_inline)) inline void transpose(Vec<T>* v) {
  if constexpr (D > 0) {
    IVec<T> low, high;
    GORU_UNROLL
    for (int l = 0; l < W<T>; ++l) low[l] = l & D ? (l ^ D) + W<T> : l, high[l] = l & D ? l + W<T> : l ^ D;
    GORU_UNROLL
    for (int i = 0; i < W<T>; ++i) {
      if (i & D) continue;
      const Vec<T> a = v[i], b = v[i | D];
#if defined(__clang__)
      for (int l = 0; l < W<T>; ++l) v[i][l] = l & D ? b[l ^ D] : a[l], v[i | D][l] = l & D ? b[l] : a[l ^ D];
#else
      v[i] = __builtin_shuffle(a, b, low), v[i | D] = __builtin_shuffle(a, b, high);
#endif
    }
    transpose<T, D / 2>(v);
  }
}

// take(u, lanes) for each of the n elements of W rows.
template <class T, class Take>
inline void rows_to_lanes(const T* const* rows, int64_t n, Take&& take) {
  for (int64_t u = 0; u < n; u += W<T>) {
    Vec<T> v[W<T>];
    GORU_UNROLL
    for (int l = 0; l < W<T>; ++l) v[l] = load(rows[l] + u, n - u);
    transpose<T>(v);
    for (int64_t i = 0; i < W<T> && u + i < n; ++i) take(u + i, v[i]);
  }
}

// lanes(u) for each of the n elements of W rows; with `past`, past the caches.
template <class T, class Lanes>
inline void lanes_to_rows(Lanes&& lanes, int64_t n, T* const* rows, bool past) {
  for (int64_t u = 0; u < n; u += W<T>) {
    Vec<T> v[W<T>] = {};
    for (int64_t i = 0; i < W<T> && u + i < n; ++i) v[i] = lanes(u + i);
    transpose<T>(v);
    GORU_UNROLL
    for (int l = 0; l < W<T>; ++l) {
      if (past) stream(rows[l] + u, v[l], n - u);
      else store(rows[l] + u, v[l], n - u);
    }
  }
}

}  // namespace
