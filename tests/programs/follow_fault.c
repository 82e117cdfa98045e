/* A server that dies of a fault of its own: `follow_fault PORT-FILE SWITCH` answers every line with its number, and writes to an
 * address that is none once the first byte of the file SWITCH, which it shares with others, is not a zero. */
#include "see.h"
#include <arpa/inet.h>
#include <sys/mman.h>
#include <sys/socket.h>

int main(int count, char **arguments) {
    if (count < 3)
        return 2;
    int file = must(open(arguments[2], O_RDWR));
    volatile char *fault = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int server = must(socket(AF_INET, SOCK_STREAM, 0)), lines = 0;
    must(bind(server, (struct sockaddr *)&address, sizeof address));
    must(listen(server, 64));
    socklen_t length = sizeof address;
    must(getsockname(server, (struct sockaddr *)&address, &length));
    FILE *note = must(fopen("port.new", "w"));
    fprintf(note, "%d\n", ntohs(address.sin_port));
    must(fclose(note));
    must(rename("port.new", arguments[1]));

    int client = must(accept(server, NULL, NULL));
    char line[1000], answer[100];
    while (must(recv(client, line, sizeof line, 0)) > 0) {
        if (*fault != '0')
            *(volatile int *)0 = 1;
        int size = snprintf(answer, sizeof answer, "%d\n", ++lines);
        must(send(client, answer, (size_t)size, 0));
    }
    seen("%d lines", lines);
    return 0;
}
