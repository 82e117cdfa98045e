// serve: accepts on the listening socket 3, passes each connection to a child by a Unix socket, which answers a line
// in capital letters and closes. Ends when a line is `end`.
#include <assert.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void pass(int over, int descriptor) {
    char byte = 'x', control[CMSG_SPACE(sizeof descriptor)] = {0};
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET, head->cmsg_type = SCM_RIGHTS, head->cmsg_len = CMSG_LEN(sizeof descriptor);
    memcpy(CMSG_DATA(head), &descriptor, sizeof descriptor);
    assert(sendmsg(over, &message, 0) == 1);
}

static int passed(int over) {
    char byte, control[CMSG_SPACE(sizeof(int))];
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    if (recvmsg(over, &message, 0) != 1) return -1;
    int descriptor;
    memcpy(&descriptor, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof descriptor);
    return descriptor;
}

int main(void) {
    int pair[2];
    assert(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    if (fork() == 0) {
        close(pair[0]);
        for (int connection; (connection = passed(pair[1])) >= 0; close(connection)) {
            char line[256];
            ssize_t length = read(connection, line, sizeof line);
            for (ssize_t i = 0; i < length; i++) line[i] = toupper(line[i]);
            assert(write(connection, line, length) == length);
            if (length >= 3 && memcmp(line, "END", 3) == 0) _exit(0);
        }
        _exit(1);
    }
    close(pair[1]);
    for (;;) {
        int connection = accept(3, NULL, NULL);
        if (connection < 0) return 1;
        char ahead[3];
        ssize_t there = recv(connection, ahead, 3, MSG_PEEK | MSG_WAITALL);
        pass(pair[0], connection);
        // As libuv closes.
        syscall(SYS_close, connection);
        if (there == 3 && memcmp(ahead, "end", 3) == 0) break;
    }
    int status;
    wait(&status);
    return WEXITSTATUS(status);
}
