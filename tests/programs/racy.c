/* Threads that share memory past every lock: plain words, atomics, waiting with sched_yield, a futex of their own. What comes of it
 * depends on who runs when. */
#include "see.h"
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>

enum { THREADS = 4, ROUNDS = 400, TRACE = 1 << 14 };
static volatile unsigned char trace[TRACE];
static volatile unsigned at;
static atomic_uint baton, word;
static volatile unsigned long mixed = 1;

static unsigned long compute(unsigned long value) {
    for (int i = 0; i < 2000; i++)
        value = value * 6364136223846793005ul + 1442695040888963407ul;
    return value;
}

static void note(unsigned id) {
    unsigned here = at;
    trace[here % TRACE] = (unsigned char)(id + 1);
    mixed = compute(mixed ^ id);
    at = here + 1;
}

static void *run(void *argument) {
    unsigned id = (unsigned)(uintptr_t)argument;
    for (unsigned i = 0; i < ROUNDS; i++) {
        note(id);
        if (i % 7 == id) {
            struct timespec now;
            clock_gettime(CLOCK_MONOTONIC, &now);
            mixed += (unsigned long)now.tv_nsec;
        }
        if (i % 50 == 0)
            usleep(100 * id);
        if (i % 100 == 10) {
            while (atomic_load(&baton) % THREADS != id)
                sched_yield();
            note(id + 10);
            atomic_fetch_add(&baton, 1);
        }
        if (i % 100 == 60) {
            unsigned seen_word = atomic_fetch_add(&word, 1) + 1;
            syscall(SYS_futex, &word, FUTEX_WAKE, 10, NULL, NULL, 0);
            struct timespec limit = {0, 1000000};
            long result = syscall(SYS_futex, &word, FUTEX_WAIT, seen_word, &limit, NULL, 0);
            mixed += (unsigned long)result;
            note(id + 20);
        }
    }
    return NULL;
}

int main(void) {
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        must_be_zero(pthread_create(&threads[i], NULL, run, (void *)i));
    for (int i = 0; i < THREADS; i++)
        must_be_zero(pthread_join(threads[i], NULL));
    same("the baton went round: %u", atomic_load(&baton));
    seen("%u notes, %016lx, %016lx", at, sum((void *)trace, TRACE), mixed);
    return 0;
}
