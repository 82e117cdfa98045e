// Locks itself in: whatever is no read, write or end of the process kills it. Then serves socket 3.
#include <assert.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static int begin[2], ready[2];

static void *second(void *nothing) {
    (void)nothing;
    char byte;
    assert(write(ready[1], "x", 1) == 1);
    assert(read(begin[0], &byte, 1) == 1);
    // A thread that had said nothing before, on a descriptor that nobody had looked at.
    assert(write(4, "second", 6) == 6);
    assert(write(3, "second", 6) == 6);
    syscall(SYS_exit_group, 0);
    return NULL;
}

int main(int count, char **arguments) {
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_read, 3, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof rules / sizeof *rules, rules};
    pthread_t thread;
    char byte;
    assert(pipe(begin) == 0 && pipe(ready) == 0 && pthread_create(&thread, NULL, second, NULL) == 0);
    // It has made the system calls with which a thread begins.
    assert(read(ready[0], &byte, 1) == 1);
    assert(write(3, "first", 5) == 5);
    assert(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    // The filter is for all threads: the second one was there before.
    if (count > 1 && strcmp(arguments[1], "prctl") == 0)
        assert(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0);
    else
        assert(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0);
    assert(write(3, "locked", 6) == 6);
    assert(write(begin[1], "x", 1) == 1);
    (void)!read(3, &byte, 1);
    return 0;
}
