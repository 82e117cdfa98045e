/* SIGCHLD: children reaped from the handler while the parent waits for something else; and SIGCHLD ignored. */
#include "see.h"
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

static volatile sig_atomic_t reaped, bits;

static void child(int number, siginfo_t *info, void *context) {
    (void)number;
    (void)context;
    int saved = errno, status;
    if (info->si_code != CLD_EXITED)
        _exit(97);
    while (waitpid(-1, &status, WNOHANG) > 0) {
        reaped++;
        bits |= 1 << WEXITSTATUS(status);
    }
    errno = saved;
}

int main(void) {
    must(sigaction(SIGCHLD, &(struct sigaction){.sa_sigaction = child, .sa_flags = SA_SIGINFO | SA_NOCLDSTOP}, NULL));
    for (int i = 0; i < 8; i++)
        if (must(fork()) == 0) {
            nanosleep(&(struct timespec){0, 1000000 * (i % 3)}, NULL);
            _exit(i);
        }
    int interrupted = 0;
    while (reaped < 8)
        interrupted += poll(NULL, 0, 200) < 0;
    same("reaped %d, bits %x", reaped, bits);
    seen("interrupted %d times", interrupted);

    signal(SIGCHLD, SIG_IGN);
    if (must(fork()) == 0)
        _exit(1);
    refused(wait(NULL));
    signal(SIGCHLD, SIG_DFL);
    if (must(fork()) == 0)
        _exit(2);
    int status;
    seen("waited for %d", must(wait(&status)));
    same("status %x", status);
    return 0;
}
