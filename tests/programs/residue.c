/* What calls leave on the stack, as a program finds it in a variable that it does not initialise, and as a collector does that takes
 * it for addresses. */
#include "see.h"

#include <sys/random.h>
#include <time.h>

/* Of the 4,000 bytes below the caller. */
__attribute__((noinline)) static uint64_t found(void) {
    unsigned char left[4000];
    /* The compiler is told that it was written. */
    __asm__ volatile("" : "=m"(left));
    uint64_t hash = 14695981039346656037u;
    for (size_t at = 0; at < sizeof left; at++)
        hash = (hash ^ left[at]) * 1099511628211u;
    return hash;
}

/* Addresses of the program's, for calls to leave or to write over. */
__attribute__((noinline)) static void put_addresses(void) {
    void *volatile mine[900];
    for (size_t at = 0; at < sizeof mine / sizeof *mine; at++)
        mine[at] = (void *)&stdout;
}

#define left_by(call)                                                                                                                      \
    do {                                                                                                                                   \
        put_addresses();                                                                                                                          \
        (void)!(call);                                                                                                                     \
        seen("%s leaves %016lx", #call, found());                                                                                          \
    } while (0)

int main(void) {
    char bytes[64];
    struct timespec now, short_while = {0, 1000};
    struct stat about;
    for (int round = 0; round < 3; round++) {
        left_by(clock_gettime(CLOCK_REALTIME, &now));
        left_by(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now));
        left_by(getrandom(bytes, sizeof bytes, 0));
        int file = open("input.txt", O_RDONLY);
        left_by(read(file, bytes, sizeof bytes));
        left_by(lseek(file, 0, SEEK_SET));
        left_by(fstat(file, &about));
        left_by(close(file));
        left_by(stat("input.txt", &about));
        left_by(access("input.txt", R_OK));
        left_by(nanosleep(&short_while, NULL));
    }
    same("done");
    return 0;
}
