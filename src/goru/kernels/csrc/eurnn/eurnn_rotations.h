// The EURNN recurrence  h_t = modReLU(U h_{t-1} + W_x x_t, b)  with the rotations of U applied directly.
//
// A block of W rows, one row a lane, goes through all steps of a call before the next one, so that it stays in the
// cache. Backward recomputes U h_{t-1} from what was saved, then applies the inverse to it and to the gradient, through
// the rotations together: no mesh layer is ever stored.
#pragma once

#include "base/modrelu.h"
#include "base/rows.h"
#include "base/threads.h"
#include "base/transpose.h"
#include "eurnn/lane_products.h"
#include "eurnn/structures.h"
#include "mesh/rotations.h"

namespace {

template <class T, bool C>
struct Eurnn {
  static constexpr int64_t L = W<T>;
  static constexpr int kParts = C + 1;
  const EurnnArguments& e;
  const Shape& s;
  const Rotations<T, C, 1> rotations;
  const int64_t H, I, size, blocks, angles;  // size: of a block's state
  const T *x, *weight, *bias, *grad_output, *h0;
  T *state, *output, *saved;
  int64_t depth;

  explicit Eurnn(const EurnnArguments& e)
      : e(e), s(e.shape), rotations(e.mesh), H(s.hidden), I(s.inputs), size(kParts * H * L),
        blocks((s.batch + L - 1) / L), angles(C ? 2 * e.mesh.rotations + H : e.mesh.rotations), x((const T*)e.x),
        weight((const T*)e.weight), bias((const T*)e.bias), grad_output((const T*)e.grad_output),
        h0((const T*)e.h0), state((T*)e.state), output((T*)e.output), saved((T*)e.saved),
        depth(place(s.last, 0)) {}

  static int64_t scratch(int64_t inputs, int64_t hidden, int64_t rotations) {
    const int64_t angles = C ? 2 * rotations + hidden : rotations;
    return (2 * kParts * hidden + inputs + 1 + angles + hidden) * L;
  }

  // Lanes of a block that have time t.
  int64_t lanes_at(int64_t block, int64_t step) const {
    if (step < 0 || step >= s.steps) return 0;
    const int64_t n = active_at(s, time_of(s, step)) - block * L;
    return n < 0 ? 0 : n > L ? L : n;
  }

  // Place of (step, block) in the chunk buffers: blocks that have ended have no place.
  int64_t place(int64_t step, int64_t block) const {
    if (!s.active) return (step - s.first) * blocks + block;
    int64_t n = block;
    for (int64_t i = s.first; i < step; ++i) n += (active_at(s, time_of(s, i)) + L - 1) / L;
    return n;
  }

  int64_t row(int64_t block, int64_t lane) const { return row_at(s, block * L + lane); }

  // The vector of lanes for element i of a row of torch, where real and imaginary parts alternate.
  int64_t vector_of(int64_t i) const { return i % kParts * H + i / kParts; }

  // Lanes `from` ... `to` - 1 of a state from rows of a (B, H) tensor of torch, and back.
  void read(const T* tensor, int64_t block, int64_t from, int64_t to, T* lanes) const {
    if (to - from == L) {
      const T* rows[L];
      for (int64_t l = 0; l < L; ++l) rows[l] = tensor + row(block, l) * H * kParts;
      return rows_to_lanes<T>(rows, H * kParts, [&](int64_t i, Vec<T> values) { store(lanes + vector_of(i) * L, values); });
    }
    for (int64_t l = from; l < to; ++l) {
      const T* line = tensor + row(block, l) * H * kParts;
      for (int64_t i = 0; i < H * kParts; ++i) lanes[vector_of(i) * L + l] = line[i];
    }
  }
  void write(const T* lanes, int64_t block, int64_t from, int64_t to, T* tensor) const {
    if (to - from == L) {
      T* rows[L];
      for (int64_t l = 0; l < L; ++l) rows[l] = tensor + row(block, l) * H * kParts;
      return lanes_to_rows<T>([&](int64_t i) { return load(lanes + vector_of(i) * L); }, H * kParts, rows, false);
    }
    for (int64_t l = from; l < to; ++l) {
      T* line = tensor + row(block, l) * H * kParts;
      for (int64_t i = 0; i < H * kParts; ++i) line[i] = lanes[vector_of(i) * L + l];
    }
  }

  // x of the active lanes as [i][lane], 0 in the others.
  void read_input(int64_t t, int64_t block, int64_t n, T* lanes) const {
    if (n < L) memset(lanes, 0, sizeof(T) * I * L);
    for (int64_t l = 0; l < n; ++l) {
      const T* line = x + t * s.x_step + row(block, l) * s.x_row;
      for (int64_t i = 0; i < I; ++i) lanes[i * L + l] = line[i];
    }
  }

  T* saved_at(int64_t t, int64_t block) const { return saved + (t * blocks + block) * size; }

  // h = modReLU(a) for one unit; in place.
  inline void activate(Vec<T>* a, int64_t u) const {
    if (!s.modrelu) return;
    const Vec<T> b = splat(bias[u]);
    if constexpr (!C) {
      a[0] = modrelu<T>(a[0], b);
    } else {
      complex_modrelu<T>(a, b);
    }
  }

  // The gradient of a from that of h; returns the gradient of b.
  inline Vec<T> deactivate(const Vec<T>* a, Vec<T>* g, int64_t u) const {
    if (!s.modrelu) return Vec<T>{};
    if constexpr (!C) {
      g[0] = keep<T>(~(a[0] == T(0)), g[0]);
      return (Vec<T>)(bits<T>(g[0]) ^ (bits<T>(a[0]) & Simd<T>::kSign));
    } else {
      return complex_modrelu_back<T>(a, g, splat(bias[u]));
    }
  }

  template <int N>
  inline void units(int64_t u, T* h, const T* input, T* save) const {
    Vec<T> from_x[kParts][N];
    GORU_UNROLL
    for (int c = 0; c < kParts; ++c) weigh<T, N>(weight + (c * H + u) * I, I, input, I, from_x[c]);
    GORU_UNROLL
    for (int n = 0; n < N; ++n) {
      Vec<T> a[kParts];
      GORU_UNROLL
      for (int c = 0; c < kParts; ++c) {
        a[c] = load(h + (c * H + u + n) * L) + from_x[c][n];
        if (!save) continue;
        if (e.stream) stream(save + (c * H + u + n) * L, a[c], L);
        else store(save + (c * H + u + n) * L, a[c]);
      }
      activate(a, u + n);
      GORU_UNROLL
      for (int c = 0; c < kParts; ++c) store(h + (c * H + u + n) * L, a[c]);
    }
  }

  void forward_block(int64_t block, T* h, T* input) const {
    int64_t before = 0;
    memset(h, 0, sizeof(T) * size);
    for (int64_t step = s.first; step < s.last; ++step) {
      const int64_t t = time_of(s, step), n = lanes_at(block, step);
      const int64_t rows = s.batch - block * L < L ? s.batch - block * L : L;
      if (n > before) read(state, block, before, n, h);  // rows that start here
      before = n;
      if (n > 0) {
        rotations.apply(h);
        read_input(t, block, n, input);
        T* save = saved ? saved_at(t, block) : nullptr;
        int64_t u = 0;
        for (; u + 4 <= H; u += 4) units<4>(u, h, input, save);
        for (; u < H; ++u) units<1>(u, h, input, save);
      }
      T* lines[L];
      for (int64_t l = 0; l < rows; ++l) lines[l] = output + (t * s.batch + row(block, l)) * H;
      if (n == L) lanes_to_rows<T>([&](int64_t u) { return load(h + u * L); }, H, lines, e.stream && H % L == 0);
      else
        for (int64_t l = 0; l < rows; ++l) {
          if (l < n)
            for (int64_t i = 0; i < H; ++i) lines[l][i] = h[i * L + l];
          else
            memset(lines[l], 0, sizeof(T) * H);
        }
      // rows that end here, or go on in the next call
      const int64_t stay = step + 1 < s.last ? lanes_at(block, step + 1) : 0;
      if (stay < n) write(h, block, stay, n, state);
    }
  }

  // The state before `step` in the lanes that have the step, 0 in the others.
  void state_before_step(int64_t block, int64_t step, int64_t n, T* y) const {
    const int64_t going = lanes_at(block, step - 1) < n ? lanes_at(block, step - 1) : n;  // not a row's first step
    if (n < L) memset(y, 0, sizeof(T) * size);
    if (going > 0) {
      const int64_t t = time_of(s, step - 1);
      if constexpr (C) {
        const T* a = saved_at(t, block);
        for (int64_t u = 0; u < H; ++u) {
          Vec<T> value[2] = {load(a + u * L), load(a + (H + u) * L)};
          activate(value, u);
          store(y + u * L, value[0]);
          store(y + (H + u) * L, value[1]);
        }
        for (int64_t l = going; l < L; ++l)
          for (int64_t i = 0; i < 2 * H; ++i) y[i * L + l] = T(0);
      } else {
        read(output + t * s.batch * H, block, 0, going, y);
      }
    }
    read(h0, block, going, n, y);
  }

  void backward_block(int64_t block, T* g, T* y, T* input, T* sums) const {
    const int64_t K = e.depth;
    T *gradients = (T*)e.gradients, *inputs = (T*)e.inputs, *db = sums + angles * L;
    memset(sums, 0, sizeof(T) * (angles + H) * L);
    memset(g, 0, sizeof(T) * size);
    int64_t later = 0;
    for (int64_t step = s.last - 1; step >= s.first; --step) {
      const int64_t t = time_of(s, step), n = lanes_at(block, step), rows = s.batch - block * L;
      // Rows whose gradient comes from outside: the last step of the chunk or of the row.
      if (n > later) read(state, block, later, n, g);
      later = n;
      if (n > 0) {
        const int64_t k = place(step, block);
        const T* lines[L];
        for (int64_t l = 0; l < n; ++l) lines[l] = grad_output + t * e.grad_step + row(block, l) * e.grad_row;
        if (n == L)
          rows_to_lanes<T>(lines, H, [&](int64_t u, Vec<T> grad) { store(g + u * L, load(g + u * L) + grad); });
        else
          for (int64_t l = 0; l < n; ++l)
            for (int64_t u = 0; u < H; ++u) g[u * L + l] += lines[l][u];
        if constexpr (!C) {  // activity and sign of a are those of h; y is only borrowed
          if (s.modrelu) {
            if (n < L) memset(y, 0, sizeof(T) * size);
            read(output + t * s.batch * H, block, 0, n, y);
          }
        }
        const T* a = C ? saved_at(t, block) : y;
        for (int64_t u = 0; u < H; ++u) {
          Vec<T> at[kParts], grad[kParts];
          GORU_UNROLL
          for (int c = 0; c < kParts; ++c) at[c] = load(a + (c * H + u) * L), grad[c] = load(g + (c * H + u) * L);
          Vec<T> b = deactivate(at, grad, u);
          if (n < L)  // idle lanes must add nothing to the sums, whatever they contain
            for (int64_t l = n; l < L; ++l) {
              b[l] = T(0);
              GORU_UNROLL
              for (int c = 0; c < kParts; ++c) grad[c][l] = T(0);
            }
          store(db + u * L, load(db + u * L) + b);
          GORU_UNROLL
          for (int c = 0; c < kParts; ++c) {
            const int64_t unit = c * H + u;
            store(g + unit * L, grad[c]);
            store(gradients + ((unit / 4 * K + k) * 4 + unit % 4) * L, grad[c]);
          }
        }
        read_input(t, block, n, input);
        for (int64_t i = 0; i < I; ++i) store(inputs + ((i / 3 * K + k) * 3 + i % 3) * L, load(input + i * L));
        if (e.grad_x) input_gradient(t, block, n, g, input);
        state_before_step(block, step, n, y);
        rotations.apply(y);
        rotations.back(y, g, [&](int64_t i, Vec<T> lanes) { store(sums + i * L, load(sums + i * L) + lanes); });
      }
      if (e.grad_x)
        for (int64_t l = n; l < L && l < rows; ++l)
          memset((T*)e.grad_x + (t * s.batch + row(block, l)) * I, 0, sizeof(T) * I);
      const int64_t stay = step > s.first ? lanes_at(block, step - 1) : 0;
      if (stay < n) write(g, block, stay, n, state);
    }
    T* out = (T*)e.sums + block * (angles + H);
    for (int64_t i = 0; i < angles + H; ++i) out[i] += sum_of_lanes<T>(load(sums + i * L));
  }

  void input_gradient(int64_t t, int64_t block, int64_t n, const T* g, T* lanes) const {
    int64_t i = 0;
    Vec<T> sum[8];
    for (; i + 8 <= I; i += 8) {
      weigh_back<T, 8>(weight + i, I, g, L, kParts * H, sum);
      for (int j = 0; j < 8; ++j) store(lanes + (i + j) * L, sum[j]);
    }
    for (; i < I; ++i) {
      weigh_back<T, 1>(weight + i, I, g, L, kParts * H, sum);
      store(lanes + i * L, sum[0]);
    }
    for (int64_t l = 0; l < n; ++l) {
      T* line = (T*)e.grad_x + (t * s.batch + row(block, l)) * I;
      for (int64_t j = 0; j < I; ++j) line[j] = lanes[j * L + l];
    }
  }

  static void forward_thread(void* context, int index, int count) {
    FlushDenormals flush;
    const Eurnn self(*(const EurnnArguments*)context);
    T* h = (T*)self.e.scratch + index * scratch(self.I, self.H, self.e.mesh.rotations);
    for (int64_t block = index; block < self.blocks; block += count) self.forward_block(block, h, h + self.size);
    flush_streams();
  }

  static void backward_thread(void* context, int index, int count) {
    FlushDenormals flush;
    const Eurnn self(*(const EurnnArguments*)context);
    T* g = (T*)self.e.scratch + index * scratch(self.I, self.H, self.e.mesh.rotations);
    T *y = g + self.size, *input = y + self.size, *sums = input + (self.I + 1) * L;
    for (int64_t block = index; block < self.blocks; block += count) self.backward_block(block, g, y, input, sums);
  }
};

template <class T, bool C>
void eurnn_forward(const EurnnArguments* e) {
  goru_parallel((int)e->shape.threads, Eurnn<T, C>::forward_thread, (void*)e);
}

template <class T, bool C>
void eurnn_backward(const EurnnArguments* e) {
  goru_parallel((int)e->shape.threads, Eurnn<T, C>::backward_thread, (void*)e);
  LaneProducts<T> products = {(const T*)e->gradients, (const T*)e->inputs, (C + 1) * e->shape.hidden,
                              e->shape.inputs, Eurnn<T, C>(*e).depth, e->depth, (T*)e->weights};
  goru_parallel((int)e->shape.threads, LaneProducts<T>::thread, &products);
}

}  // namespace
