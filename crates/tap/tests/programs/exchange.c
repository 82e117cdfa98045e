// exchange ROUNDS: a thread asks by 100 bytes over TCP, another answers by 1000. Prints the processor time of the
// process for each round in nanoseconds.
#include <assert.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static long rounds;
static struct sockaddr_in address = {.sin_family = AF_INET};

static void whole(int socket, char *bytes, ssize_t length) {
    for (ssize_t done; length > 0; bytes += done, length -= done) assert((done = read(socket, bytes, length)) > 0);
}

static void *ask(void *nothing) {
    char bytes[1000];
    int one = 1, client = socket(AF_INET, SOCK_STREAM, 0);
    assert(connect(client, (struct sockaddr *)&address, sizeof address) == 0);
    setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    for (long i = 0; i < rounds; i++) {
        memset(bytes, 'a' + i % 26, 100);
        assert(write(client, bytes, 100) == 100);
        whole(client, bytes, 1000);
    }
    return nothing;
}

int main(int count, char **arguments) {
    rounds = count > 1 ? atol(arguments[1]) : 1;
    int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
    socklen_t length = sizeof address;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert(bind(listener, (struct sockaddr *)&address, sizeof address) == 0 && listen(listener, 1) == 0);
    assert(getsockname(listener, (struct sockaddr *)&address, &length) == 0);
    pthread_t client;
    assert(pthread_create(&client, NULL, ask, NULL) == 0);
    int connection = accept(listener, NULL, NULL);
    setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    char bytes[1000];
    for (long i = 0; i < rounds; i++) {
        whole(connection, bytes, 100);
        memset(bytes, 'A' + i % 26, 1000);
        assert(write(connection, bytes, 1000) == 1000);
    }
    pthread_join(client, NULL);
    struct timespec used;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    printf("%ld\n", (used.tv_sec * 1000000000 + used.tv_nsec) / rounds);
    return 0;
}
