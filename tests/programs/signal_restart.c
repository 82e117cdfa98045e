/* SA_RESTART: a read goes on after the handler, and gets what a child writes later. */
#include "see.h"
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

static volatile sig_atomic_t count;
static int seen_it[2];

static void note(int number) {
    (void)number;
    count++;
    if (write(1, "handler\n", 8) != 8 || write(seen_it[1], "", 1) != 1)
        _exit(98);
}

int main(void) {
    setvbuf(stdout, NULL, _IONBF, 0);
    int ends[2];
    must(pipe(ends));
    must(pipe(seen_it));
    must(sigaction(SIGUSR1, &(struct sigaction){.sa_handler = note, .sa_flags = SA_RESTART}, NULL));
    pid_t parent = getpid();
    pid_t child = must(fork());
    if (child == 0) {
        struct timespec pause = {0, 3000000};
        for (int i = 0; i < 3; i++) {
            nanosleep(&pause, NULL);
            must(kill(parent, SIGUSR1));
            char byte;
            must(read(seen_it[0], &byte, 1));
        }
        nanosleep(&pause, NULL);
        must(write(ends[1], "done", 4));
        _exit(0);
    }
    char text[10] = "";
    ssize_t size = must(read(ends[0], text, sizeof text));
    same("read %zd %s after %d signals", size, text, count);
    int status;
    must(waitpid(child, &status, 0));
    same("status %d", status);

    /* Without it, the wait is interrupted and must be made again. */
    must(sigaction(SIGUSR1, &(struct sigaction){.sa_handler = note}, NULL));
    child = must(fork());
    if (child == 0) {
        nanosleep(&(struct timespec){0, 3000000}, NULL);
        must(kill(parent, SIGUSR1));
        nanosleep(&(struct timespec){0, 20000000}, NULL);
        _exit(7);
    }
    errno = 0;
    pid_t got = waitpid(child, &status, 0);
    seen("waitpid %d %s", got, strerrorname_np(errno));
    if (got < 0)
        must(waitpid(child, &status, 0));
    same("status %d", WEXITSTATUS(status));
    return 0;
}
