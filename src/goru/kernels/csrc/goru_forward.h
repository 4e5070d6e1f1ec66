// The GORU recurrence, forward. Each thread keeps its blocks of rows for all steps of a call, so there is no barrier
// between steps, and everything that follows the product happens on the accumulators of one tile:
//
//   v = U h',  r = sigma(W_r h' + W_rx x + b_r),  z alike,  c = modReLU(W_x x + r v, b_h),  h = z h' + (1 - z) c
//
// Saved for backward, (T, B, K H), by gates:  r and z: v, r, z | r: v, r | z: z, c | none: nothing.  With both gates c
// is not stored: its sign sits in the sign bit of r, and the sign bit of z is set where modReLU cut the unit off;
// backward needs no more of c (see goru_backward.h). What is missing can be read from the output.
#pragma once

#include "arguments.h"
#include "threads.h"
#include "tile.h"

namespace {

template <bool R, bool Z>
constexpr int kGates = 1 + R + Z;
template <bool R, bool Z>
constexpr int kSaved = R && Z ? 3 : R || Z ? 2 : 0;

// Which rows a thread works on: blocks of kRows rows of the (sorted) batch. Ragged batches are dealt out in turn,
// since the first blocks are the longest.
struct Blocks {
  int64_t first, stride, count;
  Blocks(const Shape& s, int index, int threads) {
    const int64_t all = (s.batch + kRows - 1) / kRows;
    if (s.active) {
      first = index, stride = threads, count = all > index ? (all - index + threads - 1) / threads : 0;
    } else {
      first = all * index / threads, stride = 1, count = all * (index + 1) / threads - first;
    }
  }
  int64_t block(int64_t i) const { return first + i * stride; }
};

inline int64_t time_of(const Shape& s, int64_t step) { return s.reverse ? s.steps - 1 - step : step; }

inline int64_t active_at(const Shape& s, int64_t t) { return s.active ? s.active[t] : s.batch; }

// Rows of a block that have time t.
inline int64_t rows_of(int64_t block, int64_t active) {
  const int64_t n = active - block * kRows;
  return n < 0 ? 0 : n > kRows ? kRows : n;
}

inline int64_t row_at(const Shape& s, int64_t i) { return s.order ? s.order[i] : i; }

// The state before step s of a row: the output of the step before, or the initial state. In the reverse direction a
// row starts at its own last step.
template <class T>
inline const T* state_before(const Shape& s, const T* output, const T* h0, int64_t t, int64_t row, int64_t sorted) {
  const int64_t before = s.reverse ? t + 1 : t - 1;
  const bool start = s.reverse ? before >= s.steps || sorted >= active_at(s, before) : before < 0;
  return start ? h0 + row * s.hidden : output + (before * s.batch + row) * s.hidden;
}

template <class T, bool R, bool Z>
int64_t goru_pack_size(int64_t inputs, int64_t hidden) {
  return panels<T>(hidden) * (hidden + inputs) * kGates<R, Z> * W<T>;
}

// Weights of the forward product: for each panel H rows of [U, W_r, W_z], then I rows of [W_x, W_rx, W_zx].
template <class T, bool R, bool Z>
void goru_pack(const T* weight_ih, const T* weight_hh, const T* u, int64_t I, int64_t H, T* out) {
  constexpr int NG = kGates<R, Z>;
  const int64_t panel = (H + I) * NG * W<T>;
  T* inputs = out + H * NG * W<T>;
  pack_units(u, H, H, H, NG, 0, out, panel);
  for (int g = 1; g < NG; ++g) pack_units(weight_hh + (g - 1) * H * H, H, H, H, NG, g, out, panel);
  // rows r, z, c of weight_ih: the candidate is the last of NG
  pack_units(weight_ih + (NG - 1) * H * I, I, H, I, NG, 0, inputs, panel);
  for (int g = 1; g < NG; ++g) pack_units(weight_ih + (g - 1) * H * I, I, H, I, NG, g, inputs, panel);
}

template <class T>
inline Vec<T> modrelu(Vec<T> a, Vec<T> b) {
  const Vec<T> size = magnitude<T>(a);
  const Vec<T> m = size + b;
  // !(m <= 0) keeps NaN; so does !(size < tiny)
  const IVec<T> active = ~(m <= T(0)) & ~(size < Simd<T>::kTiny);
  return keep<T>(active, (Vec<T>)(bits<T>(m) | (bits<T>(a) & Simd<T>::kSign)));
}

template <class T, bool R, bool Z>
struct GoruStep {
  static constexpr int NG = kGates<R, Z>;
  const GoruForward& f;
  const Shape& s;
  const int64_t H;
  const T *x, *h0, *packed, *bias;
  T *output, *saved;

  explicit GoruStep(const GoruForward& f)
      : f(f), s(f.shape), H(s.hidden), x((const T*)f.x), h0((const T*)f.h0), packed((const T*)f.packed),
        bias((const T*)f.bias), output((T*)f.output), saved((T*)f.saved) {}

  // One unit vector of one row: `hh` holds v and the recurrent parts of r and z, `ih` the input's parts.
  inline void unit(const Vec<T>* hh, const Vec<T>* ih, int64_t p, const T* before, T* out, T* save) const {
    const int64_t u = p * W<T>, n = H - u;
    const Vec<T> v = hh[0];
    Vec<T> r, z, a, c;
    if constexpr (R) {
      r = hh[1] + ih[1];
      if (bias) r += load(bias + u, n);
      r = sigmoid<T>(r);
      a = ih[0] + r * v;
    } else {
      a = ih[0] + v;
    }
    if constexpr (Z) {
      z = hh[NG - 1] + ih[NG - 1];
      if (bias) z += load(bias + R * H + u, n);
      z = sigmoid<T>(z);
    }
    c = s.modrelu ? modrelu<T>(a, load(bias + (NG - 1) * H + u, n)) : a;
    Vec<T> h = c;
    if constexpr (Z) h = z * load(before + u, n) + (T(1) - z) * c;
    store(out + u, h, n);
    if (!save) return;
    if constexpr (R && Z) {
      const Vec<T> cut = (Vec<T>)((IVec<T>)(c == T(0)) & (IVec<T>)bits<T>(splat(T(-0.0))));
      store(save + u, v, n);
      store(save + H + u, with_sign<T>(r, c), n);
      store(save + 2 * H + u, s.modrelu ? with_sign<T>(z, cut) : z, n);
    } else if constexpr (R) {
      store(save + u, v, n);
      store(save + H + u, r, n);
    } else if constexpr (Z) {
      store(save + u, z, n);
      store(save + H + u, c, n);
    }
  }

  template <int MR>
  __attribute__((noinline)) void rows(int64_t t, int64_t first, int64_t begin, int64_t end) const {
    const T *before[MR], *input[MR];
    T *out[MR], *save[MR];
    for (int r = 0; r < MR; ++r) {
      const int64_t row = row_at(s, first + r);
      before[r] = state_before(s, output, h0, t, row, first + r);
      input[r] = x + t * s.x_step + row * s.x_row;
      out[r] = output + (t * s.batch + row) * H;
      save[r] = saved ? saved + (t * s.batch + row) * kSaved<R, Z> * H : nullptr;
    }
    const int64_t panel = (H + s.inputs) * NG * W<T>;
    sweep_rows<T, MR, NG>(before, W<T>, packed, panel, H, begin, end, [&](int64_t p, auto count, const Vec<T>* acc) {
      constexpr int NU = decltype(count)::value;
      Vec<T> ih[MR * NU * NG];
      tile<T, MR, NU, NG>(input, W<T>, packed + p * panel + H * NG * W<T>, panel, s.inputs, ih);
#pragma GCC unroll 1
      for (int r = 0; r < MR; ++r)
#pragma GCC unroll 1
        for (int u = 0; u < NU; ++u) {
          const int i = (r * NU + u) * NG;
          unit(acc + i, ih + i, p + u, before[r], out[r], save[r]);
        }
    });
  }

  void run(int index, int threads) const {
    const Blocks mine(s, index, threads);
    const int64_t all = panels<T>(H);
    const int64_t group = mine.count > 1 ? panels_at_once<kRows, NG>() : 4;
    for (int64_t step = s.first; step < s.last; ++step) {
      const int64_t t = time_of(s, step), active = active_at(s, t);
      // Panel by panel, and inside it all rows: the weights of a panel are fetched once a step.
      for (int64_t p = 0; p < all; p += group) {
        const int64_t end = p + group < all ? p + group : all;
        for (int64_t i = 0; i < mine.count; ++i) {
          const int64_t block = mine.block(i), first = block * kRows;
          by_rows(rows_of(block, active), [&](int64_t offset, auto count) {
            rows<decltype(count)::value>(t, first + offset, p, end);
          });
        }
      }
      if (active == s.batch) continue;
      for (int64_t i = 0; i < mine.count; ++i) {
        const int64_t begin = mine.block(i) * kRows;
        for (int64_t j = begin > active ? begin : active; j < begin + kRows && j < s.batch; ++j)
          memset(output + (t * s.batch + row_at(s, j)) * H, 0, H * sizeof(T));
      }
    }
  }

  static void thread(void* context, int index, int count) {
    FlushDenormals flush;
    GoruStep(*(const GoruForward*)context).run(index, count);
  }
};

template <class T, bool R, bool Z>
void goru_forward(const GoruForward* f) {
  goru_parallel((int)f->shape.threads, GoruStep<T, R, Z>::thread, (void*)f);
}

}  // namespace
