/* A race that decides which calls are made: a thread spins on a plain variable, and asks the time as often as it has to wait. */
#include "see.h"
#include <pthread.h>
#include <time.h>

static volatile int ready;

static void *work(void *argument) {
    usleep(3000);
    ready = 1;
    return argument;
}

int main(void) {
    pthread_t thread;
    struct timespec now;
    int asked = 0;
    must_be_zero(pthread_create(&thread, NULL, work, NULL));
    for (; !ready; asked++)
        must(clock_gettime(CLOCK_REALTIME, &now));
    must_be_zero(pthread_join(thread, NULL));
    seen("asked %d times", asked);
    return 0;
}
