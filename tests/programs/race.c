/* Two threads that share a counter and nothing that would order them: no recorder of calls and locks can replay it. */
#include "see.h"
#include <pthread.h>

static volatile unsigned long counter;

static void *count(void *argument) {
    for (int i = 0; i < 20000000; i++)
        counter++;
    return argument;
}

int main(void) {
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        must_be_zero(pthread_create(&threads[i], NULL, count, NULL));
    for (int i = 0; i < 2; i++)
        must_be_zero(pthread_join(threads[i], NULL));
    seen("counted to %lu", counter);
    return 0;
}
