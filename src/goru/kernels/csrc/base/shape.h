// The structure that every recurrence passes from Python. Structures have fields of 8 bytes only; each is mirrored by a
// class of the same name in Python, made by `structure(` in kernels/native/ or in the folder of its cell, and Python
// compares the sizes when it loads the library (GORU_STRUCTURE in levels.h).
//
// Legend: T steps, B batch, I input, H hidden. Steps are counted in the order in which they are taken: step s is time t
// = s, or T - 1 - s in the reverse direction. `order` lists the rows from the longest to the shortest and `active` is,
// for each time t how many of them have that step; both are null when all rows are complete.
#pragma once

#include <stdint.h>

struct Shape {
  int64_t steps, batch, inputs, hidden;
  int64_t reset, update, reverse, modrelu;  // switches; without modReLU the candidate is linear
  int64_t first, last;                      // the steps of this call: first <= s < last
  int64_t threads;
  const int64_t* order;
  const int64_t* active;
  int64_t x_step, x_row;  // strides of x in elements; its last dimension is dense
  int64_t saved_from;     // the row (t, b) that `saved` begins with: not 0 where it holds a part of the steps
};

// The chunk buffer of a backward pass, in panels. The blocks of rows of the batch form groups: each has its own part of
// every panel, and its own sums of the weight gradients. Where the number of threads divides that of the groups, a thread
// works on groups of its own, so that no cache line moves between threads.
struct ChunkLayout {
  int64_t rows;        // from one panel to the next, in rows (t, b)
  int64_t groups;      // at most kGroups
  int64_t group_rows;  // of a group's part of a panel
  int64_t steps;       // steps of a chunk; 0: the whole call is one
};

// One step of a few rows without gradients: the states after `h` and, for an LSTM, `c`.
struct Step {
  const void* stream;  // the cell's own structure, prepared once for many steps
  const void *x, *h, *c;
  void *new_h, *new_c;
  int64_t rows;
};
