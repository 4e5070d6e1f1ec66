// The part of a backward pass that does not depend on the cell: places in the chunk buffer, the inputs in it, and dx.
//
// The chunk buffer holds rows (t, b) of several steps in panels: panel p is [group][row][W values].
#pragma once

#include "base/rows.h"
#include "base/weight_gradient.h"

namespace {

// The sums of a bias for one block of rows, which its thread adds to in every step; a gap follows them.
template <class T>
constexpr int64_t bias_size(int64_t hidden) {
  return panels<T>(hidden) * W<T> + kGap / (int64_t)sizeof(T);
}

// Where the rows of a step are in the chunk buffer. In the part of a group they follow each other in the order of the
// steps, without gaps. Groups are made as threads get their blocks (Blocks in rows.h): in turn where the batch is
// ragged, otherwise a run of neighbors.
class Places {
  const Shape* s;
  int64_t groups, part;            // part: rows from one group to the next
  int64_t start[kGroups];          // of the step's rows, for each group
  int64_t first[kGroups + 1] = {}; // without lengths: the first row of the batch in each group

 public:
  // After the chunk's last step.
  Places(const Shape& s, const ChunkLayout& c) : s(&s), groups(c.groups), part(c.group_rows) {
    const int64_t blocks = (s.batch + kRows - 1) / kRows;
    for (int64_t g = 0; g < groups; ++g) first[g] = blocks * g / groups * kRows, start[g] = g * part;
    first[groups] = s.batch;
    for (int64_t g = 0; g < groups && !s.active; ++g) start[g] += (s.last - s.first) * (first[g + 1] - first[g]);
    for (int64_t step = s.first; step < s.last && s.active; ++step) move(active_at(s, time_of(s, step)), 1);
  }

  // To the rows of the step before, which `active` rows of the batch take.
  void back(int64_t active) { move(active, -1); }

  // What to add to the (sorted) row of a block to get its place.
  int64_t of(int64_t block) const {
    if (s->active) {
      const uint32_t turn = (uint32_t)block / (uint32_t)groups, g = (uint32_t)block - turn * (uint32_t)groups;
      return start[g] + (turn - block) * kRows;
    }
    int64_t g = 0;
    while (block * kRows >= first[g + 1]) ++g;
    return start[g] - first[g];
  }

  // Rows of a group up to this step.
  int64_t rows(int64_t group) const { return start[group] - group * part; }

 private:
  // By the rows of a step, of which the first `active` rows of the batch take part.
  void move(int64_t active, int64_t sign) {
    if (!s->active) {
      for (int64_t g = 0; g < groups; ++g) start[g] += sign * (first[g + 1] - first[g]);
      return;
    }
    const uint32_t whole = (uint32_t)(active / kRows), turns = whole / (uint32_t)groups;
    const int64_t next = whole - turns * (uint32_t)groups;  // the group of the first block that is not whole
    for (int64_t g = 0; g < groups; ++g)
      start[g] += sign * ((turns + (g < next)) * kRows + (g == next ? active % kRows : 0));
  }
};

// A weight gradient for each group, from its part of the panels up to `end`. `sum` is where the first group adds, the sums
// of the groups are `size` apart.
template <class T>
inline void add_products(OuterProducts<T>& sums, const OuterProduct<T>& product, int64_t size, const Shape& s,
                         const ChunkLayout& c, const Places& end) {
  sums.capacity = c.rows, sums.groups = c.groups, sums.in_turn = s.active;
  for (int64_t g = 0; g < c.groups; ++g) {
    OuterProduct<T> own = product;
    own.left += g * c.group_rows * W<T>, own.right += g * c.group_rows * W<T>, own.sum += g * size;
    own.rows = end.rows(g);
    sums.add(g, own);
  }
}

// Calls work(part) for the chunks of a call, `steps` steps each but for the last one, which comes first.
template <class Backward, class Work>
inline void each_chunk(const Backward& b, Work&& work) {
  Backward part = b;
  const int64_t steps = b.layout.steps ? b.layout.steps : b.shape.last - b.shape.first;
  while (part.shape.last > b.shape.first) {
    part.shape.first = part.shape.last - 1 - (part.shape.last - 1 - b.shape.first) % steps;
    work(part);
    part.shape.last = part.shape.first;
  }
}

// x of a row at time t into its panels; with `kOnes` a column of ones follows it, whose product is the gradient of the
// biases.
template <class T, bool kOnes>
inline void copy_input(const Shape& s, const T* x, int64_t t, int64_t sorted, T* to, int64_t panel) {
  const T* from = x + t * s.x_step + row_at(s, sorted) * s.x_row;
  for (int64_t p = 0; p * W<T> < s.inputs + kOnes; ++p) {
    const int64_t n = s.inputs - p * W<T>;
    Vec<T> v = load(from + p * W<T>, n > 0 ? n : 0);
    if (kOnes && n < W<T>) v[n] = T(1);
    store(to + p * panel, v);
  }
}

// dx at one time: the first K rows of the chunk's panels times the packed weights.
template <class T>
struct InputGradient {
  const Shape& s;
  const T *gradients, *packed;
  int64_t panel, K;
  T* grad_x;

  template <int MR>
  __attribute__((noinline)) void rows(int64_t t, int64_t first, int64_t place) const {
    const T* left[MR];
    T* out[MR];
    for (int r = 0; r < MR; ++r) {
      left[r] = gradients + (place + first + r) * W<T>;
      out[r] = grad_x + (t * s.batch + row_at(s, first + r)) * s.inputs;
    }
    const int64_t all = panels<T>(s.inputs);
    sweep_rows<T, MR>(left, panel, packed, K * W<T>, K, 0, all, [&](int64_t p, auto count, const Vec<T>* acc) {
      constexpr int NU = decltype(count)::value;
      for (int r = 0; r < MR; ++r)
        for (int u = 0; u < NU; ++u)
          store(out[r] + (p + u) * W<T>, acc[r * NU + u], s.inputs - (p + u) * W<T>);
    });
  }

  // For a block of rows, the first n of which have time t; the others get zeros.
  void block(int64_t t, int64_t block, int64_t n, int64_t place) const {
    if (!grad_x) return;
    by_rows(n, [&](int64_t offset, auto count) { rows<decltype(count)::value>(t, block * kRows + offset, place); });
    for (int64_t j = block * kRows + n; j < (block + 1) * kRows && j < s.batch; ++j)
      memset(grad_x + (t * s.batch + row_at(s, j)) * s.inputs, 0, s.inputs * sizeof(T));
  }

  // For all blocks of a thread; `active` rows of the batch have time t.
  void blocks(const Blocks& mine, int64_t t, int64_t active, const Places& place) const {
    for (int64_t i = 0; i < mine.count; ++i)
      block(t, mine.block(i), rows_of(mine.block(i), active), place.of(mine.block(i)));
  }
};

}  // namespace
