// threads COUNT ROUNDS: as many threads at a time, one set after the other. Each writes a line to socket 3.
#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void *run(void *number) {
    char line[32];
    int length = snprintf(line, sizeof line, "%ld\n", (long)number);
    assert(write(3, line, length) == length);
    return NULL;
}

int main(int count, char **arguments) {
    (void)count;
    long threads = atol(arguments[1]), rounds = atol(arguments[2]);
    for (long round = 0; round < rounds; round++) {
        pthread_t all[threads];
        for (long i = 0; i < threads; i++) assert(pthread_create(&all[i], NULL, run, (void *)(round * threads + i)) == 0);
        for (long i = 0; i < threads; i++) pthread_join(all[i], NULL);
    }
    return 0;
}
