/* Asserts tens of thousands of short threads, created and joined or detached, from main and from threads, alone and in
   bunches: each runs once and hands back its result. */
#include "check.h"

enum { ALONE = 12000, CREATORS = 6, EACH = 1500, DETACHED = 6000, BUNCH = 20 };

static long ran;

static void *short_one(void *argument) {
  __atomic_add_fetch(&ran, 1, __ATOMIC_SEQ_CST);
  return (void *)((long)argument * 2 + 1);
}

static void *creator(void *argument) {
  pthread_t bunch[BUNCH];
  for (long i = 0; i < EACH / BUNCH; i++) {
    for (long k = 0; k < BUNCH; k++) bunch[k] = start(short_one, (void *)(i + k));
    for (long k = 0; k < BUNCH; k++) CHECK_EQ((long)join(bunch[k]), (i + k) * 2 + 1);
  }
  return argument;
}

static int busy;

static void *detached(void *argument) {
  __atomic_add_fetch(&ran, 1, __ATOMIC_SEQ_CST);
  if ((long)argument % 2) OK(pthread_detach(pthread_self()));
  __atomic_sub_fetch(&busy, 1, __ATOMIC_SEQ_CST);
  return 0;
}

int main(void) {
  pthread_t creators[CREATORS];
  for (long i = 0; i < ALONE; i++) CHECK_EQ((long)join(start(short_one, (void *)i)), i * 2 + 1);
  CHECK_EQ(ran, ALONE);
  puts("ok one after the other");
  for (int i = 0; i < CREATORS; i++) creators[i] = start(creator, 0);
  for (int i = 0; i < CREATORS; i++) join(creators[i]);
  CHECK_EQ(ran, ALONE + CREATORS * EACH);
  puts("ok in bunches");
  pthread_attr_t attr;
  OK(pthread_attr_init(&attr));
  OK(pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED));
  for (long i = 0; i < DETACHED; i++) {
    pthread_t thread;
    while (__atomic_load_n(&busy, __ATOMIC_SEQ_CST) >= 50) sched_yield();
    __atomic_add_fetch(&busy, 1, __ATOMIC_SEQ_CST);
    if (i % 2) start(detached, (void *)i);
    else OK(pthread_create(&thread, &attr, detached, (void *)i));
  }
  while (__atomic_load_n(&busy, __ATOMIC_SEQ_CST)) sched_yield();
  CHECK_EQ(ran, ALONE + CREATORS * EACH + DETACHED);
  puts("ok detached");
}
