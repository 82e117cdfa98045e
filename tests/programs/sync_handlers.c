/* Signals that arrive while a thread waits for another: their handlers run, and what they post ends the wait. */
#include "see.h"
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <time.h>

static sem_t posted, answered;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static volatile sig_atomic_t caught;
static int go;
static pthread_t first;

static void handler(int signal) {
    (void)signal;
    caught++;
    sem_post(&posted);
    sem_post(&answered);
}

static void nap(long ns) {
    struct timespec time = {0, ns};
    nanosleep(&time, NULL);
}

/* A signal that is sent while the one before is pending is none, so each is waited for. */
static void interrupt(void) {
    nap(3000000);
    must_be_zero(pthread_kill(first, SIGUSR1));
    must_be_zero(sem_wait(&answered));
}

static void *sender(void *argument) {
    (void)argument;
    for (int i = 0; i < 20; i++)
        interrupt();
    pthread_mutex_lock(&lock);
    go = 1;
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&lock);
    interrupt();
    return NULL;
}

int main(void) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    must(sigaction(SIGUSR1, &action, NULL));
    must(sem_init(&posted, 0, 0));
    must(sem_init(&answered, 0, 0));
    first = pthread_self();
    pthread_t thread;
    must_be_zero(pthread_create(&thread, NULL, sender, NULL));
    int interrupted = 0;
    for (int i = 0; i < 10; i++)
        while (sem_wait(&posted) != 0)
            interrupted++;
    seen("interrupted %d, caught %d", interrupted, (int)caught);
    pthread_mutex_lock(&lock);
    int wakes = 0;
    while (!go) {
        pthread_cond_wait(&changed, &lock);
        wakes++;
    }
    pthread_mutex_unlock(&lock);
    seen("woken %d, caught %d", wakes, (int)caught);
    must_be_zero(pthread_join(thread, NULL));
    seen("caught %d", (int)caught);
    return 0;
}
