/* Pipes, fifos and what can be done between them within one process. */
#include "see.h"
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/uio.h>

int main(void) {
    char bytes[70000], back[70000];
    fill(bytes, sizeof bytes, 6);
    signal(SIGPIPE, SIG_IGN);
    int a[2], b[2];
    must(pipe(a));
    must(pipe2(b, O_NONBLOCK | O_CLOEXEC));
    same("ends %d %d %d %d", a[0], a[1], b[0], b[1]);
    same("wrote %zd, %zd", must(write(a[1], bytes, 1000)), must(write(b[1], bytes, sizeof bytes)));
    int waiting;
    must(ioctl(a[0], FIONREAD, &waiting));
    same("%d bytes wait", waiting);
    refused(write(b[1], bytes, 1));
    ssize_t size, total = 0;
    while ((size = read(b[0], back + total, 9999)) > 0)
        total += size;
    same("read %zd in pieces: %016lx, then %s", total, sum(back, (size_t)total), strerrorname_np(errno));
    seen("a pipe holds %d", must(fcntl(b[0], F_GETPIPE_SZ)));
    seen("and now %d", must(fcntl(b[0], F_SETPIPE_SZ, 200000)));
    same("tee %zd", must(tee(a[0], b[1], 600, SPLICE_F_NONBLOCK)));
    int file = must(open("spliced", O_CREAT | O_RDWR, 0600));
    same("splice %zd", must(splice(a[0], NULL, file, NULL, 800, 0)));
    struct iovec vector = {bytes, 300};
    same("vmsplice %zd", must(vmsplice(b[1], &vector, 1, SPLICE_F_NONBLOCK)));
    size = must(read(b[0], back, sizeof back));
    same("read %zd: %016lx", size, sum(back, (size_t)size));
    size = must(pread(file, back, sizeof back, 0));
    same("file has %zd: %016lx", size, sum(back, (size_t)size));
    must(close(b[0]));
    refused(write(b[1], "x", 1));
    must(close(a[1]));
    size = must(read(a[0], back, sizeof back));
    same("the rest is %zd, and then %zd", size, must(read(a[0], back, sizeof back)));

    must(mkfifo("fifo", 0600));
    int fifo = must(open("fifo", O_RDWR));
    same("a fifo takes %zd", must(write(fifo, "hello", 5)));
    size = must(read(fifo, back, 10));
    same("and gives %zd: %.5s", size, back);
    return 0;
}
