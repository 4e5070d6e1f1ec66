// Buffers that survive between calls. A training step needs the same large buffers each time; memory fresh from the
// system is zeroed and mapped page by page, which costs as much as the arithmetic done in it. Bounded: what has not
// been used for a while, or is more than kMost bytes, goes back to the system.
#include "base/levels.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

namespace {

constexpr int64_t kHugePage = 2 << 20;
constexpr int64_t kPage = 1 << 16;  // a multiple of the system's, whatever that is
constexpr int64_t kMost = int64_t(1) << 30;  // bytes that stay allocated while unused
constexpr int kSlots = 256;                  // buffers known at a time; others are simply allocated and freed
constexpr int64_t kPatience = 64;            // requests after which an idle buffer is given back

struct Buffer {
  char* memory = nullptr;
  int64_t size = 0, last_use = 0;
  bool busy = false;
};

Buffer buffers[kSlots];
int64_t clock_ = 0;
pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

struct Locked {
  Locked() { pthread_mutex_lock(&mutex); }
  ~Locked() { pthread_mutex_unlock(&mutex); }
};

// A fork in the middle of a request must not leave the child with a locked mutex.
const int registered = pthread_atfork([] { pthread_mutex_lock(&mutex); }, [] { pthread_mutex_unlock(&mutex); },
                                      [] { pthread_mutex_unlock(&mutex); });

char* allocate(int64_t size) {
  void* memory = nullptr;
  return posix_memalign(&memory, 64, size) ? nullptr : (char*)memory;
}

// Large buffers come straight from the system, in huge pages where it has them, and go straight back: a heap that served
// them would keep what they leave behind.
char* map(int64_t size) {
  const int64_t whole = size + kHugePage;
  char* memory = (char*)mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  char* aligned = (char*)(((uintptr_t)memory + kHugePage - 1) / kHugePage * kHugePage);
  if (aligned > memory) munmap(memory, aligned - memory);
  munmap(aligned + size, memory + whole - (aligned + size));
#if defined(MADV_HUGEPAGE)
  // The rest is left to small pages: a huge one would take 2 MB for it.
  madvise(aligned, size / kHugePage * kHugePage, MADV_HUGEPAGE);
#endif
  return aligned;
}

void release(Buffer& b) {
  if (b.size >= kHugePage) munmap(b.memory, b.size);
  else free(b.memory);
  b = Buffer();
}

// Gives back idle buffers: old ones, and the oldest ones while more than `most` bytes are idle.
void tidy(int64_t most) {
  int64_t idle = 0;
  for (Buffer& b : buffers)
    if (b.memory && !b.busy) {
      if (clock_ - b.last_use > kPatience) release(b);
      else idle += b.size;
    }
  while (idle > most) {
    Buffer* oldest = nullptr;
    for (Buffer& b : buffers)
      if (b.memory && !b.busy && (!oldest || b.last_use < oldest->last_use)) oldest = &b;
    if (!oldest) return;
    idle -= oldest->size;
    release(*oldest);
  }
}

}  // namespace

GORU_API void* goru_take(int64_t size) {
  if (size < 64) size = 64;
  const int64_t unit = size >= kHugePage ? kPage : 64;
  size = (size + unit - 1) / unit * unit;
  Locked lock;
  ++clock_;
  Buffer *best = nullptr, *empty = nullptr, *smaller = nullptr;
  for (Buffer& b : buffers) {
    if (!b.memory) empty = &b;
    else if (b.busy || b.size > 2 * size || 2 * b.size < size) continue;
    else if (b.size >= size) best = best && best->size <= b.size ? best : &b;
    else smaller = smaller && smaller->size >= b.size ? smaller : &b;
  }
  if (!best) {
    // The new buffer can mostly serve the requests that the smaller one was for.
    if (smaller) release(*smaller), empty = smaller;
    if (!empty) return allocate(size);
    char* memory = size >= kHugePage ? map(size) : allocate(size);
    if (!memory) return nullptr;
    *empty = {memory, size, clock_, true};
    best = empty;
  }
  best->busy = true;
  best->last_use = clock_;
  return best->memory;
}

GORU_API void goru_give(void* memory) {
  if (!memory) return;
  Locked lock;
  for (Buffer& b : buffers)
    if (b.memory == memory) {
      b.busy = false;
      b.last_use = clock_;
      return tidy(kMost);
    }
  free(memory);
}

// Everything idle goes back to the system.
GORU_API void goru_release() {
  Locked lock;
  tidy(0);
}

// A buffer as a tensor of torch, in the exchange format of DLPack (version 0): torch calls the deleter when the last
// tensor on it is gone, from whatever thread that happens in.
namespace {

struct DLTensor {
  void* data;
  int32_t device_type, device_id, ndim;
  uint8_t type_code, type_bits;
  uint16_t type_lanes;
  int64_t *shape, *strides;
  uint64_t byte_offset;
};

struct DLManagedTensor {
  DLTensor tensor;
  void* context;
  void (*deleter)(DLManagedTensor*);
};

struct Owned {
  DLManagedTensor managed;
  int64_t shape[4];
};

}  // namespace

GORU_API void* goru_tensor(int code, int bits, int ndim, const int64_t* shape) {
  int64_t size = bits / 8;
  for (int i = 0; i < ndim; ++i) size *= shape[i];
  Owned* owned = (Owned*)malloc(sizeof(Owned));
  void* data = goru_take(size);
  if (!owned || !data) {
    free(owned);
    goru_give(data);
    return nullptr;
  }
  for (int i = 0; i < ndim; ++i) owned->shape[i] = shape[i];
  owned->managed = {{data, 1, 0, ndim, (uint8_t)code, (uint8_t)bits, 1, owned->shape, nullptr, 0},
                    owned,
                    [](DLManagedTensor* m) {
                      goru_give(m->tensor.data);
                      free(m->context);
                    }};
  return &owned->managed;
}
