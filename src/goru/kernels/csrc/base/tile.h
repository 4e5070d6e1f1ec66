// The two micro-kernels of matrix products, and the packing of weights that they read.
//
// Legend: MR rows of the left operand and NU vectors of the right one make a tile of accumulators that stays in
// registers. A *panel* is W units (one vector) of the hidden size; the last one is filled up with zeros.
#pragma once

#include "base/simd.h"

namespace {

// Rows of a full tile: with three vectors a row the accumulators fill three quarters of the registers.
constexpr int kRows = kRegisters / 4;
constexpr int kAccumulators = kRegisters * 3 / 4;
// Where a vector is a whole line of the cache, the lines of the panels are fetched ahead: the processor alone is late.
constexpr bool kFetchAhead = kVectorBytes == 64;

// acc[row][u] (+)= sum over k of a[row][k] * b[u * panel + k * W ...]; added to what `acc` holds if `add`.
// `a` runs over W values, then jumps by `jump` (W for a plain row, more where the rows are stored in panels). b is packed
// in panels, or with kPlain a matrix as torch has it, row k at k * plain.
// Not inlined: the loop is long, and the number of its copies is what the compiler's time goes to.
template <class T, int MR, int NU, bool kPlain = false>
__attribute__((noinline)) void tile(const T* const* rows, int64_t jump, const T* b, int64_t panel, int64_t K,
                                    Vec<T>* acc, bool add = false, int64_t plain = 0) {
  Vec<T> sum[MR * NU] = {};
  if (add)
    GORU_UNROLL
    for (int j = 0; j < MR * NU; ++j) sum[j] = acc[j];
  const T* a[MR];
  GORU_UNROLL
  for (int r = 0; r < MR; ++r) a[r] = rows[r];
  auto one = [&](int64_t kk) __attribute__((always_inline)) {
    Vec<T> w[NU];
    GORU_UNROLL
    for (int j = 0; j < NU; ++j) {
      w[j] = load(b + j * panel);
      if (kFetchAhead && MR > 1) prefetch<false>(b, j * panel + 32 * W<T>, kVectorBytes);
    }
    GORU_UNROLL
    for (int r = 0; r < MR; ++r) {
      const Vec<T> x = splat(a[r][kk]);
      GORU_UNROLL
      for (int j = 0; j < NU; ++j) sum[r * NU + j] += x * w[j];
    }
    b += kPlain ? plain : W<T>;
  };
  int64_t k = 0;
  for (; k + W<T> <= K; k += W<T>) {
#pragma GCC unroll 4
    for (int64_t kk = 0; kk < W<T>; ++kk) one(kk);
    GORU_UNROLL
    for (int r = 0; r < MR; ++r) a[r] += jump;
  }
  for (int64_t kk = 0; k < K; ++k, ++kk) one(kk);
  GORU_UNROLL
  for (int j = 0; j < MR * NU; ++j) acc[j] = sum[j];
}

// The same for a panel of columns on the left: out[n][m] += sum over rows of a[row * W + n] * b[m][row * W ...].
// This is the product of a weight gradient: a are gradients, b are states, both stored panel by panel.
template <class T, int MR, int NV>
__attribute__((noinline)) void outer_tile(
    const T* a, const T* b, int64_t panel, int64_t K, T* out, int64_t stride) {
  Vec<T> sum[MR][NV];
  GORU_UNROLL
  for (int n = 0; n < MR; ++n)
    GORU_UNROLL
    for (int m = 0; m < NV; ++m) sum[n][m] = load(out + n * stride + m * W<T>);
  for (int64_t k = 0; k < K; ++k) {
    Vec<T> w[NV];
    GORU_UNROLL
    for (int m = 0; m < NV; ++m) w[m] = load(b + m * panel);
    if (kFetchAhead) prefetch<false>(a, 16 * W<T>, kVectorBytes);
    GORU_UNROLL
    for (int n = 0; n < MR; ++n) {
      const Vec<T> x = splat(a[n]);
      GORU_UNROLL
      for (int m = 0; m < NV; ++m) sum[n][m] += x * w[m];
    }
    a += W<T>;
    b += W<T>;
  }
  GORU_UNROLL
  for (int n = 0; n < MR; ++n)
    GORU_UNROLL
    for (int m = 0; m < NV; ++m) store(out + n * stride + m * W<T>, sum[n][m]);
}

// Halves are added until one lane is left.
template <class T>
inline T sum_of_lanes(Vec<T> v) {
  typedef T Half __attribute__((vector_size(16)));
  Half part[sizeof v / 16];
  memcpy(part, &v, sizeof v);
  for (int width = sizeof v / 32; width > 0; width /= 2)
    for (int i = 0; i < width; ++i) part[i] += part[i + width];
  if constexpr (sizeof(T) == 8) return part[0][0] + part[0][1];
  else return (part[0][0] + part[0][2]) + (part[0][1] + part[0][3]);
}

// Lane l gets b[l] + b[l ^ D] where l has the bit D, and a[l] + a[l ^ D] elsewhere.
template <class T, int D>
inline Vec<T> joined(Vec<T> a, Vec<T> b) {
#if defined(__clang__)
  Vec<T> sum;
  for (int l = 0; l < W<T>; ++l) sum[l] = l & D ? b[l] + b[l ^ D] : a[l] + a[l ^ D];
  return sum;
#else
  IVec<T> own, other;
  GORU_UNROLL
  for (int l = 0; l < W<T>; ++l) own[l] = l & D ? l + W<T> : l, other[l] = own[l] ^ D;
  return __builtin_shuffle(a, b, own) + __builtin_shuffle(a, b, other);
#endif
}

// Lane l gets the sum over the lanes of v[l]; v has W vectors. D lanes of each result are finished.
template <class T, int D = 1>
__attribute__((always_inline)) inline Vec<T> lane_sums(Vec<T>* v) {
  if constexpr (D == W<T>) return v[0];
  else {
    GORU_UNROLL
    for (int i = 0; i < W<T> / D / 2; ++i) v[i] = joined<T, D>(v[2 * i], v[2 * i + 1]);
    return lane_sums<T, 2 * D>(v);
  }
}

// One row with up to W rows of a matrix (n of them) as torch has it, K values each: the products in the lanes. With
// `more` a second product is added: of another row and another matrix with as many rows.
template <class T>
__attribute__((noinline)) Vec<T> dots(int64_t n, const T* weight, const T* row, int64_t K, const T* more = nullptr,
                                      const T* more_row = nullptr, int64_t more_K = 0) {
  constexpr int kLanes = (int)W<T>;
  Vec<T> sum[kLanes] = {};
  for (;;) {
    const T* line[kLanes];
    GORU_UNROLL
    for (int i = 0; i < kLanes; ++i) line[i] = weight + (i < n ? i : n - 1) * K;
    int64_t k = 0;
    for (; k + W<T> <= K; k += W<T>) {
      const Vec<T> x = load(row + k);
      GORU_UNROLL
      for (int i = 0; i < kLanes; ++i) sum[i] += load(line[i] + k) * x;
    }
    if (k < K && K >= W<T>) {
      // The last W values of a row, of which the loop has summed the first ones. The mask comes after the product: 0
      // times infinity is not 0.
      const IVec<T> left = ~first_lanes<T>(W<T> - (K - k));
      k = K - W<T>;
      const Vec<T> x = load(row + k);
      GORU_UNROLL
      for (int i = 0; i < kLanes; ++i) sum[i] += keep<T>(left, load(line[i] + k) * x);
    } else if (k < K) {
      const Vec<T> x = load_part(row, K);
      GORU_UNROLL
      for (int i = 0; i < kLanes; ++i) sum[i] += load_part(line[i], K) * x;
    }
    if (!more) break;
    weight = more, row = more_row, K = more_K, more = nullptr;
  }
  return n < W<T> ? keep<T>(first_lanes<T>(n), lane_sums<T>(sum)) : lane_sums<T>(sum);
}

// How many panels a tile of MR rows takes at once. One row alone needs many sums to keep the processor busy.
template <int MR>
constexpr int panels_at_once() {
  return MR == 1 ? 8 : MR == 2 ? 4 : kAccumulators / MR;
}

template <int N>
struct Count {
  static constexpr int value = N;
};

// Calls body(first, Count<m>) for parts of m rows that make up n <= kRows rows. Only powers of two, for the sake of
// the compiler's time.
template <class Body>
inline void by_rows(int64_t n, Body&& body) {
  int64_t first = 0;
  if constexpr (kRows == 8) {
    if (n == 8) return body(int64_t(0), Count<8>());
  }
  if (n & 4) body(first, Count<4>()), first += 4;
  if (n & 2) body(first, Count<2>()), first += 2;
  if (n & 1) body(first, Count<1>());
}

// Calls take(panel, Count<n>) for the panels begin ... end - 1, as many at once as fit into the registers.
template <int MR, class Take>
inline void by_panels(int64_t begin, int64_t end, Take&& take) {
  constexpr int NU = panels_at_once<MR>();
  int64_t p = begin;
  // Four left with room for three: two and two keep more sums in flight than three and one.
  while (end - p >= NU && !(NU == 3 && end - p == 4)) {
    take(p, Count<NU>());
    p += NU;
  }
  if constexpr (NU > 4)
    for (; end - p >= 4; p += 4) take(p, Count<4>());
  if constexpr (NU > 2)
    for (; end - p >= 2; p += 2) take(p, Count<2>());
  if constexpr (NU > 1)
    for (; p < end; ++p) take(p, Count<1>());
}

// The product of MR rows with the panels begin ... end - 1; body(panel, Count<n>, acc) gets acc[row * n + u].
template <class T, int MR, class Body>
inline void sweep_rows(const T* const* rows, int64_t jump, const T* b, int64_t panel_size, int64_t K, int64_t begin,
                       int64_t end, Body&& body) {
  by_panels<MR>(begin, end, [&](int64_t p, auto count) __attribute__((always_inline)) {
    constexpr int n = decltype(count)::value;
    Vec<T> acc[MR * n];
    tile<T, MR, n>(rows, jump, b + p * panel_size, panel_size, K, acc);
    body(p, count, acc);
  });
}

// Weights (units x K, row by row): out[panel][k][unit], panels `panel_size` apart.
template <class T>
inline void pack_units(const T* weight, int64_t units, int64_t K, T* out, int64_t panel_size) {
  for (int64_t u0 = 0; u0 < units; u0 += W<T>, out += panel_size) {
    const int64_t n = units - u0 < W<T> ? units - u0 : W<T>;
    for (int64_t u = 0; u < n; ++u) {
      const T* from = weight + (u0 + u) * K;
      for (int64_t k = 0; k < K; ++k) out[k * W<T> + u] = from[k];
    }
    for (int64_t u = n; u < W<T>; ++u)
      for (int64_t k = 0; k < K; ++k) out[k * W<T> + u] = T(0);
  }
}

// Weights (K x columns, row by row) for the product with their transpose: out[panel of columns][k][column].
template <class T>
inline void pack_columns(const T* weight, int64_t stride, int64_t K, int64_t columns, T* out, int64_t panel_size) {
  for (int64_t c0 = 0, p = 0; c0 < columns; c0 += W<T>, ++p)
    for (int64_t k = 0; k < K; ++k)
      store(out + p * panel_size + k * W<T>, load(weight + k * stride + c0, columns - c0));
}

}  // namespace
