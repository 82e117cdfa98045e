/* A loop without calls that only a handler ends. */
#include "see.h"
#include <signal.h>
#include <unistd.h>

static volatile sig_atomic_t flag;

static void note(int number) {
    (void)number;
    flag = 1;
}

int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    signal(SIGALRM, note);
    same("begins");
    ualarm(5000, 0);
    while (!flag)
        ;
    same("ends");
    return 0;
}
