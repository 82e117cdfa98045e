/* Memory that one thread makes and another frees, of all sizes and much of it: it must neither pile up nor move in replay. */
#include "see.h"
#include <malloc.h>
#include <pthread.h>
#include <sys/resource.h>

enum { PAIRS = 2, ROUNDS = 40, BATCH = 2000, DEPTH = 4 };

struct batch {
    void *blocks[BATCH];
    int count;
};

struct pipe {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct batch *waiting[DEPTH];
    int count;
    uint64_t made, freed;
};
static struct pipe pipes[PAIRS];

static size_t size_of(uint64_t *random) {
    *random = *random * 6364136223846793005u + 1442695040888963407u;
    uint64_t kind = *random >> 56, size = *random >> 32 & 0xffff;
    return kind < 200 ? size % 600 + 1 : kind < 250 ? size % 9000 + 600 : kind < 255 ? size + 9000 : size * 20 + 70000;
}

static void *make(void *argument) {
    struct pipe *pipe = argument;
    uint64_t random = pipe - pipes + 1, hash = 0;
    for (int round = 0; round < ROUNDS; round++) {
        struct batch *batch = must(malloc(sizeof *batch));
        for (batch->count = 0; batch->count < BATCH; batch->count++) {
            size_t size = size_of(&random);
            char *block = must(malloc(size));
            block[0] = block[size - 1] = (char)round;
            hash = hash * 31 + (uintptr_t)block;
            batch->blocks[batch->count] = block;
        }
        pthread_mutex_lock(&pipe->lock);
        while (pipe->count == DEPTH)
            pthread_cond_wait(&pipe->changed, &pipe->lock);
        pipe->waiting[pipe->count++] = batch;
        pthread_cond_broadcast(&pipe->changed);
        pthread_mutex_unlock(&pipe->lock);
    }
    pipe->made = hash;
    return NULL;
}

static void *take(void *argument) {
    struct pipe *pipe = argument;
    uint64_t hash = 0;
    for (int round = 0; round < ROUNDS; round++) {
        pthread_mutex_lock(&pipe->lock);
        while (pipe->count == 0)
            pthread_cond_wait(&pipe->changed, &pipe->lock);
        struct batch *batch = pipe->waiting[--pipe->count];
        pthread_cond_broadcast(&pipe->changed);
        pthread_mutex_unlock(&pipe->lock);
        for (int i = 0; i < batch->count; i++) {
            free(batch->blocks[i]);
            if (i % 16 == 0) {
                /* Something of its own meanwhile. */
                void *own = must(malloc(200 + i % 2000));
                hash = hash * 31 + (uintptr_t)own;
                free(own);
            }
        }
        free(batch);
    }
    pipe->freed = hash;
    return NULL;
}

int main(void) {
    pthread_t threads[2 * PAIRS];
    for (int i = 0; i < PAIRS; i++) {
        pthread_mutex_init(&pipes[i].lock, NULL);
        pthread_cond_init(&pipes[i].changed, NULL);
        must_be_zero(pthread_create(&threads[2 * i], NULL, make, &pipes[i]));
        must_be_zero(pthread_create(&threads[2 * i + 1], NULL, take, &pipes[i]));
    }
    for (int i = 0; i < 2 * PAIRS; i++)
        must_be_zero(pthread_join(threads[i], NULL));
    for (int i = 0; i < PAIRS; i++)
        seen("pair %d: addresses %016lx and %016lx", i, pipes[i].made, pipes[i].freed);
    struct rusage usage;
    must(getrusage(RUSAGE_SELF, &usage));
    /* Made in all: about 700 MB. How much of it is there at a time is the scheduler's affair, too. */
    same("memory is used again: %s", usage.ru_maxrss < 400 * 1024 ? "yes" : "no");
    return 0;
}
