/* epoll: level and edge, once only, pointers as data (equal addresses in both runs), timeouts, nesting. */
#include "see.h"
#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>

struct connection {
    int fd;
    const char *name;
};

int main(void) {
    int epoll = must(epoll_create1(EPOLL_CLOEXEC)), old = must(epoll_create(5));
    struct connection *made[4];
    int pairs[4][2];
    static const char *const names[] = {"north", "east", "south", "west"};
    for (int i = 0; i < 4; i++) {
        must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pairs[i]));
        made[i] = malloc(sizeof *made[i]);
        *made[i] = (struct connection){pairs[i][0], names[i]};
        struct epoll_event event = {.events = EPOLLIN | (i == 1 ? EPOLLET : 0) | (i == 2 ? EPOLLONESHOT : 0), .data.ptr = made[i]};
        must(epoll_ctl(epoll, EPOLL_CTL_ADD, pairs[i][0], &event));
    }
    struct epoll_event events[10];
    same("nothing yet: %d", must(epoll_wait(epoll, events, 10, 0)));
    for (int i = 3; i >= 0; i--)
        must(write(pairs[i][1], "ping", 4));
    for (int round = 0; round < 3; round++) {
        int count = must(epoll_wait(epoll, events, 10, 10));
        same("round %d: %d are ready", round, count);
        for (int i = 0; i < count; i++) {
            struct connection *connection = events[i].data.ptr;
            char bytes[10];
            seen("%s at %p: %#x", connection->name, (void *)connection, events[i].events);
            if (connection->fd == pairs[0][0])
                must(read(connection->fd, bytes, sizeof bytes));
        }
    }
    struct epoll_event again = {.events = EPOLLIN | EPOLLOUT, .data.u64 = 0x123456789abcdef};
    must(epoll_ctl(epoll, EPOLL_CTL_MOD, pairs[2][0], &again));
    must(epoll_ctl(epoll, EPOLL_CTL_DEL, pairs[3][0], NULL));
    sigset_t mask;
    sigemptyset(&mask);
    int count = must(epoll_pwait(epoll, events, 10, 10, &mask));
    same("modified: %d, %#x %lx", count, events[0].events, (unsigned long)events[0].data.u64);
    must(close(pairs[2][1]));
    struct timespec patience = {0, 5000000};
    count = must(epoll_pwait2(epoll, events, 1, &patience, NULL));
    same("hung up: %d, %#x", count, events[0].events);
    must(epoll_ctl(epoll, EPOLL_CTL_DEL, pairs[2][0], NULL));
    again = (struct epoll_event){.events = EPOLLIN, .data.fd = epoll};
    must(epoll_ctl(old, EPOLL_CTL_ADD, epoll, &again));
    must(write(pairs[0][1], "more", 4));
    count = must(epoll_wait(old, events, 10, 1000));
    same("one within the other: %d, %d", count, events[0].data.fd == epoll);
    refused(epoll_ctl(epoll, EPOLL_CTL_ADD, pairs[0][0], &again));
    refused(epoll_ctl(epoll, EPOLL_CTL_ADD, 555, &again));
    refused(epoll_wait(555, events, 10, 0));
    refused(epoll_wait(epoll, events, 0, 0));
    return 0;
}
