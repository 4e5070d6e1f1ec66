// The GORU recurrence, forward. Each thread has the same blocks of rows for all steps of a call, so there is no barrier
// between steps, unless threads have to share rows (team.h). In a step first comes v = U h', by the rotations of a
// shallow mesh or as a product; then the products of the gates, and everything that follows happens on the accumulators
// of one tile:
//
//   v = U h',  r = sigma(W_r h' + W_rx x + b_r),  z likewise,  c = modReLU(W_x x + r v, b_h),  h = z h' + (1 - z) c
//
// Saved for backward, (T, B, K H), by gates:  r and z: r, z | r: r | z: z, c | none: nothing.  With a reset gate v as well
// where U is a matrix; rotations are cheaper than memory. With both gates c is not stored: its sign is the sign bit
// of r, and the sign bit of z is set where modReLU cut the unit off; backward needs no more of c (see goru_backward.h).
// What is missing can be read from the output.
#pragma once

#include "base/modrelu.h"
#include "base/team.h"
#include "base/threads.h"
#include "goru/structures.h"
#include "mesh/row_mesh.h"

namespace {

template <bool R, bool Z>
constexpr int kGates = 1 + R + Z;
// Blocks of H saved by a step.
template <bool R, bool Z>
constexpr int64_t saved_blocks(bool matrix) {
  return R ? 1 + Z + matrix : Z ? 2 : 0;
}

template <class T, bool R, bool Z>
int64_t goru_pack_size(int64_t inputs, int64_t hidden, bool matrix) {
  return panels<T>(hidden) * (hidden * (R + Z + matrix) + inputs * kGates<R, Z>) * W<T>;
}

// Weights of the forward products, each in panels: W_r, W_z, W_rx, W_zx, W_x, and U where it acts as a matrix.
template <class T, bool R, bool Z>
void goru_pack(const T* weight_ih, const T* weight_hh, const T* u, int64_t I, int64_t H, T* out) {
  const int64_t square = panels<T>(H) * H * W<T>, wide = panels<T>(H) * I * W<T>;
  for (int g = 0; g < R + Z; ++g, out += square) pack_units(weight_hh + g * H * H, H, H, out, H * W<T>);
  for (int g = 0; g < kGates<R, Z>; ++g, out += wide) pack_units(weight_ih + g * H * I, H, I, out, I * W<T>);
  if (u) pack_units(u, H, H, out, H * W<T>);
}

template <class T, bool R, bool Z>
struct GoruStep {
  static constexpr int NG = kGates<R, Z>;
  const GoruForward& f;
  const Shape& s;
  const RowMesh<T> mesh;
  const int64_t H, HP;
  const bool stream_saved;  // where all rows of `saved` can be aligned
  const T *x, *h0, *bias;
  const T *recurrent, *inputs = nullptr, *u = nullptr;  // packed weights: of the gates, of x, of U
  T *output, *saved;

  explicit GoruStep(const GoruForward& f)
      : f(f), s(f.shape), mesh(s.hidden, f.mesh), H(s.hidden), HP(panels<T>(H)),
        stream_saved(kStreams && f.stream && H % W<T> == 0), x((const T*)f.x), h0((const T*)f.h0),
        bias((const T*)f.bias), recurrent((const T*)f.packed), output((T*)f.output), saved((T*)f.saved) {
    if (!recurrent) return;
    inputs = recurrent + (R + Z) * HP * H * W<T>;
    u = inputs + NG * HP * s.inputs * W<T>;
  }

  T* turned(int64_t sorted) const { return (T*)f.turned + place_in_block<T>(line<T>(H), sorted) + W<T>; }

  struct Row {
    const T *before, *turned;
    T *out, *save;
  };

  void keep_for_backward(T* p, Vec<T> v, int64_t n) const {
    if (stream_saved) stream(p, v, n);
    else store(p, v, n);
  }

  // One unit vector of one row, in two halves: from the sums to the gates, and from those to the new state. What follows a
  // product takes the first half for all its vectors and then the second: each is a chain of operations that wait for
  // each other, and the processor works on several chains at a time.
  __attribute__((always_inline)) void gates(Vec<T>& r, Vec<T>& z, int64_t p) const {
    const int64_t u = p * W<T>, n = H - u;
    if constexpr (R) r = sigmoid<T>(bias ? r + load(bias + u, n) : r);
    if constexpr (Z) z = sigmoid<T>(bias ? z + load(bias + R * H + u, n) : z);
  }

  // r and z are gates, c the sum without the part of U h.
  inline void unit(Vec<T> r, Vec<T> z, Vec<T> c, int64_t p, const Row& row) const {
    const int64_t u = p * W<T>, n = H - u;
    const Vec<T> v = load(row.turned + u), a = R ? c + r * v : c + v;
    c = s.modrelu ? modrelu<T>(a, load(bias + (NG - 1) * H + u, n)) : a;
    Vec<T> h = c;
    if constexpr (Z) h = z * load(row.before + u, n) + (T(1) - z) * c;
    store(row.out + u, h, n);
    if (!row.save) return;
    if constexpr (R) {
      if (f.mesh.kind == kMatrix) keep_for_backward(row.save + (1 + Z) * H + u, v, n);
    }
    if constexpr (R && Z) {
      const Vec<T> cut = (Vec<T>)((IVec<T>)(c == T(0)) & (IVec<T>)bits<T>(splat(T(-0.0))));
      keep_for_backward(row.save + u, with_sign<T>(r, c), n);
      keep_for_backward(row.save + H + u, s.modrelu ? with_sign<T>(z, cut) : z, n);
    } else if constexpr (R) {
      keep_for_backward(row.save + u, r, n);
    } else if constexpr (Z) {
      keep_for_backward(row.save + u, z, n);
      keep_for_backward(row.save + H + u, c, n);
    }
  }

  const T* before(int64_t t, int64_t sorted) const {
    return state_before(s, output, h0, t, row_at(s, sorted), sorted);
  }

  Row row(int64_t t, int64_t sorted) const {
    const int64_t at = t * s.batch + row_at(s, sorted);
    T* save = saved ? saved + (at - s.saved_from) * saved_blocks<R, Z>(f.mesh.kind == kMatrix) * H : nullptr;
    return {before(t, sorted), turned(sorted), output + at * H, save};
  }

  const T* input(int64_t t, int64_t sorted) const { return x + t * s.x_step + row_at(s, sorted) * s.x_row; }

  template <int MR>
  __attribute__((noinline)) void rows(const Team& team, int64_t t, int64_t first, int64_t begin, int64_t end) const {
    const T *states[MR], *from_x[MR];
    Row at[MR];
    for (int r = 0; r < MR; ++r) {
      at[r] = row(t, first + r);
      states[r] = at[r].before;
      from_x[r] = input(t, first + r);
    }
    const int64_t I = s.inputs, square = H * W<T>, wide = I * W<T>;
    // What is written at the end is fetched while the products are computed.
    const int64_t blocks = saved_blocks<R, Z>(f.mesh.kind == kMatrix), bytes = (end - begin) * kVectorBytes;
    for (int r = 0; r < MR; ++r) {
      prefetch<true>(at[r].out, begin * W<T>, bytes);
      if (saved && !stream_saved)
        for (int64_t k = 0; k < blocks; ++k) prefetch<true>(at[r].save, k * H + begin * W<T>, bytes);
    }
    by_panels<MR>(begin, end, [&](int64_t p, auto count) __attribute__((always_inline)) {
      constexpr int NU = decltype(count)::value;
      Vec<T> sum[NG][MR * NU];
      for (int g = 0; g < R + Z; ++g) tile<T, MR, NU>(states, W<T>, recurrent + (g * HP + p) * square, square, H, sum[g]);
      for (int g = 0; g < NG; ++g)
        tile<T, MR, NU>(from_x, W<T>, inputs + (g * HP + p) * wide, wide, I, sum[g], g < R + Z);
#pragma GCC unroll 1
      for (int r = 0; r < MR; ++r)
#pragma GCC unroll 1
        for (int u = 0; u < NU; ++u) gates(sum[0][r * NU + u], sum[R && Z][r * NU + u], p + u);
      team.need_prepared();
#pragma GCC unroll 1
      for (int r = 0; r < MR; ++r)
#pragma GCC unroll 1
        for (int u = 0; u < NU; ++u) {
          const int i = r * NU + u;
          unit(sum[0][i], sum[R && Z][i], sum[NG - 1][i], p + u, at[r]);
        }
    });
  }

  // A whole step of one row from weights as torch has them: packing costs more than it gains for a few rows.
  void unpacked(int64_t t, int64_t sorted) const {
    const T *state = before(t, sorted), *from_x = input(t, sorted), *hh = (const T*)f.weight_hh,
            *ih = (const T*)f.weight_ih;
    const Row at = row(t, sorted);
    if (f.mesh.kind == kMatrix)
      for (int64_t p = 0; p < HP; ++p)
        store(turned(sorted) + p * W<T>, dots(H - p * W<T>, (const T*)f.u + p * W<T> * H, state, H));
    for (int64_t p = 0; p < HP; ++p) {
      const int64_t u = p * W<T>;
      Vec<T> sum[NG];
      for (int g = 0; g < NG; ++g) {
        const T* of_h = g < R + Z ? hh + (g * H + u) * H : nullptr;
        sum[g] = dots(H - u, ih + (g * H + u) * s.inputs, from_x, s.inputs, of_h, state, H);
      }
      gates(sum[0], sum[R && Z], p);
      unit(sum[0], sum[R && Z], sum[NG - 1], p, at);
    }
  }

  // U h of MR rows as a product, panels begin ... end - 1.
  template <int MR>
  __attribute__((noinline)) void multiply(int64_t t, int64_t first, int64_t begin, int64_t end) const {
    const T* states[MR];
    for (int r = 0; r < MR; ++r) states[r] = before(t, first + r);
    sweep_rows<T, MR>(states, W<T>, u, H * W<T>, H, begin, end, [&](int64_t p, auto count, const Vec<T>* acc) {
      constexpr int NU = decltype(count)::value;
      for (int r = 0; r < MR; ++r)
        for (int u = 0; u < NU; ++u) store(turned(first + r) + (p + u) * W<T>, acc[r * NU + u]);
    });
  }

  void run(Team team) const {
    const Blocks mine = team.blocks(s);
    const Part part = team.part(HP, 1);
    if (team.first_member())
      each_row(mine, s.batch, [&](int64_t, int64_t sorted) {
        memset(turned(sorted) - W<T>, 0, sizeof(T) * line<T>(H));
      });
    team.meet();
    for (int64_t step = s.first; step < s.last; ++step) {
      const int64_t t = time_of(s, step), active = active_at(s, t);
      if (f.mesh.kind == kMatrix && f.packed) {
        each_panel<T>(HP, part, mine, active, [&](int64_t block, int64_t offset, auto count, int64_t p, int64_t end) {
          multiply<decltype(count)::value>(t, block * kRows + offset, p, end);
        });
      } else if (f.mesh.kind != kMatrix) {
        team.prepare([&] {
          each_rows(mine, active, [&](int64_t, int64_t first, auto count) {
            constexpr int N = decltype(count)::value;
            for (int r = 0; r < N; ++r) memcpy(turned(first + r), before(t, first + r), sizeof(T) * H);
            mesh.template apply<N>(turned(first), line<T>(H));
          });
        });
      }
      if (f.packed)
        each_panel<T>(HP, part, mine, active, [&](int64_t block, int64_t offset, auto count, int64_t p, int64_t end) {
          rows<decltype(count)::value>(team, t, block * kRows + offset, p, end);
        });
      else
        each_row(mine, active, [&](int64_t, int64_t sorted) { unpacked(t, sorted); });
      team.meet();
      if (active == s.batch || !team.first_member()) continue;
      for (int64_t i = 0; i < mine.count; ++i) {
        const int64_t begin = mine.block(i) * kRows;
        for (int64_t j = begin > active ? begin : active; j < begin + kRows && j < s.batch; ++j) {
          const int64_t at = t * s.batch + row_at(s, j), size = saved_blocks<R, Z>(f.mesh.kind == kMatrix) * H;
          memset(output + at * H, 0, H * sizeof(T));
          // Never read; zero, so that equal calls give equal tensors.
          if (saved && size) memset(saved + (at - s.saved_from) * size, 0, size * sizeof(T));
        }
      }
    }
  }

  static void thread(void* context, int index, int count) {
    FlushDenormals flush;
    const Shared<GoruForward>& call = *(Shared<GoruForward>*)context;
    GoruStep(call.arguments).run(Team(call.arguments.shape, index, count, call.meetings, call.arguments.packed));
    flush_streams();
  }
};

template <class T, bool R, bool Z>
void goru_forward(const GoruForward* f) {
  Shared<GoruForward> call = {*f};
  goru_parallel((int)f->shape.threads, GoruStep<T, R, Z>::thread, &call);
}

}  // namespace
