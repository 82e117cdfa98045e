/* Timers that interrupt waiting, reading and computing, and sleeps that are cut short. */
#include "see.h"
#include <poll.h>
#include <signal.h>
#include <sys/select.h>
#include <sys/time.h>
#include <time.h>

static volatile sig_atomic_t count;

static void tick(int number) {
    (void)number;
    count++;
}

static void told(int number, siginfo_t *info, void *context) {
    (void)context;
    seen("signal %d with %d, overrun %d", number, info->si_value.sival_int, info->si_overrun);
    count++;
}

static void every(long first, long then) {
    struct itimerval timer = {{0, then}, {0, first}};
    must(setitimer(ITIMER_REAL, &timer, NULL));
}

int main(void) {
    int ends[2];
    char byte;
    must(pipe(ends));
    must(sigaction(SIGALRM, &(struct sigaction){.sa_handler = tick}, NULL));
    every(5000, 0);
    refused(read(ends[0], &byte, 1));
    same("%d ticks", count);
    every(5000, 0);
    refused(pause());
    every(5000, 0);
    refused(poll(NULL, 0, -1));
    every(5000, 0);
    refused(select(0, NULL, NULL, NULL, NULL));
    every(5000, 0);
    struct timespec remaining = {0, 0};
    refused(nanosleep(&(struct timespec){5, 0}, &remaining));
    seen("%ld.%09ld s remain", remaining.tv_sec, remaining.tv_nsec);
    every(5000, 0);
    same("sleep: %d", sleep(3) > 0);
    same("%d ticks", count);

    /* Restarted until the tenth tick writes. */
    must(sigaction(SIGALRM, &(struct sigaction){.sa_handler = tick, .sa_flags = SA_RESTART}, NULL));
    count = 0;
    every(1000, 1000);
    long rounds = 0;
    while (count < 10) {
        struct timespec now;
        must(clock_gettime(CLOCK_MONOTONIC, &now));
        rounds++;
    }
    every(0, 0);
    seen("%ld rounds", rounds);

    timer_t timer;
    must(sigaction(SIGRTMIN + 1, &(struct sigaction){.sa_sigaction = told, .sa_flags = SA_SIGINFO}, NULL));
    must(timer_create(CLOCK_MONOTONIC, &(struct sigevent){.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN + 1, .sigev_value.sival_int = 12}, &timer));
    must(timer_settime(timer, 0, &(struct itimerspec){{0, 2000000}, {0, 1000000}}, NULL));
    for (count = 0; count < 3;)
        pause();
    must(timer_delete(timer));
    same("alarm: %u", alarm(100));
    seen("alarm: %u", alarm(0));
    return 0;
}
