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
  int index, count;
};

void team_member(void* job) {
  const Job& j = *(const Job*)job;
  j.body(j.context, runtime().index(), runtime().count());
}

void* started_thread(void* job) {
  const Job& j = *(const Job*)job;
  j.body(j.context, j.index, j.count);
  return nullptr;
}

void with_own_threads(int threads, void (*body)(void*, int, int), void* context) {
  constexpr int kMost = 64;
  if (threads > kMost) threads = kMost;
  // The count is fixed before the threads start. If a thread cannot be started, its index is run on this thread.
  Job jobs[kMost];
  pthread_t handles[kMost];
  bool started[kMost] = {};
  for (int i = 1; i < threads; ++i) {
    jobs[i] = {body, context, i, threads};
    started[i] = pthread_create(&handles[i], nullptr, started_thread, &jobs[i]) == 0;
  }
  body(context, 0, threads);
  for (int i = 1; i < threads; ++i) {
    if (started[i]) pthread_join(handles[i], nullptr);
    else body(context, i, threads);
  }
}

}  // namespace

extern "C" void goru_parallel(int threads, void (*body)(void*, int, int), void* context) {
  if (threads <= 1) return body(context, 0, 1);
  const Runtime& r = runtime();
  if (!r.parallel || forked) return with_own_threads(threads, body, context);
  if (r.inside()) return body(context, 0, 1);
  Job job = {body, context, 0, 0};
  r.parallel(team_member, &job, (unsigned)threads, 0);
}
