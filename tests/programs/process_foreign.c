/* Programs that cannot be recorded are run all the same: process_foreign STATIC_PROGRAM. */
#include "see.h"
#include <sys/wait.h>

int main(int count, char **arguments) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (count < 2)
        return 2;
    int ends[2], status;
    must(pipe(ends));
    pid_t child = must(fork());
    if (child == 0) {
        must(dup2(ends[1], 1));
        must(execl(arguments[1], "static", NULL));
    }
    close(ends[1]);
    char text[1000];
    ssize_t size, total = 0;
    while ((size = must(read(ends[0], text + total, sizeof text - (size_t)total))) > 0)
        total += size;
    must(waitpid(child, &status, 0));
    same("it said %.*s and ended with %d", (int)total, text, WEXITSTATUS(status));
    return 0;
}
