/* vfork: the child runs on its parent's stack until it executes something else or ends. */
#include "see.h"
#include <sys/wait.h>

int main(void) {
    int status;
    pid_t child = must(vfork());
    if (child == 0)
        _exit(3);
    must(waitpid(child, &status, 0));
    seen("child %d", child);
    same("ended with %d", WEXITSTATUS(status));
    child = must(vfork());
    if (child == 0) {
        execlp("sh", "sh", "-c", "echo from the shell; date +%s.%N | sed 's/^/~ /'; exit 4", (char *)NULL);
        _exit(127);
    }
    must(waitpid(child, &status, 0));
    same("the shell ended with %d", WEXITSTATUS(status));
    return 0;
}
