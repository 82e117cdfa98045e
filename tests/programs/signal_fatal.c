/* How a process can die of a signal: signal_fatal NUMBER|abort|child|blocked. What it printed before must be there. */
#include "see.h"
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

int main(int count, char **arguments) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    const char *how = count > 1 ? arguments[1] : "15";
    same("dies of %s", how);
    if (strcmp(how, "abort") == 0)
        abort();
    if (strcmp(how, "child") == 0) {
        pid_t parent = getpid();
        if (must(fork()) == 0) {
            nanosleep(&(struct timespec){0, 5000000}, NULL);
            kill(parent, SIGTERM);
            _exit(0);
        }
        for (;;)
            pause();
    }
    if (strcmp(how, "compute") == 0) {
        pid_t parent = getpid();
        if (must(fork()) == 0) {
            nanosleep(&(struct timespec){0, 5000000}, NULL);
            kill(parent, SIGTERM);
            _exit(0);
        }
        for (volatile long i = 0;; i++)
            ;
    }
    if (strcmp(how, "blocked") == 0) {
        sigset_t set;
        sigemptyset(&set);
        sigaddset(&set, SIGTERM);
        sigprocmask(SIG_BLOCK, &set, NULL);
        raise(SIGTERM);
        same("still there");
        sigprocmask(SIG_UNBLOCK, &set, NULL);
    }
    if (strcmp(how, "fault") == 0)
        *(volatile int *)8 = 1;
    if (strcmp(how, "children") == 0) {
        for (int number = 1; number < 32; number++) {
            if (number == SIGSTOP || number == SIGTSTP || number == SIGTTIN || number == SIGTTOU || number == SIGCONT)
                continue;
            pid_t child = must(fork());
            if (child == 0) {
                raise(number);
                _exit(50);
            }
            int status;
            must(waitpid(child, &status, 0));
            same("%d: %s %d", number, WIFSIGNALED(status) ? "died of" : "exited with", WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
        }
        return 0;
    }
    raise(atoi(how));
    same("not dead");
    return 3;
}
