/* Four threads that take locks of three kinds, inside each other as well, and tell afterwards which lock they had as its how-manieth holder: the whole history,
 * which a test compares with what was recorded of it. */
#include "see.h"
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>

enum { THREADS = 4, MUTEXES = 3, RWLOCKS = 2, SPINLOCKS = 1, LOCKS = MUTEXES + RWLOCKS + SPINLOCKS, STEPS = 60 };

static pthread_mutex_t mutexes[MUTEXES];
static pthread_rwlock_t rwlocks[RWLOCKS];
static pthread_spinlock_t spinlock;
/* Guarded by the lock. */
static int holders[LOCKS];
static struct { int lock, holder; } history[THREADS][STEPS];

static void acquire(int lock) {
    must_be_zero(lock < MUTEXES             ? pthread_mutex_lock(&mutexes[lock])
                 : lock < MUTEXES + RWLOCKS ? pthread_rwlock_wrlock(&rwlocks[lock - MUTEXES])
                                            : pthread_spin_lock(&spinlock));
}

static void release(int lock) {
    must_be_zero(lock < MUTEXES             ? pthread_mutex_unlock(&mutexes[lock])
                 : lock < MUTEXES + RWLOCKS ? pthread_rwlock_unlock(&rwlocks[lock - MUTEXES])
                                            : pthread_spin_unlock(&spinlock));
}

/* What a thread acquires when it starts and ends is shared. One that starts when another has ended is behind all that this one did, whatever the locks say: so
 * all have started before the first lock is taken, and none ends before the last one is. */
static atomic_int started, done;

static void meet(atomic_int *there) {
    atomic_fetch_add(there, 1);
    while (atomic_load(there) < THREADS)
        sched_yield();
}

static void *work(void *argument) {
    int me = (int)(intptr_t)argument;
    meet(&started);
    uint64_t luck = (uint64_t)me + 1;
    for (int step = 0; step < STEPS;) {
        fill(&luck, sizeof luck, luck);
        /* In ascending order, so that nobody waits in a circle. */
        int first = (int)(luck % LOCKS), second = (int)(luck / LOCKS % LOCKS);
        int depth = first < second && step + 1 < STEPS ? 2 : 1;
        for (int i = 0; i < depth; i++) {
            int lock = i ? second : first;
            acquire(lock);
            history[me][step].lock = lock;
            history[me][step++].holder = holders[lock]++;
            sched_yield();
        }
        if (depth == 2)
            release(second);
        release(first);
        if (luck >> 60 < 4)
            sched_yield();
    }
    meet(&done);
    return NULL;
}

int main(void) {
    pthread_t threads[THREADS];
    for (int i = 0; i < MUTEXES; i++)
        must_be_zero(pthread_mutex_init(&mutexes[i], NULL));
    for (int i = 0; i < RWLOCKS; i++)
        must_be_zero(pthread_rwlock_init(&rwlocks[i], NULL));
    must_be_zero(pthread_spin_init(&spinlock, PTHREAD_PROCESS_PRIVATE));
    for (intptr_t i = 0; i < THREADS; i++)
        must_be_zero(pthread_create(&threads[i], NULL, work, (void *)i));
    for (int i = 0; i < THREADS; i++)
        must_be_zero(pthread_join(threads[i], NULL));
    for (int thread = 0; thread < THREADS; thread++)
        for (int step = 0; step < STEPS; step++)
            seen("%d %d %d", thread, history[thread][step].lock, history[thread][step].holder);
    return 0;
}
