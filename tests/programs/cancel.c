/* Cancels a thread, which may end inside any call at any time: how far it came is not in any log. */
#include "see.h"
#include <pthread.h>
#include <time.h>

static void ended(void *what) { same("%s has ended", (char *)what); }

static void *forever(void *argument) {
    pthread_cleanup_push(ended, "the cancelled thread");
    for (;;)
        sleep(100);
    pthread_cleanup_pop(0);
    return argument;
}

int main(void) {
    pthread_t thread;
    struct timespec now;
    void *value;
    must(clock_gettime(CLOCK_REALTIME, &now));
    seen("before: %ld.%09ld", (long)now.tv_sec, now.tv_nsec);
    fflush(stdout);
    must_be_zero(pthread_create(&thread, NULL, forever, NULL));
    usleep(1000);
    must_be_zero(pthread_cancel(thread));
    must_be_zero(pthread_join(thread, &value));
    same("cancelled: %d", value == PTHREAD_CANCELED);
    return 8;
}
