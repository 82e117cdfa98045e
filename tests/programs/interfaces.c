/* What sockets are asked by ioctl without an argument, and with one that is none. */
#include "see.h"
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

int main(void) {
    int pair[2];
    must(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    /* The register of the argument has whatever lay there. */
    int space = ioctl(pair[0], SIOCGSKNS, (void *)1);
    same("a namespace %d", space >= 0);
    if (space >= 0)
        close(space);
    for (unsigned long request = 0x8910; request < 0x8980; ++request) {
        int result = request == SIOCGSKNS ? 0 : ioctl(pair[0], request, (void *)1);
        if (result)
            seen("%#lx: %d", request, errno);
    }
    same("asked");
    return 0;
}
