/* A server for several clients at once: `serve PORT-FILE` writes down its port, answers every line with its number and the time, and
 * ends when a client says so. */
#include "see.h"
#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <time.h>

int main(int count, char **arguments) {
    if (count < 2)
        return 2;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}, peer;
    int server = must(socket(AF_INET, SOCK_STREAM, 0)), lines = 0, open_ = 1, served = 0;
    must(bind(server, (struct sockaddr *)&address, sizeof address));
    must(listen(server, 64));
    socklen_t length = sizeof address;
    must(getsockname(server, (struct sockaddr *)&address, &length));
    FILE *note = must(fopen("port.new", "w"));
    fprintf(note, "%d\n", ntohs(address.sin_port));
    must(fclose(note));
    must(rename("port.new", arguments[1]));

    struct pollfd fds[100] = {{server, POLLIN, 0}};
    for (int running = 1; running || open_ > 1;) {
        must(poll(fds, (nfds_t)open_, 10000));
        for (int i = open_ - 1; i > 0; i--) {
            if (!fds[i].revents)
                continue;
            char line[1000], answer[1200];
            ssize_t size = recv(fds[i].fd, line, sizeof line - 1, 0);
            if (size <= 0) {
                seen("connection %d ends", fds[i].fd);
                must(close(fds[i].fd));
                fds[i] = fds[--open_];
                continue;
            }
            line[size] = 0;
            struct timespec now;
            clock_gettime(CLOCK_REALTIME, &now);
            seen("connection %d at %ld.%09ld: %s", fds[i].fd, (long)now.tv_sec, now.tv_nsec, line);
            if (!strncmp(line, "quit", 4))
                running = 0;
            int answered = snprintf(answer, sizeof answer, "%d at %ld: %s", ++lines, now.tv_nsec, line);
            must(send(fds[i].fd, answer, (size_t)answered, MSG_NOSIGNAL));
        }
        if (fds[0].revents && open_ < 100) {
            length = sizeof peer;
            int fd = must(accept4(server, (struct sockaddr *)&peer, &length, SOCK_CLOEXEC));
            seen("connection %d from port %d", fd, ntohs(peer.sin_port));
            fds[open_++] = (struct pollfd){fd, POLLIN, 0};
            served++;
        }
    }
    same("served %d connections, %d lines", served, lines);
    return 0;
}
