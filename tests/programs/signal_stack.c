/* Handlers on an alternate stack of the size that libc recommends: nothing below it is touched, whatever they call. Where they run is not
 * the same when recorded: the recorder gives them more room. */
#include "see.h"
#include <signal.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <time.h>

enum { BELOW = 1 << 16 };
static unsigned char *memory;
static size_t size;
static int calls, ends[2];

static void handler(int signal) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    unsigned char byte = (unsigned char)signal;
    must(write(ends[1], &byte, 1));
    must(syscall(SYS_getppid));
    calls++;
}

int main(void) {
    must(pipe(ends));
    /* Four handlers may lie on it, one upon the other, each with the processor's registers. */
    size = 8192 + 4 * getauxval(AT_MINSIGSTKSZ);
    memory = must(malloc(BELOW + size));
    memset(memory, 0x5a, BELOW + size);
    stack_t stack = {.ss_sp = memory + BELOW, .ss_size = size}, old;
    must(sigaltstack(&stack, NULL));
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
    const int signals[] = {SIGUSR1, SIGUSR2, SIGALRM, SIGRTMIN + 1};
    sigset_t set;
    sigemptyset(&set);
    for (int i = 0; i < 4; i++) {
        must(sigaction(signals[i], &action, NULL));
        sigaddset(&set, signals[i]);
    }
    for (int round = 0; round < 3; round++) {
        must(sigprocmask(SIG_BLOCK, &set, NULL));
        for (int i = 0; i < 4; i++)
            must(raise(signals[i]));
        must(sigprocmask(SIG_UNBLOCK, &set, NULL));
        must(raise(SIGUSR1));
    }
    must(sigaltstack(NULL, &old));
    same("%d calls; the stack is the one that was set: %d, %d", calls, old.ss_sp == stack.ss_sp, old.ss_size == size);
    stack.ss_flags = SS_DISABLE;
    must(sigaltstack(&stack, &old));
    same("and was until now: %d", old.ss_sp == memory + BELOW);
    must(sigaltstack(NULL, &old));
    same("there is none: %d", old.ss_flags == SS_DISABLE);
    size_t touched = 0;
    for (size_t i = 0; i < BELOW; i++)
        touched += memory[i] != 0x5a;
    same("below it: %zu", touched);
    return 0;
}
