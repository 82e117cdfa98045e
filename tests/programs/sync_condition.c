/* Condition variables: a bounded queue, waits that time out, signals without the mutex, broadcasts to many. */
#include "see.h"
#include <pthread.h>
#include <time.h>

enum { PRODUCERS = 2, CONSUMERS = 3, ITEMS = 4000, ROOM = 8 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t filled = PTHREAD_COND_INITIALIZER, emptied = PTHREAD_COND_INITIALIZER;
static int items[ROOM], used, produced, done;
static uint64_t order;

static void *produce(void *argument) {
    int me = (int)(intptr_t)argument;
    for (int i = 0; i < ITEMS; i++) {
        pthread_mutex_lock(&lock);
        while (used == ROOM)
            pthread_cond_wait(&emptied, &lock);
        items[used++] = me * ITEMS + i;
        produced++;
        pthread_mutex_unlock(&lock);
        pthread_cond_signal(&filled);
    }
    return NULL;
}

static void *consume(void *argument) {
    int me = (int)(intptr_t)argument, taken = 0, late = 0;
    for (;;) {
        pthread_mutex_lock(&lock);
        while (used == 0 && !done) {
            struct timespec until;
            clock_gettime(me == 0 ? CLOCK_REALTIME : CLOCK_MONOTONIC, &until);
            until.tv_nsec += 200000;
            if (until.tv_nsec >= 1000000000)
                until.tv_nsec -= 1000000000, until.tv_sec++;
            int result = me == 0   ? pthread_cond_timedwait(&filled, &lock, &until)
                         : me == 1 ? pthread_cond_clockwait(&filled, &lock, CLOCK_MONOTONIC, &until)
                                   : pthread_cond_wait(&filled, &lock);
            late += result == ETIMEDOUT;
        }
        if (used == 0) {
            pthread_mutex_unlock(&lock);
            break;
        }
        order = (order ^ (uint64_t)(items[--used] * 8 + me)) * 0x100000001b3u;
        taken++;
        pthread_cond_signal(&emptied);
        pthread_mutex_unlock(&lock);
    }
    seen("consumer %d: taken %d, late %d", me, taken, late);
    return NULL;
}

int main(void) {
    pthread_t threads[PRODUCERS + CONSUMERS];
    for (intptr_t i = 0; i < PRODUCERS; i++)
        must_be_zero(pthread_create(&threads[i], NULL, produce, (void *)i));
    for (intptr_t i = 0; i < CONSUMERS; i++)
        must_be_zero(pthread_create(&threads[PRODUCERS + i], NULL, consume, (void *)i));
    for (int i = 0; i < PRODUCERS; i++)
        must_be_zero(pthread_join(threads[i], NULL));
    pthread_mutex_lock(&lock);
    done = 1;
    pthread_cond_broadcast(&filled);
    pthread_mutex_unlock(&lock);
    for (int i = 0; i < CONSUMERS; i++)
        must_be_zero(pthread_join(threads[PRODUCERS + i], NULL));
    same("produced %d", produced);
    seen("order %016lx", order);

    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    pthread_mutex_lock(&lock);
    int late = 0;
    for (int i = 0; i < 20; i++)
        late += pthread_cond_timedwait(&filled, &lock, &until) == ETIMEDOUT;
    same("alone, late %d times", late);
    pthread_mutex_unlock(&lock);
    must_be_zero(pthread_cond_destroy(&filled));
    must_be_zero(pthread_cond_destroy(&emptied));
    return 0;
}
