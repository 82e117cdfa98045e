/* Handlers that never return: siglongjmp out of a read, of a computation, of a fault, of a handler in a handler. */
#include "see.h"
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/time.h>

static sigjmp_buf place;
static volatile int rounds;

static void jump(int number) {
    siglongjmp(place, number);
}

static void again(int number) {
    if (number == SIGUSR1)
        raise(SIGUSR2);
    siglongjmp(place, 77);
}

static void fault(int number, siginfo_t *info, void *context) {
    (void)context;
    same("fault %d, code %d", number, info->si_code);
    seen("at %p", info->si_addr);
    siglongjmp(place, number);
}

static void timer(long microseconds) {
    must(setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {0, microseconds}}, NULL));
}

int main(void) {
    int ends[2];
    char byte;
    must(pipe(ends));
    for (int flags = 0; flags <= SA_RESTART; flags += SA_RESTART) {
        must(sigaction(SIGALRM, &(struct sigaction){.sa_handler = jump, .sa_flags = flags}, NULL));
        for (rounds = 0; rounds < 5; rounds++) {
            if (sigsetjmp(place, 1) == 0) {
                timer(2000);
                read(ends[0], &byte, 1);
                same("never");
            }
        }
        same("%d times out of a read", rounds);
    }
    long calls = 0;
    int jumped = sigsetjmp(place, 1);
    if (jumped == 0) {
        timer(3000);
        for (;;)
            calls += getppid() > 0;
    }
    same("out of a loop with %d", jumped);

    must(sigaction(SIGUSR1, &(struct sigaction){.sa_handler = again}, NULL));
    must(sigaction(SIGUSR2, &(struct sigaction){.sa_handler = again}, NULL));
    jumped = sigsetjmp(place, 1);
    if (jumped == 0)
        raise(SIGUSR1);
    same("out of two handlers with %d", jumped);
    sigset_t mask;
    must(sigprocmask(SIG_BLOCK, NULL, &mask));
    same("blocked %d %d", sigismember(&mask, SIGUSR1), sigismember(&mask, SIGUSR2));

    char *forbidden = must(mmap((void *)0x700000000000, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0));
    must(sigaction(SIGSEGV, &(struct sigaction){.sa_sigaction = fault, .sa_flags = SA_SIGINFO | SA_ONSTACK}, NULL));
    static char stack[65536];
    must(sigaltstack(&(stack_t){.ss_sp = stack, .ss_size = sizeof stack}, NULL));
    for (rounds = 0; rounds < 3; rounds++)
        if (sigsetjmp(place, 1) == 0)
            *(volatile char *)(forbidden + rounds) = 1;
    must(sigaction(SIGFPE, &(struct sigaction){.sa_sigaction = fault, .sa_flags = SA_SIGINFO}, NULL));
    volatile int zero = 0;
    if (sigsetjmp(place, 1) == 0)
        same("%d", (int)rounds / zero);
    same("%d rounds", rounds);
    return 0;
}
