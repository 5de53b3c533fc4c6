/* What compiled schedules call besides libm. MLIR turns parallel loops into OpenMP's calls, and
 * copies of strided arrays into memrefCopy; the libraries that have these are in no wheel.
 * WHET_THREADS is how many threads a parallel loop gets. */
#ifdef __linux__
#define _GNU_SOURCE
#endif
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#ifndef WHET_THREADS
#define WHET_THREADS 1
#endif
#define MOST_ARGUMENTS 15
#define SPINS 20000

typedef void (*task_t)(int32_t *, int32_t *, void *, void *, void *, void *, void *, void *, void *,
                       void *, void *, void *, void *, void *, void *, void *, void *);

static __thread int32_t whet_thread = 0;
static __thread int32_t whet_team = 1;

static void *arguments[MOST_ARGUMENTS];
static task_t task;

static void run_task(int32_t thread, int32_t team)
{
    int32_t global = thread, bound = thread;
    void **a = arguments;
    whet_thread = thread;
    whet_team = team;
    task(&global, &bound, a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11],
         a[12], a[13], a[14]);
    whet_thread = 0;
    whet_team = 1;
}

#if WHET_THREADS > 1
static pthread_t workers[WHET_THREADS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wake = PTHREAD_COND_INITIALIZER;
static uint32_t round_number = 0;
static int32_t still_running = 0;
static int started = 0;

/* A worker that is woken on the caller's own core starts when the caller has done its part, so that
 * two threads take as long as one. Each gets a core of its own, none of them the caller's. */
#ifdef __linux__
static void keep_apart(void)
{
    static int kept_for = -1;
    cpu_set_t allowed, one;
    int caller = sched_getcpu();
    if (caller < 0 || caller == kept_for) return;
    kept_for = caller;
    if (sched_getaffinity(0, sizeof allowed, &allowed) || CPU_COUNT(&allowed) < WHET_THREADS)
        return;
    for (int i = 1, core = 0; i < WHET_THREADS && core < CPU_SETSIZE; core++)
        if (core != caller && CPU_ISSET(core, &allowed)) {
            CPU_ZERO(&one);
            CPU_SET(core, &one);
            pthread_setaffinity_np(workers[i++], sizeof one, &one);
        }
}
#else
static void keep_apart(void) {}
#endif

static void *work(void *given)
{
    int32_t thread = (int32_t)(intptr_t)given;
    uint32_t seen = 0;
    for (;;) {
        for (int spin = 0; spin < SPINS && __atomic_load_n(&round_number, __ATOMIC_ACQUIRE) == seen;
             spin++)
            __asm__ volatile("" ::: "memory");
        pthread_mutex_lock(&lock);
        while (round_number == seen) pthread_cond_wait(&wake, &lock);
        seen = round_number;
        pthread_mutex_unlock(&lock);
        run_task(thread, WHET_THREADS);
        __atomic_sub_fetch(&still_running, 1, __ATOMIC_ACQ_REL);
    }
    return NULL;
}

static void run_team(void)
{
    if (!started) {
        started = 1;
        for (int32_t i = 1; i < WHET_THREADS; i++)
            if (pthread_create(&workers[i], NULL, work, (void *)(intptr_t)i)) __builtin_trap();
    }
    keep_apart();
    __atomic_store_n(&still_running, WHET_THREADS - 1, __ATOMIC_RELEASE);
    pthread_mutex_lock(&lock);
    __atomic_add_fetch(&round_number, 1, __ATOMIC_ACQ_REL);
    pthread_mutex_unlock(&lock);
    pthread_cond_broadcast(&wake);
    run_task(0, WHET_THREADS);
    for (int spin = 0; __atomic_load_n(&still_running, __ATOMIC_ACQUIRE); spin++)
        if (spin % SPINS == SPINS - 1) sched_yield(); /* to whoever has the core of a worker */
}

#else
static void run_team(void) { run_task(0, 1); }
#endif

void __kmpc_fork_call(void *where, int32_t count, void *function, ...)
{
    void *outer[MOST_ARGUMENTS];
    task_t outer_task = task;
    int32_t thread = whet_thread, team = whet_team;
    va_list given;
    (void)where;
    if (count > MOST_ARGUMENTS) __builtin_trap();
    if (team > 1) { /* a parallel loop within one: this thread runs all of it */
        void *a[MOST_ARGUMENTS] = {0};
        int32_t global = 0, bound = 0;
        va_start(given, function);
        for (int32_t i = 0; i < count; i++) a[i] = va_arg(given, void *);
        va_end(given);
        whet_thread = 0;
        whet_team = 1;
        ((task_t)function)(&global, &bound, a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8],
                           a[9], a[10], a[11], a[12], a[13], a[14]);
        whet_thread = thread;
        whet_team = team;
        return;
    }
    memcpy(outer, arguments, sizeof outer);
    va_start(given, function);
    for (int32_t i = 0; i < count; i++) arguments[i] = va_arg(given, void *);
    va_end(given);
    task = (task_t)function;
    run_team();
    memcpy(arguments, outer, sizeof outer);
    task = outer_task;
}

int32_t __kmpc_global_thread_num(void *where) { (void)where; return whet_thread; }

/* A parallel region holds one loop, and the region's own end waits for all threads. */
void __kmpc_barrier(void *where, int32_t thread) { (void)where; (void)thread; }

void __kmpc_for_static_init_8u(void *where, int32_t thread, int32_t kind, int32_t *last,
                               uint64_t *lower, uint64_t *upper, int64_t *stride, int64_t step,
                               int64_t chunk)
{
    uint64_t count = (*upper - *lower) / (uint64_t)step + 1;
    uint64_t share = count / (uint64_t)whet_team, rest = count % (uint64_t)whet_team;
    uint64_t me = (uint64_t)whet_thread;
    uint64_t first = me * share + (me < rest ? me : rest);
    uint64_t mine = share + (me < rest);
    (void)where; (void)thread; (void)kind; (void)chunk;
    *last = me + 1 == (uint64_t)whet_team;
    *stride = (int64_t)(count * (uint64_t)step);
    if (mine == 0) { /* an empty range */
        *lower = *upper + (uint64_t)step;
        return;
    }
    *lower += first * (uint64_t)step;
    *upper = *lower + (mine - 1) * (uint64_t)step;
}

void __kmpc_for_static_fini(void *where, int32_t thread) { (void)where; (void)thread; }

typedef struct { int64_t rank; void *descriptor; } unranked_t;
typedef struct { char *base; char *data; int64_t offset; int64_t numbers[]; } strided_t;

void memrefCopy(int64_t element, unranked_t *from, unranked_t *to)
{
    strided_t *source = from->descriptor, *target = to->descriptor;
    int64_t rank = from->rank, at[16] = {0}, *sizes = source->numbers;
    char *read = source->data + source->offset * element;
    char *write = target->data + target->offset * element;
    int64_t run = 1; /* so many elements lie side by side in both */
    if (rank > 16) __builtin_trap();
    if (rank > 0 && source->numbers[2 * rank - 1] == 1 && target->numbers[2 * rank - 1] == 1)
        run = sizes[rank - 1];
    for (int64_t i = 0; i < rank; i++)
        if (sizes[i] == 0) return;
    for (;;) {
        int64_t in = 0, out = 0, axis = run > 1 ? rank - 2 : rank - 1;
        for (int64_t i = 0; i < rank; i++) {
            in += at[i] * source->numbers[rank + i];
            out += at[i] * target->numbers[rank + i];
        }
        memcpy(write + out * element, read + in * element, (size_t)(run * element));
        while (axis >= 0 && ++at[axis] == sizes[axis]) at[axis--] = 0;
        if (axis < 0) return;
    }
}
