// Children of all kinds, each of which writes its own number of bytes to the socket 3 that it was given.
#define _GNU_SOURCE
#include <assert.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static void say(const char *text) { assert(write(3, text, strlen(text)) == (ssize_t)strlen(text)); }

static void wait_for(pid_t child) {
    int status;
    assert(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(int count, char **arguments) {
    if (count > 1) {
        say(arguments[1]);
        return 0;
    }
    say("[begin]");
    for (int i = 0; i < 50; i++) {
        pid_t child = fork();
        if (child == 0) {
            say("[worker]");
            _exit(0);
        }
        wait_for(child);
    }
    // By the system call, past libc.
    pid_t child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (child == 0) {
        say("[clone]");
        _exit(0);
    }
    wait_for(child);
    // A child in our memory that closes all that it has but what it writes to.
    child = vfork();
    if (child == 0) {
        dup2(3, 0);
        close_range(4, ~0U, 0);
        close(3);
        dup2(0, 3);
        execl("/proc/self/exe", arguments[0], "[vfork]", (char *)NULL);
        _exit(1);
    }
    wait_for(child);
    say("[after vfork]");
    char *const spawned[] = {arguments[0], "[spawned]", NULL};
    assert(posix_spawn(&child, "/proc/self/exe", NULL, NULL, spawned, environ) == 0);
    wait_for(child);
    // Closes everything, and opens what it needs again.
    int copy = dup(3);
    assert(dup2(copy, 200) == 200);
    for (int i = 4; i < 200; i++) close(i);
    close(3);
    assert(dup2(200, 3) == 3);
    closefrom(4);
    say("[closed all]");
    // Becomes another program.
    execl("/proc/self/exe", arguments[0], "[executed]", (char *)NULL);
    return 1;
}
