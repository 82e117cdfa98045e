/* posix_spawn: with files moved about, with attributes, of what is not there. */
#include "see.h"
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

static void ended(pid_t child) {
    int status;
    must(waitpid(child, &status, 0));
    seen("child %d", child);
    same("ended with %x", status);
}

int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    pid_t child;
    must_be_zero(posix_spawn(&child, "/bin/sh", NULL, NULL, (char *[]){"sh", "-c", "echo plain; exit 3", NULL}, environ));
    ended(child);

    posix_spawn_file_actions_t files;
    must_be_zero(posix_spawn_file_actions_init(&files));
    must_be_zero(posix_spawn_file_actions_addopen(&files, 1, "spawned", O_CREAT | O_WRONLY | O_TRUNC, 0600));
    must_be_zero(posix_spawn_file_actions_adddup2(&files, 1, 2));
    must_be_zero(posix_spawn_file_actions_addclose(&files, 0));
    posix_spawnattr_t attributes;
    must_be_zero(posix_spawnattr_init(&attributes));
    sigset_t set;
    sigfillset(&set);
    must_be_zero(posix_spawnattr_setsigdefault(&attributes, &set));
    sigemptyset(&set);
    must_be_zero(posix_spawnattr_setsigmask(&attributes, &set));
    must_be_zero(posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP));
    must_be_zero(posix_spawnp(&child, "sh", &files, &attributes, (char *[]){"sh", "-c", "echo to a file; echo and this >&2; exit 4", NULL}, environ));
    ended(child);
    char text[100] = "";
    int file = must(open("spawned", O_RDONLY));
    must(read(file, text, sizeof text - 1));
    same("%s", text);

    same("missing: %s", strerrorname_np(posix_spawn(&child, "/not/there", NULL, NULL, (char *[]){"x", NULL}, environ)));
    same("missing: %s", strerrorname_np(posix_spawnp(&child, "no-such-program-anywhere", NULL, NULL, (char *[]){"x", NULL}, environ)));
    must_be_zero(posix_spawn_file_actions_addopen(&files, 5, "/not/there/either", O_RDONLY, 0));
    same("missing file: %s", strerrorname_np(posix_spawn(&child, "/bin/sh", &files, NULL, (char *[]){"sh", NULL}, environ)));
    refused(wait(NULL));
    return 0;
}
