/* A library for LD_PRELOAD that stands before libc's functions, as allocators, fakes of the clock and proxies do. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static long allocations, connections, threads;

long interposed(const char *what) {
  return __atomic_load_n(*what == 'a' ? &allocations : *what == 'c' ? &connections : &threads, __ATOMIC_SEQ_CST);
}

/* An allocator that never frees. */
static char arena[64 << 20] __attribute__((aligned(64)));
static size_t used;

void *malloc(size_t size) {
  __atomic_add_fetch(&allocations, 1, __ATOMIC_RELAXED);
  size_t whole = (size + 16 + 63) & ~(size_t)63;
  size_t at = __atomic_fetch_add(&used, whole, __ATOMIC_RELAXED);
  if (at + whole > sizeof arena) {
    errno = ENOMEM;
    return 0;
  }
  *(size_t *)(arena + at) = size;
  return arena + at + 16;
}
void free(void *block) { (void)block; }
void *calloc(size_t count, size_t size) { return malloc(count * size); } /* fresh memory is zero */
void *realloc(void *block, size_t size) {
  void *new = malloc(size);
  if (new && block) {
    size_t old = *(size_t *)((char *)block - 16);
    memcpy(new, block, old < size ? old : size);
  }
  return new;
}
void *memalign(size_t alignment, size_t size) {
  char *block = malloc(size + alignment + 16);
  if (!block) return 0;
  char *aligned = (char *)(((size_t)block + 16 + alignment - 1) & ~(alignment - 1));
  *(size_t *)(aligned - 16) = size;
  return aligned;
}
void *aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }
int posix_memalign(void **out, size_t alignment, size_t size) { return (*out = memalign(alignment, size)) ? 0 : ENOMEM; }

int connect(int fd, const struct sockaddr *address, socklen_t size) {
  int (*next)(int, const struct sockaddr *, socklen_t) =
      (int (*)(int, const struct sockaddr *, socklen_t))dlsym(RTLD_NEXT, "connect");
  __atomic_add_fetch(&connections, 1, __ATOMIC_SEQ_CST);
  return next(fd, address, size);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*body)(void *), void *argument) {
  int (*next)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) =
      (int (*)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *))dlsym(RTLD_NEXT, "pthread_create");
  __atomic_add_fetch(&threads, 1, __ATOMIC_SEQ_CST);
  return next(thread, attributes, body, argument);
}

int clock_gettime(clockid_t clock, struct timespec *time) {
  int (*next)(clockid_t, struct timespec *) = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
  int result = next(clock, time);
  if (clock == CLOCK_REALTIME) time->tv_sec = 1000000000 + time->tv_sec % 1000;
  return result;
}
