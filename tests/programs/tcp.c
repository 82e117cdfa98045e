/* TCP over loopback, both ends in one process: addresses, options, connections that are not accepted yet, refused ones, urgent ends. */
#include "see.h"
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

static int server_at(struct sockaddr_in *address) {
    int server = must(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), on = 1;
    must(setsockopt(server, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
    *address = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    must(bind(server, (struct sockaddr *)address, sizeof *address));
    must(listen(server, 16));
    socklen_t length = sizeof *address;
    must(getsockname(server, (struct sockaddr *)address, &length));
    return server;
}

int main(void) {
    struct sockaddr_in address, peer;
    socklen_t length = sizeof peer;
    int server = server_at(&address), value;
    char text[INET_ADDRSTRLEN], bytes[100000], back[100000];
    fill(bytes, sizeof bytes, 8);
    seen("listening on %s:%d", inet_ntop(AF_INET, &address.sin_addr, text, sizeof text), ntohs(address.sin_port));

    int client = must(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
    int answer = connect(client, (struct sockaddr *)&address, sizeof address);
    seen("connect: %d %s", answer, answer ? strerrorname_np(errno) : "");
    struct pollfd ready = {client, POLLOUT, 0};
    same("poll %d", must(poll(&ready, 1, 5000)));
    length = sizeof value;
    must(getsockopt(client, SOL_SOCKET, SO_ERROR, &value, &length));
    same("error %d", value);
    length = sizeof peer;
    int accepted = must(accept(server, (struct sockaddr *)&peer, &length));
    seen("accepted %d from port %d", accepted, ntohs(peer.sin_port));
    value = 1;
    must(setsockopt(accepted, IPPROTO_TCP, TCP_NODELAY, &value, sizeof value));
    struct tcp_info info;
    length = sizeof info;
    must(getsockopt(client, IPPROTO_TCP, TCP_INFO, &info, &length));
    seen("round trip %u us, window %u", info.tcpi_rtt, info.tcpi_snd_cwnd);
    length = sizeof value;
    must(getsockopt(client, SOL_SOCKET, SO_SNDBUF, &value, &length));
    seen("send buffer %d", value);

    size_t sent = 0, received = 0;
    for (int round = 0; received < sizeof bytes; round++) {
        ssize_t size = sent < sizeof bytes ? send(client, bytes + sent, sizeof bytes - sent, MSG_NOSIGNAL) : 0;
        if (size > 0)
            sent += (size_t)size;
        ssize_t got = must(recv(accepted, back + received, sizeof back - received, 0));
        received += (size_t)got;
        seen("round %d: sent %zd, received %zd", round, size, got);
    }
    same("all there: %d", memcmp(bytes, back, sizeof bytes));
    must(ioctl(accepted, FIONREAD, &value));
    same("nothing waits: %d", value);
    refused(recv(client, back, 10, 0));

    struct timeval patience = {0, 30000};
    must(setsockopt(accepted, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience));
    refused(recv(accepted, back, 10, 0));
    must(shutdown(client, SHUT_WR));
    same("the end: %zd", must(recv(accepted, back, 10, 0)));
    struct linger linger = {1, 0};
    must(setsockopt(accepted, SOL_SOCKET, SO_LINGER, &linger, sizeof linger));
    must(close(accepted));
    ready = (struct pollfd){client, POLLIN, 0};
    must(poll(&ready, 1, 5000));
    same("poll says %#x", (unsigned)ready.revents & POLLHUP);
    refused(recv(client, back, 10, 0));
    must(close(client));
    must(close(server));

    client = must(socket(AF_INET, SOCK_STREAM, 0));
    refused(connect(client, (struct sockaddr *)&address, sizeof address));
    must(close(client));
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int version6 = socket(AF_INET6, SOCK_STREAM, 0);
    seen("IPv6: %d", version6 >= 0 ? bind(version6, (struct sockaddr *)&six, sizeof six) : -1);
    return 0;
}
