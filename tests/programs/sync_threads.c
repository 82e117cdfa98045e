/* Many threads over a life, in every way to begin and to end: joined, detached, tried, on stacks of their own, of C11. */
#include "see.h"
#include <pthread.h>
#include <sys/mman.h>
#include <threads.h>
#include <time.h>

enum { WAVES = 60, WIDTH = 20 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t gone = PTHREAD_COND_INITIALIZER;
static uint64_t order;
static int left, destroyed;
static __thread uint64_t own = 0x1234;
static pthread_key_t key;

static void at_end(void *value) {
    pthread_mutex_lock(&lock);
    order = (order ^ (uint64_t)(intptr_t)value) * 0x100000001b3u;
    destroyed++;
    pthread_mutex_unlock(&lock);
}

static void *work(void *argument) {
    intptr_t me = (intptr_t)argument;
    char big[100000];
    memset(big, (int)me, sizeof big);
    own += (uint64_t)big[me % (intptr_t)sizeof big];
    pthread_setspecific(key, (void *)(me + 1));
    pthread_mutex_lock(&lock);
    order = (order ^ (uint64_t)me ^ (uint64_t)(intptr_t)&big ^ own) * 0x100000001b3u;
    pthread_mutex_unlock(&lock);
    if (me % 3 == 0)
        pthread_exit((void *)(me * 2));
    return (void *)(me * 2);
}

static void *leave(void *argument) {
    work(argument);
    pthread_mutex_lock(&lock);
    left++;
    pthread_cond_signal(&gone);
    pthread_mutex_unlock(&lock);
    return NULL;
}

static void *creator(void *argument) {
    intptr_t me = (intptr_t)argument;
    pthread_t threads[8];
    for (intptr_t i = 0; i < 8; i++)
        must_be_zero(pthread_create(&threads[i], NULL, work, (void *)(me * 100 + i)));
    for (int i = 0; i < 8; i++)
        must_be_zero(pthread_join(threads[i], NULL));
    return NULL;
}

static int standard(void *argument) {
    work(argument);
    return (int)(intptr_t)argument + 1;
}

static void *napping(void *argument) {
    struct timespec nap = {0, 3000000};
    nanosleep(&nap, NULL);
    return argument;
}

int main(void) {
    must_be_zero(pthread_key_create(&key, at_end));
    pthread_t threads[WIDTH];
    long sum = 0;
    for (int wave = 0; wave < WAVES; wave++) {
        for (intptr_t i = 0; i < WIDTH; i++)
            must_be_zero(pthread_create(&threads[i], NULL, work, (void *)(wave * WIDTH + i)));
        for (int i = 0; i < WIDTH; i++) {
            void *value;
            must_be_zero(pthread_join(threads[i], &value));
            sum += (long)value;
        }
    }
    same("joined %d, sum %ld", WAVES * WIDTH, sum);

    for (intptr_t i = 0; i < 4; i++)
        must_be_zero(pthread_create(&threads[i], NULL, creator, (void *)(i + 1)));
    for (int i = 0; i < 4; i++)
        must_be_zero(pthread_join(threads[i], NULL));

    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, 256 * 1024);
    for (intptr_t i = 1; i <= 200; i++)
        must_be_zero(pthread_create(&threads[0], &attributes, leave, (void *)(i * 3 + 1)));
    for (intptr_t i = 1; i <= 10; i++) {
        must_be_zero(pthread_create(&threads[0], NULL, leave, (void *)(i * 3 + 1)));
        must_be_zero(pthread_detach(threads[0]));
    }
    pthread_mutex_lock(&lock);
    while (left < 210)
        pthread_cond_wait(&gone, &lock);
    pthread_mutex_unlock(&lock);

    pthread_attr_init(&attributes);
    size_t size = 512 * 1024;
    void *stack = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    must_be_zero(pthread_attr_setstack(&attributes, stack, size));
    must_be_zero(pthread_create(&threads[0], &attributes, work, (void *)1000));
    must_be_zero(pthread_join(threads[0], NULL));
    pthread_attr_init(&attributes);
    must_be_zero(pthread_attr_setstacksize(&attributes, 100 << 20));
    must_be_zero(pthread_create(&threads[0], &attributes, work, (void *)1001));
    must_be_zero(pthread_join(threads[0], NULL));

    must_be_zero(pthread_create(&threads[0], NULL, napping, NULL));
    int tries = 0;
    while (pthread_tryjoin_np(threads[0], NULL) == EBUSY)
        tries++;
    must_be_zero(pthread_create(&threads[0], NULL, napping, NULL));
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    int timed = pthread_timedjoin_np(threads[0], NULL, &now);
    if (timed)
        must_be_zero(pthread_join(threads[0], NULL));
    seen("tried %d times, timed join: %d", tries, timed);
    same("join itself: %s", strerrorname_np(pthread_join(pthread_self(), NULL)));

    thrd_t one;
    int value;
    if (thrd_create(&one, standard, (void *)7) != thrd_success || thrd_join(one, &value) != thrd_success)
        return 1;
    same("C11: %d", value);
    must_be_zero(pthread_create(&threads[0], NULL, napping, NULL));
    void *base;
    must_be_zero(pthread_getattr_np(threads[0], &attributes));
    must_be_zero(pthread_attr_getstack(&attributes, &base, &size));
    seen("stack %p of %zu", base, size);
    must_be_zero(pthread_join(threads[0], NULL));
    same("destroyed at least: %d", destroyed >= WAVES * WIDTH);
    seen("order %016lx", order);

    long pages = 0;
    FILE *statm = fopen("/proc/self/statm", "r");
    if (!statm || fscanf(statm, "%*d %ld", &pages) != 1)
        return 1;
    fclose(statm);
    same("memory stays small: %d", pages < 64 * 256);
    return 0;
}
