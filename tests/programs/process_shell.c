/* system, popen, and pipelines that a shell builds. */
#include "see.h"
#include <sys/wait.h>

int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    same("a shell: %d", system(NULL) != 0);
    same("system: %d", WEXITSTATUS(must(system("echo from the shell; exit 7"))));
    int status = must(system("kill -TERM $$"));
    same("killed: %d %d", WIFSIGNALED(status), WTERMSIG(status));
    FILE *from = must(popen("seq 1 1000 | sort -rn | head -3; date +%N", "r"));
    char line[100];
    for (int number = 0; fgets(line, sizeof line, from); number++) {
        line[strcspn(line, "\n")] = 0;
        if (number < 3)
            same("line %s", line);
        else
            seen("%s", line);
    }
    same("pclose: %d", pclose(from));
    FILE *to = must(popen("tr a-z A-Z", "w"));
    fputs("some text\n", to);
    same("pclose: %d", pclose(to));
    same("not there: %d", WEXITSTATUS(must(system("there-is-no-such-command 2>/dev/null"))));
    return 0;
}
