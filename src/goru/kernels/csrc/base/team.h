// Threads that share rows. Where there are fewer blocks of rows than threads, several threads form a *team*: each has a
// part of the panels of the same rows in all steps, and they meet after every step, since the next one needs the whole
// state.
#pragma once

#include <sched.h>

#include "base/rows.h"

namespace {

constexpr int kMostMembers = 64;  // of all teams

// Where the threads of all teams say how far they are. Each has a line of the cache of its own.
struct Meetings {
  struct alignas(64) Line {
    int64_t count = 0;
  };
  Line met[kMostMembers], prepared[kMostMembers];
};

// The arguments of a call whose threads may form teams.
template <class Arguments>
struct Shared {
  const Arguments& arguments;
  mutable Meetings meetings = {};
};

class Team {
  Meetings* meetings;
  int64_t first, met = 0, steps = 0;  // first: index of member 0 among all threads

 public:
  int64_t member, size, index, teams;

  // With `share` false no team has more than one member; the other threads have no rows.
  Team(const Shape& s, int thread, int threads, Meetings& meetings, bool share = true) : meetings(&meetings) {
    const int64_t blocks = (s.batch + kRows - 1) / kRows;
    size = share && blocks > 0 && blocks < threads && threads <= kMostMembers ? threads / blocks : 1;
    teams = size > 1 ? blocks : threads;
    index = thread / size, member = thread % size, first = index * size;
  }

  bool first_member() const { return member == 0; }
  bool last_member() const { return member == size - 1; }

  // The blocks of rows that the team works on; none for threads that are left over.
  Blocks blocks(const Shape& s) const {
    Blocks mine(s, (int)index, (int)teams);
    if (index >= teams) mine.count = 0;
    return mine;
  }

  // Of `all` panels, those of this member: whole multiples of `unit`, but for the last one's.
  Part part(int64_t all, int64_t unit) const { return {edge(all, unit, member), edge(all, unit, member + 1)}; }

  // Returns when all members have come.
  void meet() {
    if (size == 1 || index >= teams) return;
    __atomic_store_n(&meetings->met[first + member].count, ++met, __ATOMIC_RELEASE);
    for (int64_t i = 0; i < size; ++i) wait(meetings->met[first + i].count, met);
  }

  // Member 0 prepares something that all need in each step; the others wait for it only when they use it.
  template <class Work>
  void prepare(Work&& work) {
    ++steps;
    if (member > 0) return;
    work();
    if (size > 1) __atomic_store_n(&meetings->prepared[first].count, steps, __ATOMIC_RELEASE);
  }
  void need_prepared() const {
    if (member > 0) wait(meetings->prepared[first].count, steps);
  }

 private:
  int64_t edge(int64_t all, int64_t unit, int64_t number) const {
    return number == size ? all : (all + unit - 1) / unit * number / size * unit;
  }

  // A thread that is not running may be what the count waits for: after a while the processor is given up.
  static void wait(const int64_t& count, int64_t wanted) {
    for (int spins = 0; __atomic_load_n(&count, __ATOMIC_ACQUIRE) < wanted;) {
      if (spins < 4096) ++spins;
      else sched_yield();
#if defined(__x86_64__)
      __builtin_ia32_pause();
#elif defined(__aarch64__)
      asm volatile("yield");
#endif
    }
  }
};

}  // namespace
