/* What a vfork child leaves in its parent's variables, and a parent that waits for it to be gone. */
#include "see.h"
#include <sys/wait.h>

int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    volatile int code = 0;
    int status;
    pid_t child = must(vfork());
    if (child == 0) {
        execl("/not/there", "x", NULL);
        code = errno;
        _exit(9);
    }
    same("the child could not: %s", strerrorname_np(code));
    must(waitpid(child, &status, 0));
    same("status %d", WEXITSTATUS(status));
    for (volatile int i = 0; i < 5; i++) {
        child = must(vfork());
        if (child == 0) {
            char number[10] = {(char)('0' + i), 0};
            execlp("sh", "sh", "-c", "exit $0", number, (char *)NULL);
            _exit(127);
        }
        must(waitpid(child, &status, 0));
        same("status %d", WEXITSTATUS(status));
    }
    return 0;
}
