// The recurrence of a cell with dense weights, backward, and the gradients of its weights.
//
// A tile of dL/dh' is finished while it is in registers: the gradients of the sums of the step before follow at once.
// They are stored for a chunk of steps, with the states and inputs, in the panels that weight_gradient.h reads.
#pragma once

#include "base/chunk.h"
#include "base/team.h"
#include "base/threads.h"
#include "gated/structures.h"

namespace {

template <class T, class Cell>
int64_t gated_pack_backward_size(int64_t hidden) {
  return panels<T>(hidden) * Cell::kGates * panels<T>(hidden) * W<T> * W<T>;
}

// weight_hh with each gate's rows filled up to whole panels, as the gradients are.
template <class T, class Cell>
void gated_pack_backward(const T* weight_hh, int64_t H, T* out) {
  const int64_t Hp = panels<T>(H) * W<T>, panel = Cell::kGates * Hp * W<T>;
  if (H % W<T>) memset(out, 0, sizeof(T) * gated_pack_backward_size<T, Cell>(H));
  for (int g = 0; g < Cell::kGates; ++g)
    pack_columns(weight_hh + g * H * H, H, H, H, out + (Cell::state_block(g) - Cell::kFirstState) * Hp * W<T>, panel);
}

template <class T, class Cell>
int64_t gated_pack_input_size(int64_t inputs, int64_t hidden) {
  return panels<T>(inputs) * Cell::kGates * panels<T>(hidden) * W<T> * W<T>;
}

// weight_ih for dx.
template <class T, class Cell>
void gated_pack_input(const T* weight_ih, int64_t I, int64_t H, T* out) {
  const int64_t Hp = panels<T>(H) * W<T>, panel = Cell::kGates * Hp * W<T>;
  if (H % W<T>) memset(out, 0, sizeof(T) * gated_pack_input_size<T, Cell>(I, H));
  for (int g = 0; g < Cell::kGates; ++g)
    pack_columns(weight_ih + g * H * I, I, H, I, out + Cell::input_block(g) * Hp * W<T>, panel);
}

// Panels of the chunk buffer: gradients, states before, inputs with a column of ones (which gives the gradients of the
// biases).
template <class T, class Cell>
int64_t gated_chunk_panels(int64_t inputs, int64_t hidden) {
  return (Cell::kSums + 1) * panels<T>(hidden) + panels<T>(inputs + 1);
}

template <class T, class Cell>
struct GatedBackwardStep {
  static constexpr int NG = Cell::kGates, NS = Cell::kSums;
  const GatedBackward& b;
  const Shape& s;
  const int64_t H, HP, panel;  // panel: distance of panels in the chunk buffer
  const T *grad_output, *x, *h0, *output, *saved, *cells, *packed, *packed_input;
  T *carry, *carry_cell, *chunk, *states, *inputs, *through, *bias;
  const Places end;  // of the chunk
  OuterProducts<T> sums;
  static_assert(2 * NG <= OuterProducts<T>::kMost, "room for all products");

  explicit GatedBackwardStep(const GatedBackward& b)
      : b(b), s(b.shape), H(s.hidden), HP(panels<T>(H)), panel(b.layout.rows * W<T>), grad_output((const T*)b.grad_output),
        x((const T*)b.x), h0((const T*)b.h0), output((const T*)b.output), saved((const T*)b.saved), cells((const T*)b.cells),
        packed((const T*)b.packed), packed_input((const T*)b.packed_input), carry((T*)b.carry),
        carry_cell((T*)b.carry_cell), chunk((T*)b.chunk), states(chunk + NS * HP * panel), inputs(states + HP * panel),
        through((T*)b.through), bias((T*)b.bias_sums), end(s, b.layout) {
    const int64_t IP = panels<T>(s.inputs + 1), square = HP * HP * W<T> * W<T>, wide = HP * IP * W<T> * W<T>;
    // The sums, padded: for each gate dW with the ones column (Hp x Ip), and dR (Hp x Hp).
    const auto add = [&](int block, const T* right, int64_t right_panels, T* to, int64_t size) {
      add_products(sums, {gradient(block), right, HP, right_panels, to}, size, s, b.layout, end);
    };
    for (int g = 0; g < NG; ++g) add(Cell::input_block(g), inputs, IP, (T*)b.wide + g * wide, NG * wide);
    for (int g = 0; g < NG; ++g) add(Cell::state_block(g), states, HP, (T*)b.square + g * square, NG * square);
  }

  T* through_row(int64_t sorted) const { return through + place_in_block<T>(HP * W<T>, sorted); }

  const T* gradient(int block) const { return chunk + block * HP * panel; }

  struct Row {
    const T *before, *cell_before, *after, *save, *grad;
    T *through, *chunk, *states, *carry;
  };

  Row row(int64_t t, int64_t sorted, int64_t place) const {
    const int64_t row = row_at(s, sorted), at = t * s.batch + row;
    const T* save = saved + (at - s.saved_from) * Cell::kSaved * H;
    const T* cell = Cell::kCell ? cells + ((time_of(s, t) - b.cells_from) * s.batch + row) * H : nullptr;
    return {state_before(s, output, h0, t, row, sorted), cell, output + at * H, save, grad_output + t * b.grad_step + row * b.grad_row,
            Cell::kCell ? carry_cell + row * H : through_row(sorted), chunk + place * W<T>,
            states + place * W<T>, carry + row * H};
  }

  // One unit vector of one row: from dL/dh (without grad_output's part) to the gradients of the sums.
  inline Vec<T> unit(Vec<T> g, int64_t p, const Row& row) const {
    const int64_t u = p * W<T>, n = H - u;
    g += load(row.grad + u, n);
    Vec<T> save[Cell::kSaved], gradients[NS], direct = {}, cell_before = {};
    const Vec<T> before = load(row.before + u, n), after = load(row.after + u, n);
    GORU_UNROLL
    for (int k = 0; k < Cell::kSaved; ++k) save[k] = load(row.save + k * H + u, n);
    if constexpr (Cell::kCell) direct = load(row.through + u, n), cell_before = load(row.cell_before + u, n);
    const Vec<T> db = Cell::backward(g, save, before, cell_before, after, direct, gradients);
    if constexpr (Cell::kCell) store(row.through + u, direct, n);
    else store(row.through + u, direct);
    GORU_UNROLL
    for (int k = 0; k < NS; ++k) store(row.chunk + (k * HP + p) * panel, gradients[k]);
    store(row.states + p * panel, before);
    return db;
  }

  void add_bias(int64_t block, int64_t p, Vec<T> value) const {
    if constexpr (!Cell::kOwnBias) return;
    T* to = bias + block * bias_size<T>(H) + p * W<T>;
    store(to, load(to) + value);
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

  // MR rows of a block from row `offset` on, whose step s + 1 is at `from` in the chunk. The first `stay` of them take
  // step s, at `place`; the gradient of the others (all of them, before the chunk's first step) goes to `carry`.
  struct Rows {
    int64_t t, block, offset, from, stay, place;
    int64_t sorted(int r) const { return block * kRows + offset + r; }
  };

  // dL/dh' of the rows, panels begin ... end - 1.
  template <int MR>
  __attribute__((noinline)) void step(const Rows& rows, int64_t begin, int64_t end) const {
    const T* left[MR];
    for (int r = 0; r < MR; ++r) left[r] = gradient(Cell::kFirstState) + (rows.from + rows.sorted(r)) * W<T>;
    Row at[MR];
    locate<MR>(rows, begin, end, at);
    const int64_t K = NG * HP * W<T>;
    const auto take = [&](int64_t p, auto count, const Vec<T>* acc) {
      finish<MR, decltype(count)::value>(rows, at, p, acc);
    };
    if constexpr (MR == 1) {
      if (!packed) return plain_row(left, begin, end, take);
    }
    sweep_rows<T, MR>(left, panel, packed, K * W<T>, K, begin, end, take);
  }

  // The product of one row with weight_hh as torch has it, which must fill whole panels.
  template <class Take>
  void plain_row(const T* const* left, int64_t begin, int64_t end, Take&& take) const {
    by_panels<1>(begin, end, [&](int64_t p, auto count) {
      constexpr int n = decltype(count)::value;
      Vec<T> acc[n];
      tile<T, 1, n, true>(left, panel, (const T*)b.weight_hh + p * W<T>, W<T>, NG * H, acc, false, H);
      take(p, count, acc);
    });
  }

  template <int MR>
  void locate(const Rows& rows, int64_t begin, int64_t end, Row* at) const {
    for (int r = 0; r < MR; ++r) {
      const int64_t sorted = rows.sorted(r);
      if (r < rows.stay) at[r] = row(rows.t, sorted, rows.place + sorted);
      else at[r].carry = carry + row_at(s, sorted) * H;
      if constexpr (Cell::kThrough) at[r].through = through_row(sorted);
    }
    // What is read after the product is fetched while it is computed.
    const int64_t u = begin * W<T>, bytes = (end - begin) * kVectorBytes;
    for (int r = 0; r < MR && r < rows.stay; ++r) {
      prefetch<false>(at[r].grad, u, bytes);
      prefetch<false>(at[r].before, u, bytes);
      if (Cell::kCell) prefetch<false>(at[r].cell_before, u, bytes);
      for (int64_t k = 0; k < Cell::kSaved; ++k) prefetch<false>(at[r].save, k * H + u, bytes);
    }
  }

  template <int MR, int NU>
  inline void finish(const Rows& rows, const Row* at, int64_t p, const Vec<T>* acc) const {
#pragma GCC unroll 1
    for (int u = 0; u < NU; ++u) {
      Vec<T> db = {};
#pragma GCC unroll 1
      for (int r = 0; r < MR; ++r) {
        Vec<T> g = acc[r * NU + u];
        if constexpr (Cell::kThrough) g += load(at[r].through + (p + u) * W<T>);
        if (r < rows.stay) db += unit(g, p + u, at[r]);
        else store(at[r].carry + (p + u) * W<T>, g, H - (p + u) * W<T>);
      }
      if (rows.stay > 0) add_bias(rows.block, p + u, db);
    }
  }

  // The same for all rows of the thread where a product is so long that its weights leave the first-level cache before
  // the next rows need them: a part of it is taken for several blocks of rows, then the next part.
  static constexpr int64_t kDepth = 4096 / kVectorBytes, kBatch = 8;

  template <class Each>
  void long_steps(Part part, const Blocks& mine, Each&& each) const {
    const int64_t K = NG * HP * W<T>;
    by_panels<kRows>(part.begin, part.end, [&](int64_t p, auto count) {
      constexpr int NU = decltype(count)::value;
      Vec<T> acc[kBatch][kRows * NU];
      for (int64_t first = 0; first < mine.count; first += kBatch) {
        const int64_t last = first + kBatch < mine.count ? first + kBatch : mine.count;
        for (int64_t k = 0; k < K; k += kDepth)
          for (int64_t i = first; i < last; ++i)
            each(mine.block(i), [&](const Rows& rows, auto size) {
              constexpr int MR = decltype(size)::value;
              const T *left[MR], *start = gradient(Cell::kFirstState) + k / W<T> * panel;
              for (int r = 0; r < MR; ++r) left[r] = start + (rows.from + rows.sorted(r)) * W<T>;
              tile<T, MR, NU>(left, panel, packed + (p * K + k) * W<T>, K * W<T>, K - k < kDepth ? K - k : kDepth,
                              acc[i - first] + rows.offset * NU, k > 0);
            });
        for (int64_t i = first; i < last; ++i)
          each(mine.block(i), [&](const Rows& rows, auto size) {
            Row at[decltype(size)::value];
            locate<decltype(size)::value>(rows, p, p + NU, at);
            finish<decltype(size)::value, NU>(rows, at, p, acc[i - first] + rows.offset * NU);
          });
      }
    });
  }

  void run(Team team) const {
    const Blocks mine = team.blocks(s);
    const Part part = team.part(HP, 1);
    const InputGradient<T> dx = {s, chunk, packed_input, panel, NG * HP * W<T>, (T*)b.grad_x};
    Places place = end, later_place = end;
    int64_t later = 0;
    for (int64_t step_number = s.last - 1; step_number >= s.first - 1; --step_number) {
      const bool inside = step_number >= s.first, newest = step_number == s.last - 1;
      const int64_t t = inside ? time_of(s, step_number) : 0, active = inside ? active_at(s, t) : 0;
      if (inside) place.back(active);
      if (!newest) {
        const auto each = [&](int64_t block, auto&& work) {
          const int64_t from = later_place.of(block), to = place.of(block);
          by_rows(rows_of(block, later), [&](int64_t offset, auto count) {
            work(Rows{t, block, offset, from, rows_of(block, active) - offset, to}, count);
          });
        };
        if (packed && NG * HP * W<T> >= 8 * kDepth) long_steps(part, mine, each);
        else
          for (int64_t i = 0; i < mine.count; ++i)
            each(mine.block(i), [&](const Rows& rows, auto count) {
              step<decltype(count)::value>(rows, part.begin, part.end);
            });
      }
      if (!inside) break;
      for (int64_t i = 0; i < mine.count; ++i) {
        const int64_t block = mine.block(i), n = rows_of(block, active), at = place.of(block);
        enter(part, t, block, newest ? 0 : rows_of(block, later), n, at);
        if (team.first_member())
          for (int64_t j = block * kRows; j < block * kRows + n; ++j)
            copy_input<T, true>(s, x, t, j, inputs + (at + j) * W<T>, panel);
      }
      team.meet();
      if (team.last_member()) dx.blocks(mine, t, active, place);
      later = active, later_place = place;
    }
  }

  static void thread(void* context, int index, int count) {
    FlushDenormals flush;
    const Shared<GatedBackwardStep>& call = *(Shared<GatedBackwardStep>*)context;
    call.arguments.run(Team(call.arguments.s, index, count, call.meetings));
  }
};

// c before each of the steps first + 1 ... last - 1 from the one before and the gates; rows that do not take a step keep
// theirs.
template <class T, class Cell>
struct GatedCells {
  const GatedBackward& b;
  const Shape& s;

  void run(int index, int threads) const {
    const int64_t H = s.hidden;
    const Blocks mine(s, index, threads);
    for (int64_t step = s.first; step + 1 < s.last; ++step) {
      const int64_t t = time_of(s, step), active = active_at(s, t);
      each_row(mine, s.batch, [&](int64_t, int64_t sorted) {
        const int64_t row = row_at(s, sorted);
        const T* save = (const T*)b.saved + (t * s.batch + row - s.saved_from) * Cell::kSaved * H;
        T *now = (T*)b.cells + ((step - b.cells_from) * s.batch + row) * H, *next = now + s.batch * H;
        if (sorted >= active) {
          memcpy(next, now, sizeof(T) * H);
          return;
        }
        for (int64_t u = 0; u < H; u += W<T>) {
          const int64_t n = H - u;
          const Vec<T> gates[3] = {load(save + u, n), load(save + H + u, n), load(save + 2 * H + u, n)};
          store(next + u, Cell::next_cell(gates, load(now + u, n)), n);
        }
      });
    }
  }

  static void thread(void* context, int index, int count) {
    FlushDenormals flush;
    const GatedBackward& b = *(const GatedBackward*)context;
    GatedCells{b, b.shape}.run(index, count);
  }
};

template <class T, class Cell>
void gated_cells(const GatedBackward* b) {
  if constexpr (Cell::kCell) goru_parallel((int)b->shape.threads, GatedCells<T, Cell>::thread, (void*)b);
}

template <class T, class Cell>
void gated_backward(const GatedBackward* b) {
  each_chunk(*b, [](const GatedBackward& part) {
    GatedBackwardStep<T, Cell> step(part);
    Shared<GatedBackwardStep<T, Cell>> call = {step};
    goru_parallel((int)part.shape.threads, GatedBackwardStep<T, Cell>::thread, &call);
    goru_parallel((int)part.shape.threads, OuterProducts<T>::thread, &step.sums);
  });
}

template <class T, class Cell>
void gated_finish(const GatedFinish* f) {
  const int64_t I = f->inputs, H = f->hidden, Hp = panels<T>(H) * W<T>, Ip = panels<T>(I + 1) * W<T>;
  add_groups((T*)f->wide, f->groups, Cell::kGates * Hp * Ip);
  add_groups((T*)f->square, f->groups, Cell::kGates * Hp * Hp);
  without_padding((const T*)f->square, Cell::kGates, Hp, H, (T*)f->grad_weight_hh);
  for (int64_t g = 0; g < Cell::kGates; ++g)
    for (int64_t u = 0; u < H; ++u) {
      const T* from_x = (const T*)f->wide + (g * Hp + u) * Ip;
      const int64_t at = g * H + u;
      memcpy((T*)f->grad_weight_ih + at * I, from_x, sizeof(T) * I);
      if (!f->grad_bias_ih) continue;
      // The column of ones holds the sum. A cell whose last gate adds its two biases in different places has the
      // second one's gradient apart.
      T second = from_x[I];
      if (Cell::kOwnBias && g == Cell::kGates - 1) {
        second = T(0);
        for (int64_t i = 0; i < f->blocks; ++i) second += ((const T*)f->bias_sums)[i * bias_size<T>(H) + u];
      }
      ((T*)f->grad_bias_ih)[at] = from_x[I];
      ((T*)f->grad_bias_hh)[at] = second;
    }
}

}  // namespace
