// The complex EURNN recurrence  h_t = modReLU(U h_{t-1} + W_x x_t, b)  with U as a matrix.
//
// A complex row is two real ones, [part][Hp]: real parts, then imaginary parts, each filled up to whole panels with
// zeros. U is then a real matrix of four blocks:
//
//   forward, U               Re: [Re U, -Im U]      Im: [Im U, Re U]
//   backward, (conj U)^T     Re: [Re U^T, Im U^T]   Im: [-Im U^T, Re U^T]
//
// Each step has two passes over a thread's rows, the product and what is done element by element. A row without the
// step is left alone by both, so its state (or gradient) waits where it is.
#pragma once

#include "base/modrelu.h"
#include "base/chunk.h"
#include "base/threads.h"
#include "base/weight_gradient.h"
#include "eurnn/structures.h"

namespace {

template <class T>
int64_t dense_pack_size(int64_t inputs, int64_t hidden) {
  const int64_t HP = panels<T>(hidden);
  return 2 * HP * (2 * HP * W<T> + inputs) * W<T>;
}

// blocks: (2 parts of the result, 2 parts of the state, H, H); weight: (2 H, I), or null with I = 0. For each panel of
// either part 2 Hp rows for the state, then I rows for the input.
template <class T>
void dense_pack(const T* blocks, const T* weight, int64_t I, int64_t H, T* out) {
  const int64_t HP = panels<T>(H), Hp = HP * W<T>, panel = (2 * Hp + I) * W<T>;
  memset(out, 0, sizeof(T) * dense_pack_size<T>(I, H));
  for (int64_t g = 0; g < 2; ++g)
    for (int64_t u = 0; u < H; ++u) {
      T* to = out + (g * HP + u / W<T>) * panel + u % W<T>;
      for (int64_t part = 0; part < 2; ++part)
        for (int64_t k = 0; k < H; ++k) to[(part * Hp + k) * W<T>] = blocks[((2 * g + part) * H + u) * H + k];
      for (int64_t i = 0; i < I; ++i) to[(2 * Hp + i) * W<T>] = weight[(g * H + u) * I + i];
    }
}

template <class T>
int64_t dense_pack_input_size(int64_t inputs, int64_t hidden) {
  return panels<T>(inputs) * 2 * panels<T>(hidden) * W<T> * W<T>;
}

// The weight for dx, its rows in the places of the gradients that meet it.
template <class T>
void dense_pack_input(const T* weight, int64_t I, int64_t H, T* out) {
  const int64_t Hp = panels<T>(H) * W<T>, panel = 2 * Hp * W<T>;
  memset(out, 0, sizeof(T) * dense_pack_input_size<T>(I, H));
  for (int part = 0; part < 2; ++part) pack_columns(weight + part * H * I, I, H, I, out + part * Hp * W<T>, panel);
}

template <class T>
struct Dense {
  const DenseArguments& d;
  const Shape& s;
  const int64_t H, I, HP, Hp, panel;  // panel: distance of panels in the chunk buffer
  const T *x, *packed, *bias;
  T *state, *output, *saved;
  T *gradients, *states, *inputs;  // the chunk buffer
  OuterProducts<T> sums;

  explicit Dense(const DenseArguments& d)
      : d(d), s(d.shape), H(s.hidden), I(s.inputs), HP(panels<T>(H)), Hp(HP * W<T>), panel(d.layout.rows * W<T>),
        x((const T*)d.x), packed((const T*)d.packed), bias((const T*)d.bias), state((T*)d.state),
        output((T*)d.output), saved((T*)d.saved), gradients((T*)d.chunk), states(gradients + 2 * HP * panel),
        inputs(states + 2 * HP * panel) {
    if (!d.chunk) return;  // forward
    T* sum = (T*)d.weights;
    const int64_t size = 2 * Hp * (2 * Hp + panels<T>(I) * W<T>);
    const Places end(s, d.layout);
    add_products(sums, {gradients, states, 2 * HP, 2 * HP, sum}, size, s, d.layout, end);
    add_products(sums, {gradients, inputs, 2 * HP, panels<T>(I), sum + 4 * Hp * Hp}, size, s, d.layout, end);
  }

  Vec<T> bias_of(int64_t p) const { return load(bias + p * W<T>, H - p * W<T>); }

  // Both parts of a panel of the pre-activations of a row at time t.
  T* saved_at(int64_t t, int64_t row) const { return saved + t * d.saved_step + row * 2 * H; }
  void read(const T* row, int64_t p, Vec<T>* a) const {
    for (int part = 0; part < 2; ++part) a[part] = load(row + part * H + p * W<T>, H - p * W<T>);
  }

  // U h + W_x x of MR rows, to `saved`.
  template <int MR>
  __attribute__((noinline)) void arrive(int64_t t, int64_t first, int64_t begin, int64_t end) const {
    const T *before[MR], *input[MR];
    T* to[MR];
    for (int r = 0; r < MR; ++r) {
      const int64_t row = row_at(s, first + r);
      before[r] = state + row * 2 * Hp;
      input[r] = x + t * s.x_step + row * s.x_row;
      to[r] = saved_at(t, row);
    }
    const int64_t size = (2 * Hp + I) * W<T>;
    sweep_rows<T, MR>(before, W<T>, packed, size, 2 * Hp, begin, end, [&](int64_t p, auto count, Vec<T>* acc) {
      constexpr int NU = decltype(count)::value;
      tile<T, MR, NU>(input, W<T>, packed + p * size + 2 * Hp * W<T>, size, I, acc, true);
      for (int r = 0; r < MR; ++r)
        for (int i = 0; i < NU; ++i) {
          const int64_t part = p + i >= HP, u = (p + i - part * HP) * W<T>;
          store(to[r] + part * H + u, acc[r * NU + i], H - u);
        }
    });
  }

  void activate(int64_t t, int64_t row) const {
    const T* from = saved_at(t, row);
    T *h = state + row * 2 * Hp, *out = output + (t * s.batch + row) * H;
    for (int64_t p = 0; p < HP; ++p) {
      Vec<T> a[2];
      read(from, p, a);
      if (s.modrelu) complex_modrelu<T>(a, bias_of(p));
      store(h + p * W<T>, a[0]);
      store(h + Hp + p * W<T>, a[1]);
      store(out + p * W<T>, a[0], H - p * W<T>);
    }
  }

  // (conj U)^T applied to the gradients at `from` in the chunk, to the gradient of the state before.
  template <int MR>
  __attribute__((noinline)) void leave(int64_t first, int64_t from, int64_t begin, int64_t end) const {
    const T* left[MR];
    T* to[MR];
    for (int r = 0; r < MR; ++r)
      left[r] = gradients + (from + first + r) * W<T>, to[r] = state + row_at(s, first + r) * 2 * Hp;
    const int64_t K = 2 * Hp;
    sweep_rows<T, MR>(left, panel, packed, K * W<T>, K, begin, end, [&](int64_t p, auto count, const Vec<T>* acc) {
      constexpr int NU = decltype(count)::value;
      for (int r = 0; r < MR; ++r)
        for (int i = 0; i < NU; ++i) store(to[r] + (p + i) * W<T>, acc[r * NU + i]);
    });
  }

  // The gradient of a row's pre-activation, and what it meets in the weight gradients, to `place` of the chunk.
  void deactivate(int64_t t, int64_t sorted, int64_t place, T* db) const {
    const int64_t row = row_at(s, sorted), before = s.reverse ? t + 1 : t - 1;
    const bool start = s.reverse ? before >= s.steps || sorted >= active_at(s, before) : before < 0;
    const T *at = saved_at(t, row), *grad = (const T*)d.grad_output + t * d.grad_step + row * d.grad_row;
    const T *g = state + row * 2 * Hp, *h0 = (const T*)d.h0 + row * 2 * Hp;
    for (int64_t p = 0; p < HP; ++p) {
      const int64_t u = p * W<T>;
      Vec<T> a[2], h[2] = {load(h0 + u), load(h0 + Hp + u)};
      Vec<T> da[2] = {load(g + u) + load(grad + u, H - u), load(g + Hp + u)};
      if (!start) read(saved_at(before, row), p, h);
      if (s.modrelu) {
        read(at, p, a);
        if (!start) complex_modrelu<T>(h, bias_of(p));
        store(db + u, load(db + u) + complex_modrelu_back<T>(a, da, bias_of(p)));
      }
      for (int part = 0; part < 2; ++part) {
        store(gradients + (part * HP + p) * panel + place * W<T>, da[part]);
        store(states + (part * HP + p) * panel + place * W<T>, h[part]);
      }
    }
    copy_input<T, false>(s, x, t, sorted, inputs + place * W<T>, panel);
  }

  void forward(int index, int threads) const {
    const Blocks mine(s, index, threads);
    const Part all = {0, 2 * HP};
    for (int64_t step = s.first; step < s.last; ++step) {
      const int64_t t = time_of(s, step), active = active_at(s, t);
      each_panel<T>(2 * HP, all, mine, active, [&](int64_t block, int64_t offset, auto count, int64_t begin, int64_t end) {
        arrive<decltype(count)::value>(t, block * kRows + offset, begin, end);
      });
      for (int64_t i = 0; i < mine.count; ++i)
        for (int64_t j = mine.block(i) * kRows; j < (mine.block(i) + 1) * kRows && j < s.batch; ++j) {
          if (j < active) activate(t, row_at(s, j));
          else memset(output + (t * s.batch + row_at(s, j)) * H, 0, sizeof(T) * H);
        }
    }
  }

  void backward(int index, int threads) const {
    const Blocks mine(s, index, threads);
    const Part all = {0, 2 * HP};
    const InputGradient<T> dx = {s, gradients, (const T*)d.packed_input, panel, 2 * Hp, (T*)d.grad_x};
    Places place(s, d.layout);
    for (int64_t step = s.last - 1; step >= s.first; --step) {
      const int64_t t = time_of(s, step), active = active_at(s, t);
      place.back(active);
      for (int64_t i = 0; i < mine.count; ++i) {
        const int64_t block = mine.block(i), n = rows_of(block, active), at = place.of(block);
        for (int64_t j = block * kRows; j < block * kRows + n; ++j)
          deactivate(t, j, at + j, (T*)d.sums + block * Hp);
        dx.block(t, block, n, at);
      }
      each_panel<T>(2 * HP, all, mine, active, [&](int64_t block, int64_t offset, auto count, int64_t begin, int64_t end) {
        leave<decltype(count)::value>(block * kRows + offset, place.of(block), begin, end);
      });
    }
  }

  static void forward_thread(void* context, int index, int count) {
    FlushDenormals flush;
    ((const Dense*)context)->forward(index, count);
  }
  static void backward_thread(void* context, int index, int count) {
    FlushDenormals flush;
    ((const Dense*)context)->backward(index, count);
  }
};

template <class T>
void dense_forward(const DenseArguments* d) {
  Dense<T> dense(*d);
  goru_parallel((int)d->shape.threads, Dense<T>::forward_thread, &dense);
}

template <class T>
void dense_backward(const DenseArguments* d) {
  Dense<T> dense(*d);
  goru_parallel((int)d->shape.threads, Dense<T>::backward_thread, &dense);
  goru_parallel((int)d->shape.threads, OuterProducts<T>::thread, &dense.sums);
}

}  // namespace
