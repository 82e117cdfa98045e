/* Files by descriptor: open to close, positions, locks, links, and the ways a call refuses. */
#include "see.h"
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/sendfile.h>

static void show(const char *what, int fd, int expected) {
    char bytes[8192];
    ssize_t size = must(pread(fd, bytes, sizeof bytes, 0));
    same("%s: fd %d holds %zd bytes, sum %016lx", what, fd, size, sum(bytes, (size_t)size));
    if (size != expected)
        failed(__FILE__, __LINE__, what);
}

int main(void) {
    char bytes[4096], back[4096];
    fill(bytes, sizeof bytes, 1);

    int input = must(open("input.txt", O_RDONLY));
    ssize_t size;
    uint64_t all = 0;
    while ((size = must(read(input, back, 100))) > 0)
        all += sum(back, (size_t)size);
    same("input.txt in pieces: %016lx, at %ld", all, (long)must(lseek(input, 0, SEEK_CUR)));
    must(lseek(input, -7, SEEK_END));
    size = must(read(input, back, sizeof back));
    same("its end: %.*s", (int)size, back);
    must(close(input));

    int file = must(open("made", O_RDWR | O_CREAT | O_EXCL, 0640));
    same("wrote %zd", must(write(file, bytes, 3000)));
    same("pwrote %zd", must(pwrite(file, bytes, 1000, 2500)));
    show("made", file, 3500);
    must(ftruncate(file, 3200));
    must(fsync(file));
    must(fdatasync(file));
    show("truncated", file, 3200);
    must_be_zero(posix_fallocate(file, 0, 5000));
    must_be_zero(posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED));
    show("grown", file, 5000);

    int copy = must(dup(file)), second = must(dup2(file, 77)), third = must(dup3(file, 78, O_CLOEXEC));
    int fourth = must(fcntl(file, F_DUPFD, 50)), fifth = must(fcntl(file, F_DUPFD_CLOEXEC, 50));
    same("duplicates %d %d %d %d %d, flags %d %d, status %#x", copy, second, third, fourth, fifth, must(fcntl(third, F_GETFD)), must(fcntl(second, F_GETFD)),
         must(fcntl(file, F_GETFL)));
    must(fcntl(file, F_SETFL, O_APPEND));
    same("appended %zd", must(write(copy, "end", 3)));
    same("now at %ld", (long)must(lseek(fifth, 0, SEEK_CUR)));
    must(close_range(50, 80, 0));
    refused(write(77, "x", 1));

    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 10, .l_len = 20};
    must(fcntl(file, F_SETLK, &lock));
    must(fcntl(file, F_GETLK, &lock));
    same("lock of our own: type %d", lock.l_type);
    must(flock(file, LOCK_EX));
    int other = must(open("made", O_RDONLY));
    refused(flock(other, LOCK_EX | LOCK_NB));
    must(flock(file, LOCK_UN));
    must(lockf(file, F_LOCK, 5));

    int target = must(creat("copied", 0600));
    must(close(target));
    target = must(open("copied", O_RDWR));
    off_t from = 100;
    same("sendfile %zd", must(sendfile(target, other, &from, 1500)));
    loff_t source = 0, destination = 1500;
    same("copy_file_range %zd", must(copy_file_range(other, &source, target, &destination, 700, 0)));
    show("copied", target, 2200);

    must(link("made", "linked"));
    must(symlink("made", "pointer"));
    size = must(readlink("pointer", back, sizeof back));
    same("pointer is %.*s", (int)size, back);
    must(rename("linked", "renamed"));
    must(renameat2(AT_FDCWD, "renamed", AT_FDCWD, "copied", RENAME_EXCHANGE));
    must(truncate("renamed", 10));
    must(unlink("renamed"));
    must(unlinkat(AT_FDCWD, "pointer", 0));

    char name[] = "temporary-XXXXXX";
    int temporary = must(mkstemp(name));
    seen("mkstemp chose %s", name);
    same("as %d, wrote %zd", temporary, must(write(temporary, name, strlen(name))));
    must(unlink(name));
    int nameless = open(".", O_TMPFILE | O_RDWR, 0600);
    same("a nameless file: %s", nameless >= 0 ? "yes" : "no");
    int memory = must(memfd_create("memory", MFD_CLOEXEC));
    same("memfd %d takes %zd", memory, must(write(memory, bytes, 4096)));
    show("memfd", memory, 4096);
    seen("%s", must(realpath("made", back)));

    int zero = must(open("/dev/zero", O_RDONLY)), null = must(open("/dev/null", O_WRONLY));
    same("zero gives %zd", must(read(zero, back, 300)));
    same("null takes %zd", must(write(null, back, 300)));
    same("and it is %016lx", sum(back, 300));

    refused(open("not there", O_RDONLY));
    refused(open("made", O_RDWR | O_CREAT | O_EXCL, 0600));
    refused(open("made/deeper", O_RDONLY));
    refused(read(555, back, 1));
    refused(read(null, back, 1));
    refused(close(555));
    refused(lseek(file, -1, SEEK_SET));
    refused(rename("not there", "either"));
    refused(unlink("not there"));
    volatile uintptr_t nowhere = 8;
    refused(read(file, (void *)nowhere, 10));
    return 0;
}
