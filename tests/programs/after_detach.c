/* What a program does after its recording has ended, in threads that had no part in that: wait undisturbed, start other programs. */
#include "see.h"
#include <cpuid.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <x86intrin.h>

static int pipes[2][2];
static pid_t ids[2];
static sem_t known[2];
extern char **environ;

static void on_fault(int signal) { _exit(90 + signal); }

static void *work(void *argument) {
    int me = (int)(intptr_t)argument;
    char byte;
    ids[me] = gettid();
    must(sem_post(&known[me]));
    ssize_t got = read(pipes[me][0], &byte, 1);
    same("thread %d read %zd", me, got);
    fflush(stdout);
    int status = -1;
    if (me == 0) {
        char *arguments[] = {"echo", "spawned", NULL};
        pid_t child;
        must_be_zero(posix_spawn(&child, "/bin/echo", NULL, NULL, arguments, environ));
        must(waitpid(child, &status, 0));
    } else {
        pid_t child = must(fork());
        if (child == 0) {
            execl("/bin/echo", "echo", "executed", (char *)NULL);
            _exit(98);
        }
        must(waitpid(child, &status, 0));
    }
    same("it ended with %#x", status);
    same("time goes forward: %d", __rdtsc() > 1000);
    signal(SIGSEGV, on_fault);
    unsigned a, b, c, d;
    __cpuid(0, a, b, c, d);
    same("the processor answers: %d", a > 0);
    return NULL;
}

/* Until a thread sleeps in its call. */
static void wait_for(int thread) {
    char path[64], line[512] = "";
    must(sem_wait(&known[thread]));
    while (!strstr(line, ") S ")) {
        snprintf(path, sizeof path, "/proc/self/task/%d/stat", ids[thread]);
        int file = open(path, O_RDONLY);
        if (file >= 0) {
            line[must(read(file, line, sizeof line - 1))] = 0;
            close(file);
        }
    }
}

int main(void) {
    seen("before: %d", getpid());
    fflush(stdout);
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) {
        must(pipe(pipes[i]));
        must(sem_init(&known[i], 0, 0));
        must_be_zero(pthread_create(&threads[i], NULL, work, (void *)(intptr_t)i));
    }
    for (int i = 0; i < 2; i++)
        wait_for(i);
    /* No such ring; that it was tried is enough. */
    syscall(SYS_io_uring_setup, 4, NULL);
    for (int i = 0; i < 2; i++) {
        must(write(pipes[i][1], "x", 1));
        must_be_zero(pthread_join(threads[i], NULL));
    }
    fflush(stdout);
    must(system("echo from the shell"));
    return 5;
}
