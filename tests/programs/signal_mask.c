/* What is blocked, what is pending, and the calls that wait for a signal instead of handling it. */
#include "see.h"
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/select.h>
#include <sys/signalfd.h>
#include <time.h>

static volatile sig_atomic_t count;

static void note(int number) {
    sigset_t mask;
    sigprocmask(SIG_BLOCK, NULL, &mask);
    same("handler %d, blocked itself %d, the other %d", number, sigismember(&mask, number), sigismember(&mask, SIGUSR2));
    count++;
}

static sigset_t set_of(int one, int two) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, one);
    if (two)
        sigaddset(&set, two);
    return set;
}

int main(void) {
    sigset_t set = set_of(SIGUSR1, SIGUSR2), old, pending, none;
    sigemptyset(&none);
    struct sigaction action = {.sa_handler = note};
    sigaddset(&action.sa_mask, SIGUSR2);
    must(sigaction(SIGUSR1, &action, NULL));
    must(sigaction(SIGUSR2, &action, NULL));

    must(sigprocmask(SIG_BLOCK, &set, &old));
    same("was blocked: %d", sigismember(&old, SIGUSR1));
    raise(SIGUSR1);
    raise(SIGUSR1);
    must(sigpending(&pending));
    same("pending %d %d, handlers %d", sigismember(&pending, SIGUSR1), sigismember(&pending, SIGUSR2), count);
    must(sigprocmask(SIG_UNBLOCK, &set, NULL));
    same("delivered before it returned: %d", count);

    must(pthread_sigmask(SIG_SETMASK, &set, NULL));
    raise(SIGUSR2);
    refused(sigsuspend(&none));
    must(sigprocmask(SIG_BLOCK, NULL, &old));
    same("blocked again: %d, handlers %d", sigismember(&old, SIGUSR2), count);

    raise(SIGUSR1);
    int number;
    must_be_zero(sigwait(&set, &number));
    same("sigwait %d", number);
    must(sigqueue(getpid(), SIGUSR2, (union sigval){.sival_int = 31}));
    siginfo_t info;
    number = must(sigwaitinfo(&set, &info));
    same("sigwaitinfo %d with %d", number, info.si_value.sival_int);
    refused(sigtimedwait(&set, &info, &(struct timespec){0, 1000000}));

    int fd = must(signalfd(-1, &set, SFD_CLOEXEC));
    raise(SIGUSR1);
    struct signalfd_siginfo from;
    ssize_t size = must(read(fd, &from, sizeof from));
    same("signalfd %zd bytes, signal %u", size, from.ssi_signo);
    seen("from %u", from.ssi_pid);

    raise(SIGUSR1);
    refused(ppoll(NULL, 0, NULL, &none));
    raise(SIGUSR2);
    refused(pselect(0, NULL, NULL, NULL, NULL, &none));
    same("handlers %d", count);

    /* Everything, as threads and libraries do around what must not be disturbed. */
    sigset_t all;
    sigfillset(&all);
    must(sigprocmask(SIG_SETMASK, &all, NULL));
    FILE *file = must(fopen("/proc/self/comm", "r"));
    char line[64] = "";
    if (fgets(line, sizeof line, file))
        same("read while all is blocked: %s", line);
    fclose(file);
    must(sigprocmask(SIG_SETMASK, NULL, &old));
    same("KILL %d, SYS %d, SEGV %d", sigismember(&old, SIGKILL), sigismember(&old, SIGSYS), sigismember(&old, SIGSEGV));
    refused(sigprocmask(99, &set, NULL));
    must(sigprocmask(SIG_SETMASK, &none, NULL));
    return 0;
}
