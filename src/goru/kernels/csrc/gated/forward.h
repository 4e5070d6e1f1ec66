// The recurrence of a cell with dense weights, forward. What is particular to a cell (gru.h, lstm.h) is its `Cell`.
//
// A step is a product of the state and one of the input with their weights; everything that follows happens on the
// accumulators of one tile. The *sums* of a step are what the activations of the cell are applied to. Threads, rows,
// panels and chunks are as in GORU.
#pragma once

#include "base/team.h"
#include "base/threads.h"
#include "gated/structures.h"

namespace {

template <class T, class Cell>
int64_t gated_pack_size(int64_t inputs, int64_t hidden) {
  return panels<T>(hidden) * Cell::kGates * (hidden + inputs) * W<T>;
}

// Weights of the forward products in panels: those of the state, then those of the input; in either all gates of a panel
// are adjacent, so that one tile has them all and the weights that it reads fit into the first-level cache.
template <class T, class Cell>
void gated_pack(const T* weight_ih, const T* weight_hh, int64_t I, int64_t H, T* out) {
  constexpr int NG = Cell::kGates;
  T* from_x = out + panels<T>(H) * NG * H * W<T>;
  for (int g = 0; g < NG; ++g) {
    pack_units(weight_hh + g * H * H, H, H, out + g * H * W<T>, NG * H * W<T>);
    pack_units(weight_ih + g * H * I, H, I, from_x + g * I * W<T>, NG * I * W<T>);
  }
}

// The biases of the sums, each filled up to whole panels; zeros where there are none.
template <class T, class Cell>
void gated_bias(const T* bias_ih, const T* bias_hh, int64_t H, T* out) {
  const int64_t Hp = panels<T>(H) * W<T>;
  memset(out, 0, sizeof(T) * Cell::kSums * Hp);
  if (!bias_ih) return;
  for (int k = 0; k < Cell::kSums; ++k) {
    const int from_x = Cell::input_rows(k), from_h = Cell::state_rows(k);
    for (int64_t u = 0; u < H; u += W<T>) {
      Vec<T> sum = {};
      if (from_x >= 0) sum += load(bias_ih + from_x * H + u, H - u);
      if (from_h >= 0) sum += load(bias_hh + from_h * H + u, H - u);
      store(out + k * Hp + u, sum);
    }
  }
}

template <class T, class Cell>
struct GatedStep {
  static constexpr int NS = Cell::kSums, NG = Cell::kGates;
  const GatedForward& f;
  const Shape& s;
  const int64_t H, HP;
  const bool stream_saved;  // where all rows of `saved` can be aligned
  const T *x, *h0, *bias, *recurrent, *inputs;  // the last two: packed weights
  T *output, *saved, *cell;

  explicit GatedStep(const GatedForward& f)
      : f(f), s(f.shape), H(s.hidden), HP(panels<T>(H)), stream_saved(kStreams && f.stream && H % W<T> == 0), x((const T*)f.x),
        h0((const T*)f.h0), bias((const T*)f.bias),
        recurrent((const T*)f.packed), inputs(recurrent ? recurrent + Cell::kGates * HP * H * W<T> : nullptr),
        output((T*)f.output), saved((T*)f.saved), cell((T*)f.cell) {}

  struct Row {
    const T* before;
    T *out, *save, *cell;
  };

  Row row(int64_t t, int64_t sorted) const {
    const int64_t row = row_at(s, sorted), at = t * s.batch + row;
    return {state_before(s, output, h0, t, row, sorted), output + at * H,
            saved ? saved + (at - s.saved_from) * Cell::kSaved * H : nullptr, cell + (Cell::kCell ? row * H : 0)};
  }

  const T* input(int64_t t, int64_t sorted) const { return x + t * s.x_step + row_at(s, sorted) * s.x_row; }

  // One vector of units of one row, in two halves: from its sums to what is saved, and from that to the new state. What
  // follows a product takes the first half for all its vectors and then the second, so that the processor works on
  // several at a time: each half is a long chain of operations that wait for each other.
  __attribute__((always_inline)) void gates(Vec<T> cell, Vec<T>* sum, int64_t p, Vec<T>* save) const {
    GORU_UNROLL
    for (int k = 0; k < NS; ++k) sum[k] += load(bias + (k * HP + p) * W<T>);
    Cell::gates(sum, cell, save);
  }
  Vec<T> cell_of(const Row& row, int64_t p) const {
    return Cell::kCell ? load(row.cell + p * W<T>, H - p * W<T>) : Vec<T>{};
  }

  __attribute__((always_inline)) void state(Vec<T>* save, int64_t p, const Row& row) const {
    const int64_t u = p * W<T>, n = H - u;
    store(row.out + u, Cell::state(save, Cell::kThrough ? load(row.before + u, n) : Vec<T>{}), n);
    if constexpr (Cell::kCell) store(row.cell + u, save[Cell::kSaved], n);
    if (!row.save) return;
    GORU_UNROLL
    for (int k = 0; k < Cell::kSaved; ++k) {
      if (stream_saved) stream(row.save + k * H + u, save[k], n);
      else store(row.save + k * H + u, save[k], n);
    }
  }

  template <int MR>
  __attribute__((noinline)) void rows(int64_t t, int64_t first, int64_t begin, int64_t end) const {
    const T *states[MR], *from_x[MR];
    Row at[MR];
    for (int r = 0; r < MR; ++r) {
      at[r] = row(t, first + r);
      states[r] = at[r].before;
      from_x[r] = input(t, first + r);
    }
    // What is written at the end is fetched while the products are computed.
    const int64_t bytes = (end - begin) * kVectorBytes;
    for (int r = 0; r < MR; ++r) {
      prefetch<true>(at[r].out, begin * W<T>, bytes);
      if (saved && !stream_saved)
        for (int64_t k = 0; k < Cell::kSaved; ++k) prefetch<true>(at[r].save, k * H + begin * W<T>, bytes);
    }
    // As many panels at once as make whole tiles of all gates. One row alone needs many sums to keep the processor busy.
    constexpr int NP = MR == 1 ? 2 : MR > 2 && NG % panels_at_once<MR>() ? panels_at_once<MR>() : 1;
    int64_t p = begin;
    for (; end - p >= NP && !(NP == 3 && end - p == 4); p += NP) panel<MR, NP>(states, from_x, at, p);
    if constexpr (NP > 2)
      for (; end - p >= 2; p += 2) panel<MR, 2>(states, from_x, at, p);
    if constexpr (NP > 1)
      for (; p < end; ++p) panel<MR, 1>(states, from_x, at, p);
  }

  // The products of MR rows with the weights of all gates of NP panels; acc[row of tile v / kWide][vector in it].
  template <int MR, int NP>
  struct Products {
    static constexpr int kAll = NP * NG, kMost = MR == 1 ? 8 : panels_at_once<MR>();
    static constexpr int kWide = kAll == kMost + 1 ? (kAll + 1) / 2 : kMost;  // two and two rather than three and one
    Vec<T> acc[MR * kAll];

    template <int kFirst = 0>
    inline void multiply(const T* const* rows, const T* weights, int64_t K, bool add) {
      constexpr int n = kAll - kFirst < kWide ? kAll - kFirst : kWide;
      tile<T, MR, n>(rows, W<T>, weights + kFirst * K * W<T>, K * W<T>, K, acc + kFirst * MR, add);
      if constexpr (kFirst + n < kAll) multiply<kFirst + n>(rows, weights, K, add);
    }
    Vec<T> of(int row, int vector) const {
      const int first = vector / kWide * kWide, n = kAll - first < kWide ? kAll - first : kWide;
      return acc[first * MR + row * n + vector - first];
    }
  };

  template <int MR, int NP>
  inline void panel(const T* const* states, const T* const* from_x, const Row* at, int64_t p) const {
    constexpr bool joined = NS == NG;  // every sum has both parts
    Products<MR, NP> h, x;
    h.multiply(states, recurrent + p * NG * H * W<T>, H, false);
    (joined ? h : x).multiply(from_x, inputs + p * NG * s.inputs * W<T>, s.inputs, joined);
    Vec<T> save[MR * NP][Cell::kLocal];
#pragma GCC unroll 1
    for (int r = 0; r < MR; ++r)
#pragma GCC unroll 1
      for (int u = 0; u < NP; ++u) {
        const Vec<T> cell = cell_of(at[r], p + u);
        Vec<T> sum[NS];
        GORU_UNROLL
        for (int k = 0; k < NS; ++k) {
          const int from_h = Cell::state_rows(k), from_input = Cell::input_rows(k);
          if (joined) sum[k] = h.of(r, u * NG + k);
          else if (from_h < 0) sum[k] = x.of(r, u * NG + from_input);
          else if (from_input < 0) sum[k] = h.of(r, u * NG + from_h);
          else sum[k] = h.of(r, u * NG + from_h) + x.of(r, u * NG + from_input);
        }
        gates(cell, sum, p + u, save[r * NP + u]);
      }
#pragma GCC unroll 1
    for (int r = 0; r < MR; ++r)
#pragma GCC unroll 1
      for (int u = 0; u < NP; ++u) state(save[r * NP + u], p + u, at[r]);
  }

  // A whole step of one row from weights as torch has them: packing costs more than it gains for a few rows.
  void unpacked(int64_t t, int64_t sorted) const {
    const T *from_x = input(t, sorted), *hh = (const T*)f.weight_hh, *ih = (const T*)f.weight_ih;
    const Row at = row(t, sorted);
    constexpr int64_t kAtOnce = 4;  // panels: the halves of several overlap
    for (int64_t begin = 0; begin < HP; begin += kAtOnce) {
      const int64_t count = HP - begin < kAtOnce ? HP - begin : kAtOnce;
      Vec<T> sum[kAtOnce][NS], save[kAtOnce][Cell::kLocal];
      for (int64_t i = 0; i < count; ++i) {
        const int64_t u = (begin + i) * W<T>;
        for (int k = 0; k < NS; ++k) {
          const int64_t from_h = Cell::state_rows(k), from_input = Cell::input_rows(k);
          const T* of_x = from_input < 0 ? nullptr : ih + (from_input * H + u) * s.inputs;
          if (from_h < 0) sum[i][k] = dots(H - u, of_x, from_x, s.inputs);
          else sum[i][k] = dots(H - u, hh + (from_h * H + u) * H, at.before, H, of_x, from_x, s.inputs);
        }
      }
      for (int64_t i = 0; i < count; ++i) gates(cell_of(at, begin + i), sum[i], begin + i, save[i]);
      for (int64_t i = 0; i < count; ++i) state(save[i], begin + i, at);
    }
  }

  // c of the thread's rows and panels before a step.
  void keep_cells(const Blocks& mine, Part part, int64_t place) const {
    const int64_t begin = part.begin * W<T>, end = part.end * W<T> < H ? part.end * W<T> : H;
    each_row(mine, s.batch, [&](int64_t, int64_t sorted) {
      const int64_t row = row_at(s, sorted);
      T* to = (T*)f.cells + (place * s.batch + row) * H;
      memcpy(to + begin, cell + row * H + begin, sizeof(T) * (end - begin));
    });
  }

  void run(Team team) const {
    const Blocks mine = team.blocks(s);
    const Part part = team.part(HP, 2);
    for (int64_t step = s.first; step < s.last; ++step) {
      const int64_t t = time_of(s, step), active = active_at(s, t);
      if (f.cells && (step - f.cells_from) % f.cell_steps == 0) keep_cells(mine, part, (step - f.cells_from) / f.cell_steps);
      if (f.packed)
        each_panel<T>(HP, part, mine, active, [&](int64_t block, int64_t offset, auto count, int64_t p, int64_t end) {
          rows<decltype(count)::value>(t, block * kRows + offset, p, end);
        }, NG % panels_at_once<kRows>() ? panels_at_once<kRows>() : 1);
      else
        each_row(mine, active, [&](int64_t, int64_t sorted) { unpacked(t, sorted); });
      team.meet();
      if (active == s.batch || !team.first_member()) continue;
      for (int64_t i = 0; i < mine.count; ++i) {
        const int64_t begin = mine.block(i) * kRows;
        for (int64_t j = begin > active ? begin : active; j < begin + kRows && j < s.batch; ++j) {
          const int64_t at = t * s.batch + row_at(s, j);
          memset(output + at * H, 0, H * sizeof(T));
          // Never read; zero, so that equal calls give equal tensors.
          if (saved) memset(saved + (at - s.saved_from) * Cell::kSaved * H, 0, Cell::kSaved * H * sizeof(T));
        }
      }
    }
  }

  static void thread(void* context, int index, int count) {
    FlushDenormals flush;
    const Shared<GatedForward>& call = *(Shared<GatedForward>*)context;
    GatedStep(call.arguments).run(Team(call.arguments.shape, index, count, call.meetings, call.arguments.packed));
    flush_streams();
  }
};

template <class T, class Cell>
void gated_forward(const GatedForward* f) {
  Shared<GatedForward> call = {*f};
  goru_parallel((int)f->shape.threads, GatedStep<T, Cell>::thread, &call);
}

}  // namespace
