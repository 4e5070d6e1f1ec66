// The instruction sets of the library, and the choice among them.
#include "base/levels.h"

#include <string.h>

#include "base/shape.h"

#ifndef GORU_SOURCE_HASH
#define GORU_SOURCE_HASH "unknown"
#endif

extern "C" int goru_level = 0;

namespace {

#define GORU_LEVEL_NAME(level, Type, cell) #level,
const char* const names[] = {GORU_LEVELS(GORU_LEVEL_NAME, , )};
constexpr int kLevels = sizeof names / sizeof names[0];

// Asks for everything that the level is compiled with, see hatch_build.py.
bool can_run(const char* name) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
                    __builtin_cpu_supports("bmi2");
  if (!strcmp(name, "avx2")) return avx2;
  if (!strcmp(name, "avx512"))
    return avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512cd");
#endif
  return !strcmp(name, "generic");
}

}  // namespace

GORU_API const char* goru_source_hash() { return GORU_SOURCE_HASH; }

GORU_API int goru_levels() { return kLevels; }
GORU_API const char* goru_level_name(int i) { return names[i]; }
GORU_API int goru_level_runs(int i) { return can_run(names[i]); }
GORU_API void goru_choose(int i) { goru_level = i; }
GORU_API int goru_chosen() { return goru_level; }

GORU_STRUCTURE(Shape)
GORU_STRUCTURE(ChunkLayout)
