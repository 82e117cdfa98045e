/* Every way to end: `leave return|exit|_exit|quick|abort|fault|kill|thread|deep`. */
#include "see.h"
#include <pthread.h>
#include <signal.h>
#include <time.h>

static void last(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    seen("at exit, %ld", now.tv_nsec);
    fflush(stdout);
}

static void *leave(void *how) {
    seen("leaving from thread %d", gettid());
    exit((int)(intptr_t)how);
}

static int deep(int level) {
    volatile char room[1000];
    memset((char *)room, level, sizeof room);
    return level ? deep(level - 1) + room[level % 1000] : 0;
}

int main(int count, char **arguments) {
    const char *how = count > 1 ? arguments[1] : "return";
    pthread_t thread;
    atexit(last);
    at_quick_exit(last);
    printf("buffered\n");
    seen("process %d", getpid());
    if (!strcmp(how, "return"))
        return 3;
    if (!strcmp(how, "exit"))
        exit(4);
    fflush(stdout);
    if (!strcmp(how, "_exit"))
        _exit(5);
    if (!strcmp(how, "quick"))
        quick_exit(6);
    if (!strcmp(how, "abort"))
        abort();
    if (!strcmp(how, "fault"))
        *(volatile int *)(uintptr_t)8 = 1;
    if (!strcmp(how, "kill"))
        kill(getpid(), SIGKILL);
    if (!strcmp(how, "terminate"))
        raise(SIGTERM);
    if (!strcmp(how, "deep"))
        same("deep %d", deep(5000));
    if (!strcmp(how, "thread")) {
        must_be_zero(pthread_create(&thread, NULL, leave, (void *)7));
        pthread_join(thread, NULL);
    }
    return 9;
}
