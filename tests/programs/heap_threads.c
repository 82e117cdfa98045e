/* Many threads one after the other and at once, whose memory outlives them; what a thread frees while it ends; forks in between. */
#include "see.h"
#include <pthread.h>
#include <sys/wait.h>

enum { GENERATIONS = 12, THREADS = 6, BLOCKS = 300 };

static pthread_key_t key;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *left[GENERATIONS][THREADS][BLOCKS];

/* Runs when its thread ends, later than all of the thread's own code. */
static void at_end(void *value) {
    void **blocks = value;
    for (int i = 0; i < 50; i++)
        free(blocks[i]);
    void *late = must(malloc(333));
    free(late);
    free(blocks);
}

static void *work(void *argument) {
    uintptr_t me = (uintptr_t)argument, generation = me / THREADS, number = me % THREADS;
    void **blocks = must(malloc(50 * sizeof *blocks));
    for (int i = 0; i < 50; i++)
        blocks[i] = must(malloc(100 + i * 20));
    must_be_zero(pthread_setspecific(key, blocks));
    for (int i = 0; i < BLOCKS; i++) {
        size_t size = (i * 37 + number * 11) % 3000 + 1;
        left[generation][number][i] = memset(must(malloc(size)), (int)me, size);
    }
    if (generation > 0) {
        /* What a thread of the generation before left behind. */
        for (int i = 0; i < BLOCKS / 2; i++) {
            free(left[generation - 1][(number + 1) % THREADS][i]);
            left[generation - 1][(number + 1) % THREADS][i] = NULL;
        }
    }
    if (number == 0 && generation % 4 == 1) {
        pthread_mutex_lock(&lock);
        pid_t child = must(fork());
        if (child == 0) {
            /* The only thread now. It frees what others made and makes its own. */
            uint64_t hash = 0;
            for (int i = BLOCKS / 2; i < BLOCKS; i++)
                free(left[generation - 1][3][i]);
            for (int i = 0; i < 3000; i++) {
                char *block = must(malloc(i % 2500 + 1));
                hash = hash * 31 + (uintptr_t)block;
                if (i % 3)
                    free(block);
            }
            seen("child of generation %lu: addresses %016lx", generation, hash);
            fflush(stdout);
            _exit(0);
        }
        int status;
        must(waitpid(child, &status, 0));
        same("the child ended with %d", status);
        pthread_mutex_unlock(&lock);
    }
    return NULL;
}

int main(void) {
    must_be_zero(pthread_key_create(&key, at_end));
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (uintptr_t generation = 0; generation < GENERATIONS; generation++) {
        pthread_t threads[THREADS];
        for (uintptr_t i = 0; i < THREADS; i++)
            must_be_zero(pthread_create(&threads[i], NULL, work, (void *)(generation * THREADS + i)));
        for (int i = 0; i < THREADS; i++)
            must_be_zero(pthread_join(threads[i], NULL));
        uint64_t hash = 0;
        for (int i = 0; i < THREADS; i++)
            for (int b = 0; b < BLOCKS; b++)
                hash = hash * 31 + (uintptr_t)left[generation][i][b];
        seen("generation %lu: addresses %016lx", generation, hash);
    }
    return 0;
}
