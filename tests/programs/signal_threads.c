/* Signals in a process with threads: to one of them, to the process, and one thread that waits for all of them. */
#include "see.h"
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>

static pthread_t threads[3];
static __thread int mine;
static volatile sig_atomic_t counts[3];
static sem_t ready, got, handled;

static void note(int number) {
    (void)number;
    counts[mine]++;
    sem_post(&handled);
}

static void *work(void *argument) {
    mine = (int)(intptr_t)argument;
    sem_post(&ready);
    while (sem_wait(&got) != 0)
        ;
    return (void *)(intptr_t)counts[mine];
}

static void *wait_for_all(void *argument) {
    sigset_t *set = argument;
    int total = 0;
    for (;;) {
        int number;
        must_be_zero(sigwait(set, &number));
        if (number == SIGTERM)
            return (void *)(intptr_t)total;
        total += number == SIGHUP;
    }
}

int main(void) {
    sem_init(&ready, 0, 0);
    sem_init(&got, 0, 0);
    sem_init(&handled, 0, 0);
    must(sigaction(SIGUSR1, &(struct sigaction){.sa_handler = note, .sa_flags = SA_RESTART}, NULL));
    for (intptr_t i = 0; i < 3; i++)
        must_be_zero(pthread_create(&threads[i], NULL, work, (void *)i));
    for (int i = 0; i < 3; i++)
        sem_wait(&ready);
    for (int round = 0; round < 5; round++)
        for (int i = 0; i < 3; i++) {
            must_be_zero(pthread_kill(threads[i], SIGUSR1));
            while (sem_wait(&handled) != 0)
                ;
        }
    for (int i = 0; i < 3; i++)
        sem_post(&got);
    for (int i = 0; i < 3; i++) {
        void *result;
        must_be_zero(pthread_join(threads[i], &result));
        same("thread %d handled %d", i, (int)(intptr_t)result);
    }

    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGTERM);
    must_be_zero(pthread_sigmask(SIG_BLOCK, &set, NULL));
    pthread_t waits;
    must_be_zero(pthread_create(&waits, NULL, wait_for_all, &set));
    must(kill(getpid(), SIGHUP));
    must(kill(getpid(), SIGTERM));
    void *result;
    must_be_zero(pthread_join(waits, &result));
    same("the thread that waits saw %d", (int)(intptr_t)result);

    return 0;
}
