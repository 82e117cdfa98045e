/* Asynchronous reads and writes of POSIX: libc makes them in threads of its own, and what was read appears when it is asked for. */
#include "see.h"
#include <aio.h>
#include <signal.h>
#include <time.h>

int main(void) {
    struct timespec now;
    must(clock_gettime(CLOCK_REALTIME, &now));
    seen("before: %ld.%09ld", (long)now.tv_sec, now.tv_nsec);
    fflush(stdout);
    static char blocks[8][4096], back[8][4096];
    int fd = must(open("data", O_CREAT | O_RDWR, 0600));
    struct aiocb writes[8], reads[8], *list[8];
    for (int i = 0; i < 8; i++) {
        fill(blocks[i], sizeof blocks[i], (uint64_t)i);
        writes[i] = (struct aiocb){.aio_fildes = fd, .aio_buf = blocks[i], .aio_nbytes = 4096, .aio_offset = i * 4096};
        must(aio_write(&writes[i]));
    }
    for (int i = 0; i < 8; i++) {
        const struct aiocb *one = &writes[i];
        while (aio_error(one) == EINPROGRESS)
            must(aio_suspend(&one, 1, NULL));
        same("write %d: %d %zd", i, aio_error(one), aio_return(&writes[i]));
    }
    int asked = 0;
    for (int i = 0; i < 8; i++) {
        reads[i] = (struct aiocb){.aio_fildes = fd, .aio_buf = back[i], .aio_nbytes = 4096, .aio_offset = (7 - i) * 4096, .aio_lio_opcode = LIO_READ};
        list[i] = &reads[i];
    }
    must(lio_listio(LIO_WAIT, list, 4, NULL));
    must(lio_listio(LIO_NOWAIT, list + 4, 4, NULL));
    for (int i = 0; i < 8; i++) {
        while (aio_error(list[i]) == EINPROGRESS)
            asked++;
        same("read %d: %zd %d", i, aio_return(list[i]), memcmp(back[i], blocks[7 - i], 4096));
    }
    seen("asked %d times in vain", asked);
    struct aiocb wrong = {.aio_fildes = 500, .aio_buf = back, .aio_nbytes = 10};
    if (aio_read(&wrong) == 0) {
        const struct aiocb *one = &wrong;
        while (aio_error(one) == EINPROGRESS)
            must(aio_suspend(&one, 1, NULL));
        same("a wrong descriptor: %s", strerrorname_np(aio_error(one)));
    }
    struct aiocb sync = {.aio_fildes = fd};
    must(aio_fsync(O_SYNC, &sync));
    const struct aiocb *one = &sync;
    while (aio_error(one) == EINPROGRESS)
        must(aio_suspend(&one, 1, &(struct timespec){5, 0}));
    same("synced: %zd, cancel says %d", aio_return(&sync), aio_cancel(fd, NULL));
    return 0;
}
