// Random problems for the kernels, and what becomes of their results. Every buffer is allocated at exactly the size that
// the caller is told to provide, so that a step beyond it is seen; what is not drawn or zeroed is NaN until written.
#pragma once

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <random>
#include <vector>

#include "base/shape.h"

namespace {

std::mt19937 random_bits(2017);
FILE* record = nullptr;  // where the results go, so that two programs can be compared

int64_t between(int64_t low, int64_t high) { return low + int64_t(random_bits() % uint64_t(high - low + 1)); }

template <class T>
struct Buffer {
  std::vector<T> values;
  explicit Buffer(int64_t n, T fill = T(NAN)) : values(n, fill) { values.shrink_to_fit(); }
  // Uniform, the same numbers on every machine.
  static Buffer drawn(int64_t n, T scale = T(0.5)) {
    Buffer b(n);
    for (T& v : b.values) v = T((double(random_bits()) / 2147483648.0 - 1.0)) * scale;
    return b;
  }
  T* get() { return values.data(); }

  // A result: it must hold numbers, and is recorded as doubles behind a line `name bits count`.
  void result(const char* name) const {
    const std::vector<double> wide(values.begin(), values.end());
    for (double v : wide)
      if (!(v == v)) {
        printf("%s holds a NaN\n", name);
        exit(1);
      }
    if (!record) return;
    fprintf(record, "%s %d %zu\n", name, int(8 * sizeof(T)), wide.size());
    if (!wide.empty()) fwrite(wide.data(), sizeof(double), wide.size(), record);
  }

  // The sum of its rows: how many there are depends on the width of the vectors.
  Buffer sum_of_rows(int64_t width) const {
    Buffer sum(width, T(0));
    for (size_t i = 0; i < values.size(); ++i) sum.values[i % width] += values[i];
    return sum;
  }

  // rows x columns at the start of each of `count` blocks of size rows_padded x columns_padded, from `start` on.
  Buffer without_padding(int64_t start, int64_t count, int64_t rows, int64_t columns, int64_t rows_padded,
                         int64_t columns_padded) const {
    Buffer plain(0);
    for (int64_t b = 0; b < count; ++b)
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < columns; ++c)
          plain.values.push_back(values[start + (b * rows_padded + r) * columns_padded + c]);
    return plain;
  }
};

struct Problem {
  Shape shape = {};
  std::vector<int64_t> order, active;
  Problem() {
    shape.steps = between(1, 6), shape.batch = between(1, 40), shape.inputs = between(1, 18);
    shape.hidden = between(1, 36), shape.reverse = between(0, 1), shape.modrelu = between(0, 1);
    shape.threads = between(1, 3);
    shape.x_row = shape.inputs, shape.x_step = shape.batch * shape.inputs;
    if (between(0, 1)) return;
    std::vector<int64_t> lengths(shape.batch);
    for (int64_t& l : lengths) l = between(1, shape.steps);
    for (int64_t length = shape.steps; length > 0; --length)
      for (int64_t i = 0; i < shape.batch; ++i)
        if (lengths[i] == length) order.push_back(i);
    for (int64_t t = 0; t < shape.steps; ++t) {
      active.push_back(0);
      for (int64_t l : lengths) active.back() += l > t;
    }
    shape.order = order.data(), shape.active = active.data();
  }
};

// A chunk buffer that is no larger than it has to be.
ChunkLayout least_layout(int64_t batch, int64_t steps, int64_t block_rows, int64_t most_groups) {
  const int64_t blocks = (batch + block_rows - 1) / block_rows, groups = blocks < most_groups ? blocks : most_groups;
  const int64_t rows = (blocks + groups - 1) / groups * block_rows, group_rows = steps * (rows < batch ? rows : batch);
  return {groups * group_rows, groups, group_rows, 0};
}

// b_h <= 0: where it is positive modReLU jumps at 0, and rounding decides the side.
template <class T>
Buffer<T> modrelu_bias(int64_t before, int64_t hidden) {
  auto bias = Buffer<T>::drawn(before + hidden);
  for (int64_t i = before; i < before + hidden; ++i) bias.values[i] = -std::fabs(bias.values[i]) * T(0.2);
  return bias;
}

}  // namespace
