/* A thread computes for a while and closes a file. The first thread, which has waited for a child
 * meanwhile, is given its number, for a pipe. A replay does not wait for the child: there the first
 * thread has the number before the other has closed it. */
#include "see.h"
#include <pthread.h>
#include <sys/wait.h>

static int ends[2];

static void *closes(void *number) {
    volatile unsigned long counted = 0;
    while (counted < 50 * 1000 * 1000)
        counted++;
    close((int)(long)number);
    return NULL;
}

static void *answers(void *unused) {
    char byte;
    (void)unused;
    while (read(ends[0], &byte, 1) == 1)
        seen("%c", byte);
    return NULL;
}

int main(void) {
    int first = must(open("/dev/null", O_RDONLY));
    pid_t child = must(fork());
    if (child == 0) {
        sleep(1);
        _exit(0);
    }
    pthread_t closing, answering;
    pthread_create(&closing, NULL, closes, (void *)(long)first);
    must(waitpid(child, NULL, 0));
    must(pipe(ends));
    seen("the same number: %d", ends[0] == first);
    pthread_create(&answering, NULL, answers, NULL);
    for (int i = 0; i < 1000; i++)
        must(write(ends[1], "x", 1));
    must(close(ends[1]));
    pthread_join(answering, NULL);
    pthread_join(closing, NULL);
}
