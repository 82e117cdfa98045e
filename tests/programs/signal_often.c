/* Signals that come more often than the program makes calls: none waits for a call that never comes, and recording goes on. */
#include "see.h"
#include <signal.h>
#include <sys/time.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

static volatile sig_atomic_t alarms, samples, where;
static double latest;

static void note(int number) {
    (void)number;
    ++alarms;
}

static void sample(int number, siginfo_t *info, void *context) {
    (void)number;
    (void)info;
    ++samples;
    /* A profiler asks for the instruction that was interrupted. */
    where |= ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] != 0;
}

static double seconds(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

/* One that nothing follows. */
static void alone(void) {
    alarms = 0;
    double begun = seconds();
    ualarm(5000, 0);
    while (!alarms)
        ;
    latest = seconds() - begun;
    same("one came %s", latest < 0.3 ? "soon" : "late");
}

int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    signal(SIGALRM, note);
    struct itimerval often = {{0, 10000}, {0, 10000}}, never = {{0, 0}, {0, 0}};
    double begun = seconds();
    setitimer(ITIMER_REAL, &often, NULL);
    volatile unsigned long turns = 0;
    while (alarms < 20)
        ++turns;
    setitimer(ITIMER_REAL, &never, NULL);
    same("twenty came %s", seconds() - begun < 3 ? "soon" : "late");
    struct sigaction profile = {.sa_sigaction = sample, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigaction(SIGPROF, &profile, NULL);
    setitimer(ITIMER_PROF, &often, NULL);
    volatile double sum = 0;
    for (long turn = 0; turn < 200000000; ++turn)
        sum += turn;
    setitimer(ITIMER_PROF, &never, NULL);
    same("samples %d, %d", samples > 10, where);
    alone();
    same("ends");
    return 0;
}
