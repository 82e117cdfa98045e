// upload MEGABYTES: writes so much to socket 3.
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int count, char **arguments) {
    (void)count;
    static char bytes[1 << 20];
    memset(bytes, 'u', sizeof bytes);
    for (int i = atoi(arguments[1]); i > 0; i--)
        for (size_t at = 0; at < sizeof bytes;) {
            ssize_t done = write(3, bytes + at, sizeof bytes - at);
            if (done <= 0) return 1;
            at += done;
        }
    return 0;
}
