/* Mutexes of every kind, locked in every way. Each lock keeps a digest of who held it in which order: the order itself. */
#include "see.h"
#include <pthread.h>
#include <time.h>

enum { THREADS = 4, LOCKS = 12, ROUNDS = 20000 };

static struct object {
    pthread_mutex_t lock;
    uint64_t digest;
    int count;
} objects[LOCKS];

static void held(struct object *object, int me) {
    object->digest = (object->digest ^ (uint64_t)me) * 0x100000001b3u;
    object->count++;
}

static void *work(void *argument) {
    int me = (int)(intptr_t)argument, busy = 0, late = 0;
    uint64_t seed = (uint64_t)me * 77 + 1;
    for (int i = 0; i < ROUNDS; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        struct object *object = &objects[(seed >> 33) % LOCKS];
        struct timespec until;
        switch ((seed >> 50) % 16) {
        case 0: case 1: case 2:
            if (pthread_mutex_trylock(&object->lock) != 0) {
                busy++;
                continue;
            }
            break;
        case 3:
            clock_gettime(CLOCK_REALTIME, &until);
            if (((until.tv_nsec += 2000) >= 1000000000))
                until.tv_nsec -= 1000000000, until.tv_sec++;
            if (pthread_mutex_timedlock(&object->lock, &until) != 0) {
                late++;
                continue;
            }
            break;
        case 4:
            clock_gettime(CLOCK_MONOTONIC, &until);
            if (pthread_mutex_clocklock(&object->lock, CLOCK_MONOTONIC, &until) != 0) {
                late++;
                continue;
            }
            break;
        default:
            must_be_zero(pthread_mutex_lock(&object->lock));
        }
        held(object, me);
        if (i % 4096 == 0) {
            struct timespec nap = {0, 100000};
            nanosleep(&nap, NULL);
        }
        must_be_zero(pthread_mutex_unlock(&object->lock));
    }
    seen("thread %d: busy %d, late %d", me, busy, late);
    return NULL;
}

static void *die_with(void *argument) {
    must_be_zero(pthread_mutex_lock(argument));
    return NULL;
}

int main(void) {
    static const int types[] = {PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_RECURSIVE, PTHREAD_MUTEX_ERRORCHECK, PTHREAD_MUTEX_ADAPTIVE_NP};
    for (int i = 0; i < LOCKS; i++) {
        pthread_mutexattr_t attributes;
        pthread_mutexattr_init(&attributes);
        pthread_mutexattr_settype(&attributes, types[i % 4]);
        if (i == 8)
            pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
        if (i == 9)
            pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT);
        if (i == 10)
            pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
        must_be_zero(pthread_mutex_init(&objects[i].lock, &attributes));
    }
    pthread_t threads[THREADS];
    for (intptr_t i = 0; i < THREADS; i++)
        must_be_zero(pthread_create(&threads[i], NULL, work, (void *)i));
    for (int i = 0; i < THREADS; i++)
        must_be_zero(pthread_join(threads[i], NULL));
    for (int i = 0; i < LOCKS; i++)
        seen("lock %d: %d times, order %016lx", i, objects[i].count, objects[i].digest);

    must_be_zero(pthread_mutex_lock(&objects[1].lock));
    must_be_zero(pthread_mutex_lock(&objects[1].lock));
    must_be_zero(pthread_mutex_unlock(&objects[1].lock));
    must_be_zero(pthread_mutex_unlock(&objects[1].lock));
    must_be_zero(pthread_mutex_lock(&objects[2].lock));
    same("error checking, twice: %s", strerrorname_np(pthread_mutex_lock(&objects[2].lock)));
    must_be_zero(pthread_mutex_unlock(&objects[2].lock));
    same("error checking, not held: %s", strerrorname_np(pthread_mutex_unlock(&objects[2].lock)));
    must_be_zero(pthread_create(&threads[0], NULL, die_with, &objects[8].lock));
    must_be_zero(pthread_join(threads[0], NULL));
    same("robust: %s", strerrorname_np(pthread_mutex_lock(&objects[8].lock)));
    must_be_zero(pthread_mutex_consistent(&objects[8].lock));
    must_be_zero(pthread_mutex_unlock(&objects[8].lock));
    for (int i = 0; i < LOCKS; i++)
        must_be_zero(pthread_mutex_destroy(&objects[i].lock));
    return 0;
}
