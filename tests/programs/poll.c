/* poll, ppoll, select, pselect: what is ready, what is not in time. */
#include "see.h"
#include <poll.h>
#include <signal.h>
#include <sys/select.h>

int main(void) {
    int a[2], b[2];
    must(pipe(a));
    must(pipe(b));
    struct pollfd fds[] = {{a[0], POLLIN, 0}, {b[0], POLLIN | POLLPRI, 0}, {a[1], POLLOUT, 0}, {555, POLLIN, 0}, {-1, POLLIN, 0}};
    int count = must(poll(fds, 5, -1));
    for (int i = 0; i < 5; i++)
        same("poll %d: fd %d %#x", count, fds[i].fd, (unsigned)fds[i].revents);
    must(write(b[1], "x", 1));
    must(close(a[1]));
    struct timespec patience = {1, 0};
    sigset_t none;
    sigemptyset(&none);
    count = must(ppoll(fds, 2, &patience, &none));
    same("ppoll %d: %#x %#x", count, (unsigned)fds[0].revents, (unsigned)fds[1].revents);
    char byte;
    must(read(b[0], &byte, 1));
    same("in vain: %d", must(poll(fds + 1, 1, 20)));
    same("not waiting: %d", must(poll(NULL, 0, 0)));

    fd_set readable, writable;
    FD_ZERO(&readable);
    FD_ZERO(&writable);
    FD_SET(a[0], &readable), FD_SET(b[0], &readable), FD_SET(b[1], &writable);
    struct timeval time = {5, 250};
    count = must(select(b[1] + 1, &readable, &writable, NULL, &time));
    same("select %d: %d %d %d", count, FD_ISSET(a[0], &readable), FD_ISSET(b[0], &readable), FD_ISSET(b[1], &writable));
    seen("left: %ld.%06ld", (long)time.tv_sec, (long)time.tv_usec);
    FD_ZERO(&readable);
    FD_SET(b[0], &readable);
    time = (struct timeval){0, 20000};
    count = must(select(b[0] + 1, &readable, NULL, NULL, &time));
    same("select in vain: %d %d, left %ld", count, FD_ISSET(b[0], &readable), (long)time.tv_usec);
    must(write(b[1], "y", 1));
    FD_ZERO(&readable);
    FD_SET(b[0], &readable);
    count = must(pselect(b[0] + 1, &readable, NULL, NULL, &patience, &none));
    same("pselect %d %d", count, FD_ISSET(b[0], &readable));
    FD_ZERO(&readable);
    FD_SET(50, &readable);
    refused(select(51, &readable, NULL, NULL, &time));
    volatile nfds_t many = 1u << 30;
    refused(poll(fds, many, 0));
    return 0;
}
