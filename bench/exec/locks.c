/* Threads that lock and unlock, and do nothing else: what an uncontended acquisition costs.
 *
 *     locks KIND THREADS PAIRS        each thread makes so many pairs of lock and unlock
 *
 * private: a lock for each thread. hot: one for all. random: one of 64, by chance. mixed: 95 of 100 are its own, the others the one for all.
 * Says `begin` and `end` on its standard output, so that whoever started it can take the time in a replay as well. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LOCKS = 64, THREADS_MAX = 64 };

/* A lock has its cache line for itself, with what it protects. */
struct lock {
    pthread_mutex_t mutex;
    uint64_t count;
} __attribute__((aligned(128)));

static struct lock common[LOCKS], own[THREADS_MAX];
static enum { PRIVATE, HOT, RANDOM, MIXED } kind;
static long pairs;
static pthread_barrier_t start;

static void *work(void *argument) {
    long number = (long)argument;
    uint64_t state = 0x9e3779b97f4a7c15u * (uint64_t)(number + 1);
    pthread_barrier_wait(&start);
    for (long i = 0; i < pairs; i++) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        struct lock *lock = kind == PRIVATE                    ? &own[number]
                            : kind == HOT                      ? &common[0]
                            : kind == RANDOM                   ? &common[state % LOCKS]
                            : state % 100 < 95                 ? &own[number]
                                                               : &common[0];
        pthread_mutex_lock(&lock->mutex);
        lock->count++;
        pthread_mutex_unlock(&lock->mutex);
    }
    return NULL;
}

int main(int count, char **words) {
    static const char *const kinds[] = {"private", "hot", "random", "mixed"};
    if (count != 4)
        return 2;
    while (strcmp(kinds[kind], words[1]))
        if (++kind > MIXED)
            return 2;
    int threads = atoi(words[2]);
    pairs = atol(words[3]);
    for (int i = 0; i < LOCKS; i++)
        pthread_mutex_init(&common[i].mutex, NULL);
    for (int i = 0; i < THREADS_MAX; i++)
        pthread_mutex_init(&own[i].mutex, NULL);
    pthread_barrier_init(&start, NULL, threads + 1);
    pthread_t workers[THREADS_MAX];
    for (long i = 0; i < threads; i++)
        pthread_create(&workers[i], NULL, work, (void *)i);
    pthread_barrier_wait(&start);
    write(1, "begin\n", 6);
    for (int i = 0; i < threads; i++)
        pthread_join(workers[i], NULL);
    write(1, "end\n", 4);
    uint64_t sum = 0;
    for (int i = 0; i < LOCKS; i++)
        sum += common[i].count;
    for (int i = 0; i < THREADS_MAX; i++)
        sum += own[i].count;
    printf("%lu\n", sum);
    return sum != (uint64_t)pairs * threads;
}
