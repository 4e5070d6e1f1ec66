// Meshes of 2x2 rotations applied to many columns at once: each column is one lane, so that any pair of units is a
// pair of vectors and the coefficients are the same for all lanes.
//
//   real       p' = c p - s q,        q' = s p + c q
//   complex    p' = c p - (e s) q,    q' = s p + (e c) q,   then every unit times its phase
//
// A state is [component][unit][V * W lanes]: real parts, then imaginary parts. The inverse is the conjugate transpose,
// so backward applies the inverse rotations in reverse order, to the state and the gradient together.
#pragma once

#include "base/threads.h"
#include "base/tile.h"
#include "mesh/structures.h"

namespace {

template <class T, bool C, int V>
struct Rotations {
  static constexpr int64_t L = V * W<T>;  // lanes
  static constexpr int kCoefficients = C ? 6 : 2;  // c, s, and for complex meshes Re es, Im es, Re ec, Im ec
  const MeshArguments& m;
  const int64_t H;
  const T *coefficients, *phases;

  explicit Rotations(const MeshArguments& m)
      : m(m), H(m.size), coefficients((const T*)m.coefficients), phases((const T*)m.phases) {}

  // Column j of a matrix that starts as the identity is 0 beyond the units that earlier layers can reach from j:
  // rotations out there do nothing, and their gradient is 0. `columns` are those in the lanes, or empty for no limit.
  struct Columns {
    int64_t first = 0, last = -1;
  };

  bool idle(int64_t n, Columns c) const {
    return c.first <= c.last && (m.q[n] < c.first - m.reach[n] || m.p[n] > c.last + m.reach[n]);
  }

  void apply(T* state, Columns columns = Columns()) const {
    for (int64_t n = 0; n < m.rotations; ++n) {
      if (idle(n, columns)) continue;
      Vec<T> k[kCoefficients];
      GORU_UNROLL
      for (int i = 0; i < kCoefficients; ++i) k[i] = splat(coefficients[n * kCoefficients + i]);
      T *p = state + m.p[n] * L, *q = state + m.q[n] * L;
      GORU_UNROLL
      for (int v = 0; v < V; ++v, p += W<T>, q += W<T>) {
        const Vec<T> pr = load(p), qr = load(q);
        if constexpr (!C) {
          store(p, k[0] * pr - k[1] * qr);
          store(q, k[1] * pr + k[0] * qr);
        } else {
          const Vec<T> pi = load(p + H * L), qi = load(q + H * L);
          store(p, k[0] * pr - k[2] * qr + k[3] * qi);
          store(p + H * L, k[0] * pi - k[2] * qi - k[3] * qr);
          store(q, k[1] * pr + k[4] * qr - k[5] * qi);
          store(q + H * L, k[1] * pi + k[4] * qi + k[5] * qr);
        }
      }
    }
    if constexpr (C)
      for (int64_t u = 0; u < H; ++u) turn(state + u * L, phases[2 * u], phases[2 * u + 1]);
  }

  // Multiplies one unit by the phase (cos, sin).
  void turn(T* unit, T cos, T sin) const {
    for (int v = 0; v < V; ++v, unit += W<T>) {
      const Vec<T> re = load(unit), im = load(unit + H * L);
      store(unit, cos * re - sin * im);
      store(unit + H * L, cos * im + sin * re);
    }
  }

  // From U h and dL/d(U h) back to h and dL/dh. add(index, vector) receives the lanes of the gradient of each angle:
  // theta at 0 ... N - 1, and for complex meshes then phi and omega.
  template <class Add>
  void back(T* state, T* grad, Add&& add, Columns columns = Columns()) const {
    const int64_t N = m.rotations, I = H * L;
    if constexpr (C)
      for (int64_t u = 0; u < H; ++u) {
        T *y = state + u * L, *g = grad + u * L;
        Vec<T> sum = {};
        for (int v = 0; v < V; ++v) {
          const int64_t o = v * W<T>;
          sum += load(y + o) * load(g + I + o) - load(y + I + o) * load(g + o);
        }
        add(2 * N + u, sum);
        turn(y, phases[2 * u], -phases[2 * u + 1]);
        turn(g, phases[2 * u], -phases[2 * u + 1]);
      }
    for (int64_t n = N - 1; n >= 0; --n) {
      if (idle(n, columns)) continue;
      Vec<T> k[kCoefficients];
      GORU_UNROLL
      for (int i = 0; i < kCoefficients; ++i) k[i] = splat(coefficients[n * kCoefficients + i]);
      T *yp = state + m.p[n] * L, *yq = state + m.q[n] * L, *gp = grad + m.p[n] * L, *gq = grad + m.q[n] * L;
      Vec<T> theta = {}, phi = {};
      GORU_UNROLL
      for (int v = 0; v < V; ++v, yp += W<T>, yq += W<T>, gp += W<T>, gq += W<T>) {
        const Vec<T> a = load(yp), b = load(yq), d = load(gp), e = load(gq);
        theta += e * a - d * b;
        if constexpr (!C) {
          store(yp, k[0] * a + k[1] * b);
          store(yq, k[0] * b - k[1] * a);
          store(gp, k[0] * d + k[1] * e);
          store(gq, k[0] * e - k[1] * d);
        } else {
          const Vec<T> ai = load(yp + I), bi = load(yq + I), di = load(gp + I), ei = load(gq + I);
          theta += ei * ai - di * bi;
          store(yp, k[0] * a + k[1] * b);
          store(yp + I, k[0] * ai + k[1] * bi);
          store(gp, k[0] * d + k[1] * e);
          store(gp + I, k[0] * di + k[1] * ei);
          // q = conj(e c) q' - conj(e s) p'
          const Vec<T> q = k[4] * b + k[5] * bi - k[2] * a - k[3] * ai;
          const Vec<T> qi = k[4] * bi - k[5] * b - k[2] * ai + k[3] * a;
          const Vec<T> g = k[4] * e + k[5] * ei - k[2] * d - k[3] * di;
          const Vec<T> gi = k[4] * ei - k[5] * e - k[2] * di + k[3] * d;
          store(yq, q), store(yq + I, qi), store(gq, g), store(gq + I, gi);
          phi += q * gi - qi * g;
        }
      }
      add(n, theta);
      if constexpr (C) add(N + n, phi);
    }
  }
};

// U and its gradient, column by column: slices of columns are tasks, and the sums of a slice do not depend on who
// computes it.
template <class T, bool C>
struct MeshMatrix {
  static constexpr int V = 4;
  static constexpr int64_t L = V * W<T>;
  const MeshMatrixArguments& a;
  const Rotations<T, C, V> rotations;
  const int64_t H;

  explicit MeshMatrix(const MeshMatrixArguments& a) : a(a), rotations(a.mesh), H(a.mesh.size) {}

  static int64_t scratch(int64_t hidden) { return 2 * (C + 1) * hidden * L; }

  typename Rotations<T, C, V>::Columns columns(int64_t block) const { return {block * L, block * L + L - 1}; }

  // (H, H) of torch, complex numbers interleaved, to and from L columns of a state.
  void read(const T* matrix, int64_t column, T* state) const {
    const int64_t n = H - column < L ? H - column : L;
    for (int64_t u = 0; u < H; ++u)
      for (int64_t i = 0; i < L; ++i)
        for (int c = 0; c <= C; ++c)
          state[(c * H + u) * L + i] = i < n ? matrix[(u * H + column + i) * (C + 1) + c] : T(0);
  }

  void write(const T* state, int64_t column, T* matrix) const {
    const int64_t n = H - column < L ? H - column : L;
    for (int64_t u = 0; u < H; ++u)
      for (int64_t i = 0; i < n; ++i)
        for (int c = 0; c <= C; ++c) matrix[(u * H + column + i) * (C + 1) + c] = state[(c * H + u) * L + i];
  }

  void forward(int index, int threads) const {
    T* state = (T*)a.scratch + index * scratch(H);
    const int64_t blocks = (H + L - 1) / L;
    for (int64_t block = index; block < blocks; block += threads) {
      const int64_t column = block * L;
      memset(state, 0, sizeof(T) * (C + 1) * H * L);
      for (int64_t i = 0; i < L && column + i < H; ++i) state[(column + i) * L + i] = T(1);
      rotations.apply(state, columns(block));
      write(state, column, (T*)a.u);
    }
  }

  void backward(int index, int threads) const {
    T *state = (T*)a.scratch + index * scratch(H), *grad = state + (C + 1) * H * L;
    const int64_t blocks = (H + L - 1) / L;
    for (int64_t slice = index; slice < a.slices; slice += threads) {
      T* sums = (T*)a.sums + slice * a.angles;
      for (int64_t block = blocks * slice / a.slices; block < blocks * (slice + 1) / a.slices; ++block) {
        read((const T*)a.u, block * L, state);
        read((const T*)a.grad, block * L, grad);
        rotations.back(state, grad, [&](int64_t n, Vec<T> lanes) { sums[n] += sum_of_lanes<T>(lanes); },
                       columns(block));
      }
    }
  }

  static void forward_thread(void* context, int index, int count) {
    FlushDenormals flush;
    MeshMatrix(*(const MeshMatrixArguments*)context).forward(index, count);
  }
  static void backward_thread(void* context, int index, int count) {
    FlushDenormals flush;
    MeshMatrix(*(const MeshMatrixArguments*)context).backward(index, count);
  }
};

template <class T, bool C>
void mesh_matrix(const MeshMatrixArguments* a) {
  goru_parallel((int)a->threads, MeshMatrix<T, C>::forward_thread, (void*)a);
}

template <class T, bool C>
void mesh_matrix_backward(const MeshMatrixArguments* a) {
  goru_parallel((int)a->threads, MeshMatrix<T, C>::backward_thread, (void*)a);
}

}  // namespace
