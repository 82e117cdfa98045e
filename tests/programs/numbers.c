/* System calls that no wrapper makes: by number through syscall(2), and by an instruction of the program's own. */
#include "see.h"
#include <linux/stat.h>
#include <poll.h>
#include <sys/syscall.h>
#include <time.h>

static long instruction(long number, long a, long b, long c, long d) {
    long answer;
    register long r10 __asm__("r10") = d;
    __asm__ volatile("syscall" : "=a"(answer) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10) : "rcx", "r11", "memory");
    return answer;
}

int main(void) {
    struct timespec now;
    char bytes[64];
    seen("syscall getpid %ld, gettid %ld", syscall(SYS_getpid), syscall(SYS_gettid));
    must(syscall(SYS_clock_gettime, CLOCK_REALTIME, &now));
    seen("syscall clock %ld.%09ld", (long)now.tv_sec, now.tv_nsec);
    same("instruction getpid agrees: %d", instruction(SYS_getpid, 0, 0, 0, 0) == getpid());
    same("instruction clock %ld", instruction(SYS_clock_gettime, CLOCK_MONOTONIC, (long)&now, 0, 0));
    seen("it says %ld.%09ld", (long)now.tv_sec, now.tv_nsec);
    int fd = (int)instruction(SYS_openat, AT_FDCWD, (long)"input.txt", O_RDONLY, 0);
    long size = instruction(SYS_read, fd, (long)bytes, 10, 0);
    same("opened %d, read %ld: %.10s", fd, size, bytes);
    same("then %zd", must(read(fd, bytes, 7)));
    same("closed %ld", instruction(SYS_close, fd, 0, 0, 0));
    same("again %ld", instruction(SYS_close, fd, 0, 0, 0));
    fflush(stdout);
    same("written %ld", instruction(SYS_write, 1, (long)"  by instruction\n", 17, 0));
    refused(syscall(SYS_read, 555, bytes, 1));
    same("no such call: %ld", instruction(4000, 0, 0, 0, 0));
    seen("random %ld", instruction(SYS_getrandom, (long)bytes, 64, 0, 0));
    seen("%016lx", sum(bytes, 64));
    struct statx about;
    same("statx %ld", syscall(SYS_statx, AT_FDCWD, "input.txt", 0, STATX_SIZE, &about));
    same("size %llu", (unsigned long long)about.stx_size);
    seen("poll %ld", instruction(SYS_poll, 0, 0, 5, 0));
    int pidfd = (int)must(syscall(SYS_pidfd_open, getpid(), 0));
    same("pidfd %d", pidfd);
    return 0;
}
