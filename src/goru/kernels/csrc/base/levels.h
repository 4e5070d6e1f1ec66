// Every cell is compiled once per instruction set, a *level*; its entry points choose the compiled table at run time.
//
// A cell is a folder beside this one with a .cpp of the same name. hatch_build.py compiles that file once per level, with
// GORU_LEVEL set to the name of the level: it then defines a LEVEL_TABLE, a constant table of functions. It also
// compiles the file once without GORU_LEVEL: the file then defines the entry points that Python calls.
#pragma once

#include <stdint.h>

#define GORU_API extern "C" __attribute__((visibility("default")))

#define GORU_JOIN_(a, b) a##_##b
#define GORU_JOIN(a, b) GORU_JOIN_(a, b)

#ifdef GORU_LEVEL

// Declares and names the table of the level that is being compiled.
#define LEVEL_TABLE(Type, cell)                                                                     \
  extern __attribute__((visibility("hidden"))) const Type GORU_JOIN(cell##_tables, GORU_LEVEL); \
  constexpr Type GORU_JOIN(cell##_tables, GORU_LEVEL)

#else

// The levels that hatch_build.py compiles for this machine, from the plainest to the widest:
// one(generic, Type, cell) one(avx2, Type, cell) ...
#ifndef GORU_LEVELS
#define GORU_LEVELS(one, Type, cell) one(generic, Type, cell)
#endif

extern "C" __attribute__((visibility("hidden"))) int goru_level;  // the chosen one

// Defines <cell>_levels: the table of every level, to be indexed by goru_level.
#define LEVEL_TABLES(Type, cell)             \
  GORU_LEVELS(GORU_DECLARE_LEVEL, Type, cell) \
  static const Type* const cell##_levels[] = {GORU_LEVELS(GORU_LEVEL_ADDRESS, Type, cell)}
#define GORU_DECLARE_LEVEL(level, Type, cell) \
  extern __attribute__((visibility("hidden"))) const Type cell##_tables_##level;
#define GORU_LEVEL_ADDRESS(level, Type, cell) &cell##_tables_##level,

// Exports the size of a structure, so that Python can compare it with its own.
#define GORU_STRUCTURE(name) \
  GORU_API int64_t goru_sizeof_##name() { return (int64_t)sizeof(name); }

#endif
