/* Signals that a process sends to itself: handlers, what they are told, how they nest, when they are reset. */
#include "see.h"
#include <signal.h>

static volatile int count, depth;

static void plain(int number) {
    count++;
    same("signal %d, depth %d", number, ++depth);
    if (number == SIGUSR1 && depth < 3)
        raise(SIGUSR2);
    depth--;
}

static void informed(int number, siginfo_t *info, void *context) {
    same("signal %d, code %d, value %d, context %d", number, info->si_code, info->si_value.sival_int, context != NULL);
    seen("from %d, user %d", info->si_pid, info->si_uid);
}

static void deep(int number) {
    same("nodefer at %d", ++depth);
    if (depth < 4)
        raise(number);
    depth--;
}

int main(void) {
    struct sigaction action = {.sa_handler = plain}, old;
    must(sigaction(SIGUSR1, &action, NULL));
    must(sigaction(SIGUSR2, &action, &old));
    same("before: %d", old.sa_handler == SIG_DFL);
    must_be_zero(raise(SIGUSR1));
    must(kill(getpid(), SIGUSR2));
    same("%d handlers ran", count);

    action = (struct sigaction){.sa_sigaction = informed, .sa_flags = SA_SIGINFO | SA_RESTART};
    must(sigaction(SIGRTMIN, &action, NULL));
    must(sigaction(SIGUSR1, &action, &old));
    same("before: %d, flags %x", old.sa_handler == plain, old.sa_flags);
    must(sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = 4711}));
    must(kill(getpid(), SIGUSR1));

    action = (struct sigaction){.sa_handler = deep, .sa_flags = SA_NODEFER};
    must(sigaction(SIGUSR1, &action, NULL));
    raise(SIGUSR1);

    action = (struct sigaction){.sa_handler = plain, .sa_flags = SA_RESETHAND};
    must(sigaction(SIGUSR2, &action, NULL));
    raise(SIGUSR2);
    must(sigaction(SIGUSR2, NULL, &old));
    same("reset: %d", old.sa_handler == SIG_DFL);

    same("signal answers %d", signal(SIGUSR1, SIG_IGN) == deep);
    raise(SIGUSR1);
    same("ignored, and %d", signal(SIGUSR1, SIG_DFL) == SIG_IGN);
    raise(SIGCHLD);
    raise(SIGWINCH);

    refused(sigaction(SIGKILL, &action, NULL));
    refused(sigaction(70, &action, NULL));
    refused(kill(getpid(), 99));
    return 0;
}
