/* Raises a filter against itself after the start, as servers and sandboxes do: `seccomp deny` has one call refused, `seccomp kill` ends
 * the process at any call that it has no use for, `seccomp strict` allows read, write and exit only. */
#include "see.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>

#define ALLOW(number) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static void raise_filter(struct sock_filter *filter, size_t size) {
    struct sock_fprog program = {(unsigned short)size, filter};
    must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    must(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
}

int main(int count, char **arguments) {
    const char *how = count > 1 ? arguments[1] : "deny";
    struct timespec now;
    char bytes[100];
    must(clock_gettime(CLOCK_REALTIME, &now));
    seen("before: %ld.%09ld", (long)now.tv_sec, now.tv_nsec);
    fflush(stdout);
    int input = must(open("input.txt", O_RDONLY));
    if (!strcmp(how, "deny")) {
        struct sock_filter filter[] = {
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mkdir, 0, 1),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EXDEV),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        };
        raise_filter(filter, sizeof filter / sizeof *filter);
        refused(mkdir("folder", 0700));
    } else if (!strcmp(how, "kill")) {
        struct sock_filter filter[] = {
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
            ALLOW(SYS_read),
            ALLOW(SYS_write),
            ALLOW(SYS_brk),
            ALLOW(SYS_exit_group),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        };
        raise_filter(filter, sizeof filter / sizeof *filter);
    } else
        must(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT));
    ssize_t size = must(read(input, bytes, 20));
    int length = snprintf(bytes + size, sizeof bytes - (size_t)size, "\nread %zd under the filter\n", size);
    must(write(1, bytes, (size_t)(size + length)));
    syscall(strcmp(how, "strict") ? SYS_exit_group : SYS_exit, 6);
}
