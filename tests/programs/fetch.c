/* A client: `fetch PORT` asks a server on this machine by name, and prints what it says. */
#include "see.h"
#include <netdb.h>
#include <sys/socket.h>

int main(int count, char **arguments) {
    if (count < 2)
        return 2;
    struct addrinfo wanted = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *found;
    must_be_zero(getaddrinfo("localhost", arguments[1], &wanted, &found));
    for (int i = 0; i < 20; i++) {
        int fd = must(socket(found->ai_family, found->ai_socktype, 0));
        must(connect(fd, found->ai_addr, found->ai_addrlen));
        FILE *stream = must(fdopen(fd, "r+"));
        fprintf(stream, "question %d\n", i);
        fflush(stream);
        char line[1000];
        while (fgets(line, sizeof line, stream))
            seen("%s", strtok(line, "\r\n"));
        must(fclose(stream));
    }
    freeaddrinfo(found);
    return 0;
}
