/* A library for LD_AUDIT, which the loader puts in a namespace of its own with a C library of its own: it allocates, locks
   and makes system calls while symbols are bound, by several threads at once, and says so. */
#define _GNU_SOURCE
#include <link.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int told;

unsigned la_version(unsigned version) { return version; }

unsigned la_objopen(struct link_map *map, Lmid_t space, uintptr_t *cookie) {
  (void)space;
  (void)cookie;
  free(strdup(map->l_name));
  return LA_FLG_BINDTO | LA_FLG_BINDFROM;
}

uintptr_t la_symbind64(Elf64_Sym *symbol, unsigned index, uintptr_t *from, uintptr_t *to, unsigned *flags,
                       const char *name) {
  (void)index;
  (void)from;
  (void)to;
  (void)flags;
  /* One that heddle, which is audited on the way, does not use. */
  if (strcmp(name, "pthread_rwlock_wrlock") == 0) {
    pthread_mutex_lock(&mutex);
    usleep(1000);
    if (!told++ && write(1, "bound\n", 6) != 6) _exit(99);
    pthread_mutex_unlock(&mutex);
  }
  free(malloc(100));
  return symbol->st_value;
}
