// The GORU recurrence, backward, and the gradients of its weights.
//
// With g = dL/dh_t, from the last step to the first (c cut off by modReLU counts as inactive):
//
//   da = g (1 - z) where c is active      dv = da r      dr = da v r (1 - r)
//   dz = g (h' - c) z (1 - z) = g z (h' - h),  since h' - h = (1 - z)(h' - c): c itself is not needed
//   g' = g z + dv U + dr W_r + dz W_z + grad_output(t - 1)
//
// First comes dv U: the inverse rotations are applied to dv and v together, which gives the gradient of the angles; or
// it is a product. A tile of g' is then finished while it is in registers: the pre-activation gradients of the step
// before follow at once. They are stored for a chunk of steps, with the states and inputs, all in the panels that
// weight_gradient.h reads.
#pragma once

#include "base/chunk.h"
#include "base/team.h"
#include "goru/goru_forward.h"

namespace {

// Blocks of pre-activation gradients in the chunk buffer: dr, dz, da, and dv where U is a matrix; without reset gate dv
// is da.
template <bool R, bool Z>
constexpr int64_t gradient_blocks(bool matrix) {
  return kGates<R, Z> + (R && matrix);
}

// Panels of the chunk buffer: gradients, states before, inputs with a column of ones (which gives db_r and db_z).
template <class T, bool R, bool Z>
int64_t goru_chunk_panels(int64_t inputs, int64_t hidden, bool matrix) {
  return (gradient_blocks<R, Z>(matrix) + 1) * panels<T>(hidden) + panels<T>(inputs + 1);
}

template <class T, bool R, bool Z>
int64_t goru_pack_backward_size(int64_t hidden, bool matrix) {
  return panels<T>(hidden) * (R + Z + matrix) * panels<T>(hidden) * W<T> * W<T>;
}

// [W_r; W_z] with each block of rows filled up to whole panels, as the gradients are; then U alone.
template <class T, bool R, bool Z>
void goru_pack_backward(const T* weight_hh, const T* u, int64_t H, T* out) {
  const int64_t Hp = panels<T>(H) * W<T>, panel = (R + Z) * Hp * W<T>;
  const int64_t size = panels<T>(H) * (panel + (u ? Hp * W<T> : 0));
  if (size > 0 && H % W<T>) memset(out, 0, sizeof(T) * size);
  for (int g = 0; g < R + Z; ++g) pack_columns(weight_hh + g * H * H, H, H, H, out + g * Hp * W<T>, panel);
  if (u) pack_columns(u, H, H, H, out + panels<T>(H) * panel, Hp * W<T>);
}

template <class T, bool R, bool Z>
int64_t goru_pack_input_size(int64_t inputs, int64_t hidden) {
  return panels<T>(inputs) * kGates<R, Z> * panels<T>(hidden) * W<T> * W<T>;
}

// weight_ih for dx.
template <class T, bool R, bool Z>
void goru_pack_input(const T* weight_ih, int64_t I, int64_t H, T* out) {
  const int64_t Hp = panels<T>(H) * W<T>, panel = kGates<R, Z> * Hp * W<T>;
  if (H % W<T>) memset(out, 0, sizeof(T) * panels<T>(I) * panel);
  for (int g = 0; g < kGates<R, Z>; ++g) pack_columns(weight_ih + g * H * I, I, H, I, out + g * Hp * W<T>, panel);
}

template <class T, bool R, bool Z>
struct GoruBackwardStep {
  static constexpr int NG = kGates<R, Z>;
  static constexpr int kDz = R, kDa = R + Z, kDv = R ? NG : kDa;  // places of the blocks; dr is the first
  const GoruBackward& b;
  const Shape& s;
  const RowMesh<T> mesh;
  const bool matrix;
  const int64_t H, HP, panel;  // panel: distance of panels in the chunk buffer
  const T *grad_output, *x, *h0, *output, *saved, *packed, *packed_u, *packed_input;
  T *carry, *chunk, *states, *inputs, *through, *bias;
  const Places end;  // of the chunk
  OuterProducts<T> sums;
  static_assert(2 * NG <= OuterProducts<T>::kMost, "room for all products");

  explicit GoruBackwardStep(const GoruBackward& b)
      : b(b), s(b.shape), mesh(s.hidden, b.mesh), matrix(b.mesh.kind == kMatrix), H(s.hidden), HP(panels<T>(H)),
        panel(b.layout.rows * W<T>), grad_output((const T*)b.grad_output), x((const T*)b.x), h0((const T*)b.h0),
        output((const T*)b.output), saved((const T*)b.saved), packed((const T*)b.packed),
        packed_u(packed + (R + Z) * HP * HP * W<T> * W<T>), packed_input((const T*)b.packed_input), carry((T*)b.carry),
        chunk((T*)b.chunk), states(chunk + gradient_blocks<R, Z>(matrix) * HP * panel), inputs(states + HP * panel),
        through((T*)b.through), bias((T*)b.bias), end(s, b.layout) {
    const int64_t IP = panels<T>(s.inputs + 1), square = HP * HP * W<T> * W<T>, wide = HP * IP * W<T> * W<T>;
    // The sums, padded: dW_rx, dW_zx, dW_x with the ones column (each Hp x Ip), and dW_r, dW_z, dU (each Hp x Hp).
    T *sum = (T*)b.wide, *squares = (T*)b.square;
    const auto add = [&](int block, const T* right, int64_t right_panels, T* to, int64_t size) {
      add_products(sums, {gradient(block), right, HP, right_panels, to}, size, s, b.layout, end);
    };
    for (int g = 0; g < NG; ++g) add(g, inputs, IP, sum + g * wide, NG * wide);
    for (int g = 0; g < R + Z; ++g) add(g, states, HP, squares + g * square, (R + Z + matrix) * square);
    if (matrix) add(kDv, states, HP, squares + (R + Z) * square, (R + Z + matrix) * square);
  }

  const T* gradient(int block) const { return chunk + block * HP * panel; }

  struct Row {
    const T *before, *after, *save, *grad, *turned;  // turned: v
    T *through, *chunk, *states, *carry, *gradient;
  };

  // The lines of a row in `turned`.
  T* gradient_line(int64_t sorted) const { return (T*)b.turned + place_in_block<T>(2 * line<T>(H), sorted) + W<T>; }
  T* state_line(int64_t sorted) const { return gradient_line(sorted) + line<T>(H); }
  T* through_row(int64_t sorted) const { return through + place_in_block<T>(HP * W<T>, sorted); }

  Row row(int64_t t, int64_t sorted, int64_t place) const {
    const int64_t row = row_at(s, sorted), at = t * s.batch + row;
    const T* save = saved + (at - s.saved_from) * saved_blocks<R, Z>(matrix) * H;
    return {state_before(s, output, h0, t, row, sorted), output + at * H, save,
            grad_output + t * b.grad_step + row * b.grad_row, matrix ? save + (1 + Z) * H : state_line(sorted),
            through_row(sorted), chunk + place * W<T>, states + place * W<T>, carry + row * H,
            matrix ? nullptr : gradient_line(sorted)};
  }

  // One unit vector of one row: from g (without grad_output's part) to the gradients of the pre-activations. Returns
  // da * sign(c), the gradient of b_h.
  inline Vec<T> unit(Vec<T> g, int64_t p, const Row& row) const {
    const int64_t u = p * W<T>, n = H - u;
    g += load(row.grad + u, n);
    const Vec<T> h = load(row.after + u, n), before = load(row.before + u, n);
    Vec<T> da = g, dv, sign = h;
    IVec<T> active = ~(h == T(0));
    if constexpr (Z) {
      Vec<T> z = load(row.save + R * H + u, n);
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
      store(row.chunk + (kDz * HP + p) * panel, gz * (before - h));
    }
    if (s.modrelu) da = keep<T>(active, da);
    dv = da;
    if constexpr (R) {
      const Vec<T> v = load(row.turned + u, n);
      Vec<T> r = load(row.save + u, n);
      if constexpr (Z) {
        sign = r;
        r = magnitude<T>(r);
      }
      dv = da * r;
      store(row.chunk + p * panel, dv * v * (T(1) - r));
      if (matrix) store(row.chunk + (kDv * HP + p) * panel, dv);
    }
    store(row.chunk + (kDa * HP + p) * panel, da);
    if (!matrix) store(row.gradient + u, dv);
    store(row.states + p * panel, before);
    return (Vec<T>)(bits<T>(da) ^ (bits<T>(sign) & Simd<T>::kSign));
  }

  // Rows whose gradient comes from `carry`: the first step of the chunk, and rows that begin here.
  void enter(Part part, int64_t t, int64_t block, int64_t from, int64_t to, int64_t place) const {
    for (int64_t i = from; i < to; ++i) {
      const int64_t sorted = block * kRows + i;
      const Row at = row(t, sorted, place + sorted);
      for (int64_t p = part.begin; p < part.end; ++p) {
        const int64_t u = p * W<T>;
        add_bias(block, p, unit(load(at.carry + u, H - u), p, at));
      }
    }
  }

  void add_bias(int64_t block, int64_t p, Vec<T> value) const {
    T* to = bias + block * bias_size<T>(H) + p * W<T>;
    store(to, load(to) + value);
  }

  // v = U h' of N rows, into their lines.
  template <int N>
  void turn(int64_t t, int64_t first) const {
    for (int64_t i = first; i < first + N; ++i)
      memcpy(state_line(i), state_before(s, output, h0, t, row_at(s, i), i), sizeof(T) * H);
    mesh.template apply<N>(state_line(first), 2 * line<T>(H));
  }

  // Adds dv U of N rows to `through`: the inverse rotations, for dv and v together.
  template <int N>
  void turn_back(int64_t block, int64_t first) const {
    T* sums = (T*)b.angles + block * RowMesh<T>::sums_size(H, mesh.layers);
    mesh.template back<N>(state_line(first), gradient_line(first), 2 * line<T>(H), sums);
    for (int64_t i = first; i < first + N; ++i) {
      T *g = gradient_line(i), *out = through_row(i);
      for (int64_t u = 0; u < HP * W<T>; u += W<T>) store(out + u, Z ? load(out + u) + load(g + u) : load(g + u));
    }
  }

  // The same for MR rows as a product, panels begin ... end - 1.
  template <int MR>
  __attribute__((noinline)) void multiply_back(int64_t first, int64_t place, int64_t begin, int64_t end) const {
    const T* left[MR];
    for (int r = 0; r < MR; ++r) left[r] = gradient(kDv) + (place + first + r) * W<T>;
    const int64_t K = HP * W<T>;
    sweep_rows<T, MR>(left, panel, packed_u, K * W<T>, K, begin, end, [&](int64_t p, auto count, const Vec<T>* acc) {
      constexpr int NU = decltype(count)::value;
      for (int r = 0; r < MR; ++r)
        for (int u = 0; u < NU; ++u) {
          T* out = through_row(first + r) + (p + u) * W<T>;
          store(out, Z ? load(out) + acc[r * NU + u] : acc[r * NU + u]);
        }
    });
  }

  // g' of MR rows, from row `offset` of the block on, whose step s + 1 is at `from` in the chunk. The first `stay` of
  // them take step s, at `place`; the gradient of the others (all of them, before the chunk's first step) goes to
  // `carry`.
  template <int MR>
  __attribute__((noinline)) void step(const Team& team, int64_t t, int64_t block, int64_t offset, int64_t from,
                                      int64_t stay, int64_t place, int64_t begin, int64_t end) const {
    const T* left[MR];
    Row at[MR] = {};
    for (int r = 0; r < MR; ++r) {
      const int64_t sorted = block * kRows + offset + r;
      left[r] = chunk + (from + sorted) * W<T>;
      if (r < stay) at[r] = row(t, sorted, place + sorted);
      else at[r].through = through_row(sorted), at[r].carry = carry + row_at(s, sorted) * H;
    }
    // What is read after the product is fetched while it is computed.
    const int64_t blocks = saved_blocks<R, Z>(matrix), u = begin * W<T>, bytes = (end - begin) * kVectorBytes;
    for (int r = 0; r < MR && r < stay; ++r) {
      prefetch<false>(at[r].grad, u, bytes);
      prefetch<false>(at[r].before, u, bytes);
      for (int64_t k = 0; k < blocks; ++k) prefetch<false>(at[r].save, k * H + u, bytes);
    }
    const int64_t K = (R + Z) * HP * W<T>;
    sweep_rows<T, MR>(left, panel, packed, K * W<T>, K, begin, end, [&](int64_t p, auto count, const Vec<T>* acc) {
      constexpr int NU = decltype(count)::value;
      team.need_prepared();
#pragma GCC unroll 1
      for (int u = 0; u < NU; ++u) {
        Vec<T> db = {};
#pragma GCC unroll 1
        for (int r = 0; r < MR; ++r) {
          const Vec<T> g = acc[r * NU + u] + load(at[r].through + (p + u) * W<T>);
          if (r < stay) db += unit(g, p + u, at[r]);
          else store(at[r].carry + (p + u) * W<T>, g, H - (p + u) * W<T>);
        }
        if (stay > 0) add_bias(block, p + u, db);
      }
    });
  }

  void run(Team team) const {
    const Blocks mine = team.blocks(s);
    const Part part = team.part(HP, 1);
    const InputGradient<T> dx = {s, chunk, packed_input, panel, NG * HP * W<T>, (T*)b.grad_x};
    if (!matrix && team.first_member())
      each_row(mine, s.batch, [&](int64_t, int64_t sorted) {
        memset(gradient_line(sorted) - W<T>, 0, sizeof(T) * 2 * line<T>(H));
      });
    Places place = end, later_place = end;
    int64_t later = 0;
    for (int64_t step_number = s.last - 1; step_number >= s.first - 1; --step_number) {
      const bool inside = step_number >= s.first, newest = step_number == s.last - 1;
      const int64_t t = inside ? time_of(s, step_number) : 0, active = inside ? active_at(s, t) : 0;
      if (inside) place.back(active);
      if (!matrix)
        team.prepare([&] {
          // dv U of the step after, and v of this one.
          if (!newest)
            each_rows(mine, later, [&](int64_t block, int64_t first, auto count) {
              turn_back<decltype(count)::value>(block, first);
            });
          each_rows(mine, active, [&](int64_t, int64_t first, auto count) { turn<decltype(count)::value>(t, first); });
        });
      if (!newest)
        each_panel<T>(HP, part, mine, later, [&](int64_t block, int64_t offset, auto count, int64_t p, int64_t end) {
          const int64_t stay = rows_of(block, active);
          const int64_t from = later_place.of(block);
          step<decltype(count)::value>(team, t, block, offset, from, stay - offset, place.of(block), p, end);
        });
      if (!inside) break;
      for (int64_t i = 0; i < mine.count; ++i) {
        const int64_t block = mine.block(i), n = rows_of(block, active), at = place.of(block);
        team.need_prepared();
        enter(part, t, block, newest ? 0 : rows_of(block, later), n, at);
        if (team.last_member())
          for (int64_t j = block * kRows; j < block * kRows + n; ++j)
            copy_input<T, true>(s, x, t, j, inputs + (at + j) * W<T>, panel);
      }
      team.meet();
      if (team.last_member()) dx.blocks(mine, t, active, place);
      if (matrix)
        each_panel<T>(HP, part, mine, active, [&](int64_t block, int64_t offset, auto count, int64_t p, int64_t end) {
          multiply_back<decltype(count)::value>(block * kRows + offset, place.of(block), p, end);
        });
      later = active, later_place = place;
    }
  }

  static void thread(void* context, int index, int count) {
    FlushDenormals flush;
    const Shared<GoruBackwardStep>& call = *(Shared<GoruBackwardStep>*)context;
    call.arguments.run(Team(call.arguments.s, index, count, call.meetings));
  }
};

template <class T>
void goru_finish(const GoruFinish* f) {
  const int64_t I = f->inputs, H = f->hidden, Hp = panels<T>(H) * W<T>, Ip = panels<T>(I + 1) * W<T>;
  const int64_t gates = f->gates - 1;  // with weights of the state
  T* square = (T*)f->square;
  add_groups((T*)f->wide, f->groups, f->gates * Hp * Ip);
  add_groups(square, f->groups, (gates + (f->grad_u != nullptr)) * Hp * Hp);
  if (gates) without_padding(square, gates, Hp, H, (T*)f->grad_weight_hh);
  if (f->grad_u) without_padding(square + gates * Hp * Hp, 1, Hp, H, (T*)f->grad_u);
  for (int64_t g = 0; g < f->gates; ++g)
    for (int64_t u = 0; u < H; ++u) {
      const T* from = (const T*)f->wide + (g * Hp + u) * Ip;
      memcpy((T*)f->grad_weight_ih + (g * H + u) * I, from, sizeof(T) * I);
      if (!f->grad_bias) continue;
      T sum = from[I];  // of the column of ones; b_h has its own sums
      if (g == f->gates - 1) {
        sum = T(0);
        for (int64_t i = 0; i < f->blocks; ++i) sum += ((const T*)f->bias)[i * bias_size<T>(H) + u];
      }
      ((T*)f->grad_bias)[g * H + u] = sum;
    }
  if (f->grad_angles) RowMesh<T>(H, f->mesh).gradient((const T*)f->angles, f->blocks, (T*)f->grad_angles);
}

template <class T, bool R, bool Z>
void goru_backward(const GoruBackward* b) {
  each_chunk(*b, [](const GoruBackward& part) {
    GoruBackwardStep<T, R, Z> step(part);
    Shared<GoruBackwardStep<T, R, Z>> call = {step};
    goru_parallel((int)part.shape.threads, GoruBackwardStep<T, R, Z>::thread, &call);
    goru_parallel((int)part.shape.threads, OuterProducts<T>::thread, &step.sums);
  });
}

}  // namespace
