// dW = sum over rows (t, b) of gradient(row)^T state(row), for all pairs of a chunk.
//
// Both sides are stored in panels: panel p of R rows is [row][W units], so that a tile reads both sides in order and
// nothing has to be repacked. Each element of the sum belongs to one task and is summed in the order of the rows: the
// result does not depend on the number of threads. The rows of a batch form groups with sums of their own: a thread
// begins with those that it has written itself, since cache lines that two threads write and read in turn cost more than
// the products.
#pragma once

#include "base/threads.h"
#include "base/tile.h"

namespace {

// At most this many groups of rows; only one where the sums are so large that they come from the third-level cache anyway.
constexpr int64_t kGroups = 4;

inline int64_t most_groups(int64_t bytes_of_sums) { return bytes_of_sums <= 1 << 20 ? kGroups : 1; }

// Adds the sums of all groups, `size` apart, to those of the first one, in the order of the groups.
template <class T>
inline void add_groups(T* sums, int64_t groups, int64_t size) {
  for (int64_t g = 1; g < groups; ++g)
    for (int64_t i = 0; i < size; i += W<T>) store(sums + i, load(sums + i) + load(sums + g * size + i));
}

// The sums of square matrices (side `padded`) without what they are filled up with, to `out`. It may be the same memory
// where nothing is filled up.
template <class T>
inline void without_padding(const T* sums, int64_t count, int64_t padded, int64_t H, T* out) {
  if (out == sums) return;
  for (int64_t m = 0; m < count; ++m)
    for (int64_t u = 0; u < H; ++u) memcpy(out + (m * H + u) * H, sums + (m * padded + u) * padded, sizeof(T) * H);
}

// One product of a list: `left` has `left_panels` panels (rows of the result), `right` has `right_panels` (columns);
// the result is left_panels * W rows of right_panels * W values.
template <class T>
struct OuterProduct {
  const T *left, *right;
  int64_t left_panels, right_panels;
  T* sum;
  int64_t rows = 0;
};

template <class T>
struct OuterProducts {
  int64_t capacity;  // rows between panels
  int64_t groups;
  bool in_turn;      // how the blocks of rows went to threads and groups, see Places
  static constexpr int kMost = 8;
  OuterProduct<T> products[kGroups][kMost];
  int count[kGroups] = {};
  int64_t next[kGroups] = {};

  void add(int64_t group, const OuterProduct<T>& product) { products[group][count[group]++] = product; }

  static constexpr int64_t kColumns = 3;      // panels of `right` in a task, read from the first-level cache
  static constexpr int64_t kLeft = 16;        // panels of `left` in a task
  static constexpr int64_t kDepth = 16384 / (kColumns * W<T> * (int64_t)sizeof(T));

  template <int NV>
  void task(const OuterProduct<T>& o, int64_t left, int64_t left_end, int64_t right) const {
    const int64_t stride = o.right_panels * W<T>, panel = capacity * W<T>;
    for (int64_t k = 0; k < o.rows; k += kDepth) {
      const int64_t depth = o.rows - k < kDepth ? o.rows - k : kDepth;
      const T* b = o.right + right * panel + k * W<T>;
      for (int64_t p = left; p < left_end; ++p) {
        const T* a = o.left + p * panel + k * W<T>;
        T* out = o.sum + p * W<T> * stride + right * W<T>;
        constexpr int MR = kRows < W<T> ? kRows : (int)W<T>;
        for (int n = 0; n < W<T>; n += MR) outer_tile<T, MR, NV>(a + n, b, panel, depth, out + n * stride, stride);
      }
    }
  }

  void run(int64_t group) {
    int64_t number = __atomic_fetch_add(&next[group], 1, __ATOMIC_RELAXED), before = 0;
    for (int i = 0; i < count[group]; ++i) {
      const OuterProduct<T>& o = products[group][i];
      // Three or two columns a task, never one where that can be avoided.
      const int64_t tasks = (o.right_panels + kColumns - 1) / kColumns;
      const int64_t parts = (o.left_panels + kLeft - 1) / kLeft;
      while (number < before + tasks * parts) {
        const int64_t column = (number - before) / parts, part = (number - before) % parts;
        const int64_t begin = o.right_panels * column / tasks, end = o.right_panels * (column + 1) / tasks;
        const int64_t left = o.left_panels * part / parts, left_end = o.left_panels * (part + 1) / parts;
        switch (end - begin) {
          case 3: task<3>(o, left, left_end, begin); break;
          case 2: task<2>(o, left, left_end, begin); break;
          case 1: task<1>(o, left, left_end, begin); break;
        }
        number = __atomic_fetch_add(&next[group], 1, __ATOMIC_RELAXED);
      }
      before += tasks * parts;
    }
  }

  // The groups of the thread's own blocks come first; then it helps the others.
  static void thread(void* context, int index, int threads) {
    FlushDenormals flush;
    OuterProducts& o = *(OuterProducts*)context;
    const int64_t first = o.in_turn ? index : index * o.groups / threads, step = o.in_turn ? threads : 1;
    for (int64_t k = 0; k < o.groups; ++k) o.run((first + k * step) % o.groups);
    for (int64_t k = 1; k < o.groups; ++k) o.run((first + k) % o.groups);
  }
};

}  // namespace
