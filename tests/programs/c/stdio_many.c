/* Asserts stdio from 32 threads: lines are never torn, flockfile holds several calls together, every line arrives once;
   through a shared FILE, a FILE per thread, and stdout. */
#include "check.h"

enum { THREADS = 32, LINES = 200 };

static FILE *shared;

static void *body(void *argument) {
  int id = (int)(long)argument;
  char name[32], line[200];
  snprintf(name, sizeof name, "lines-%d", id);
  FILE *own = fopen(name, "w+");
  CHECK(own);
  for (int i = 0; i < LINES; i++) {
    fprintf(shared, "thread %d line %d of %d: %0*d\n", id, i, LINES, 1 + (id + i) % 50, i);
    if (i % 10 == 0) {
      flockfile(shared);
      fprintf(shared, "thread %d pair %d first\n", id, i);
      if (i % 20 == 0) sched_yield();
      fputs("thread ", shared);
      putc_unlocked('0' + id / 10, shared);
      putc_unlocked('0' + id % 10, shared);
      fprintf(shared, " pair %d second\n", i);
      funlockfile(shared);
    }
    if (i % 50 == 0) fflush(shared);
    fprintf(own, "%d\n", i);
  }
  rewind(own);
  for (int i = 0; i < LINES; i++) {
    CHECK(fgets(line, sizeof line, own));
    CHECK_EQ(atoi(line), i);
  }
  OK(fclose(own));
  OK(unlink(name));
  return 0;
}

static void *printer(void *argument) {
  for (int i = 0; i < 20; i++) printf("thread %02d prints line %02d\n", (int)(long)argument, i);
  return 0;
}

static int by_text(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

int main(void) {
  pthread_t threads[THREADS];
  static char seen[THREADS][LINES];
  char line[300];
  shared = fopen("shared-lines", "w+");
  CHECK(shared);
  setvbuf(shared, 0, _IOFBF, 1024);
  for (long i = 0; i < THREADS; i++) threads[i] = start(body, (void *)i);
  for (int i = 0; i < THREADS; i++) join(threads[i]);
  rewind(shared);
  int lines = 0, pairs = 0;
  while (fgets(line, sizeof line, shared)) {
    int id, i, total, number, id2, i2;
    char end;
    if (sscanf(line, "thread %d line %d of %d: %d%c", &id, &i, &total, &number, &end) == 5) {
      CHECK(end == '\n' && id >= 0 && id < THREADS && i >= 0 && i < LINES && total == LINES && number == i);
      CHECK_EQ(seen[id][i]++, 0);
      lines++;
    } else {
      CHECK_EQ(sscanf(line, "thread %d pair %d first%c", &id, &i, &end), 3);
      CHECK(fgets(line, sizeof line, shared)); /* the second line of a pair comes at once */
      CHECK_EQ(sscanf(line, "thread %d pair %d second%c", &id2, &i2, &end), 3);
      CHECK(id == id2 && i == i2 && end == '\n');
      pairs++;
    }
  }
  CHECK_EQ(lines, THREADS * LINES);
  CHECK_EQ(pairs, THREADS * LINES / 10);
  OK(fclose(shared));
  OK(unlink("shared-lines"));
  puts("ok files");
  fflush(stdout);

  /* stdout is a pipe that another thread's lines must not tear; sort them, so that the output is always the same. */
  int fds[2], saved = dup(1);
  OK(pipe(fds));
  CHECK_EQ(fcntl(fds[1], F_SETPIPE_SZ, 1 << 16), 1 << 16);
  CHECK_EQ(dup2(fds[1], 1), 1);
  OK(close(fds[1]));
  for (long i = 0; i < THREADS; i++) threads[i] = start(printer, (void *)i);
  for (int i = 0; i < THREADS; i++) join(threads[i]);
  fflush(stdout);
  CHECK_EQ(dup2(saved, 1), 1);
  FILE *in = fdopen(fds[0], "r");
  static char *printed[THREADS * 20];
  for (int i = 0; i < THREADS * 20; i++) {
    CHECK(fgets(line, sizeof line, in));
    printed[i] = strdup(line);
  }
  CHECK(!fgets(line, sizeof line, in));
  qsort(printed, THREADS * 20, sizeof *printed, by_text);
  for (int i = 0; i < THREADS * 20; i++) {
    snprintf(line, sizeof line, "thread %02d prints line %02d\n", i / 20, i % 20);
    CHECK(strcmp(line, printed[i]) == 0);
  }
  puts("ok stdout");
}
