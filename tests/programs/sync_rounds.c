/* Barriers, semaphores with and without a name, and initialization that happens once. */
#include "see.h"
#include <pthread.h>
#include <semaphore.h>
#include <time.h>

enum { THREADS = 4, ROUNDS = 500 };

static pthread_barrier_t barrier;
static sem_t turns, *named;
static uint64_t cells[THREADS], order;
static int serial[THREADS], inits;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void init(void) {
    struct timespec nap = {0, 2000000};
    nanosleep(&nap, NULL);
    inits++;
}

static void *work(void *argument) {
    int me = (int)(intptr_t)argument, missed = 0, late = 0;
    uint64_t seed = (uint64_t)me + 11, values = 0;
    must_be_zero(pthread_once(&once, init));
    for (int i = 0; i < ROUNDS; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        cells[me] = seed;
        serial[me] += pthread_barrier_wait(&barrier) == PTHREAD_BARRIER_SERIAL_THREAD;
        for (int other = 0; other < THREADS; other++)
            values = (values ^ cells[other]) * 0x100000001b3u;
        serial[me] += pthread_barrier_wait(&barrier) == PTHREAD_BARRIER_SERIAL_THREAD;
        if (i % 3 == 0) {
            if (sem_trywait(&turns) != 0) {
                missed++;
                continue;
            }
        } else if (i % 3 == 1) {
            struct timespec until;
            clock_gettime(CLOCK_REALTIME, &until);
            if (sem_timedwait(&turns, &until) != 0) {
                late++;
                continue;
            }
        } else {
            must(sem_wait(&turns));
        }
        int value;
        must(sem_getvalue(&turns, &value));
        order = (order ^ (uint64_t)(me * 16 + value)) * 0x100000001b3u;
        must(sem_post(&turns));
        must(sem_post(named));
        must_be_zero(pthread_once(&once, init));
    }
    seen("thread %d: missed %d, late %d, serial %d, values %016lx", me, missed, late, serial[me], values);
    return NULL;
}

int main(void) {
    char name[64];
    snprintf(name, sizeof name, "/hindcast-%d", getpid());
    named = sem_open(name, O_CREAT | O_EXCL, 0600, 0);
    if (named == SEM_FAILED)
        failed(__FILE__, __LINE__, "sem_open");
    must(sem_unlink(name));
    must(sem_init(&turns, 0, 1));
    must_be_zero(pthread_barrier_init(&barrier, NULL, THREADS));
    pthread_t threads[THREADS];
    for (intptr_t i = 0; i < THREADS; i++)
        must_be_zero(pthread_create(&threads[i], NULL, work, (void *)i));
    for (int i = 0; i < THREADS; i++)
        must_be_zero(pthread_join(threads[i], NULL));
    int value, rounds = 0;
    must(sem_getvalue(named, &value));
    while (sem_trywait(named) == 0)
        rounds++;
    same("initialized %d times, the name was posted as often as it could be taken: %d", inits, value == rounds);
    seen("order %016lx", order);
    int serials = 0;
    for (int i = 0; i < THREADS; i++)
        serials += serial[i];
    same("serial threads: %d", serials);
    must_be_zero(pthread_barrier_destroy(&barrier));
    must(sem_close(named));
    return 0;
}
