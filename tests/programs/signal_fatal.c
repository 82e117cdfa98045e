/* How a process can die of a signal: signal_fatal NUMBER|abort|blocked|fault|waiting|computing|children. What it printed before must be there. */
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
    if (strcmp(how, "waiting") == 0 || strcmp(how, "computing") == 0) {
        pid_t child = must(fork());
        if (child == 0) {
            if (how[0] == 'w')
                for (;;)
                    pause();
            for (volatile long i = 0;; i++)
                ;
        }
        nanosleep(&(struct timespec){0, 5000000}, NULL);
        must(kill(child, SIGTERM));
        int status;
        must(waitpid(child, &status, 0));
        same("the child died of %d", WTERMSIG(status));
        return 0;
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
    /* Who started it may ignore it. */
    signal(atoi(how), SIG_DFL);
    raise(atoi(how));
    same("not dead");
    return 3;
}
