/* The three loop bodies. `volatile` keeps the compiler from holding the words in registers. */
#ifndef ROUNDS
#define ROUNDS 1000000L
#endif
#ifndef BODY
#define BODY 1
#endif
#ifndef MENDED
#define MENDED 0
#endif

#if BODY == 1
#define UPDATE(count, seen) ((void)(seen), *(volatile long *)&(count) += 1)
#define EXPECTED ROUNDS
#elif BODY == 2
#define UPDATE(count, seen) (*(volatile long *)&(count) = *(volatile long *)&(seen) + i + 1)
#define EXPECTED ROUNDS
#else
#define UPDATE(count, seen) ((void)(seen), __atomic_fetch_add(&(count), 1, __ATOMIC_RELAXED))
#define EXPECTED ROUNDS
#endif
