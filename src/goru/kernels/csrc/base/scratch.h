// Memory for one short call: on the stack if it is little.
#pragma once

#include <stdint.h>
#include <stdlib.h>

struct Scratch {
  alignas(64) char near[32768];
  void* far = nullptr;
  void* memory = near;

  // With room for a vector beyond the end, which kernels may read and write.
  explicit Scratch(int64_t bytes) {
    if (bytes + 64 > (int64_t)sizeof near) memory = far = malloc(bytes + 64);
  }
  ~Scratch() { free(far); }
  Scratch(const Scratch&) = delete;
};
