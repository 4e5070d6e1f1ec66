// Vectors by the compiler's vector extensions, so that one source serves every instruction set.
//
// This header and those that include it are compiled once per level (see levels.h). Everything is in an unnamed
// namespace and no template of the standard library is used: an inline function compiled for AVX-512 must never be
// the copy that the linker picks for a processor without it.
#pragma once

#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
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

#if defined(__AVX512F__) && !defined(GORU_VECTOR_BYTES)
// The first n lanes of 16 (or 8); n < 16 may be negative.
inline unsigned lanes(int64_t n) { return n > 0 ? (1u << n) - 1 : 0; }

inline Vec<float> load_part(const float* p, int64_t n) { return (Vec<float>)_mm512_maskz_loadu_ps((__mmask16)lanes(n), p); }
inline Vec<double> load_part(const double* p, int64_t n) { return (Vec<double>)_mm512_maskz_loadu_pd((__mmask8)lanes(n), p); }
inline void store_part(float* p, Vec<float> v, int64_t n) { _mm512_mask_storeu_ps(p, (__mmask16)lanes(n), (__m512)v); }
inline void store_part(double* p, Vec<double> v, int64_t n) { _mm512_mask_storeu_pd(p, (__mmask8)lanes(n), (__m512d)v); }
#else
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
#endif

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

// Whether vectors can be stored past the caches.
#if defined(__AVX2__) && !defined(GORU_VECTOR_BYTES)
#define GORU_STREAMS 1
#else
#define GORU_STREAMS 0
#endif
constexpr bool kStreams = GORU_STREAMS;

// A store past the caches, for what is not read again soon: the processor neither reads the lines first nor keeps them.
// Aligned vectors only; others are stored as usual. Before another thread reads them: flush_streams().
template <class T>
inline void stream(T* p, Vec<T> v, int64_t n) {
#if GORU_STREAMS
  if (__builtin_expect(n >= W<T> && (uintptr_t)p % kVectorBytes == 0, 1)) {
    typedef float Floats __attribute__((vector_size(kVectorBytes)));
#if defined(__clang__)
    __builtin_nontemporal_store((Floats)v, (Floats*)p);
#elif defined(__AVX512F__)
    __builtin_ia32_movntps512((float*)p, (Floats)v);
#else
    __builtin_ia32_movntps256((float*)p, (Floats)v);
#endif
    return;
  }
#endif
  store(p, v, n);
}

inline void flush_streams() {
#if GORU_STREAMS
  _mm_sfence();
#endif
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

// Keeps NaN: a comparison with it is false.
template <class T>
inline Vec<T> clamp(Vec<T> x, T low, T high) {
  x = x > high ? splat(high) : x;
  return x < low ? splat(low) : x;
}

// 2^y = scale (1 + q): scale = 2^n with the integer n nearest to y, and q = 2^f - 1 by a polynomial of f = y - n that is
// accurate near 0 as well. y = `factor` x is never rounded where the processor can multiply and add at once.
template <class T>
struct Power {
  Vec<T> q, scale;
};

inline Power<float> power(Vec<float> x, float factor) {
  typedef Vec<float> V;
  const float magic = 12583039.0f;  // 1.5 * 2^23 + 127: adding it leaves n + 127 in the low bits
  const V shifted = x * factor + magic, f = x * factor - (shifted - magic);
  V p = f * 1.5403512776e-4f + 1.3390735478e-3f;
  p = p * f + 9.6182374937e-3f;
  p = p * f + 5.5503574336e-2f;
  p = p * f + 2.4022649795e-1f;
  p = p * f + 6.9314718793e-1f;
  return {p * f, (V)((IVec<float>)shifted << 23)};
}

inline Power<double> power(Vec<double> x, double factor) {
  typedef Vec<double> V;
  const double magic = 6755399441056767.0;  // 1.5 * 2^52 + 1023
  const V shifted = x * factor + magic, f = x * factor - (shifted - magic), r = f * 6.9314718055994530942e-1;
  V p = r * (1.0 / 6227020800.0) + 1.0 / 479001600.0;
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
  return {p * (r * r) + r, (V)((IVec<double>)shifted << 52)};
}

constexpr double kLog2E = 1.4426950408889634074;

// 1 / (1 + exp(-x)); 0 from the lower clamp on.
template <class T>
inline Vec<T> sigmoid(Vec<T> x) {
  constexpr T most = sizeof(T) == 4 ? T(87) : T(708);
  const Power<T> e = power(clamp<T>(x, -most, most), T(-kLog2E));
  return T(1) / (e.q * e.scale + (e.scale + T(1)));
}

// e / (e + 2) with e = exp(2 x) - 1, which is accurate also near 0; 1 and -1 to the last bit from the clamps on.
template <class T>
inline Vec<T> hyperbolic_tangent(Vec<T> x) {
  constexpr T most = sizeof(T) == 4 ? T(10) : T(20);
  const Power<T> p = power(clamp<T>(x, -most, most), T(2 * kLog2E));
  const Vec<T> e = p.q * p.scale + (p.scale - T(1));
  return e / (e + T(2));
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
