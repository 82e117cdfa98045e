/* Threads come and go; each has its own stack, name, keys and numbers, and they agree about who goes first. */
#include "see.h"
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <time.h>

static pthread_key_t key;
static __thread int own = 5;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int turn, order[2000], ordered;

static void first(void) { seen("first was thread %d", own); }
static void destroyed(void *value) { seen("key of %s is destroyed", (char *)value); }

static void *work(void *argument) {
    int me = (int)(intptr_t)argument, local;
    char *name = malloc(16);
    snprintf(name, 16, "worker %d", me);
    own = me;
    pthread_once(&once, first);
    pthread_setspecific(key, name);
    pthread_setname_np(pthread_self(), name);
    seen("thread %d is %d, stack %p, tls %p, self %#lx", me, gettid(), (void *)&local, (void *)&own, (unsigned long)pthread_self());
    for (int i = 0; i < 50; i++) {
        pthread_mutex_lock(&lock);
        order[ordered++] = me;
        pthread_mutex_unlock(&lock);
        if (i % 16 == me)
            sched_yield();
    }
    pthread_mutex_lock(&lock);
    while (turn != me)
        pthread_cond_wait(&changed, &lock);
    turn++;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    if (me == 3)
        pthread_exit((void *)33);
    return (void *)(intptr_t)(me * 10);
}

int main(void) {
    pthread_t threads[8];
    must_be_zero(pthread_key_create(&key, destroyed));
    for (intptr_t i = 0; i < 8; i++)
        must_be_zero(pthread_create(&threads[i], NULL, work, (void *)i));
    for (int i = 0; i < 8; i++) {
        void *value;
        must_be_zero(pthread_join(threads[i], &value));
        same("joined %d: %ld", i, (long)value);
    }
    for (int i = 0; i < ordered; i++)
        seen("%d", order[i]);

    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 1 << 20);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    turn = 100;
    must_be_zero(pthread_create(&threads[0], &attributes, work, (void *)100));
    pthread_mutex_lock(&lock);
    while (turn != 101) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += 5;
        pthread_cond_timedwait(&changed, &lock, &until);
    }
    pthread_mutex_unlock(&lock);

    /* One after the other, so that stacks and numbers are used again. */
    for (int i = 0; i < 30; i++) {
        turn = 200 + i;
        must_be_zero(pthread_create(&threads[0], NULL, work, (void *)(intptr_t)(200 + i)));
        must_be_zero(pthread_join(threads[0], NULL));
    }
    size_t size;
    void *stack;
    must_be_zero(pthread_getattr_np(pthread_self(), &attributes));
    pthread_attr_getstack(&attributes, &stack, &size);
    seen("main stack %p of %zu", stack, size);
    return 0;
}
