// modReLU of real and of complex numbers: h = a (1 + b / |a|) where |a| + b > 0, else 0.
#pragma once

#include "base/simd.h"

namespace {

template <class T>
inline Vec<T> modrelu(Vec<T> a, Vec<T> b) {
  const Vec<T> size = magnitude<T>(a);
  const Vec<T> m = size + b;
  // !(m <= 0) is true for NaN; so is !(size < tiny)
  const IVec<T> active = ~(m <= T(0)) & ~(size < Simd<T>::kTiny);
  return keep<T>(active, (Vec<T>)(bits<T>(m) | (bits<T>(a) & Simd<T>::kSign)));
}

// |re + i im| without overflow or underflow on the way.
template <class T>
inline Vec<T> modulus(Vec<T> re, Vec<T> im) {
  re = magnitude<T>(re), im = magnitude<T>(im);
  const IVec<T> swap = re < im;
  const Vec<T> big = choose<T>(swap, im, re), small = choose<T>(swap, re, im);
  const Vec<T> ratio = small / choose<T>(big == T(0), splat(T(1)), big);
  Vec<T> root = T(1) + ratio * ratio;
  GORU_UNROLL
  for (int i = 0; i < W<T>; ++i) root[i] = sizeof(T) == 4 ? __builtin_sqrtf(root[i]) : __builtin_sqrt(root[i]);
  return big * root;
}

// In place.
template <class T>
inline void complex_modrelu(Vec<T>* a, Vec<T> b) {
  const Vec<T> size = modulus<T>(a[0], a[1]), m = size + b;
  const IVec<T> active = ~(m <= T(0)) & ~(size < Simd<T>::kTiny);
  const Vec<T> factor = m / size;
  a[0] = keep<T>(active, a[0] * factor);
  a[1] = keep<T>(active, a[1] * factor);
}

// g from the gradient of h to that of a; returns the gradient of b. With e = a / |a| and p = Re(conj(e) g):
// da = g + b / |a| (g - p e),  db = p.
template <class T>
inline Vec<T> complex_modrelu_back(const Vec<T>* a, Vec<T>* g, Vec<T> b) {
  const Vec<T> size = modulus<T>(a[0], a[1]);
  const IVec<T> active = ~(size + b <= T(0)) & ~(size < Simd<T>::kTiny);
  const Vec<T> re = a[0] / size, im = a[1] / size, p = re * g[0] + im * g[1], ratio = b / size;
  g[0] = keep<T>(active, g[0] + ratio * (g[0] - p * re));
  g[1] = keep<T>(active, g[1] + ratio * (g[1] - p * im));
  return keep<T>(active, p);
}

}  // namespace
