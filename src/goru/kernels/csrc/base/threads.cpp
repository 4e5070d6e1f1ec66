// Threads come from the OpenMP runtime that torch has already loaded: its workers are awake after torch's own
// products, and a second pool would compete with them for the cores. The symbols are looked up at run time, so the
// library links to no OpenMP. Where there is none, and in a forked child (where the runtime's workers do not exist and
// waiting for them would hang), plain threads are started for the call.
#include "base/threads.h"

#include <dlfcn.h>
#include <pthread.h>

namespace {

typedef void (*Parallel)(void (*)(void*), void*, unsigned, unsigned);
typedef int (*Number)(void);

struct Runtime {
  Parallel parallel;
  Number index, count, inside;
};
Runtime found;
bool forked = false;

void look_up() {
  found.index = (Number)dlsym(RTLD_DEFAULT, "omp_get_thread_num");
  found.count = (Number)dlsym(RTLD_DEFAULT, "omp_get_num_threads");
  found.inside = (Number)dlsym(RTLD_DEFAULT, "omp_in_parallel");
  if (found.index && found.count && found.inside) found.parallel = (Parallel)dlsym(RTLD_DEFAULT, "GOMP_parallel");
  pthread_atfork(nullptr, nullptr, [] { forked = true; });
}

// By pthread_once and not as a static of C++, which would bring the C++ runtime into the library.
const Runtime& runtime() {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, look_up);
  return found;
}

struct Job {
  void (*body)(void*, int, int);
  void* context;
};

void team_member(void* job) {
  const Job& j = *(const Job*)job;
  j.body(j.context, runtime().index(), runtime().count());
}

// Threads wait for each other in their work (team.h), so it begins when it is known how many could be started.
struct OwnTeam {
  Job job;
  int count = 1;
  pthread_mutex_t counting = PTHREAD_MUTEX_INITIALIZER;
};

struct OwnThread {
  OwnTeam* team;
  int index;
  pthread_t handle;
};

void* own_thread(void* thread) {
  const OwnThread& own = *(const OwnThread*)thread;
  pthread_mutex_lock(&own.team->counting);
  pthread_mutex_unlock(&own.team->counting);
  own.team->job.body(own.team->job.context, own.index, own.team->count);
  return nullptr;
}

void with_own_threads(int threads, const Job& job) {
  constexpr int kMost = 64;
  OwnTeam team = {job};
  OwnThread own[kMost];
  pthread_mutex_lock(&team.counting);
  while (team.count < threads && team.count < kMost) {
    OwnThread& next = own[team.count];
    next.team = &team, next.index = team.count;
    if (pthread_create(&next.handle, nullptr, own_thread, &next)) break;
    ++team.count;
  }
  pthread_mutex_unlock(&team.counting);
  job.body(job.context, 0, team.count);
  for (int i = 1; i < team.count; ++i) pthread_join(own[i].handle, nullptr);
}

}  // namespace

extern "C" void goru_parallel(int threads, void (*body)(void*, int, int), void* context) {
  if (threads <= 1) return body(context, 0, 1);
  const Runtime& r = runtime();
  Job job = {body, context};
  if (!r.parallel || forked) return with_own_threads(threads, job);
  if (r.inside()) return body(context, 0, 1);
  r.parallel(team_member, &job, (unsigned)threads, 0);
}
