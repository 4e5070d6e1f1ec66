// Running one function on several threads.
#pragma once

// Calls body(context, index, count) on `count` <= threads threads, index 0 ... count - 1, and waits for all of them.
// `count` may be smaller than `threads`; the body divides its work by `count`.
extern "C" __attribute__((visibility("hidden"))) void goru_parallel(
    int threads, void (*body)(void*, int, int), void* context);
