/* A tree of children: copies of memory, files they share, what each of them sees, and how each ended. */
#include "see.h"
#include <pthread.h>
#include <sys/wait.h>
#include <time.h>

static int value = 1;

static void before(void) { value += 100; }
static void in_parent(void) { value += 1000; }
static void in_child(void) { value += 10000; }

static int tree(int depth) {
    if (depth == 0)
        return 1;
    int total = 1;
    for (int i = 0; i < 2; i++) {
        fflush(stdout);
        pid_t child = must(fork());
        if (child == 0) {
            struct timespec now;
            clock_gettime(CLOCK_REALTIME, &now);
            seen("child at depth %d, %ld", depth, now.tv_nsec);
            exit(tree(depth - 1));
        }
        int status;
        must(waitpid(child, &status, 0));
        total += WEXITSTATUS(status);
    }
    return total;
}

int main(void) {
    same("tree of %d", tree(3));
    seen("I am %d, child of %d", getpid(), getppid());
    must_be_zero(pthread_atfork(before, in_parent, in_child));
    int ends[2];
    must(pipe(ends));
    fflush(stdout);
    pid_t child = must(fork());
    if (child == 0) {
        char *memory = malloc(100000);
        int text = snprintf(memory, 100000, "child %d, value %d, memory %p", getpid(), value, (void *)memory);
        must(write(ends[1], memory, (size_t)text));
        _exit(0);
    }
    char line[200];
    ssize_t size = must(read(ends[0], line, sizeof line));
    int status;
    must(waitpid(child, &status, 0));
    seen("%.*s", (int)size, line);
    same("value %d", value);
    /* Side by side. */
    pid_t children[6];
    for (int i = 0; i < 6; i++) {
        children[i] = must(fork());
        if (children[i] == 0) {
            int file = must(open("/dev/urandom", O_RDONLY));
            unsigned char byte[2];
            must(read(file, byte, 2));
            _exit(byte[0] ^ byte[1] ^ i);
        }
    }
    for (int i = 0; i < 6; i++) {
        siginfo_t info;
        must(waitid(P_PID, (id_t)children[i], &info, WEXITED | WNOWAIT));
        must(waitpid(children[i], &status, 0));
        seen("%d ended with %d, as %d", children[i], WEXITSTATUS(status), info.si_status);
    }
    refused(wait(NULL));
    return 0;
}
