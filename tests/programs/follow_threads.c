/* Four threads take three locks in turn and mix what is behind them, so that the result depends on
 * who came when: `follow_threads RUNS ON`. The first makes the file RUNS when it has begun. Once
 * the file ON is there, each takes so many locks more, and ends. They pause now and then, so that
 * one who follows keeps up. */
#include "see.h"
#include <pthread.h>

enum { THREADS = 4, LOCKS = 3, ROUNDS = 1000, BEGUN = 500 };

static pthread_mutex_t locks[LOCKS] = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER,
                                       PTHREAD_MUTEX_INITIALIZER};
static unsigned long mixed[LOCKS];
static int is_on[LOCKS];
static char **files;

/* Whether the file is there, as far as the thread can see. */
static int step(unsigned long number, unsigned long round, int found) {
    unsigned long which = (round * 7 + number) % LOCKS;
    pthread_mutex_lock(&locks[which]);
    mixed[which] = mixed[which] * 31 + number;
    is_on[which] |= found;
    found = is_on[which];
    pthread_mutex_unlock(&locks[which]);
    return found;
}

static void *mix(void *argument) {
    unsigned long number = (unsigned long)argument, round = 0;
    for (int found = 0; !found; round++) {
        if (number == 1 && round == BEGUN)
            close(must(open(files[0], O_CREAT | O_WRONLY, 0600)));
        found = step(number, round, number == 1 && round % 64 == 0 && !access(files[1], F_OK));
        if (round % 16 == 0)
            usleep(100);
    }
    for (unsigned long left = ROUNDS; left > 0; left--)
        step(number, round++, 1);
    return NULL;
}

int main(int count, char **arguments) {
    if (count < 3)
        return 2;
    files = arguments + 1;
    pthread_t threads[THREADS];
    for (unsigned long number = 0; number < THREADS; number++)
        pthread_create(&threads[number], NULL, mix, (void *)(number + 1));
    for (int number = 0; number < THREADS; number++)
        pthread_join(threads[number], NULL);
    seen("%lx %lx %lx", mixed[0], mixed[1], mixed[2]);
    return 0;
}
