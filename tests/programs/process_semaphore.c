/* A semaphore that is full is shared by two processes: the parent raises what its child has lowered,
 * of which it hears by a pipe. In a replay it may come to that before the child does. */
#include "see.h"
#include <limits.h>
#include <semaphore.h>
#include <sys/mman.h>
#include <sys/wait.h>

int main(void) {
    sem_t *full = must(mmap(NULL, sizeof *full, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    int ends[2];
    must(pipe(ends));
    must(sem_init(full, 1, SEM_VALUE_MAX));
    refused(sem_post(full));
    pid_t child = must(fork());
    if (child == 0) {
        /* It has much to do before. */
        volatile unsigned long sum = 0;
        for (unsigned long i = 0; i < 100000000; i++)
            sum += i;
        must(sem_wait(full));
        must(write(ends[1], "!", 1));
        _exit(0);
    }
    char byte;
    must(read(ends[0], &byte, 1));
    must(sem_post(full));
    int value;
    must(sem_getvalue(full, &value));
    same("full again: %d", value == SEM_VALUE_MAX);
    refused(sem_post(full));
    int status;
    must(waitpid(child, &status, 0));
    same("the child: %d", status);
    return 0;
}
