/* Memory from several threads, freed by others: every address must be the same again. */
#include "see.h"
#include <malloc.h>
#include <pthread.h>

enum { THREADS = 4, ROUNDS = 400 };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *shelf[64];
static uint64_t sums[THREADS];

static void *work(void *argument) {
    uintptr_t me = (uintptr_t)argument, random = me * 7919 + 1;
    uint64_t hash = 0;
    for (int i = 0; i < ROUNDS; i++) {
        random = random * 6364136223846793005u + 1;
        size_t size = (random >> 40) % 5000 + 1;
        void *block = i % 5 ? must(malloc(size)) : must(calloc(size, 3));
        memset(block, (int)i, size);
        hash = hash * 31 + (uintptr_t)block;
        /* Whoever comes next frees what somebody else got. */
        pthread_mutex_lock(&lock);
        void **place = &shelf[random >> 58], *other = *place;
        *place = block;
        pthread_mutex_unlock(&lock);
        if (i % 3 == 0 && other)
            other = must(realloc(other, size * 2)), hash = hash * 31 + (uintptr_t)other;
        free(other);
    }
    sums[me] = hash;
    return NULL;
}

int main(void) {
    for (size_t size = 1; size < 100000000; size *= 7) {
        char *block = must(malloc(size));
        seen("%zu bytes at %p, usable %zu", size, (void *)block, malloc_usable_size(block));
        block[0] = block[size - 1] = 'x';
        if (size < 3000000)
            continue; /* left allocated */
        block = must(realloc(block, size + size / 2));
        seen("grown to %p", (void *)block);
        free(block);
    }
    void *aligned;
    must_be_zero(posix_memalign(&aligned, 4096, 100));
    seen("aligned %p %p %p %p", aligned, aligned_alloc(64, 640), memalign(1 << 20, 5), valloc(10));
    same("aligned: %lu", (uintptr_t)aligned % 4096);
    char *text = strdup("duplicated"), *part = strndup("in part", 4);
    seen("%s at %p, %s at %p", text, (void *)text, part, (void *)part);
    free(NULL);
    same("calloc is zero: %d", ((char *)must(calloc(1000, 1000)))[999999]);
    seen("break %p", sbrk(0));
    seen("the array as a whole: %p", reallocarray(NULL, 1000, 24));
    volatile size_t huge = (size_t)-10000;
    refused(malloc(huge));

    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        must_be_zero(pthread_create(&threads[i], NULL, work, (void *)i));
    for (int i = 0; i < THREADS; i++) {
        must_be_zero(pthread_join(threads[i], NULL));
        seen("thread %d saw addresses with sum %016lx", i, sums[i]);
    }
    malloc_trim(0);
    return 0;
}
