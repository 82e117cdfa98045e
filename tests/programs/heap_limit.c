/* Memory that ends: where depends on the limit and on what else is mapped, so replay must end it at the same block. */
#include "see.h"
#include <malloc.h>
#include <sys/resource.h>

static long until_refused(size_t size) {
    long count = 0;
    while (malloc(size))
        count++;
    return count;
}

int main(void) {
    seen("stdout has its buffer");
    struct rlimit limit;
    must(getrlimit(RLIMIT_AS, &limit));
    /* What is mapped now, and 200 MiB. */
    unsigned long pages;
    FILE *file = must(fopen("/proc/self/statm", "r"));
    same("%d number", fscanf(file, "%lu", &pages));
    fclose(file);
    limit.rlim_cur = pages * 4096 + (200u << 20);
    must(setrlimit(RLIMIT_AS, &limit));
    seen("%ld blocks of a megabyte, %s", until_refused(1 << 20), strerrorname_np(errno));
    seen("%ld blocks of 5000 bytes, %s", until_refused(5000), strerrorname_np(errno));
    seen("%ld blocks of 50 bytes, %s", until_refused(50), strerrorname_np(errno));
    void *last = NULL;
    seen("growing: %p", realloc(NULL, 100 << 20));
    seen("aligned: %d", posix_memalign(&last, 1 << 20, 1 << 20));
    limit.rlim_cur = limit.rlim_max;
    must(setrlimit(RLIMIT_AS, &limit));
    same("without the limit: %d", malloc(1 << 20) != NULL);
    return 0;
}
