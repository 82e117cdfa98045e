/* Reads a file in every way that moves a descriptor, and in some that do not: a recorder that does not keep the bytes must
 * know where each read stood. The last argument is a file of at least 300,000 bytes. With another one before it: reads it
 * through and waits to be killed. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static char buffer[8192];

static void show(const char *what, ssize_t length) {
    uint64_t sum = 14695981039346656037u;
    for (ssize_t i = 0; i < length; i++)
        sum = (sum ^ (unsigned char)buffer[i]) * 1099511628211u;
    printf("%s %zd %016llx\n", what, length, (unsigned long long)sum);
    fflush(stdout);
}

static void *in_thread(void *file) {
    show("thread", read(*(int *)file, buffer, 3000));
    return 0;
}

static int opened(const char *path) {
    int file = open(path, O_RDONLY);
    if (file < 0) {
        perror(path);
        exit(1);
    }
    show("first", read(file, buffer, 1000));
    return file;
}

int main(int count, char **arguments) {
    const char *path = arguments[count - 1];
    if (count > 2) {
        int file = opened(path);
        while (read(file, buffer, sizeof buffer) > 0)
            ;
        show("last", sizeof buffer);
        pause();
    }
    int file = opened(path);
    show("short", read(file, buffer, 5));
    show("then", read(file, buffer, 4096));
    lseek(file, 100000, SEEK_SET);
    show("seek", read(file, buffer, 4096));
    lseek(file, -50, SEEK_CUR);
    show("back", read(file, buffer, 4096));
    show("pread", pread(file, buffer, 8192, 200000));
    show("after", read(file, buffer, 500));
    lseek(file, -200, SEEK_END);
    show("end", read(file, buffer, 4096));
    show("nothing", read(file, buffer, 4096));

    lseek(file, 0, SEEK_SET);
    int copy = dup(file);
    show("copy", read(copy, buffer, 700));
    show("beside", read(file, buffer, 700));
    close(copy);
    show("still", read(file, buffer, 700));
    dup2(file, 0);
    close(file);
    show("input", read(0, buffer, 700));
    close(0);
    open("/dev/null", O_RDONLY);

    file = opened(path);
    struct iovec parts[2] = {{buffer, 300}, {buffer + 300, 300}};
    show("readv", readv(file, parts, 2));
    show("after", read(file, buffer, 700));
    close(file);

    file = opened(path);
    int null = open("/dev/null", O_WRONLY);
    printf("sendfile %zd\n", sendfile(null, file, 0, 5000));
    show("after", read(file, buffer, 700));
    close(file);

    file = opened(path);
    fflush(stdout);
    if (fork() == 0) {
        show("child", read(file, buffer, 2000));
        _exit(0);
    }
    wait(0);
    show("parent", read(file, buffer, 2000));
    close(file);

    file = opened(path);
    pthread_t thread;
    pthread_create(&thread, 0, in_thread, &file);
    pthread_join(thread, 0);
    show("joined", read(file, buffer, 3000));
    close(file);

    file = opened(path);
    close(file);
    file = open("/dev/zero", O_RDONLY);
    show("zeros", read(file, buffer, 8192));
    close(file);
    char *line = malloc(300000);
    FILE *stream = fopen(path, "r");
    size_t most = fread(line, 1, 300000, stream);
    fseek(stream, 12345, SEEK_SET);
    show("stream", fread(buffer, 1, 8192, stream));
    printf("in all %zu\n", most);
    fclose(stream);
    return 0;
}
