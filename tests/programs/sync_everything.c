/* Four threads that do whatever can be done with locks, by chance and as fast as they can, so that races between a step and its record have a chance.
 * What each thread finds is mixed into a number; it comes out as recorded only if every lock went from hand to hand as recorded. */
#include "see.h"
#include <pthread.h>
#include <semaphore.h>
#include <time.h>

enum { THREADS = 4, LOCKS = 4, ONCES = 64, STEPS = 8000 };

static pthread_mutex_t mutexes[LOCKS], condition_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t rwlocks[LOCKS];
static pthread_spinlock_t spinlock;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t barrier;
static pthread_once_t onces[ONCES];
static sem_t semaphore;

static uint64_t of_mutex[LOCKS], of_rwlock[LOCKS], of_spinlock, of_once[ONCES];
static int ready;
static __thread int me, which;

static uint64_t mix(uint64_t a, uint64_t b) {
    a = (a ^ b) * 0xff51afd7ed558ccdu;
    return a ^ a >> 29;
}

static void init(void) { of_once[which] = 1000 + (uint64_t)me; }

static uint64_t wait_a_little(uint64_t found) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 200000;
    if (until.tv_nsec >= 1000000000)
        until.tv_sec++, until.tv_nsec -= 1000000000;
    must_be_zero(pthread_mutex_lock(&condition_mutex));
    int result = ready ? 0 : pthread_cond_timedwait(&condition, &condition_mutex, &until);
    ready -= ready > 0;
    must_be_zero(pthread_mutex_unlock(&condition_mutex));
    return mix(found, (uint64_t)result);
}

static uint64_t step(int kind, int lock, uint64_t change, uint64_t found) {
    switch (kind) {
    case 0: case 1: case 2: case 3:
        if (kind == 3 && pthread_mutex_trylock(&mutexes[lock]))
            return mix(found, 99);
        if (kind != 3)
            must_be_zero(pthread_mutex_lock(&mutexes[lock]));
        found = mix(found, of_mutex[lock]);
        of_mutex[lock] = mix(of_mutex[lock], change);
        must_be_zero(pthread_mutex_unlock(&mutexes[lock]));
        return found;
    case 4: case 5: case 6: case 7:
        must_be_zero(pthread_rwlock_rdlock(&rwlocks[lock]));
        found = mix(found, of_rwlock[lock]);
        must_be_zero(pthread_rwlock_unlock(&rwlocks[lock]));
        return found;
    case 8: case 9:
        if (kind == 9 && pthread_rwlock_trywrlock(&rwlocks[lock]))
            return mix(found, 98);
        if (kind != 9)
            must_be_zero(pthread_rwlock_wrlock(&rwlocks[lock]));
        found = mix(found, of_rwlock[lock]);
        of_rwlock[lock] = mix(of_rwlock[lock], change);
        must_be_zero(pthread_rwlock_unlock(&rwlocks[lock]));
        return found;
    case 10:
        must_be_zero(pthread_spin_lock(&spinlock));
        found = mix(found, of_spinlock);
        of_spinlock = mix(of_spinlock, change);
        must_be_zero(pthread_spin_unlock(&spinlock));
        return found;
    case 11:
        must(sem_post(&semaphore));
        return found;
    case 12:
        return mix(found, sem_trywait(&semaphore) == 0);
    case 13:
        return wait_a_little(found);
    case 14:
        must_be_zero(pthread_mutex_lock(&condition_mutex));
        ready++;
        must_be_zero(pthread_cond_signal(&condition));
        must_be_zero(pthread_mutex_unlock(&condition_mutex));
        return found;
    default:
        must_be_zero(pthread_once(&onces[which], init));
        return mix(found, of_once[which]);
    }
}

static uint64_t results[THREADS];

static void *work(void *argument) {
    me = (int)(intptr_t)argument;
    uint64_t state = 0x9e3779b97f4a7c15u * (uint64_t)(me + 1), found = 0;
    for (int i = 0; i < STEPS; i++) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        // All threads come to an initialisation at about the same time.
        which = i * ONCES / STEPS;
        found = step((int)(state % 16), (int)((state >> 20) % LOCKS), state, found);
        if (i % (STEPS / 8) == 0)
            found = mix(found, pthread_barrier_wait(&barrier) == PTHREAD_BARRIER_SERIAL_THREAD);
    }
    results[me] = found;
    return NULL;
}

int main(void) {
    for (int i = 0; i < LOCKS; i++) {
        must_be_zero(pthread_mutex_init(&mutexes[i], NULL));
        must_be_zero(pthread_rwlock_init(&rwlocks[i], NULL));
    }
    for (int i = 0; i < ONCES; i++)
        onces[i] = (pthread_once_t)PTHREAD_ONCE_INIT;
    must_be_zero(pthread_spin_init(&spinlock, PTHREAD_PROCESS_PRIVATE));
    must_be_zero(pthread_barrier_init(&barrier, NULL, THREADS));
    must(sem_init(&semaphore, 0, 0));
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        must_be_zero(pthread_create(&threads[i], NULL, work, (void *)(intptr_t)i));
    for (int i = 0; i < THREADS; i++) {
        must_be_zero(pthread_join(threads[i], NULL));
        seen("thread %d found %016lx", i, results[i]);
    }
    for (int i = 0; i < LOCKS; i++)
        seen("lock %d: %016lx %016lx", i, of_mutex[i], of_rwlock[i]);
    seen("spin: %016lx", of_spinlock);
    same("done");
    return 0;
}
