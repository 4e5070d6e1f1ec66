// The GORU recurrence, backward, and the gradients of its weights.
//
// With g = dL/dh_t, from the last step to the first (c cut off by modReLU counts as inactive):
//
//   da = g (1 - z) where c is active      dv = da r      dr = da v r (1 - r)
//   dz = g (h' - c) z (1 - z) = g z (h' - h),  since h' - h = (1 - z)(h' - c): c itself is not needed
//   g' = g z + dv U + dr W_r + dz W_z + grad_output(t - 1)
//
// A tile of g' is finished while it is in registers: the pre-activation gradients of the step before follow at once.
// They are kept for a chunk of steps, beside the states and inputs, all in the panels that weight_gradient.h reads.
#pragma once

#include "goru_forward.h"
#include "weight_gradient.h"

namespace {

// Blocks of pre-activation gradients: dv, dr, dz, da; without reset gate dv is da, so da, dz.
template <bool R, bool Z>
constexpr int kGradients = 1 + 2 * R + Z;

// Panels of the chunk buffer: gradients, states before, inputs with a column of ones (which gives db_r and db_z).
template <class T, bool R, bool Z>
int64_t goru_chunk_panels(int64_t inputs, int64_t hidden) {
  return (kGradients<R, Z> + 1) * panels<T>(hidden) + panels<T>(inputs + 1);
}

// The sums: dU, dW_r, dW_z (each Hp x Hp), then dW_x, dW_rx, dW_zx with the ones column (each Hp x Ip); padded.
template <class T, bool R, bool Z>
int64_t goru_weights_size(int64_t inputs, int64_t hidden) {
  const int64_t Hp = panels<T>(hidden) * W<T>, Ip = panels<T>(inputs + 1) * W<T>;
  return kGates<R, Z> * Hp * (Hp + Ip);
}

template <class T, bool R, bool Z>
int64_t goru_pack_backward_size(int64_t hidden) {
  return panels<T>(hidden) * kGates<R, Z> * panels<T>(hidden) * W<T> * W<T>;
}

// [U; W_r; W_z] with each block of rows filled up to whole panels, as the gradients are.
template <class T, bool R, bool Z>
void goru_pack_backward(const T* weight_hh, const T* u, int64_t H, T* out) {
  constexpr int NG = kGates<R, Z>;
  const int64_t Hp = panels<T>(H) * W<T>, panel = NG * Hp * W<T>;
  memset(out, 0, sizeof(T) * panels<T>(H) * panel);
  pack_columns(u, H, H, H, out, panel);
  for (int g = 1; g < NG; ++g) pack_columns(weight_hh + (g - 1) * H * H, H, H, H, out + g * Hp * W<T>, panel);
}

template <class T, bool R, bool Z>
int64_t goru_pack_input_size(int64_t inputs, int64_t hidden) {
  return panels<T>(inputs) * kGates<R, Z> * panels<T>(hidden) * W<T> * W<T>;
}

// weight_ih for dx, its rows in the order of the gradients that meet it: dr, dz, da, or da, dz.
template <class T, bool R, bool Z>
void goru_pack_input(const T* weight_ih, int64_t I, int64_t H, T* out) {
  constexpr int NG = kGates<R, Z>;
  const int64_t Hp = panels<T>(H) * W<T>, panel = NG * Hp * W<T>;
  memset(out, 0, sizeof(T) * panels<T>(I) * panel);
  for (int g = 0; g < NG; ++g) {
    const int from = R ? g : (g + NG - 1) % NG;
    pack_columns(weight_ih + from * H * I, I, H, I, out + g * Hp * W<T>, panel);
  }
}

template <class T, bool R, bool Z>
struct GoruBackwardStep {
  static constexpr int NG = kGates<R, Z>, ND = kGradients<R, Z>;
  const GoruBackward& b;
  const Shape& s;
  const int64_t H, HP, panel;  // panel: distance of panels in the chunk buffer
  const T *grad_output, *x, *h0, *output, *saved, *packed, *packed_input;
  T *carry, *chunk, *states, *inputs, *through, *bias, *grad_x;
  OuterProduct<T> products[2 * NG];
  OuterProducts<T> sums;

  explicit GoruBackwardStep(const GoruBackward& b)
      : b(b), s(b.shape), H(s.hidden), HP(panels<T>(H)), panel(b.rows * W<T>), grad_output((const T*)b.grad_output),
        x((const T*)b.x), h0((const T*)b.h0), output((const T*)b.output), saved((const T*)b.saved),
        packed((const T*)b.packed), packed_input((const T*)b.packed_input), carry((T*)b.carry), chunk((T*)b.chunk),
        states(chunk + ND * HP * panel), inputs(states + HP * panel), through((T*)b.through), bias((T*)b.bias),
        grad_x((T*)b.grad_x) {
    const int64_t IP = panels<T>(s.inputs + 1), square = HP * HP * W<T> * W<T>, wide = HP * IP * W<T> * W<T>;
    T* sum = (T*)b.weights;
    for (int g = 0; g < NG; ++g) products[g] = {gradient(g), states, HP, HP, sum + g * square};
    sum += NG * square;
    // dW_x comes from da, the last block with reset gate and the first one without
    products[NG] = {gradient(R ? ND - 1 : 0), inputs, HP, IP, sum};
    for (int g = 1; g < NG; ++g) products[NG + g] = {gradient(g), inputs, HP, IP, sum + g * wide};
    sums = {products, 2 * NG, rows_before(s.first, s.last), b.rows};
  }

  const T* gradient(int block) const { return chunk + block * HP * panel; }

  // Place of a row in the chunk: the steps follow each other in the order of time taken, without gaps.
  int64_t rows_before(int64_t first, int64_t last) const {
    if (!s.active) return (last - first) * s.batch;
    int64_t n = 0;
    for (int64_t step = first; step < last; ++step) n += active_at(s, time_of(s, step));
    return n;
  }

  struct Row {
    const T *before, *after, *save, *grad;
    T *through, *chunk, *states, *carry;
  };

  Row row(int64_t t, int64_t sorted, int64_t place) const {
    const int64_t row = row_at(s, sorted), at = t * s.batch + row;
    return {state_before(s, output, h0, t, row, sorted), output + at * H, saved + at * kSaved<R, Z> * H,
            grad_output + t * b.grad_step + row * b.grad_row, through + sorted * HP * W<T>, chunk + place * W<T>,
            states + place * W<T>, carry + row * H};
  }

  // One unit vector of one row: from g (without grad_output's part) to the gradients of the pre-activations. Returns
  // da * sign(c), the gradient of b_h.
  inline Vec<T> unit(Vec<T> g, int64_t p, const Row& row) const {
    const int64_t u = p * W<T>, n = H - u;
    g += load(row.grad + u, n);
    const Vec<T> h = load(row.after + u, n), before = load(row.before + u, n);
    Vec<T> da = g, sign = h;
    IVec<T> active = ~(h == T(0));
    if constexpr (Z) {
      Vec<T> z = load(row.save + (R ? 2 * H : 0) + u, n);
      if constexpr (R) {
        active = ~negative<T>(z);
        z = magnitude<T>(z);
      } else {
        sign = load(row.save + H + u, n);
        active = ~(sign == T(0));
      }
      da = g * (T(1) - z);
      const Vec<T> gz = g * z;
      store(row.through + u, gz);
      store(row.chunk + ((ND - 1 - R) * HP + p) * panel, gz * (before - h));
    }
    if (s.modrelu) da = keep<T>(active, da);
    if constexpr (R) {
      const Vec<T> v = load(row.save + u, n);
      Vec<T> r = load(row.save + H + u, n);
      if constexpr (Z) {
        sign = r;
        r = magnitude<T>(r);
      }
      const Vec<T> dv = da * r;
      store(row.chunk + p * panel, dv);
      store(row.chunk + (HP + p) * panel, dv * v * (T(1) - r));
      store(row.chunk + ((ND - 1) * HP + p) * panel, da);
    } else {
      store(row.chunk + p * panel, da);
    }
    store(row.states + p * panel, before);
    return (Vec<T>)(bits<T>(da) ^ (bits<T>(sign) & Simd<T>::kSign));
  }

  // Rows whose gradient comes from `carry`: the first step of the chunk, and rows that begin here.
  void enter(int64_t t, int64_t block, int64_t from, int64_t to, int64_t place) const {
    for (int64_t i = from; i < to; ++i) {
      const int64_t sorted = block * kRows + i;
      const Row at = row(t, sorted, place + sorted);
      for (int64_t p = 0; p < HP; ++p) {
        const int64_t u = p * W<T>;
        add_bias(block, p, unit(load(at.carry + u, H - u), p, at));
      }
    }
  }

  void add_bias(int64_t block, int64_t p, Vec<T> value) const {
    T* to = bias + (block * HP + p) * W<T>;
    store(to, load(to) + value);
  }

  // g' of MR rows, from row `offset` of the block on, whose step s + 1 lies at `from` in the chunk. The first `stay` of
  // them take step s, at `place`; the gradient of the others (all, behind the chunk's first step) goes to `carry`.
  template <int MR>
  __attribute__((noinline)) void step(int64_t t, int64_t block, int64_t offset, int64_t from, int64_t stay,
                                      int64_t place, int64_t begin, int64_t end) const {
    const T* left[MR];
    Row at[MR] = {};
    for (int r = 0; r < MR; ++r) {
      const int64_t sorted = block * kRows + offset + r;
      left[r] = chunk + (from + sorted) * W<T>;
      if (r < stay) at[r] = row(t, sorted, place + sorted);
      else at[r].through = through + sorted * HP * W<T>, at[r].carry = carry + row_at(s, sorted) * H;
    }
    const int64_t K = NG * HP * W<T>;
    sweep_rows<T, MR, 1>(left, panel, packed, K * W<T>, K, begin, end, [&](int64_t p, auto count, const Vec<T>* acc) {
      constexpr int NU = decltype(count)::value;
#pragma GCC unroll 1
      for (int u = 0; u < NU; ++u) {
        Vec<T> db = {};
#pragma GCC unroll 1
        for (int r = 0; r < MR; ++r) {
          Vec<T> g = acc[r * NU + u];
          if constexpr (Z) g += load(at[r].through + (p + u) * W<T>);
          if (r < stay) db += unit(g, p + u, at[r]);
          else store(at[r].carry + (p + u) * W<T>, g, H - (p + u) * W<T>);
        }
        if (stay > 0) add_bias(block, p + u, db);
      }
    });
  }

  // x of a row into its panels, with the column of ones.
  void copy_input(const T* from, int64_t place) const {
    const int64_t I = s.inputs;
    for (int64_t p = 0; p * W<T> < I + 1; ++p) {
      Vec<T> v = load(from + p * W<T>, I - p * W<T> > 0 ? I - p * W<T> : 0);
      if (I - p * W<T> < W<T>) v[I - p * W<T>] = T(1);
      store(inputs + p * panel + place * W<T>, v);
    }
  }

  template <int MR>
  __attribute__((noinline)) void input_gradient(int64_t t, int64_t first, int64_t place) const {
    const T* left[MR];
    T* out[MR];
    for (int r = 0; r < MR; ++r) {
      left[r] = gradient(R) + (place + first + r) * W<T>;
      out[r] = grad_x + (t * s.batch + row_at(s, first + r)) * s.inputs;
    }
    const int64_t K = NG * HP * W<T>, IP = panels<T>(s.inputs);
    sweep_rows<T, MR, 1>(left, panel, packed_input, K * W<T>, K, 0, IP, [&](int64_t p, auto count, const Vec<T>* acc) {
      constexpr int NU = decltype(count)::value;
      for (int r = 0; r < MR; ++r)
        for (int u = 0; u < NU; ++u)
          store(out[r] + (p + u) * W<T>, acc[r * NU + u], s.inputs - (p + u) * W<T>);
    });
  }

  void run(int index, int threads) const {
    const Blocks mine(s, index, threads);
    const int64_t group = mine.count > 1 ? panels_at_once<kRows, 1>() : 4;
    int64_t place = sums.rows, later = 0, later_place = 0;
    for (int64_t step_number = s.last - 1; step_number >= s.first - 1; --step_number) {
      const bool inside = step_number >= s.first, newest = step_number == s.last - 1;
      const int64_t t = inside ? time_of(s, step_number) : 0, active = inside ? active_at(s, t) : 0;
      place -= active;
      if (!newest)
        for (int64_t p = 0; p < HP;) {
          const int64_t left = HP - p, end = p + (left < group || left == group + 1 ? left : group);
          for (int64_t i = 0; i < mine.count; ++i) {
            const int64_t block = mine.block(i), stay = rows_of(block, active);
            by_rows(rows_of(block, later), [&](int64_t offset, auto count) {
              step<decltype(count)::value>(t, block, offset, later_place, stay - offset, place, p, end);
            });
          }
          p = end;
        }
      if (!inside) break;
      for (int64_t i = 0; i < mine.count; ++i) {
        const int64_t block = mine.block(i), n = rows_of(block, active);
        enter(t, block, newest ? 0 : rows_of(block, later), n, place);
        for (int64_t r = 0; r < n; ++r) {
          const int64_t sorted = block * kRows + r;
          copy_input(x + t * s.x_step + row_at(s, sorted) * s.x_row, place + sorted);
        }
        if (!grad_x) continue;
        by_rows(n, [&](int64_t offset, auto count) {
          input_gradient<decltype(count)::value>(t, block * kRows + offset, place);
        });
        for (int64_t j = block * kRows + n; j < (block + 1) * kRows && j < s.batch; ++j)
          memset(grad_x + (t * s.batch + row_at(s, j)) * s.inputs, 0, s.inputs * sizeof(T));
      }
      later = active, later_place = place;
    }
  }

  static void thread(void* context, int index, int count) {
    FlushDenormals flush;
    ((const GoruBackwardStep*)context)->run(index, count);
  }
};

template <class T, bool R, bool Z>
void goru_backward(const GoruBackward* b) {
  GoruBackwardStep<T, R, Z> step(*b);
  goru_parallel((int)b->shape.threads, GoruBackwardStep<T, R, Z>::thread, &step);
  goru_parallel((int)b->shape.threads, OuterProducts<T>::thread, &step.sums);
}

}  // namespace
