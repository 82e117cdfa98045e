/* The least there is: built statically, for another libc, with a library that is gone, set-uid, or twice. */
#include <stdio.h>
#include <time.h>

#ifndef GREETING
#define GREETING "hello"
#endif

int main(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    printf("%s\n~ at %ld.%09ld\n", GREETING, (long)now.tv_sec, now.tv_nsec);
    return 0;
}
