// Every way to read and write a stream, on one that is a pair of its own. Prints what came.
#define _GNU_SOURCE
#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

static int pair[2];

static void came(const char *how, const char *text, ssize_t length) { printf("%s %.*s\n", how, (int)length, text); }

int main(void) {
    char bytes[64], more[64];
    assert(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    struct iovec to[2] = {{bytes, 3}, {more, 60}};

    assert(write(pair[0], "write", 5) == 5);
    came("read", bytes, read(pair[1], bytes, sizeof bytes));

    struct iovec from[2] = {{"wri", 3}, {"tev", 3}};
    assert(writev(pair[0], from, 2) == 6);
    ssize_t got = readv(pair[1], to, 2);
    came("readv", bytes, 3), came("readv", more, got - 3);

    assert(send(pair[0], "send", 4, 0) == 4);
    came("peek", bytes, recv(pair[1], bytes, sizeof bytes, MSG_PEEK));
    came("recv", bytes, recv(pair[1], bytes, sizeof bytes, 0));

    assert(sendto(pair[0], "sendto", 6, MSG_NOSIGNAL, NULL, 0) == 6);
    came("recvfrom", bytes, recvfrom(pair[1], bytes, sizeof bytes, 0, NULL, NULL));

    struct msghdr out = {.msg_iov = from, .msg_iovlen = 2}, in = {.msg_iov = to, .msg_iovlen = 2};
    assert(sendmsg(pair[0], &out, 0) == 6);
    got = recvmsg(pair[1], &in, 0);
    came("recvmsg", bytes, 3), came("recvmsg", more, got - 3);

    struct mmsghdr several[2] = {{.msg_hdr = out}, {.msg_hdr = out}};
    assert(sendmmsg(pair[0], several, 2, 0) == 2);
    struct mmsghdr received[1] = {{.msg_hdr = in}};
    assert(recvmmsg(pair[1], received, 1, 0, NULL) == 1);
    came("recvmmsg", more, received[0].msg_len - 3);
    // A second message is taken for the rest of the first one or comes by itself.
    if (received[0].msg_len < 12) assert(read(pair[1], bytes, sizeof bytes) == 12 - received[0].msg_len);

    char name[] = "/tmp/familiesXXXXXX";
    int file = mkstemp(name);
    unlink(name);
    assert(write(file, "sendfile", 8) == 8 && lseek(file, 0, SEEK_SET) == 0);
    assert(sendfile(pair[0], file, NULL, 8) == 8);
    came("sendfile", bytes, read(pair[1], bytes, sizeof bytes));

    int pipes[2];
    assert(pipe(pipes) == 0 && write(pipes[1], "splice", 6) == 6);
    assert(splice(pipes[0], NULL, pair[0], NULL, 6, 0) == 6);
    assert(splice(pair[1], NULL, pipes[1], NULL, 6, 0) == 6);
    came("splice", bytes, read(pipes[0], bytes, sizeof bytes));

    int copy = dup(pair[0]), higher = fcntl(pair[0], F_DUPFD_CLOEXEC, 100);
    assert(copy > 0 && higher >= 100 && dup2(pair[0], 90) == 90 && dup3(pair[0], 91, O_CLOEXEC) == 91);
    int copies[] = {copy, higher, 90, 91};
    for (int i = 0; i < 4; i++) {
        assert(write(copies[i], "dup", 3) == 3);
        came("dup", bytes, read(pair[1], bytes, sizeof bytes));
    }
    // Errors are the program's to see.
    assert(write(-1, "", 1) == -1 && read(12345, bytes, 1) == -1 && close(54321) == -1);
    assert(shutdown(pair[0], SHUT_WR) == 0);
    assert(read(pair[1], bytes, sizeof bytes) == 0);
    puts("end");
    return 0;
}
