// Vectors by the compiler's vector extensions, so that one source serves every instruction set.
//
// This header and those that include it are compiled once per level (see levels.h). Everything is in an unnamed
// namespace and no template of the standard library is used: an inline function compiled for AVX-512 must never be
// the copy that the linker picks for a processor without it.
#pragma once

#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

// Before loops of constant length over registers: unrolled, the values stay in registers; not unrolled, they go through
// memory.
#define GORU_UNROLL _Pragma("GCC unroll 32")

namespace {

#if defined(GORU_VECTOR_BYTES)
// Tests only: the code of one level with the instructions of another; the compiler cuts vectors that are too wide.
constexpr int kVectorBytes = GORU_VECTOR_BYTES;
constexpr int kRegisters = GORU_REGISTERS;
#elif defined(__AVX512F__)
constexpr int kVectorBytes = 64;
constexpr int kRegisters = 32;
#elif defined(__AVX2__)
constexpr int kVectorBytes = 32;
constexpr int kRegisters = 16;
#elif defined(__aarch64__)
constexpr int kVectorBytes = 16;
constexpr int kRegisters = 32;
#else
constexpr int kVectorBytes = 16;
constexpr int kRegisters = 16;
#endif

template <class T>
struct Simd;

template <>
struct Simd<float> {
  typedef float V __attribute__((vector_size(kVectorBytes)));
  typedef int32_t I __attribute__((vector_size(kVectorBytes)));
  typedef uint32_t U __attribute__((vector_size(kVectorBytes)));
  static constexpr int W = kVectorBytes / 4;
  static constexpr uint32_t kSign = 0x80000000u;
  static constexpr float kTiny = 1.0842021724855044e-19f;  // sqrt(FLT_MIN): below it |a| counts as 0
};

template <>
struct Simd<double> {
  typedef double V __attribute__((vector_size(kVectorBytes)));
  typedef int64_t I __attribute__((vector_size(kVectorBytes)));
  typedef uint64_t U __attribute__((vector_size(kVectorBytes)));
  static constexpr int W = kVectorBytes / 8;
  static constexpr uint64_t kSign = 0x8000000000000000ull;
  static constexpr double kTiny = 1.4916681462400413e-154;
};

template <class T>
using Vec = typename Simd<T>::V;
template <class T>
using IVec = typename Simd<T>::I;
template <class T>
using UVec = typename Simd<T>::U;

template <class T>
constexpr int64_t W = Simd<T>::W;

template <class T>
constexpr int64_t panels(int64_t n) {
  return (n + W<T> - 1) / W<T>;
}

template <class T>
inline Vec<T> splat(T x) {
  return x - Vec<T>{};
}

template <class T>
inline Vec<T> load(const T* p) {
  Vec<T> v;
  memcpy(&v, p, sizeof v);
  return v;
}

template <class T>
inline void store(T* p, Vec<T> v) {
  memcpy(p, &v, sizeof v);
}

// Prefetches `bytes` at `offset` elements from p, which will be read or written soon; the address need not be valid.
template <bool kWrite, class T>
inline void prefetch(const T* p, int64_t offset, int64_t bytes) {
  const uintptr_t at = (uintptr_t)p + offset * sizeof(T);
  for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch((const void*)(at + i), kWrite);
}

template <class T>
__attribute__((noinline, cold)) Vec<T> load_part(const T* p, int64_t n) {
  Vec<T> v = {};
  if (n > 0) memcpy(&v, p, n * sizeof(T));
  return v;
}

template <class T>
__attribute__((noinline, cold)) void store_part(T* p, Vec<T> v, int64_t n) {
  if (n > 0) memcpy(p, &v, n * sizeof(T));
}

// The first n lanes; the others read as 0 and are not written.
template <class T>
inline Vec<T> load(const T* p, int64_t n) {
  return __builtin_expect(n >= W<T>, 1) ? load(p) : load_part(p, n);
}

template <class T>
inline void store(T* p, Vec<T> v, int64_t n) {
  if (__builtin_expect(n >= W<T>, 1)) store(p, v);
  else store_part(p, v, n);
}

template <class T>
inline UVec<T> bits(Vec<T> v) {
  return (UVec<T>)v;
}

template <class T>
inline Vec<T> magnitude(Vec<T> v) {
  return (Vec<T>)(bits<T>(v) & ~Simd<T>::kSign);
}

template <class T>
inline Vec<T> with_sign(Vec<T> size, Vec<T> sign) {
  return (Vec<T>)((bits<T>(size) & ~Simd<T>::kSign) | (bits<T>(sign) & Simd<T>::kSign));
}

// v in lanes where `mask` is all ones, 0 in the others (whatever v is there, NaN as well).
template <class T>
inline Vec<T> keep(IVec<T> mask, Vec<T> v) {
  return (Vec<T>)((IVec<T>)v & mask);
}

template <class T>
inline Vec<T> choose(IVec<T> mask, Vec<T> yes, Vec<T> no) {
  return (Vec<T>)(((IVec<T>)yes & mask) | ((IVec<T>)no & ~mask));
}

// All ones in the first n lanes, n <= W.
template <class T>
inline IVec<T> first_lanes(int64_t n) {
  IVec<T> lane;
  GORU_UNROLL
  for (int l = 0; l < W<T>; ++l) lane[l] = l;
  return lane < (IVec<T>{} + (decltype(lane[0] + 0))n);
}

// All ones where the sign bit is set.
template <class T>
inline IVec<T> negative(Vec<T> v) {
  return (IVec<T>)v < 0;
}

// exp(x) = 2^n (1 + q) with x = n log 2 + r, |r| <= log(2) / 2, and q = exp(r) - 1 by a polynomial.
template <class T>
struct Power {
  Vec<T> q, scale;  // scale: 2^n
};

inline Power<float> power(Vec<float> x) {
  typedef Vec<float> V;
  const float magic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer in the low bits
  V shifted = x * 1.44269504088896341f + magic;
  V n = shifted - magic;
  V r = x - n * 0.693359375f;
  r = r - n * -2.12194440e-4f;
  V p = splat(1.9875691500e-4f);
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  IVec<float> exponent = ((IVec<float>)shifted - 0x4B400000 + 127) << 23;
  return {p * (r * r) + r, (V)exponent};
}

inline Power<double> power(Vec<double> x) {
  typedef Vec<double> V;
  const double magic = 6755399441055744.0;  // 1.5 * 2^52
  V shifted = x * 1.4426950408889634074 + magic;
  V n = shifted - magic;
  V r = x - n * 6.93145751953125e-1;
  r = r - n * 1.42860682030941723212e-6;
  V p = splat(1.0 / 6227020800.0);
  p = p * r + 1.0 / 479001600.0;
  p = p * r + 1.0 / 39916800.0;
  p = p * r + 1.0 / 3628800.0;
  p = p * r + 1.0 / 362880.0;
  p = p * r + 1.0 / 40320.0;
  p = p * r + 1.0 / 5040.0;
  p = p * r + 1.0 / 720.0;
  p = p * r + 1.0 / 120.0;
  p = p * r + 1.0 / 24.0;
  p = p * r + 1.0 / 6.0;
  p = p * r + 0.5;
  IVec<double> exponent = ((IVec<double>)shifted - 0x4338000000000000ll + 1023) << 52;
  return {p * (r * r) + r, (V)exponent};
}

// Keeps NaN (comparisons with NaN are false).
template <class T>
inline Vec<T> clamp(Vec<T> x, T low, T high) {
  x = choose<T>(x > high, splat(high), x);
  return choose<T>(x < low, splat(low), x);
}

// Overflows to inf at the upper clamp and underflows to 0 at the lower one. About 2 ulp.
template <class T>
inline Vec<T> exponential(Vec<T> x) {
  constexpr bool single = sizeof(T) == 4;
  const Power<T> e = power(clamp<T>(x, single ? T(-88) : T(-709), single ? T(89) : T(710)));
  return (e.q + T(1)) * e.scale;
}

template <class T>
inline Vec<T> sigmoid(Vec<T> x) {
  return T(1) / (T(1) + exponential<T>(-x));
}

// With e = exp(2 |x|) - 1, which is accurate also near 0: tanh |x| = e / (e + 2), 1 to the last bit from the clamp on.
template <class T>
inline Vec<T> hyperbolic_tangent(Vec<T> x) {
  const Power<T> p = power(clamp<T>(magnitude<T>(x) + magnitude<T>(x), T(0), sizeof(T) == 4 ? T(20) : T(40)));
  const Vec<T> e = p.q * p.scale + (p.scale - T(1));
  return with_sign<T>(e / (e + T(2)), x);
}

// Numbers too small to be normal are treated as 0 while a kernel runs: arithmetic on them is many times slower, and
// they are far below every tolerance. The caller's mode comes back at the end of the scope.
class FlushDenormals {
 public:
#if defined(__x86_64__)
  FlushDenormals() : before_(_mm_getcsr()) { _mm_setcsr(before_ | 0x8040); }
  ~FlushDenormals() { _mm_setcsr(before_); }

 private:
  unsigned before_;
#elif defined(__aarch64__)
  FlushDenormals() {
    __asm__ volatile("mrs %0, fpcr" : "=r"(before_));
    uint64_t mode = before_ | (1ull << 24);
    __asm__ volatile("msr fpcr, %0" ::"r"(mode));
  }
  ~FlushDenormals() { __asm__ volatile("msr fpcr, %0" ::"r"(before_)); }

 private:
  uint64_t before_;
#else
  FlushDenormals() {}
  ~FlushDenormals() {}
#endif
};

}  // namespace
