/* Asserts regular files from many threads: positioned and plain reads and writes, vectors, append, seek, sync, truncation,
   mapping, renaming and directories; one shared file offset; nothing lost. */
#include "check.h"
#include <dirent.h>
#include <sys/stat.h>
#include <sys/uio.h>

enum { THREADS = 16, BLOCKS = 64, BLOCK = 4096 };

static int shared, appended;

static void *body(void *argument) {
  int id = (int)(long)argument;
  char name[32], other[32], block[BLOCK], back[BLOCK];
  for (int b = 0; b < BLOCKS; b++) { /* its own blocks of the shared file */
    off_t at = (off_t)(b * THREADS + id) * BLOCK;
    memset(block, id * 13 + b, BLOCK);
    if (b % 2) CHECK_EQ(pwrite(shared, block, BLOCK, at), BLOCK);
    else CHECK_EQ(pwritev(shared, (struct iovec[2]){{block, 1000}, {block + 1000, BLOCK - 1000}}, 2, at), BLOCK);
    if (b % 16 == 0) OK(fdatasync(shared));
    CHECK_EQ(pread(shared, back, BLOCK, at), BLOCK);
    CHECK(memcmp(block, back, BLOCK) == 0);
    int n = snprintf(name, sizeof name, "%02d:%03d\n", id, b);
    CHECK_EQ(write(appended, name, n), n); /* O_APPEND: whole lines */
  }
  snprintf(name, sizeof name, "own-%d", id);
  snprintf(other, sizeof other, "renamed-%d", id);
  int fd = open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
  CHECK(fd >= 0);
  for (int i = 0; i < 100; i++) CHECK_EQ(write(fd, block, 100 + i), 100 + i);
  CHECK_EQ(lseek(fd, 0, SEEK_CUR), 14950);
  OK(ftruncate(fd, 8192));
  CHECK_EQ(lseek(fd, 0, SEEK_SET), 0);
  ssize_t n, total = 0;
  while ((n = readv(fd, (struct iovec[2]){{back, 700}, {back + 700, 300}}, 2)) > 0) total += n;
  CHECK_EQ(total, 8192);
  char *map = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  CHECK(map != MAP_FAILED && map[8191] == block[0]);
  map[0] = 'm';
  OK(msync(map, 8192, MS_SYNC));
  CHECK_EQ(pread(fd, back, 1, 0), 1);
  CHECK_EQ(back[0], 'm');
  OK(munmap(map, 8192));
  OK(fsync(fd));
  OK(close(fd));
  OK(rename(name, other));
  struct stat st;
  FAILS(stat(name, &st), ENOENT);
  OK(stat(other, &st));
  CHECK_EQ(st.st_size, 8192);
  OK(unlink(other));
  snprintf(name, sizeof name, "dir-%d", id);
  for (int i = 0; i < 10; i++) {
    OK(mkdir(name, 0700));
    DIR *dir = opendir(name);
    int entries = 0;
    CHECK(dir);
    while (readdir(dir)) entries++;
    CHECK_EQ(entries, 2);
    OK(closedir(dir));
    OK(rmdir(name));
  }
  return 0;
}

static void *takes(void *argument) { /* each read moves the one offset on */
  char block[BLOCK];
  long count = 0;
  while (read(shared, block, BLOCK) == BLOCK) {
    for (int i = 1; i < BLOCK; i++) CHECK_EQ(block[i], block[0]);
    count++;
  }
  (void)argument;
  return (void *)count;
}

int main(void) {
  pthread_t threads[THREADS];
  shared = open("shared", O_RDWR | O_CREAT | O_TRUNC, 0600);
  appended = open("appended", O_RDWR | O_CREAT | O_TRUNC | O_APPEND, 0600);
  CHECK(shared >= 0 && appended >= 0);
  for (long i = 0; i < THREADS; i++) threads[i] = start(body, (void *)i);
  for (int i = 0; i < THREADS; i++) join(threads[i]);
  uint64_t sum = 0;
  static unsigned char all[THREADS * BLOCKS * BLOCK];
  CHECK_EQ(pread(shared, all, sizeof all, 0), sizeof all);
  for (size_t i = 0; i < sizeof all; i++) sum = sum * 31 + all[i];
  printf("ok blocks: %lx\n", sum);
  FILE *lines = fopen("appended", "r");
  static char seen[THREADS][BLOCKS];
  int id, b, count = 0;
  while (fscanf(lines, "%d:%d\n", &id, &b) == 2) {
    CHECK(id >= 0 && id < THREADS && b >= 0 && b < BLOCKS && !seen[id][b]++);
    count++;
  }
  fclose(lines);
  CHECK_EQ(count, THREADS * BLOCKS);
  puts("ok append");
  long taken = 0;
  for (int i = 0; i < THREADS; i++) threads[i] = start(takes, 0);
  for (int i = 0; i < THREADS; i++) taken += (long)join(threads[i]);
  CHECK_EQ(taken, THREADS * BLOCKS);
  OK(unlink("shared"));
  OK(unlink("appended"));
  puts("ok shared offset");
}
