// How the rows of a batch are shared out to threads and walked through in time.
#pragma once

#include "base/shape.h"
#include "base/tile.h"

namespace {

// Which rows a thread works on: blocks of kRows rows of the (sorted) batch. The blocks of a ragged batch go to the
// threads in turn, since the first blocks are the longest.
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

// A buffer in which each row of the batch has `size` elements that its thread writes and reads in every step: a gap follows
// each block of rows. Without it the processor, which fetches lines ahead, takes lines of the next block away from the core
// that another thread runs on.
constexpr int64_t kGap = 1024;  // bytes

template <class T>
constexpr int64_t block_size(int64_t size) {
  return kRows * size + kGap / (int64_t)sizeof(T);
}

template <class T>
inline int64_t place_in_block(int64_t size, int64_t sorted) {
  return sorted / kRows * block_size<T>(size) + sorted % kRows * size;
}

// Calls work(block, row) for the thread's rows among the first `active`.
template <class Work>
inline void each_row(const Blocks& mine, int64_t active, Work&& work) {
  for (int64_t i = 0; i < mine.count; ++i) {
    const int64_t block = mine.block(i);
    for (int64_t j = block * kRows, end = j + rows_of(block, active); j < end; ++j) work(block, j);
  }
}

// The same for several rows at once: work(block, first row, Count<rows>).
template <class Work>
inline void each_rows(const Blocks& mine, int64_t active, Work&& work) {
  for (int64_t i = 0; i < mine.count; ++i) {
    const int64_t block = mine.block(i);
    by_rows(rows_of(block, active), [&](int64_t offset, auto count) { work(block, block * kRows + offset, count); });
  }
}

// Some of the panels: begin ... end - 1.
struct Part {
  int64_t begin, end;
};

// Calls work(block, first row in it, Count<rows>, panel, end) for `active` rows and some of `all` panels. Weights that
// fit into the second-level cache are taken whole for a block of rows after the other. Larger ones are taken `group`
// panels at a time for all rows of the thread: each is fetched once a step.
constexpr int64_t kCached = 3 << 17;  // bytes of a row's products with square weights: four matrices at H = 128

template <class T, class Work>
inline void each_panel(int64_t all, Part part, const Blocks& mine, int64_t active, Work&& work,
                       int64_t group = panels_at_once<kRows>()) {
  if (mine.count <= 1 || all * all * W<T> * kVectorBytes * 4 <= kCached) group = all;
  for (int64_t p = part.begin; p < part.end;) {
    const int64_t left = part.end - p, end = p + (left < group || left == group + 1 ? left : group);
    for (int64_t i = 0; i < mine.count; ++i) {
      const int64_t block = mine.block(i);
      by_rows(rows_of(block, active), [&](int64_t offset, auto count) { work(block, offset, count, p, end); });
    }
    p = end;
  }
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

}  // namespace
