/* Threads that take turns with memory of every kind: one ends early, one waits for all others, each has variables of its own. What they
 * compute depends on the time, so that a replay from the middle is right only if everything is as it was. */
#include "see.h"
#include <pthread.h>
#include <sys/mman.h>
#include <time.h>

enum { THREADS = 4, ROUNDS = 150000, BYTES = 1 << 20 };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t moved = PTHREAD_COND_INITIALIZER;
static unsigned char *mapped, *broken, *allocated;
static const unsigned char *file;
static int done;
static long counter;
/* For a debugger: what one thread alone has computed. */
volatile long of_second;

__attribute__((noinline)) void reached(void) {
    __asm__ volatile("" ::: "memory");
}

static __thread long own;

static void *work(void *argument) {
    long number = (long)argument, rounds = number == 0 ? ROUNDS / 10 : ROUNDS;
    for (long round = 0; round < rounds; round++) {
        struct timespec now;
        must(clock_gettime(CLOCK_REALTIME, &now) + 1);
        must_be_zero(pthread_mutex_lock(&lock));
        own += now.tv_nsec % 11;
        if (number == 1)
            of_second = own;
        counter += now.tv_nsec % 7 + number;
        mapped[counter % BYTES] ^= (unsigned char)own;
        broken[counter % BYTES] += file[round % 100];
        allocated[counter % BYTES] -= (unsigned char)counter;
        if (round % (ROUNDS / 20) == 0)
            must_be_zero(pthread_cond_signal(&moved));
        must_be_zero(pthread_mutex_unlock(&lock));
        if (number == 1 && round % (ROUNDS / 20) == ROUNDS / 40)
            reached();
    }
    must_be_zero(pthread_mutex_lock(&lock));
    done++;
    must_be_zero(pthread_cond_signal(&moved));
    must_be_zero(pthread_mutex_unlock(&lock));
    return (void *)own;
}

int main(void) {
    mapped = must(mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    broken = must(sbrk(BYTES));
    allocated = must(malloc(BYTES));
    file = must(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, must(open("input.txt", O_RDONLY)), 0));
    memset(allocated, 0, BYTES);
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++)
        must_be_zero(pthread_create(&threads[i], NULL, work, (void *)i));
    must_be_zero(pthread_mutex_lock(&lock));
    while (done < THREADS) {
        must_be_zero(pthread_cond_wait(&moved, &lock));
        seen("%ld", counter);
        fflush(stdout);
    }
    must_be_zero(pthread_mutex_unlock(&lock));
    for (long i = 0; i < THREADS; i++) {
        void *its;
        must_be_zero(pthread_join(threads[i], &its));
        seen("thread %ld: %ld", i, (long)its);
    }
    seen("%016lx %016lx %016lx", sum(mapped, BYTES), sum(broken, BYTES), sum(allocated, BYTES));
    return 3;
}
