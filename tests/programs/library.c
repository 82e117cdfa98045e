/* Loaded by dlopen.c and deepbind.c while they run. */
#include "see.h"
#include <time.h>

static int loads;

__attribute__((constructor)) static void loaded(void) { loads++; }
__attribute__((destructor)) static void unloaded(void) { puts("  the library is unloaded"); }

long ask_the_time(int *count) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    *count = loads;
    return now.tv_nsec;
}

void drop(void *block) { free(block); }
