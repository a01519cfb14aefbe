/* Asserts that threads can use rings of io_uring: each its own, with reads that wait for another thread's write, and one
   that all submit to in turn. Where the kernel has none, or refuses it, nothing is asserted. */
#include "check.h"
#include <linux/io_uring.h>

enum { THREADS = 6, ROUNDS = 40, ENTRIES = 8 };

struct ring {
  int fd;
  char *rings;
  struct io_uring_sqe *entries;
  struct io_uring_params params;
};

static int setup(struct ring *r) {
  memset(r, 0, sizeof *r);
  r->fd = (int)syscall(SYS_io_uring_setup, ENTRIES, &r->params);
  if (r->fd < 0) return 0;
  CHECK(r->params.features & IORING_FEAT_SINGLE_MMAP);
  size_t size = r->params.cq_off.cqes + r->params.cq_entries * sizeof(struct io_uring_cqe);
  size_t other = r->params.sq_off.array + r->params.sq_entries * sizeof(uint32_t);
  if (other > size) size = other;
  r->rings = mmap(0, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, r->fd, IORING_OFF_SQ_RING);
  CHECK(r->rings != MAP_FAILED);
  r->entries = mmap(0, r->params.sq_entries * sizeof(struct io_uring_sqe), PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_POPULATE, r->fd, IORING_OFF_SQES);
  CHECK(r->entries != MAP_FAILED);
  return 1;
}

static uint32_t *word(struct ring *r, uint32_t offset) { return (uint32_t *)(r->rings + offset); }

/* Submits one and waits for one; its result. */
static int round_trip(struct ring *r, int opcode, int fd, void *buffer, unsigned size, uint64_t data) {
  uint32_t tail = *word(r, r->params.sq_off.tail), mask = *word(r, r->params.sq_off.ring_mask);
  struct io_uring_sqe *entry = &r->entries[tail & mask];
  memset(entry, 0, sizeof *entry);
  entry->opcode = (uint8_t)opcode;
  entry->fd = fd;
  entry->addr = (uintptr_t)buffer;
  entry->len = size;
  entry->off = (uint64_t)-1;
  entry->user_data = data;
  word(r, r->params.sq_off.array)[tail & mask] = tail & mask;
  __atomic_store_n(word(r, r->params.sq_off.tail), tail + 1, __ATOMIC_RELEASE);
  CHECK_EQ(syscall(SYS_io_uring_enter, r->fd, 1, 1, IORING_ENTER_GETEVENTS, 0, 0), 1);
  uint32_t head = *word(r, r->params.cq_off.head);
  while (__atomic_load_n(word(r, r->params.cq_off.tail), __ATOMIC_ACQUIRE) == head) /* it was interrupted */
    if (syscall(SYS_io_uring_enter, r->fd, 0, 1, IORING_ENTER_GETEVENTS, 0, 0) < 0) CHECK_EQ(errno, EINTR);
  struct io_uring_cqe *done = (struct io_uring_cqe *)(r->rings + r->params.cq_off.cqes) +
                              (head & *word(r, r->params.cq_off.ring_mask));
  CHECK_EQ(done->user_data, data);
  int result = done->res;
  __atomic_store_n(word(r, r->params.cq_off.head), head + 1, __ATOMIC_RELEASE);
  return result;
}

static int pipes[THREADS][2];
static pthread_barrier_t barrier;
static struct ring common;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

/* Each reads what the one before it has written. */
static void *own_ring(void *argument) {
  int number = (intptr_t)argument;
  struct ring r;
  CHECK(setup(&r));
  pthread_barrier_wait(&barrier);
  for (int i = 0; i < ROUNDS; i++) {
    int value = 1000 * number + i, got = -1;
    if (i % 3 == number % 3) sleep_ms(1);
    CHECK_EQ(write(pipes[number][1], &value, sizeof value), sizeof value);
    int from = (number + 1) % THREADS;
    CHECK_EQ(round_trip(&r, IORING_OP_READ, pipes[from][0], &got, sizeof got, (uint64_t)value), sizeof got);
    CHECK_EQ(got, 1000 * from + i);
    sched_yield();
    OK(pthread_mutex_lock(&mutex));
    CHECK_EQ(round_trip(&common, IORING_OP_NOP, -1, 0, 0, (uint64_t)value), 0);
    OK(pthread_mutex_unlock(&mutex));
  }
  OK(close(r.fd));
  return 0;
}

int main(void) {
  if (setup(&common)) {
    OK(pthread_barrier_init(&barrier, 0, THREADS));
    for (int i = 0; i < THREADS; i++) OK(pipe(pipes[i]));
    pthread_t threads[THREADS];
    for (intptr_t i = 0; i < THREADS; i++) threads[i] = start(own_ring, (void *)i);
    for (int i = 0; i < THREADS; i++) join(threads[i]);
  }
  puts("ok rings");
}
