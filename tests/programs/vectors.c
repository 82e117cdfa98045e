/* Reading and writing in several pieces at once, short ones included. */
#include "see.h"
#include <sys/uio.h>

static char a[10], b[500], c[4000], big[4510];

static void show(const char *call, ssize_t size) { same("%s %zd: %016lx %016lx %016lx", call, size, sum(a, sizeof a), sum(b, sizeof b), sum(c, sizeof c)); }

int main(void) {
    fill(big, sizeof big, 3);
    int fd = must(open("file", O_CREAT | O_RDWR, 0600));
    struct iovec out[] = {{big, 10}, {NULL, 0}, {big + 10, 500}, {big + 510, 4000}};
    same("writev %zd", must(writev(fd, out, 4)));
    struct iovec in[] = {{a, sizeof a}, {b, sizeof b}, {c, sizeof c}};
    must(lseek(fd, 0, SEEK_SET));
    show("readv", must(readv(fd, in, 3)));
    /* Ends within the second piece: the rest of it must stay as it was. */
    memset(b, 'b', sizeof b), memset(c, 'c', sizeof c);
    show("preadv", must(preadv(fd, in, 3, 4300)));
    same("pwritev %zd", must(pwritev(fd, out, 3, 100)));
    show("preadv2", must(preadv2(fd, in, 2, 90, 0)));
    same("pwritev2 %zd", must(pwritev2(fd, out, 1, 5000, RWF_DSYNC)));
    show("no pieces", must(readv(fd, in, 0)));
    int pipes[2];
    must(pipe(pipes));
    must(write(pipes[1], "seventeen letters", 17));
    memset(b, '.', sizeof b);
    show("readv of a pipe", must(readv(pipes[0], in, 3)));
    volatile int wrong = -1, many = 2000;
    refused(readv(fd, in, wrong));
    refused(readv(fd, in, many));
    refused(writev(555, out, 2));
    return 0;
}
