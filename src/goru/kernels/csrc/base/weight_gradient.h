// dW = sum over rows (t, b) of gradient(row)^T state(row), for all pairs of a chunk.
//
// Both sides are stored in panels: panel p of R rows is [row][W units], so that a tile reads both sides in order and
// nothing has to be repacked. Each element of the sum belongs to one task and is summed in the order of the rows: the
// result does not depend on the number of threads.
#pragma once

#include "base/threads.h"
#include "base/tile.h"

namespace {

// One product of a list: `left` has `left_panels` panels (rows of the result), `right` has `right_panels` (columns);
// the result is left_panels * W rows of right_panels * W values.
template <class T>
struct OuterProduct {
  const T *left, *right;
  int64_t left_panels, right_panels;
  T* sum;
};

template <class T>
struct OuterProducts {
  const OuterProduct<T>* products;
  int count;
  int64_t rows, capacity;  // rows in use, rows between panels
  int64_t next = 0;

  static constexpr int64_t kColumns = 3;      // panels of `right` in a task, read from the first-level cache
  static constexpr int64_t kLeft = 16;        // panels of `left` in a task
  static constexpr int64_t kDepth = 16384 / (kColumns * W<T> * (int64_t)sizeof(T));

  template <int NV>
  void task(const OuterProduct<T>& o, int64_t left, int64_t left_end, int64_t right) const {
    const int64_t stride = o.right_panels * W<T>, panel = capacity * W<T>;
    for (int64_t k = 0; k < rows; k += kDepth) {
      const int64_t depth = rows - k < kDepth ? rows - k : kDepth;
      const T* b = o.right + right * panel + k * W<T>;
      for (int64_t p = left; p < left_end; ++p) {
        const T* a = o.left + p * panel + k * W<T>;
        T* out = o.sum + p * W<T> * stride + right * W<T>;
        constexpr int MR = kRows < W<T> ? kRows : (int)W<T>;
        for (int n = 0; n < W<T>; n += MR) outer_tile<T, MR, NV>(a + n, b, panel, depth, out + n * stride, stride);
      }
    }
  }

  void run() {
    int64_t number = __atomic_fetch_add(&next, 1, __ATOMIC_RELAXED), before = 0;
    for (int i = 0; i < count; ++i) {
      const OuterProduct<T>& o = products[i];
      // Groups of three and two columns, never one where that can be avoided.
      const int64_t groups = (o.right_panels + kColumns - 1) / kColumns;
      const int64_t parts = (o.left_panels + kLeft - 1) / kLeft;
      while (number < before + groups * parts) {
        const int64_t group = (number - before) / parts, part = (number - before) % parts;
        const int64_t begin = o.right_panels * group / groups, end = o.right_panels * (group + 1) / groups;
        const int64_t left = o.left_panels * part / parts, left_end = o.left_panels * (part + 1) / parts;
        switch (end - begin) {
          case 3: task<3>(o, left, left_end, begin); break;
          case 2: task<2>(o, left, left_end, begin); break;
          case 1: task<1>(o, left, left_end, begin); break;
        }
        number = __atomic_fetch_add(&next, 1, __ATOMIC_RELAXED);
      }
      before += groups * parts;
    }
  }

  static void thread(void* context, int, int) {
    FlushDenormals flush;
    ((OuterProducts*)context)->run();
  }
};

}  // namespace
