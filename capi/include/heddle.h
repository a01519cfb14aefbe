/* Heddle: user threads, fibers, fork-join, locks, channels and tasks in other processes, for C (C99 or newer) and C++.
 *
 * Functions that can fail answer 0 or an errno value; errno itself means nothing after them. "Parks" means: the calling
 * thread waits and leaves its worker to other threads; a kernel thread sleeps in the kernel; a fiber leaves its thread to
 * other fibers. Times are nanoseconds from now by CLOCK_MONOTONIC, HEDDLE_FOREVER without an end.
 *
 * The functions may be called by threads of all kinds, those too that Heddle has not made, but not by signal handlers,
 * nor by a child that a process with several threads has forked.
 */

#ifndef HEDDLE_H
#define HEDDLE_H

/* Made from the comments and declarations in capi/src by `ci/header.sh --update`: do not edit. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The static initialisers of what is declared below. */
#define HEDDLE_OPTIONS_INIT \
    { sizeof(heddle_options_t), HEDDLE_WORKERS_DEFAULT, HEDDLE_MODE_DEFAULT, 0, 0, HEDDLE_PROCESSES_DEFAULT, 0, 0 }
#define HEDDLE_ATTR_INIT \
    { sizeof(heddle_attr_t), NULL, 0, HEDDLE_MODE_DEFAULT, HEDDLE_PRIORITY_INHERITED }
#define HEDDLE_FIBER_ATTR_INIT { sizeof(heddle_fiber_attr_t), 0 }
#define HEDDLE_FIBER_INIT { { 0 } }
#define HEDDLE_COUNTERS_INIT { sizeof(heddle_counters_t), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
#define HEDDLE_MUTEX_INIT { { 0 } }
#define HEDDLE_RWLOCK_INIT { { 0 } }
#define HEDDLE_COND_INIT { { 0 } }
#define HEDDLE_BARRIER_INIT(threads) { { (uint64_t)(threads), (uint64_t)(threads) } }
#define HEDDLE_SEMAPHORE_INIT(permits) { { (uint64_t)(permits) } }
#define HEDDLE_ONCE_INIT { { 0 } }
#define HEDDLE_EVENT_INIT { { 0 } }
#define HEDDLE_WAIT_GROUP_INIT { { 0 } }


/* Major version of this header. */
#define HEDDLE_VERSION_MAJOR 0

/* Minor version of this header. */
#define HEDDLE_VERSION_MINOR 1

/* Patch level of this header. */
#define HEDDLE_VERSION_PATCH 0

/* As many workers as HEDDLE_WORKERS says, or else as CPUs may be used. */
#define HEDDLE_WORKERS_DEFAULT -1

/* As many worker processes as HEDDLE_PROCESSES says, or else as CPUs may be used. */
#define HEDDLE_PROCESSES_DEFAULT -1

/* Without an end; for all functions that take a time in nanoseconds. */
#define HEDDLE_FOREVER 18446744073709551615ull

/* The priority of the thread that makes it. */
#define HEDDLE_PRIORITY_INHERITED 127

/* A channel with room for any number of values. */
#define HEDDLE_UNBOUNDED 18446744073709551615ull

/* The most bytes that a value in a channel may have; of larger things send the address. */
#define HEDDLE_CHANNEL_VALUE_MAX 65536

/* Hands values, copies of plain data of one size, from thread to thread: each to one receiver, those of one
 * sender to one receiver in the order in which they were sent. Made by heddle_channel_create, used by any
 * number of threads. */
typedef struct heddle_channel_t heddle_channel_t;

/* Any number of jobs that end before heddle_scope returns. */
typedef struct heddle_scope_t heddle_scope_t;

/* Says to whoever waits with it that what it waits for is not wanted any more. Made by heddle_token_create. */
typedef struct heddle_token_t heddle_token_t;

/* What a thread is, and where tasks run: one of HEDDLE_MODE_... */
typedef int heddle_mode_t;

/* How to start. Set it by HEDDLE_OPTIONS_INIT, then change what is to be different. */
typedef struct heddle_options_t {
    /* Size of this structure; set by the initialiser. */
    size_t size;
    /* How many threads run at the same time, 1 to 1024, or HEDDLE_WORKERS_DEFAULT. In process mode the worker
     * processes share as many among them, at least one each. */
    int workers;
    /* What threads are by default. */
    heddle_mode_t mode;
    /* Milliseconds that a user thread may keep its worker while others wait, 1 to 10000; 0: 10. */
    uint64_t slice_ms;
    /* Stack of the threads that run other threads' fork-join jobs, in bytes, at least 16384; 0: 8 MiB. Only
     * what is used costs memory. */
    size_t helper_stack;
    /* Worker processes of process mode, 1 to 200, or HEDDLE_PROCESSES_DEFAULT. */
    int processes;
    /* 0. */
    int reserved;
    /* Address space for the memory that processes share, in bytes, 1 MiB to 512 GiB; 0: 1 GiB. Only what is
     * used costs memory. */
    size_t arena;
} heddle_options_t;

/* A thread. No two threads of a process ever have the same, so that a thread that has been joined, or was
 * detached and has ended, is answered by ESRCH. */
typedef uint64_t heddle_thread_t;

/* What a new thread is to be. Set it by HEDDLE_ATTR_INIT, then change what is to be different. */
typedef struct heddle_attr_t {
    /* Size of this structure; set by the initialiser. */
    size_t size;
    /* Its name, which debuggers show; copied. NULL: none. */
    const char *name;
    /* Its stack in bytes, at least 16384; 0: 2 MiB. Only what is used costs memory. */
    size_t stack_size;
    /* What it is to be; HEDDLE_MODE_DEFAULT: what the process has. Not HEDDLE_MODE_PROCESS: a thread is in
     * its process; tasks (heddle_task_create) run in others. */
    heddle_mode_t mode;
    /* A nice value, -20 (preferred) to 19, or HEDDLE_PRIORITY_INHERITED. A kernel thread gets it from the
     * kernel, which asks for a privilege below the process's own; a user thread is told it, and it changes
     * nothing about when it runs. */
    int priority;
} heddle_attr_t;

/* A fiber: a thread that has a stack of its own and inherits the rest, thread-locals, errno, name and signal
 * mask, from the thread that carries it just then. No two fibers of a process ever have the same handle, so
 * that a fiber that has been joined, or was detached and has ended, is answered by ESRCH. Handles are those
 * that heddle_fiber_create and heddle_fiber_self give, copies of them, and HEDDLE_FIBER_INIT, which is no
 * fiber's. */
typedef struct heddle_fiber_t {
    uint64_t opaque[2];
} heddle_fiber_t;

/* What a new fiber is to be. Set it by HEDDLE_FIBER_ATTR_INIT, then change what is to be different. */
typedef struct heddle_fiber_attr_t {
    /* Size of this structure; set by the initialiser. */
    size_t size;
    /* Its stack in bytes, 16384 to 1 GiB; 0: 64 KiB. Rounded up to a power of two. Only what is used costs
     * memory, a page at least. Below it is a page that cannot be touched: who needs more ends the process. */
    size_t stack_size;
} heddle_fiber_attr_t;

/* A mutex. Initialise it by HEDDLE_MUTEX_INIT or heddle_mutex_init; it needs no end. Not recursive, and not
 * fair: a thread that comes just when it is freed may be faster than one that was woken. Usable by threads of
 * all kinds, as all that follow here. */
typedef struct heddle_mutex_t {
    uint64_t opaque[3];
} heddle_mutex_t;

/* A lock for many readers or one writer. Initialise it by HEDDLE_RWLOCK_INIT or heddle_rwlock_init. Writers
 * come first: while one waits, no new reader gets in, so a thread that reads must not read again. */
typedef struct heddle_rwlock_t {
    uint64_t opaque[4];
} heddle_rwlock_t;

/* A condition variable. Initialise it by HEDDLE_COND_INIT or heddle_cond_init. */
typedef struct heddle_cond_t {
    uint64_t opaque[2];
} heddle_cond_t;

/* A barrier. Initialise it by HEDDLE_BARRIER_INIT(threads) or heddle_barrier_init. */
typedef struct heddle_barrier_t {
    uint64_t opaque[4];
} heddle_barrier_t;

/* A counting semaphore. Initialise it by HEDDLE_SEMAPHORE_INIT(permits) or heddle_semaphore_init. */
typedef struct heddle_semaphore_t {
    uint64_t opaque[2];
} heddle_semaphore_t;

/* Something that is done once. Initialise it by HEDDLE_ONCE_INIT or heddle_once_init. */
typedef struct heddle_once_t {
    uint64_t opaque[2];
} heddle_once_t;

/* A flag to wait for. Initialise it by HEDDLE_EVENT_INIT or heddle_event_init. */
typedef struct heddle_event_t {
    uint64_t opaque[2];
} heddle_event_t;

/* A count of things under way, to wait for the end of. Initialise it by HEDDLE_WAIT_GROUP_INIT or
 * heddle_wait_group_init. */
typedef struct heddle_wait_group_t {
    uint64_t opaque[2];
} heddle_wait_group_t;

/* A task. No two tasks of a process ever have the same, so that one that has been joined or detached is
 * answered by ESRCH. */
typedef uint64_t heddle_task_t;

/* What a thread does: one of HEDDLE_STATE_... */
typedef int heddle_state_t;

/* A thread of this process, as it was at some moment. Newer libraries may add fields at the end. */
typedef struct heddle_thread_info_t {
    /* Size of this structure, as the library has it. */
    size_t size;
    /* Its name, at most 15 bytes; that of the process if it has none. */
    const char *name;
    /* Its id, as gettid tells it. */
    uint32_t id;
    /* What it is: HEDDLE_MODE_USER or HEDDLE_MODE_KERNEL. */
    heddle_mode_t mode;
    /* What it does. */
    heddle_state_t state;
    /* What it waits for, as `state` says; otherwise -1. */
    int64_t object;
    /* Nanoseconds of CPU time that it has used. Of a user thread: what was charged to it so far, some
     * milliseconds coarse. */
    uint64_t cpu_time;
} heddle_thread_info_t;

/* Figures since the process began, each right by itself. Set it by HEDDLE_COUNTERS_INIT. */
typedef struct heddle_counters_t {
    /* Size of this structure; set by the initialiser. Fields that the library does not know are 0. */
    size_t size;
    /* Jobs of fork-join that ran on another thread than the one that made them. */
    uint64_t stolen;
    /* Times a thread parked because it had to wait for such a job. */
    uint64_t waited;
    /* Threads that were made to run other threads' jobs. */
    uint64_t helpers;
    /* User threads created. This and what follows is 0 where there are none. */
    uint64_t created;
    /* Times a worker switched to a thread. */
    uint64_t switches;
    /* Times a thread parked. */
    uint64_t parks;
    /* Times a worker took threads out of another's queue. */
    uint64_t steals;
    /* Times a worker stuck in the kernel lost its processor to another. */
    uint64_t hand_offs;
    /* Threads woken because a descriptor was ready. */
    uint64_t reactor_wakes;
    /* Times a thread was switched away from because its slice was over. */
    uint64_t preemptions;
    /* Times an idle worker was woken. */
    uint64_t notifications;
    /* Threads that live now. */
    uint64_t live;
    /* Workers asleep now. */
    uint64_t asleep;
    /* Threads that wait for a worker now. */
    uint64_t queued;
} heddle_counters_t;

/* What the process has; in options, what the environment variable HEDDLE_MODE says (user, kernel or process),
 * or else user threads. */
#define HEDDLE_MODE_DEFAULT 0

/* User threads, which Heddle runs on a few kernel threads, its workers. */
#define HEDDLE_MODE_USER 1

/* Kernel threads. */
#define HEDDLE_MODE_KERNEL 2

/* Tasks (heddle_task_create) run in worker processes, which heddle_start forks; threads are user threads, in
 * each process, where these can be had. */
#define HEDDLE_MODE_PROCESS 3

/* No thread. */
#define HEDDLE_THREAD_NONE 0

/* No task. */
#define HEDDLE_TASK_NONE 0

/* It runs, or waits in a system call that is not emulated (a file, say). */
#define HEDDLE_STATE_RUNNING 0

/* It could run, and waits for a worker. User threads only. */
#define HEDDLE_STATE_READY 1

/* It waits for a word in memory to be changed: a lock, a condition, the end of a thread. `object` is its
 * address, or -1. */
#define HEDDLE_STATE_WAITS_FUTEX 2

/* It waits for a descriptor. `object` is its number, or -1: several, or it cannot be told. */
#define HEDDLE_STATE_WAITS_DESCRIPTOR 3

/* It waits for time to pass. */
#define HEDDLE_STATE_WAITS_TIME 4

/* It waits for a signal. */
#define HEDDLE_STATE_WAITS_SIGNAL 5

/* It waits for a child process. */
#define HEDDLE_STATE_WAITS_CHILD 6

/* It waits for the end of another system call. `object` is its number, or -1. */
#define HEDDLE_STATE_WAITS_CALL 7

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/* Starts Heddle in this process: from here on every new thread, pthread_create's too, is a user thread, and
 * what blocks in the C library or any other parks the thread and leaves its worker to others. `options` may
 * be NULL: the defaults.
 *
 * It must come before the process has a second thread, best first in main. Without it the first use of
 * anything that needs it starts with the defaults, and where user threads are not to be had goes on with
 * kernel threads; heddle_mode tells. Under `heddle run` the process is started already, with the command
 * line's options: then only helper_stack counts.
 *
 * It does not block. Errors, with words in heddle_last_error; nothing is started then, and it may be called
 * again: EALREADY: it is started, by an earlier call or a use that needed it. EINVAL: an option,
 * HEDDLE_WORKERS, HEDDLE_MODE or HEDDLE_PROCESSES has a value that it may not have, as 0 workers. EBUSY: the
 * process has other threads already. ENOTSUP: the system does not allow what user threads need. E2BIG: an
 * option that this library does not know is set. */
int heddle_start(const struct heddle_options_t *options);

/* What a new thread of this process is by default: HEDDLE_MODE_USER or HEDDLE_MODE_KERNEL. Starts the process
 * if nothing has. */
heddle_mode_t heddle_mode(void);

/* What the calling thread is: HEDDLE_MODE_USER or HEDDLE_MODE_KERNEL. Starts the process if nothing has. */
heddle_mode_t heddle_current_mode(void);

/* How many threads run at the same time. Starts the process if nothing has. */
size_t heddle_workers(void);

/* The library's version, as "0.1.0". That of the header is in HEDDLE_VERSION_MAJOR, _MINOR and _PATCH. */
const char *heddle_version(void);

/* The words for the last error of heddle_start, heddle_thread_create, heddle_fiber_create, heddle_task_create
 * or heddle_task_join in the calling thread, in English; an empty string if there was none. They stay until
 * one of these fails again in the same thread, or the thread ends; for a fiber, until it waits. */
const char *heddle_last_error(void);

/* Makes a token and stores it in *token. If `parent` is not NULL, it is cancelled with that one, and can be
 * by itself; the parent may be destroyed before it. It allocates memory and does not block. Error: EINVAL: a
 * null pointer. */
int heddle_token_create(struct heddle_token_t **token, const struct heddle_token_t *parent);

/* Ends all waits with this token or a child of it, and those to come, by ECANCELED. It does not wait for
 * them. What the caller did before comes before what those do next. Error: EINVAL: a null pointer. */
int heddle_token_cancel(struct heddle_token_t *token);

/* Whether it has been cancelled; for threads that work without waiting. False for NULL. */
bool heddle_token_is_cancelled(const struct heddle_token_t *token);

/* Frees it. No thread may wait with it or use it any more. Error: EINVAL: a null pointer. */
int heddle_token_destroy(struct heddle_token_t *token);

/* Makes a thread that runs fn(arg), and stores it in *thread. `attr` may be NULL: the defaults. It starts the
 * process if nothing has.
 *
 * `fn` ends by returning. A C++ exception that leaves it ends the process by std::terminate, as in a
 * std::thread; it must not be left by pthread_exit, longjmp or cancellation.
 *
 * What the caller did before comes before what the thread does. It does not wait for other threads' work.
 * Errors, with words in heddle_last_error; no thread is made then: EINVAL: a null pointer, a stack of less
 * than 16384 bytes, not a mode or priority. ENOTSUP: a user thread was asked for and the process has none.
 * EACCES, EPERM: a priority that the system does not allow. EAGAIN, ENOMEM: the system has no room. */
int heddle_thread_create(heddle_thread_t *thread,
                         const struct heddle_attr_t *attr,
                         void *(*fn)(void*),
                         void *arg);

/* Waits until the thread has ended, and forgets it. What its function returned is stored in *result, which
 * may be NULL.
 *
 * It parks the calling thread. What the thread did comes before what the caller does next. Errors: ESRCH:
 * there is no such thread: it has been joined, or was detached and has ended. EINVAL: it is detached, or
 * another thread joins it, or it was not made by heddle_thread_create. EDEADLK: it is the calling thread. */
int heddle_thread_join(heddle_thread_t thread,
                       void **result);

/* As heddle_thread_join, for that many nanoseconds at most, and until `token`, which may be NULL, is
 * cancelled. Errors: ETIMEDOUT, ECANCELED: it had not ended until then, and may be joined again. ESRCH,
 * EINVAL, EDEADLK as there. */
int heddle_thread_join_within(heddle_thread_t thread,
                              void **result,
                              uint64_t nanoseconds,
                              const struct heddle_token_t *token);

/* Lets the thread end by itself: nobody will join it. It does not block. Errors: ESRCH: there is no such
 * thread. EINVAL: it is detached already, or somebody joins it, or it was not made by heddle_thread_create. */
int heddle_thread_detach(heddle_thread_t thread);

/* The calling thread. Threads that heddle_thread_create has not made, main for one, have a handle too, once
 * they have asked for it: to unpark and to compare. HEDDLE_THREAD_NONE in a fiber, and while thread-locals of
 * such a thread are being destroyed. */
heddle_thread_t heddle_thread_self(void);

/* Whether both are the same thread. */
bool heddle_thread_equal(heddle_thread_t a, heddle_thread_t b);

/* Copies the name that the thread was given, with its final 0, to `name`, which has room for `size` bytes; an
 * empty string if it was given none. Errors: EINVAL: a null pointer. ESRCH: there is no such thread. ERANGE:
 * it is longer. */
int heddle_thread_name(heddle_thread_t thread,
                       char *name,
                       size_t size);

/* Lets other threads that are ready run first. Answers 0. */
int heddle_yield(void);

/* Parks the calling thread for at least that many nanoseconds. Answers 0. */
int heddle_sleep(uint64_t nanoseconds);

/* As heddle_sleep, and until `token`, which may be NULL, is cancelled. Error: ECANCELED: it was, before the
 * time had passed. */
int heddle_sleep_within(uint64_t nanoseconds,
                        const struct heddle_token_t *token);

/* Parks the calling thread until heddle_unpark is called for it, or returns at once if that has happened
 * since the last park returned 0. What the other did before heddle_unpark comes before what the caller does
 * next. Error: EAGAIN: the calling thread has no handle (see heddle_thread_self). */
int heddle_park(void);

/* As heddle_park, for that many nanoseconds at most. Error: ETIMEDOUT: it was not unparked until then. */
int heddle_timedpark(uint64_t nanoseconds);

/* As heddle_timedpark, and until `token`, which may be NULL, is cancelled. Errors: ETIMEDOUT, ECANCELED: it
 * was not unparked until then. */
int heddle_park_within(uint64_t nanoseconds,
                       const struct heddle_token_t *token);

/* Lets the thread's heddle_park return: the one it is in, or else its next. It does not block. Error: ESRCH:
 * there is no such thread. */
int heddle_unpark(heddle_thread_t thread);

/* Makes a fiber that runs fn(arg), and stores it in *fiber. `attr` may be NULL: the defaults. It starts the
 * process if nothing has. Making and joining one costs tens of nanoseconds, since it has no thread-locals of
 * its own; for that, fn keeps these rules:
 *
 * Whenever it calls something of this header that parks or yields, another fiber may run on its thread, and
 * it may go on on another thread. So it keeps nothing of a thread's across such a call: no address of a
 * thread-local, no lock that its own thread has to give back, as pthread_mutex_t (heddle_mutex_t and the
 * others of this header may be held). The function that makes such a call does not use errno or a
 * thread-local both before and after it, since compilers remember where they are; other functions that it
 * calls may. It does not make such a call in a C++ catch block, or in a destructor while an exception is
 * under way. The control words of floating-point arithmetic are then as it found them.
 *
 * What waits otherwise (the C library's calls, heddle_fork_join and the like in the functions that they call)
 * blocks the thread that carries the fiber; others carry on the other fibers. A fiber that computes is not
 * interrupted for other fibers. It has no heddle_thread_t: heddle_thread_self answers HEDDLE_THREAD_NONE, and
 * heddle_park EAGAIN.
 *
 * `fn` ends by returning. A C++ exception that leaves it ends the process by std::terminate, as in a thread;
 * it must not be left by pthread_exit, longjmp or cancellation.
 *
 * What the caller did before comes before what the fiber does. It does not wait for other fibers' work.
 * Errors, with words in heddle_last_error; no fiber is made then: EINVAL: a null pointer, a stack of less
 * than 16384 bytes or more than 1 GiB. E2BIG: an attribute that this library does not know. EAGAIN, ENOMEM:
 * the system has no room. */
int heddle_fiber_create(struct heddle_fiber_t *fiber,
                        const struct heddle_fiber_attr_t *attr,
                        void *(*fn)(void*),
                        void *arg);

/* Waits until the fiber has ended, and forgets it. What its function returned is stored in *result, which may
 * be NULL. Threads and fibers may join it.
 *
 * It parks the calling thread; of a fiber that calls, the thread runs other fibers meanwhile. What the fiber
 * did comes before what the caller does next. Errors: ESRCH: there is no such fiber: it has been joined, or
 * was detached and has ended. EINVAL: it is detached, or another one joins it. EDEADLK: it is the calling
 * fiber. */
int heddle_fiber_join(struct heddle_fiber_t fiber,
                      void **result);

/* As heddle_fiber_join, for that many nanoseconds at most, and until `token`, which may be NULL, is
 * cancelled. Errors: ETIMEDOUT, ECANCELED: it had not ended until then, and may be joined again. ESRCH,
 * EINVAL, EDEADLK as there. */
int heddle_fiber_join_within(struct heddle_fiber_t fiber,
                             void **result,
                             uint64_t nanoseconds,
                             const struct heddle_token_t *token);

/* Lets the fiber end by itself: nobody will join it. It does not block. Errors: ESRCH: there is no such
 * fiber. EINVAL: it is detached already, or somebody joins it. */
int heddle_fiber_detach(struct heddle_fiber_t fiber);

/* Lets other fibers that are ready run first, as heddle_yield does in a fiber. Error: EPERM: the caller is no
 * fiber. */
int heddle_fiber_yield(void);

/* Whether the caller is a fiber. */
bool heddle_is_fiber(void);

/* The calling fiber; HEDDLE_FIBER_INIT if the caller is none. */
struct heddle_fiber_t heddle_fiber_self(void);

/* Whether both are the same fiber. */
bool heddle_fiber_equal(struct heddle_fiber_t a, struct heddle_fiber_t b);

/* Calls a(arg_a) and b(arg_b), the second perhaps on another thread meanwhile, and answers when both have
 * returned.
 *
 * Nothing is allocated and no stack is switched unless another thread has time for `b`. When `a` has ended
 * before a `b` that was taken, the caller parks; no other job runs on its stack meanwhile, so it may hold
 * locks, but not one that `b` wants. A C++ exception that leaves `a` or `b` ends the process by
 * std::terminate. Error: EINVAL: a null function; neither has been called. */
int heddle_fork_join(void (*a)(void*),
                     void *arg_a,
                     void (*b)(void*),
                     void *arg_b);

/* Calls body(scope, arg), which may add jobs by heddle_scope_spawn, and answers when it and all jobs have
 * ended.
 *
 * It parks the calling thread when it must wait. What jobs did comes before what the caller does next. A C++
 * exception that leaves `body` or a job ends the process by std::terminate. Error: EINVAL: a null function. */
int heddle_scope(void (*body)(struct heddle_scope_t*, void*),
                 void *arg);

/* Adds the job fn(arg) to a scope: it runs some time before heddle_scope returns, on this thread or another;
 * never inside this call. It may be called by the scope's body and its jobs, while the scope is there. It
 * does not block, and allocates memory only when 1000 jobs of the calling thread wait. Error: EINVAL: a null
 * pointer. */
int heddle_scope_spawn(struct heddle_scope_t *scope,
                       void (*fn)(void*),
                       void *arg);

/* Calls body(i, j, arg) for parts [i, j) of the indices [begin, end), on this thread and others, and answers
 * when each index has been in one part and all calls have returned. Nothing is called if end <= begin.
 *
 * Parts have a multiple of `grain` indices, but for the last one. Their size adapts to how long the calls
 * take and how many threads have time, so `grain` can be 1 (0 means 1 too) unless single indices are to stay
 * together. It parks the calling thread when it must wait. A C++ exception that leaves `body` ends the
 * process by std::terminate. Error: EINVAL: a null function. */
int heddle_for(size_t begin,
               size_t end,
               size_t grain,
               void (*body)(size_t, size_t, void*),
               void *arg);

/* Makes it a free mutex. Error: EINVAL: a null pointer. */
int heddle_mutex_init(struct heddle_mutex_t *mutex);

/* Waits until nobody else holds it, and takes it. It looks for a moment, then parks the calling thread.
 * Errors: EDEADLK: the calling thread holds it. EINVAL: a null pointer. */
int heddle_mutex_lock(struct heddle_mutex_t *mutex);

/* Takes it if nobody holds it. It does not block. Errors: EBUSY: somebody holds it, perhaps the caller.
 * EINVAL: a null pointer. */
int heddle_mutex_trylock(struct heddle_mutex_t *mutex);

/* As heddle_mutex_lock, for that many nanoseconds at most. Errors: ETIMEDOUT: others held it until then.
 * EDEADLK, EINVAL as there. */
int heddle_mutex_timedlock(struct heddle_mutex_t *mutex,
                           uint64_t nanoseconds);

/* As heddle_mutex_lock, for that many nanoseconds at most, and until `token`, which may be NULL, is
 * cancelled. What can be had without waiting is had in any case. Errors: ETIMEDOUT, ECANCELED: others held it
 * until then. EDEADLK, EINVAL as there. */
int heddle_mutex_lock_within(struct heddle_mutex_t *mutex,
                             uint64_t nanoseconds,
                             const struct heddle_token_t *token);

/* Frees it. It does not block. Errors: EPERM: the calling thread does not hold it. EINVAL: a null pointer. */
int heddle_mutex_unlock(struct heddle_mutex_t *mutex);

/* Makes it a free lock. Error: EINVAL: a null pointer. */
int heddle_rwlock_init(struct heddle_rwlock_t *lock);

/* Waits until no writer holds it or waits for it, and reads. Parks the calling thread when it must wait.
 * Errors: EDEADLK: the calling thread writes. EINVAL: a null pointer. */
int heddle_rwlock_rdlock(struct heddle_rwlock_t *lock);

/* Reads if no writer holds it or waits for it. It does not block. Errors: EBUSY: one does. EINVAL: a null
 * pointer. */
int heddle_rwlock_tryrdlock(struct heddle_rwlock_t *lock);

/* Waits until nobody else holds it, and writes. Parks the calling thread when it must wait; a thread that
 * reads waits for ever. Errors: EDEADLK: the calling thread writes. EINVAL: a null pointer. */
int heddle_rwlock_wrlock(struct heddle_rwlock_t *lock);

/* Writes if nobody holds it. It does not block. Errors: EBUSY: somebody does. EINVAL: a null pointer. */
int heddle_rwlock_trywrlock(struct heddle_rwlock_t *lock);

/* As heddle_rwlock_rdlock, for that many nanoseconds at most, and until `token`, which may be NULL, is
 * cancelled. What can be had without waiting is had in any case. Errors: ETIMEDOUT, ECANCELED: a writer held
 * it or waited for it until then. EDEADLK, EINVAL as there. */
int heddle_rwlock_rdlock_within(struct heddle_rwlock_t *lock,
                                uint64_t nanoseconds,
                                const struct heddle_token_t *token);

/* As heddle_rwlock_wrlock, for that many nanoseconds at most, and until `token`, which may be NULL, is
 * cancelled. What can be had without waiting is had in any case. Errors: ETIMEDOUT, ECANCELED: others held it
 * until then. EDEADLK, EINVAL as there. */
int heddle_rwlock_wrlock_within(struct heddle_rwlock_t *lock,
                                uint64_t nanoseconds,
                                const struct heddle_token_t *token);

/* Ends reading or writing. It does not block. Errors: EPERM: nobody reads, and the calling thread does not
 * write. (One that does not read while others do is not found out.) EINVAL: a null pointer. */
int heddle_rwlock_unlock(struct heddle_rwlock_t *lock);

/* Makes it a condition variable for which nobody waits. Error: EINVAL: a null pointer. */
int heddle_cond_init(struct heddle_cond_t *cond);

/* Frees the mutex, waits for a signal, takes the mutex again. It parks the calling thread. It may return
 * without a signal, so look again for what is waited for. Errors: EPERM: the calling thread does not hold the
 * mutex. EINVAL: a null pointer. */
int heddle_cond_wait(struct heddle_cond_t *cond,
                     struct heddle_mutex_t *mutex);

/* As heddle_cond_wait, for that many nanoseconds at most; then it takes the mutex again, however long that
 * takes. Errors: ETIMEDOUT: there was no signal until then; the caller holds the mutex. EPERM, EINVAL as
 * there. */
int heddle_cond_timedwait(struct heddle_cond_t *cond,
                          struct heddle_mutex_t *mutex,
                          uint64_t nanoseconds);

/* As heddle_cond_timedwait, and until `token`, which may be NULL, is cancelled. Errors: ETIMEDOUT, ECANCELED:
 * there was no signal until then; the caller holds the mutex. EPERM, EINVAL as there. */
int heddle_cond_wait_within(struct heddle_cond_t *cond,
                            struct heddle_mutex_t *mutex,
                            uint64_t nanoseconds,
                            const struct heddle_token_t *token);

/* Wakes one thread that waits. It does not block. Error: EINVAL: a null pointer. */
int heddle_cond_signal(struct heddle_cond_t *cond);

/* Wakes all threads that wait. It does not block. Error: EINVAL: a null pointer. */
int heddle_cond_broadcast(struct heddle_cond_t *cond);

/* Makes it a barrier for that many threads. Error: EINVAL: a null pointer, or 0 threads. */
int heddle_barrier_init(struct heddle_barrier_t *barrier, uint32_t threads);

/* Waits until as many threads have come as it is for, again and again. It looks for a moment, then parks the
 * calling thread. *leader, which may be NULL, is true for one of them and false for the others. What each did
 * before comes before what all do after. Error: EINVAL: a null pointer, or a barrier for 0 threads. */
int heddle_barrier_wait(struct heddle_barrier_t *barrier,
                        bool *leader);

/* As heddle_barrier_wait, for that many nanoseconds at most, and until `token`, which may be NULL, is
 * cancelled. Errors: ETIMEDOUT, ECANCELED: not all had come until then; the caller is not counted any more,
 * and the others wait for one more to come. EINVAL as there. */
int heddle_barrier_wait_within(struct heddle_barrier_t *barrier,
                               bool *leader,
                               uint64_t nanoseconds,
                               const struct heddle_token_t *token);

/* Makes it a semaphore with that many permits. Error: EINVAL: a null pointer. */
int heddle_semaphore_init(struct heddle_semaphore_t *semaphore, uint32_t permits);

/* Waits for a permit and takes it. It looks for a moment, then parks the calling thread. Error: EINVAL: a
 * null pointer. */
int heddle_semaphore_wait(struct heddle_semaphore_t *semaphore);

/* Takes a permit if there is one. It does not block. Errors: EAGAIN: there is none. EINVAL: a null pointer. */
int heddle_semaphore_trywait(struct heddle_semaphore_t *semaphore);

/* As heddle_semaphore_wait, for that many nanoseconds at most. Errors: ETIMEDOUT: there was none until then.
 * EINVAL: a null pointer. */
int heddle_semaphore_timedwait(struct heddle_semaphore_t *semaphore,
                               uint64_t nanoseconds);

/* As heddle_semaphore_wait, for that many nanoseconds at most, and until `token`, which may be NULL, is
 * cancelled. What can be had without waiting is had in any case. Errors: ETIMEDOUT, ECANCELED: there was none
 * until then. EINVAL: a null pointer. */
int heddle_semaphore_wait_within(struct heddle_semaphore_t *semaphore,
                                 uint64_t nanoseconds,
                                 const struct heddle_token_t *token);

/* Adds `permits` permits. It does not block. Errors: EOVERFLOW: there would be more than 4294967295; none is
 * added. EINVAL: a null pointer. */
int heddle_semaphore_post(struct heddle_semaphore_t *semaphore,
                          uint32_t permits);

/* Makes it one for which nothing has been done. Error: EINVAL: a null pointer. */
int heddle_once_init(struct heddle_once_t *once);

/* Calls fn(arg) unless this or another call with the same `once` has done so; waits while another does, which
 * parks the calling thread. What the function did comes before what any caller does next. A C++ exception
 * that leaves it ends the process by std::terminate. Errors: EDEADLK: the function calls its own once.
 * EINVAL: a null pointer. */
int heddle_once(struct heddle_once_t *once,
                void (*fn)(void*),
                void *arg);

/* Makes it an event that has not happened. Error: EINVAL: a null pointer. */
int heddle_event_init(struct heddle_event_t *event);

/* It has happened: all that wait go on, and so do those that come later, until it is reset. It does not
 * block. Error: EINVAL: a null pointer. */
int heddle_event_set(struct heddle_event_t *event);

/* It has not happened any more. It does not block. Error: EINVAL: a null pointer. */
int heddle_event_reset(struct heddle_event_t *event);

/* Waits until it has happened. It parks the calling thread. What was done before heddle_event_set comes
 * before what the caller does next. Error: EINVAL: a null pointer. */
int heddle_event_wait(struct heddle_event_t *event);

/* As heddle_event_wait, for that many nanoseconds at most; 0: only looks. Errors: ETIMEDOUT: it had not
 * happened until then. EINVAL: a null pointer. */
int heddle_event_timedwait(struct heddle_event_t *event,
                           uint64_t nanoseconds);

/* As heddle_event_wait, for that many nanoseconds at most, and until `token`, which may be NULL, is
 * cancelled. What can be had without waiting is had in any case. Errors: ETIMEDOUT, ECANCELED: it had not
 * happened until then. EINVAL: a null pointer. */
int heddle_event_wait_within(struct heddle_event_t *event,
                             uint64_t nanoseconds,
                             const struct heddle_token_t *token);

/* Makes it a wait group with nothing under way. Error: EINVAL: a null pointer. */
int heddle_wait_group_init(struct heddle_wait_group_t *group);

/* That many more things are under way. It does not block. Errors: EOVERFLOW: there would be more than
 * 4294967295; none is added. EINVAL: a null pointer. */
int heddle_wait_group_add(struct heddle_wait_group_t *group,
                          uint32_t more);

/* One thing less is under way; the last one lets all that wait go on. It does not block. Errors: EPERM:
 * nothing is under way. EINVAL: a null pointer. */
int heddle_wait_group_done(struct heddle_wait_group_t *group);

/* Waits until nothing is under way. It parks the calling thread. What was done before each
 * heddle_wait_group_done comes before what the caller does next. Error: EINVAL: a null pointer. */
int heddle_wait_group_wait(struct heddle_wait_group_t *group);

/* As heddle_wait_group_wait, for that many nanoseconds at most, and until `token`, which may be NULL, is
 * cancelled. What can be had without waiting is had in any case. Errors: ETIMEDOUT, ECANCELED: something was
 * under way until then. EINVAL: a null pointer. */
int heddle_wait_group_wait_within(struct heddle_wait_group_t *group,
                                  uint64_t nanoseconds,
                                  const struct heddle_token_t *token);

/* Makes a channel for values of `value_size` bytes, 1 to HEDDLE_CHANNEL_VALUE_MAX, and stores it in *channel.
 * It has room for `capacity` values and makes senders wait when it is full; HEDDLE_UNBOUNDED: for any number;
 * 0: for none, so that a send ends when somebody has received the value.
 *
 * It allocates the room, but for that of values of more than 128 bytes, which allocate memory one by one; it
 * does not block. Errors: EINVAL: a null pointer, a size that may not be. ENOMEM: there is no memory for so
 * many. */
int heddle_channel_create(struct heddle_channel_t **channel,
                          size_t value_size,
                          size_t capacity);

/* Puts a copy of *value into the channel, when there is room. It looks for a moment, then parks the calling
 * thread. What the caller did before comes before what the receiver of the value does next. Errors: EPIPE:
 * the channel is closed. EINVAL: a null pointer. */
int heddle_channel_send(struct heddle_channel_t *channel,
                        const void *value);

/* As heddle_channel_send, without waiting. Errors: EAGAIN: there is no room; in a channel without room, no
 * receiver waits. EPIPE, EINVAL as there. */
int heddle_channel_trysend(struct heddle_channel_t *channel,
                           const void *value);

/* As heddle_channel_send, for that many nanoseconds at most. Errors: ETIMEDOUT: there was no room until then.
 * EPIPE, EINVAL as there. */
int heddle_channel_timedsend(struct heddle_channel_t *channel,
                             const void *value,
                             uint64_t nanoseconds);

/* As heddle_channel_send, for that many nanoseconds at most, and until `token`, which may be NULL, is
 * cancelled. What can be sent without waiting is sent in any case. Errors: ETIMEDOUT, ECANCELED: there was no
 * room until then. EPIPE, EINVAL as there. */
int heddle_channel_send_within(struct heddle_channel_t *channel,
                               const void *value,
                               uint64_t nanoseconds,
                               const struct heddle_token_t *token);

/* Takes a value out of the channel and copies it to *value, when there is one. It looks for a moment, then
 * parks the calling thread. Errors: EPIPE: the channel is closed and empty. EINVAL: a null pointer. */
int heddle_channel_receive(struct heddle_channel_t *channel,
                           void *value);

/* As heddle_channel_receive, without waiting. Errors: EAGAIN: there is no value; in a channel without room,
 * no sender waits. EPIPE, EINVAL as there. */
int heddle_channel_tryreceive(struct heddle_channel_t *channel,
                              void *value);

/* As heddle_channel_receive, for that many nanoseconds at most. Errors: ETIMEDOUT: there was no value until
 * then. EPIPE, EINVAL as there. */
int heddle_channel_timedreceive(struct heddle_channel_t *channel,
                                void *value,
                                uint64_t nanoseconds);

/* As heddle_channel_receive, for that many nanoseconds at most, and until `token`, which may be NULL, is
 * cancelled. What is there is had in any case. Errors: ETIMEDOUT, ECANCELED: there was no value until then.
 * EPIPE, EINVAL as there. */
int heddle_channel_receive_within(struct heddle_channel_t *channel,
                                  void *value,
                                  uint64_t nanoseconds,
                                  const struct heddle_token_t *token);

/* Nothing more is sent from here on, and who waits to send is answered EPIPE; what is in the channel can be
 * received. A send that another thread makes at the same time may come before or after it. It does not block.
 * Errors: EALREADY: it is closed. EINVAL: a null pointer. */
int heddle_channel_close(struct heddle_channel_t *channel);

/* Whether it is closed; values may be in it. True for NULL. */
bool heddle_channel_is_closed(const struct heddle_channel_t *channel);

/* How many values are in it, at some moment. 0 for NULL. */
size_t heddle_channel_count(const struct heddle_channel_t *channel);

/* Frees it, with what is in it. No thread may use it any more. Error: EINVAL: a null pointer. */
int heddle_channel_destroy(struct heddle_channel_t *channel);

/* Runs fn(argument, result) as a task and stores it in *task: in process mode in another process, otherwise
 * on a new thread. `mode` is HEDDLE_MODE_DEFAULT, or says which whatever the process's is. It starts the
 * process if nothing has.
 *
 * What `arg` points to is copied, `arg_size` bytes of plain data: the function gets the address of the copy,
 * aligned as by malloc, and that of `result_size` bytes for the result, all 0, which heddle_task_join copies
 * back. Pointers in the data mean nothing in another process, but for those to functions and constants of the
 * program. NULL stands for no bytes.
 *
 * The other process has what the program had when it called heddle_start; what the program changes later it
 * does not see. A process that dies, by a signal, abort or exit, or because a C++ exception leaves `fn`,
 * fails the tasks that it had begun and is replaced.
 *
 * It does not block. Errors, with words in heddle_last_error; no task is made then: EINVAL: a null pointer,
 * not a mode. EFAULT: the function is in code that was loaded after heddle_start, which worker processes do
 * not have. ENOTSUP: HEDDLE_MODE_PROCESS was asked for and there are no worker processes, or user threads and
 * there are none. ENOMEM: the arena has no room for the data. EAGAIN: 65536 tasks have not been joined.
 * Otherwise as heddle_thread_create. */
int heddle_task_create(heddle_task_t *task,
                       heddle_mode_t mode,
                       void (*fn)(const void*, void*),
                       const void *arg,
                       size_t arg_size,
                       size_t result_size);

/* Waits until the task is over, and forgets it. What its function has left in its result is copied to
 * *result, which may be NULL.
 *
 * It parks the calling thread. What the task did to the result comes before what the caller does next.
 * Errors, with words in heddle_last_error; *result is as it was: EOWNERDEAD: the process that ran it has
 * died; *status, unless `status` is NULL, says how, as waitpid tells it (WIFSIGNALED and so on). ECHILD: the
 * program has lost its worker processes. The task is forgotten then too. ESRCH: there is no such task: it has
 * been joined or detached. EINVAL: another thread joins it. */
int heddle_task_join(heddle_task_t task,
                     void *result,
                     int *status);

/* As heddle_task_join, for that many nanoseconds at most, and until `token`, which may be NULL, is cancelled.
 * Errors: ETIMEDOUT, ECANCELED: it was not over until then, goes on, and may be joined again. Others as
 * there. */
int heddle_task_join_within(heddle_task_t task,
                            void *result,
                            int *status,
                            uint64_t nanoseconds,
                            const struct heddle_token_t *token);

/* Forgets the task, which goes on; nobody hears of its result or its process's death. Errors: ESRCH: there is
 * no such task. EINVAL: another thread joins it. */
int heddle_task_detach(heddle_task_t task);

/* Where tasks run by default: HEDDLE_MODE_PROCESS, or on threads of heddle_mode's kind. Starts the process if
 * nothing has. */
heddle_mode_t heddle_task_mode(void);

/* How many worker processes the program has; 0 outside of process mode. */
size_t heddle_processes(void);

/* Which of the program's processes this is: 0 the first one, from 1 on the workers. A replacement has the
 * place of the one that died. */
size_t heddle_process_place(void);

/* Calls each(info, arg) for the threads of this process: user threads, and kernel threads but for the
 * runtime's own. Of those that come and go meanwhile some may be missing. *info is there for the time of the
 * call.
 *
 * Threads are not stopped, and no lock is held while `each` runs. It allocates memory, and costs about a
 * microsecond for each user thread that waits, and four small files for each kernel thread. Starts the
 * process if nothing has. Error: EINVAL: a null function. */
int heddle_threads(void (*each)(const struct heddle_thread_info_t*, void*),
                   void *arg);

/* Stores the figures so far in *counters, whose size its initialiser has set. It does not block. Starts the
 * process if nothing has. Error: EINVAL: a null pointer, or a size that no version has. */
int heddle_counters(struct heddle_counters_t *counters);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* HEDDLE_H */
