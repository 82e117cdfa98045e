/* Instructions that answer differently on every run: the time stamp counter and cpuid, in threads, children and other images. */
#include "see.h"
#include <cpuid.h>
#include <pthread.h>
#include <sys/wait.h>
#include <x86intrin.h>

static void look(const char *where) {
    unsigned processor = 0, a, b, c, d;
    uint64_t first = __rdtsc(), second = __rdtscp(&processor);
    seen("%s: the counter says %lu, then %lu on processor %u", where, first, second, processor);
    same("%s: time goes forward: %d", where, second > first);
    __cpuid(0, a, b, c, d);
    char vendor[13] = {0};
    memcpy(vendor, &b, 4), memcpy(vendor + 4, &d, 4), memcpy(vendor + 8, &c, 4);
    seen("%s: %u leaves, %s", where, a, vendor);
    __cpuid(1, a, b, c, d);
    seen("%s: family %08x, this processor %08x, %08x %08x", where, a, b, c, d);
    __cpuid_count(7, 0, a, b, c, d);
    seen("%s: more %08x %08x %08x %08x", where, a, b, c, d);
}

static void *in_thread(void *argument) {
    look(argument);
    return NULL;
}

int main(int count, char **arguments) {
    if (count > 1) {
        look(arguments[1]);
        return 0;
    }
    look("first");
    uint64_t sum = 0;
    for (int i = 0; i < 1000; i++)
        sum = sum * 31 + __rdtsc();
    seen("a thousand times: %016lx", sum);
    pthread_t thread;
    must_be_zero(pthread_create(&thread, NULL, in_thread, "thread"));
    must_be_zero(pthread_join(thread, NULL));
    fflush(stdout);
    int status;
    pid_t child = must(fork());
    if (child == 0) {
        look("child");
        fflush(stdout);
        execl("/proc/self/exe", arguments[0], "image", (char *)NULL);
        _exit(98);
    }
    must(waitpid(child, &status, 0));
    same("the child ended with %d", status);
    execl("/nowhere", "nowhere", (char *)NULL);
    look("after an image that is not there");
    return 0;
}
