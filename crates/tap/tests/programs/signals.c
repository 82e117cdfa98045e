// A handler writes to socket 3 in the middle of what the program writes there, and sometimes jumps out of it.
#include <assert.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

static sigjmp_buf back;
static volatile sig_atomic_t handled, jumps;

static void handler(int signal) {
    (void)signal;
    handled++;
    (void)!write(3, "h", 1);
    if (jumps && handled % 16 == 0) siglongjmp(back, 1);
}

int main(void) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval often = {{0, 100}, {0, 100}};
    setitimer(ITIMER_REAL, &often, NULL);
    char bytes[4096];
    memset(bytes, 'm', sizeof bytes);
    volatile long round = 0;
    sigsetjmp(back, 1);
    jumps = 1;
    while (round < 20000) {
        round++;
        (void)!write(3, bytes, 1 + round % sizeof bytes);
    }
    // Nothing else may be jumped out of.
    struct itimerval never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &never, NULL);
    jumps = 0;
    puts("done");
    return 0;
}
