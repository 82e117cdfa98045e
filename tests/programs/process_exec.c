/* One image after the other in the same process: by path, by PATH, by descriptor, a script, one that is not there. */
#include "see.h"
#include <time.h>

int main(int count, char **arguments) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    int step = count > 1 ? atoi(arguments[1]) : 0;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    same("step %d with %d arguments, HOME %s, STEP %s", step, count, getenv("HOME") ? "set" : "not set", getenv("STEP") ? getenv("STEP") : "none");
    seen("%d at %ld", getpid(), now.tv_nsec);
    char self[4096] = "", next[20];
    must(readlink("/proc/self/exe", self, sizeof self - 1));
    sprintf(next, "%d", step + 1);
    char *environment[] = {"STEP=bare", NULL};
    switch (step) {
    case 0:
        refused(execl("/nowhere/at/all", "x", NULL));
        refused(execl("/", "x", NULL));
        refused(execlp("there-is-no-such-program", "x", NULL));
        setenv("STEP", "zero", 1);
        must(execv(self, (char *[]){arguments[0], next, "a", "b", NULL}));
        break;
    case 1:
        must(execle(self, arguments[0], next, NULL, environment));
        break;
    case 2: {
        int file = must(open(self, O_RDONLY | O_CLOEXEC));
        setenv("PATH", "/usr/bin:/bin", 1);
        must(fexecve(file, (char *[]){arguments[0], next, NULL}, environ));
        break;
    }
    case 3: {
        int script = must(open("script", O_CREAT | O_WRONLY | O_TRUNC, 0755));
        dprintf(script, "#!/bin/sh\necho script $0 $1; exec %s $1\n", self);
        close(script);
        must(execl("./script", "script", next, NULL));
        break;
    }
    case 4:
        setenv("PATH", "/usr/bin:/bin", 1);
        must(execlp("sh", "sh", "-c", "echo shell; exit 5", NULL));
        break;
    }
    return 1;
}
