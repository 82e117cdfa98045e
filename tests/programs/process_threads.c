/* Children of a process with threads: forked while others hold locks and memory, and commands that threads run side by side. */
#include "see.h"
#include <pthread.h>
#include <sys/wait.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long shared;

static void *work(void *argument) {
    long rounds = 0;
    for (int over = 0; !over;) {
        pthread_mutex_lock(&lock);
        shared++;
        over = shared > 20000;
        pthread_mutex_unlock(&lock);
        free(malloc(100 + (size_t)(rounds % 1000)));
        rounds++;
    }
    return argument;
}

static void before(void) { pthread_mutex_lock(&lock); }
static void after(void) { pthread_mutex_unlock(&lock); }

static void *run(void *argument) {
    char command[100], line[100] = "";
    sprintf(command, "echo from %d; exit %d", (int)(intptr_t)argument, (int)(intptr_t)argument);
    FILE *from = must(popen(command, "r"));
    if (!fgets(line, sizeof line, from))
        return NULL;
    line[strcspn(line, "\n")] = 0;
    return (void *)(intptr_t)((WEXITSTATUS(pclose(from)) << 8) + atoi(line + 5));
}

int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    must_be_zero(pthread_atfork(before, after, after));
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        must_be_zero(pthread_create(&threads[i], NULL, work, NULL));
    for (int i = 0; i < 5; i++) {
        pid_t child = must(fork());
        if (child == 0) {
            char *memory = malloc(5000);
            pthread_mutex_lock(&lock);
            seen("child %d saw %ld", i, shared);
            pthread_mutex_unlock(&lock);
            free(memory);
            exit(i);
        }
        int status;
        must(waitpid(child, &status, 0));
        same("child %d ended with %d", i, WEXITSTATUS(status));
    }
    pthread_mutex_lock(&lock);
    shared = 1000000;
    pthread_mutex_unlock(&lock);
    for (int i = 0; i < 3; i++)
        must_be_zero(pthread_join(threads[i], NULL));
    for (intptr_t i = 0; i < 3; i++)
        must_be_zero(pthread_create(&threads[i], NULL, run, (void *)(i + 1)));
    for (int i = 0; i < 3; i++) {
        void *result;
        must_be_zero(pthread_join(threads[i], &result));
        same("command %d: %lx", i, (long)result);
    }
    return 0;
}
