/* Writes to a file that it has mapped, and sees it through the mapping: memory that changes without a store of the program. */
#include "see.h"
#include <sys/mman.h>
#include <time.h>

int main(void) {
    struct timespec now;
    must(clock_gettime(CLOCK_REALTIME, &now));
    seen("before: %ld.%09ld", (long)now.tv_sec, now.tv_nsec);
    fflush(stdout);
    int fd = must(open("data", O_CREAT | O_RDWR, 0600));
    must(ftruncate(fd, 4096));
    char *shared = must(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    must(pwrite(fd, "written through the descriptor", 30, 100));
    same("through the mapping: %.30s", shared + 100);
    return 0;
}
