/* Load for memcached: so many connections, each with some requests under way at a time.
 *
 *     memload PORT CONNECTIONS REQUESTS        requests of all connections together; one in ten is a set, the others gets */
#include <arpa/inet.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <netinet/tcp.h>
#include <unistd.h>

enum { BATCH = 8, VALUE = 100, KEYS = 10000, CONNECTIONS_MAX = 64 };

struct connection {
    int socket, answers;
    unsigned state;
    char answer[65536];
    size_t used;
};

static struct connection connections[CONNECTIONS_MAX];
static char value[VALUE + 1];

static void send_batch(struct connection *to) {
    char text[BATCH * (VALUE + 64)];
    size_t size = 0;
    for (int i = 0; i < BATCH; i++) {
        unsigned number = to->state = to->state * 1103515245u + 12345u;
        unsigned key = (number >> 8) % KEYS;
        size += (size_t)((number >> 4) % 10 == 0 ? sprintf(text + size, "set key-%u 0 0 %d\r\n%s\r\n", key, VALUE, value)
                                                 : sprintf(text + size, "get key-%u\r\n", key));
    }
    to->answers = BATCH;
    if (write(to->socket, text, size) != (ssize_t)size)
        exit(1);
}

/* Counts complete answers: lines that end one. */
static void receive(struct connection *from) {
    ssize_t size = read(from->socket, from->answer + from->used, sizeof from->answer - from->used);
    if (size <= 0)
        exit(1);
    from->used += (size_t)size;
    size_t begin = 0;
    for (;;) {
        char *end = memchr(from->answer + begin, '\n', from->used - begin);
        if (!end)
            break;
        const char *line = from->answer + begin;
        if (!strncmp(line, "END", 3) || !strncmp(line, "STORED", 6))
            from->answers--;
        begin = (size_t)(end - from->answer) + 1;
    }
    memmove(from->answer, from->answer + begin, from->used -= begin);
}

int main(int count, char **words) {
    if (count != 4)
        return 2;
    int opened = atoi(words[2]);
    long left = atol(words[3]);
    memset(value, 'v', VALUE);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((unsigned short)atoi(words[1]))};
    inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    struct pollfd events[CONNECTIONS_MAX];
    for (int i = 0; i < opened; i++) {
        int one = 1;
        connections[i].socket = socket(AF_INET, SOCK_STREAM, 0);
        connections[i].state = (unsigned)i + 1;
        if (connect(connections[i].socket, (struct sockaddr *)&address, sizeof address))
            return 1;
        setsockopt(connections[i].socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        events[i] = (struct pollfd){.fd = connections[i].socket, .events = POLLIN};
        send_batch(&connections[i]);
        left -= BATCH;
    }
    for (int busy = opened; busy;) {
        poll(events, (nfds_t)opened, -1);
        for (int i = 0; i < opened; i++) {
            if (!events[i].revents)
                continue;
            receive(&connections[i]);
            if (connections[i].answers)
                continue;
            if (left > 0) {
                send_batch(&connections[i]);
                left -= BATCH;
            } else {
                events[i].fd = -1;
                busy--;
            }
        }
    }
    return 0;
}
