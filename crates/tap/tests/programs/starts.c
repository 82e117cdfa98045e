// Processes and threads of all kinds, each of which says what it draws: its name and what it drew, a line each. Names that begin
// with "kernel" are of those of which nobody knows who they are, or whose draws nobody computes.
#define _GNU_SOURCE
#include <assert.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static pthread_barrier_t both;

static void tell(const char *name, const char *how, const unsigned char *bytes) {
    char line[200];
    int length = sprintf(line, "%s-%s ", name, how);
    for (int at = 0; at < 16; at++) length += sprintf(line + length, "%02x", bytes[at]);
    line[length++] = '\n';
    assert(write(1, line, length) == length);
}

static void draw(const char *name) {
    unsigned char bytes[16];
    for (int at = 0; at < 2; at++) {
        assert(getrandom(bytes, 16, 0) == 16);
        tell(name, at ? "second" : "first", bytes);
    }
}

static void wait_for(pid_t child) {
    int status;
    assert(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static pid_t forked(const char *name, int nth) {
    char own[100];
    sprintf(own, "%s.%d", name, nth);
    pid_t child = fork();
    if (child == 0) {
        draw(own);
        _exit(0);
    }
    return child;
}

static void *inner(void *name) {
    draw(name);
    return NULL;
}

// Forks at the same time as the other one.
static void *forking(void *name) {
    pid_t children[20];
    pthread_barrier_wait(&both);
    for (int at = 0; at < 20; at++) children[at] = forked(name, at);
    draw(name);
    for (int at = 0; at < 20; at++) wait_for(children[at]);
    char own[100];
    sprintf(own, "%s-inner", (char *)name);
    pthread_t thread;
    assert(pthread_create(&thread, NULL, inner, own) == 0 && pthread_join(thread, NULL) == 0);
    return NULL;
}

static void *ends(void *name) {
    draw(name);
    pthread_exit(NULL);
}

static void threads(void) {
    pthread_t all[4];
    assert(pthread_barrier_init(&both, NULL, 2) == 0);
    assert(pthread_create(&all[0], NULL, forking, "left") == 0);
    assert(pthread_create(&all[1], NULL, forking, "right") == 0);
    assert(pthread_create(&all[2], NULL, ends, "ends") == 0);
    for (int at = 0; at < 3; at++) assert(pthread_join(all[at], NULL) == 0);
}

static void spawn(const char *name) {
    pid_t child;
    char *const words[] = {"starts", (char *)name, NULL};
    assert(posix_spawn(&child, "/proc/self/exe", NULL, NULL, words, environ) == 0);
    wait_for(child);
}

// Asks for a session of a database, which never answers. What proves a password to it is none of ours; much later it is given up.
static void ask_for_session(void) {
    int listener = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    assert(bind(listener, (void *)&address, length) == 0 && listen(listener, 1) == 0);
    assert(getsockname(listener, (void *)&address, &length) == 0);
    assert(connect(client, (void *)&address, length) == 0);
    assert(write(client, "\0\0\0\x08\0\x03\0\0", 8) == 8);
    unsigned char bytes[16];
    for (int at = 0; at < 16; at++) {
        char name[30];
        sprintf(name, "kernel-session%d", at);
        assert(getrandom(bytes, 16, 0) == 16);
        tell(name, "drawn", bytes);
    }
    assert(getrandom(bytes, 16, 0) == 16);
    tell("main", "later", bytes);
    close(listener);
    close(client);
}

int main(int count, char **words) {
    if (count > 1) {
        draw(words[1]);
        return 0;
    }
    draw("main");
    unsigned char bytes[16];
    int device = open("/dev/urandom", O_RDONLY);
    assert(read(device, bytes, 16) == 16);
    tell("main", "device", bytes);
    assert(getentropy(bytes, 16) == 0);
    tell("main", "entropy", bytes);
    assert(syscall(SYS_getrandom, bytes, 16L, 0L) == 16);
    tell("main", "syscall", bytes);
    // OpenSSL draws for who asks; the seed of its own generator is the kernel's.
    int (*fill)(unsigned char *, int) = dlsym(RTLD_DEFAULT, "RAND_bytes");
    assert(fill(bytes, 16) == 1);
    tell("main", "openssl", bytes);
    void *library = dlopen(getenv("SEEDS"), RTLD_NOW);
    void (*seed)(unsigned char *, unsigned char *) = dlsym(library, "seed");
    unsigned char more[16];
    seed(bytes, more);
    tell("kernel", "entropy", bytes);
    tell("kernel", "syscall", more);
    ask_for_session();
    threads();
    wait_for(forked("child", 0));
    wait_for(forked("child", 1));
    // By the system call, past libc.
    pid_t child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (child == 0) {
        draw("kernel-clone");
        wait_for(forked("kernel-clone", 0));
        _exit(0);
    }
    wait_for(child);
    child = vfork();
    if (child == 0) {
        execl("/proc/self/exe", "starts", "vfork", (char *)NULL);
        _exit(1);
    }
    wait_for(child);
    // Two of one command, then another one.
    spawn("spawned");
    spawn("spawned2");
    spawn("other");
    draw("after");
    execl("/proc/self/exe", "starts", "itself", (char *)NULL);
    return 1;
}
