/* A daemon: forked twice, away from its terminal and its parent, still recorded. It leaves a file behind; its starter waits for it. */
#include "see.h"
#include <sys/wait.h>

int main(void) {
    int ends[2];
    must(pipe(ends));
    pid_t child = must(fork());
    if (child == 0) {
        must(daemon(1, 1));
        if (must(fork()) != 0)
            _exit(0);
        must(setsid());
        char text[100];
        int size = snprintf(text, sizeof text, "daemon %d, group %d", getpid(), getpgrp());
        must(write(ends[1], text, (size_t)size));
        _exit(0);
    }
    int status;
    must(waitpid(child, &status, 0));
    same("the starter ended with %d", status);
    close(ends[1]);
    char text[100];
    ssize_t size, total = 0;
    while ((size = must(read(ends[0], text + total, sizeof text - (size_t)total))) > 0)
        total += size;
    seen("%.*s", (int)total, text);
    return 0;
}
