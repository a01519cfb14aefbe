/* Asserts what becomes of code that a program makes or maps itself: opened and shut by turns as compilers at run time do it,
   in a process with many mappings; a library's text mapped shared, which must stay as it is in its file; and a file's text,
   then generated code again, where generated code was. */
#include "check.h"
#include <link.h>
#include <sys/stat.h>

enum { PAGE = 4096, AREA = 16 * PAGE };

static unsigned char *map(void *at, int protection) {
  int fixed = at ? MAP_FIXED : 0;
  unsigned char *area = mmap(at, AREA, protection, MAP_PRIVATE | MAP_ANONYMOUS | fixed, -1, 0);
  CHECK(area != MAP_FAILED);
  return area;
}

static void open_and_shut(unsigned char *area, int rounds) {
  for (int i = 0; i < rounds; i++) {
    const unsigned char code[] = {0xb8, (unsigned char)i, (unsigned char)(i >> 8), 0, 0, 0xc3}; /* mov $i, %eax; ret */
    unsigned char *at = area + i % 16 * PAGE + i % 1000;
    CHECK_EQ(mprotect(area, AREA, PROT_READ | PROT_WRITE), 0);
    memcpy(at, code, sizeof code);
    CHECK_EQ(mprotect(area, AREA, PROT_READ | PROT_EXEC), 0);
    int (*made)(void);
    memcpy(&made, &at, sizeof made);
    CHECK_EQ(made(), i);
  }
}

static int find_libc(struct dl_phdr_info *info, size_t size, void *path) {
  (void)size;
  if (!strstr(info->dlpi_name, "libc.so")) return 0;
  *(const char **)path = info->dlpi_name;
  return 1;
}

static unsigned char *contents(int fd, size_t bytes) {
  unsigned char *all = malloc(bytes);
  CHECK(all);
  CHECK_EQ(pread(fd, all, bytes, 0), bytes);
  return all;
}

int main(void) {
  for (int i = 0; i < 500; i++) CHECK_EQ(mprotect(map(NULL, PROT_READ), PAGE, PROT_NONE), 0);
  unsigned char *area = map(NULL, PROT_READ | PROT_WRITE);
  open_and_shut(area, 1000);

  const char *path = NULL;
  dl_iterate_phdr(find_libc, &path);
  CHECK(path);
  int library = open(path, O_RDONLY);
  struct stat status;
  CHECK_EQ(fstat(library, &status), 0);
  size_t bytes = (size_t)status.st_size;
  unsigned char *before = contents(library, bytes);

  char copy[] = "/tmp/code_of_its_own_XXXXXX";
  int file = mkstemp(copy);
  CHECK(file >= 0);
  CHECK_EQ(unlink(copy), 0);
  CHECK_EQ(write(file, before, bytes), bytes);
  void *shared = mmap(NULL, bytes, PROT_READ | PROT_EXEC, MAP_SHARED, file, 0);
  CHECK(shared != MAP_FAILED);
  unsigned char *after = contents(file, bytes);
  CHECK_EQ(memcmp(before, after, bytes), 0);
  CHECK_EQ(memcmp(before, shared, bytes), 0);
  CHECK_EQ(munmap(shared, bytes), 0);

  CHECK_EQ(munmap(area, AREA), 0);
  CHECK(mmap(area, AREA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, file, 0) == area);
  CHECK_EQ(mprotect(area, AREA, PROT_READ | PROT_EXEC), 0);
  CHECK_EQ(memcmp(area, before, PAGE), 0);
  unsigned char *elsewhere = map(NULL, PROT_READ);
  CHECK(mremap(area, AREA, AREA, MREMAP_MAYMOVE | MREMAP_FIXED, elsewhere) == elsewhere);
  open_and_shut(map(area, PROT_READ | PROT_WRITE), 100);
  puts("code of its own ok");
  return 0;
}
