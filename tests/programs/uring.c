/* Reads a file through io_uring, by hand. The kernel writes the answer into memory without any call that could be recorded. */
#include "see.h"
#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>

int main(void) {
    struct timespec now;
    must(clock_gettime(CLOCK_REALTIME, &now));
    seen("before: %ld.%09ld", (long)now.tv_sec, now.tv_nsec);
    fflush(stdout);
    struct io_uring_params about = {0};
    int ring = (int)syscall(SYS_io_uring_setup, 4, &about);
    if (ring < 0) {
        printf("no ring: %m\n");
        return 1;
    }
    char *sq = must(mmap(NULL, about.sq_off.array + 4 * about.sq_entries, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring, IORING_OFF_SQ_RING));
    char *cq = must(mmap(NULL, about.cq_off.cqes + about.cq_entries * sizeof(struct io_uring_cqe), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring, IORING_OFF_CQ_RING));
    struct io_uring_sqe *entries = must(mmap(NULL, about.sq_entries * sizeof *entries, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring, IORING_OFF_SQES));
    char bytes[100] = "";
    int fd = must(open("input.txt", O_RDONLY));
    entries[0] = (struct io_uring_sqe){.opcode = IORING_OP_READ, .fd = fd, .addr = (uintptr_t)bytes, .len = 30, .user_data = 77};
    ((unsigned *)(sq + about.sq_off.array))[0] = 0;
    __atomic_store_n((unsigned *)(sq + about.sq_off.tail), 1, __ATOMIC_RELEASE);
    same("entered %ld", must(syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0)));
    struct io_uring_cqe *done = (struct io_uring_cqe *)(cq + about.cq_off.cqes);
    same("completed %llu: %d bytes, %s", (unsigned long long)done->user_data, done->res, bytes);
    must(clock_gettime(CLOCK_REALTIME, &now));
    seen("after: %ld.%09ld", (long)now.tv_sec, now.tv_nsec);
    return 5;
}
