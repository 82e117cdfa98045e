/* SIGPIPE: ignored, handled, and by default the end of a child. */
#include "see.h"
#include <signal.h>
#include <sys/wait.h>

static volatile sig_atomic_t count;

static void note(int number) {
    (void)number;
    count++;
}

int main(void) {
    int ends[2], status;
    must(pipe(ends));
    close(ends[0]);
    signal(SIGPIPE, SIG_IGN);
    refused(write(ends[1], "x", 1));
    signal(SIGPIPE, note);
    refused(write(ends[1], "x", 1));
    same("handled %d", count);
    signal(SIGPIPE, SIG_DFL);
    pid_t child = must(fork());
    if (child == 0) {
        write(ends[1], "x", 1);
        _exit(1);
    }
    must(waitpid(child, &status, 0));
    same("the child died of %d", WTERMSIG(status));
    return 0;
}
