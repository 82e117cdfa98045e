// Answers each request on a port with what it draws or reads, or with how long it waits; the path says how.
// A request is one read, an answer one line.
#define _GNU_SOURCE
#include <assert.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <mqueue.h>
#include <netinet/in.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/timeb.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define WAIT 200000000L

static int is(const char *path, const char *what) { return strncmp(path, what, strlen(what)) == 0; }

static void hex(char *out, const unsigned char *bytes, int count) {
    for (int at = 0; at < count; at++) sprintf(out + 2 * at, "%02x", bytes[at]);
}

static void draw(const char *how, unsigned char *bytes) {
    int device = -1;
    if (is(how, "getrandom")) assert(getrandom(bytes, 16, 0) == 16);
    else if (is(how, "getentropy")) assert(getentropy(bytes, 16) == 0);
    else if (is(how, "syscall")) assert(syscall(SYS_getrandom, bytes, 16L, 0L) == 16);
    else if (is(how, "urandom")) device = open("/dev/urandom", O_RDONLY);
    else if (is(how, "random")) device = open("/dev/random", O_RDONLY);
    else if (is(how, "buffer")) {
        void (*fill)(void *, size_t) = dlsym(RTLD_DEFAULT, "arc4random_buf");
        fill(bytes, 16);
    } else if (is(how, "uniform")) {
        uint32_t (*one)(void) = dlsym(RTLD_DEFAULT, "arc4random");
        uint32_t (*below)(uint32_t) = dlsym(RTLD_DEFAULT, "arc4random_uniform");
        for (int at = 0; at < 8; at++) bytes[at] = one();
        for (int at = 8; at < 16; at++) {
            uint32_t less = below(200);
            assert(less < 200);
            bytes[at] = less;
        }
    } else if (is(how, "openssl")) {
        int (*fill)(unsigned char *, int) = dlsym(RTLD_DEFAULT, "RAND_bytes");
        int (*fill_private)(unsigned char *, int) = dlsym(RTLD_DEFAULT, "RAND_priv_bytes");
        assert(fill(bytes, 8) == 1 && fill_private(bytes + 8, 8) == 1);
    } else if (is(how, "child")) {
        // In another process, before and after.
        int ends[2];
        assert(pipe(ends) == 0 && getrandom(bytes, 4, 0) == 4);
        pid_t child = fork();
        if (child == 0) {
            assert(getrandom(bytes + 4, 8, 0) == 8);
            assert(write(ends[1], bytes + 4, 8) == 8);
            _exit(0);
        }
        assert(read(ends[0], bytes + 4, 8) == 8 && waitpid(child, NULL, 0) == child);
        assert(getrandom(bytes + 12, 4, 0) == 4);
        close(ends[0]);
        close(ends[1]);
    }
    if (device >= 0) {
        assert(read(device, bytes, 16) == 16);
        close(device);
        // Another file has its number now.
        device = open("/dev/zero", O_RDONLY);
        char zero;
        assert(read(device, &zero, 1) == 1 && zero == 0);
        close(device);
    }
}

static int64_t nanos(struct timespec time) { return time.tv_sec * 1000000000L + time.tv_nsec; }

static int64_t reading(const char *how) {
    struct timespec now = {0};
    if (is(how, "realtime")) clock_gettime(CLOCK_REALTIME, &now);
    else if (is(how, "coarse")) clock_gettime(CLOCK_REALTIME_COARSE, &now);
    else if (is(how, "timespec")) assert(timespec_get(&now, TIME_UTC) == TIME_UTC);
    else if (is(how, "time")) {
        time_t also;
        now.tv_sec = time(&also);
        assert(also == now.tv_sec);
    } else if (is(how, "day")) {
        struct timeval day;
        assert(gettimeofday(&day, NULL) == 0);
        now = (struct timespec){day.tv_sec, day.tv_usec * 1000};
    } else if (is(how, "ftime")) {
        int (*call)(struct timeb *) = dlsym(RTLD_DEFAULT, "ftime");
        struct timeb moment;
        assert(call(&moment) == 0);
        now = (struct timespec){moment.time, moment.millitm * 1000000L};
    } else if (is(how, "usage")) {
        struct rusage usage;
        assert(getrusage(RUSAGE_SELF, &usage) == 0);
        int64_t used = nanos((struct timespec){usage.ru_utime.tv_sec, usage.ru_utime.tv_usec * 1000});
        return used + nanos((struct timespec){usage.ru_stime.tv_sec, usage.ru_stime.tv_usec * 1000});
    }
    return nanos(now);
}

static int64_t monotonic(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return nanos(now);
}

static struct timespec after(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    int64_t then = nanos(now) + WAIT;
    return (struct timespec){then / 1000000000L, then % 1000000000L};
}

static void *sleeper(void *nothing) {
    pause();
    return nothing;
}

static void wait_for(const char *how) {
    static pthread_mutex_t mutex, taken;
    static pthread_cond_t condition;
    static pthread_rwlock_t lock;
    static int first = 1;
    if (first) {
        first = 0;
        pthread_mutex_init(&mutex, NULL);
        pthread_mutex_init(&taken, NULL);
        pthread_cond_init(&condition, NULL);
        pthread_rwlock_init(&lock, NULL);
    }
    sem_t semaphore;
    sem_init(&semaphore, 0, 0);
    struct timespec until = after(CLOCK_REALTIME), steady = after(CLOCK_MONOTONIC);
    struct itimerspec timer = {{0, 0}, until};
    pthread_mutex_lock(&mutex);
    if (is(how, "condition")) assert(pthread_cond_timedwait(&condition, &mutex, &until) == ETIMEDOUT);
    else if (is(how, "clockcondition")) assert(pthread_cond_clockwait(&condition, &mutex, CLOCK_REALTIME, &until) == ETIMEDOUT);
    else if (is(how, "steadycondition")) {
        pthread_condattr_t attributes;
        pthread_condattr_init(&attributes);
        pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
        pthread_cond_t own;
        pthread_cond_init(&own, &attributes);
        assert(pthread_cond_timedwait(&own, &mutex, &steady) == ETIMEDOUT);
        assert(pthread_cond_clockwait(&condition, &mutex, CLOCK_MONOTONIC, &steady) == ETIMEDOUT);
    } else if (is(how, "mutex")) assert(pthread_mutex_timedlock(&mutex, &until) == ETIMEDOUT);
    else if (is(how, "clockmutex")) assert(pthread_mutex_clocklock(&mutex, CLOCK_REALTIME, &until) == ETIMEDOUT);
    else if (is(how, "readlock") || is(how, "clockreadlock")) {
        pthread_rwlock_wrlock(&lock);
        int clock = is(how, "clock");
        int got = clock ? pthread_rwlock_clockrdlock(&lock, CLOCK_REALTIME, &until) : pthread_rwlock_timedrdlock(&lock, &until);
        // Who has it to write is told at once.
        if (got == EDEADLK) usleep(WAIT / 1000);
        else assert(got == ETIMEDOUT);
        pthread_rwlock_unlock(&lock);
    } else if (is(how, "writelock") || is(how, "clockwritelock")) {
        pthread_rwlock_rdlock(&lock);
        int clock = is(how, "clock");
        int got = clock ? pthread_rwlock_clockwrlock(&lock, CLOCK_REALTIME, &until) : pthread_rwlock_timedwrlock(&lock, &until);
        assert(got == ETIMEDOUT);
        pthread_rwlock_unlock(&lock);
    } else if (is(how, "join") || is(how, "clockjoin")) {
        pthread_t thread;
        pthread_create(&thread, NULL, sleeper, NULL);
        int clock = is(how, "clock");
        assert((clock ? pthread_clockjoin_np(thread, NULL, CLOCK_REALTIME, &until) : pthread_timedjoin_np(thread, NULL, &until)) == ETIMEDOUT);
        pthread_detach(thread);
    } else if (is(how, "semaphore")) assert(sem_timedwait(&semaphore, &until) == -1 && errno == ETIMEDOUT);
    else if (is(how, "clocksemaphore")) assert(sem_clockwait(&semaphore, CLOCK_REALTIME, &until) == -1 && errno == ETIMEDOUT);
    else if (is(how, "receive") || is(how, "send")) {
        struct mq_attr attributes = {.mq_maxmsg = 1, .mq_msgsize = 8};
        char name[64], message[8] = {0};
        sprintf(name, "/hindcast-pins-%d", getpid());
        mqd_t queue = mq_open(name, O_CREAT | O_RDWR, 0600, &attributes);
        assert(queue >= 0);
        mq_unlink(name);
        if (is(how, "send")) {
            assert(mq_send(queue, message, 8, 0) == 0);
            assert(mq_timedsend(queue, message, 8, 0, &until) == -1 && errno == ETIMEDOUT);
        } else {
            assert(mq_timedreceive(queue, message, 8, NULL, &until) == -1 && errno == ETIMEDOUT);
        }
        mq_close(queue);
    } else if (is(how, "sleep")) assert(clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &until, NULL) == 0);
    else if (is(how, "steadysleep")) assert(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &steady, NULL) == 0);
    else if (is(how, "timerfd")) {
        int descriptor = timerfd_create(CLOCK_REALTIME, 0);
        uint64_t often;
        assert(timerfd_settime(descriptor, TFD_TIMER_ABSTIME, &timer, NULL) == 0);
        assert(read(descriptor, &often, sizeof often) == sizeof often);
        close(descriptor);
    } else if (is(how, "timer")) {
        sigset_t set;
        sigemptyset(&set);
        sigaddset(&set, SIGUSR1);
        pthread_sigmask(SIG_BLOCK, &set, NULL);
        struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
        timer_t own;
        assert(timer_create(CLOCK_REALTIME, &event, &own) == 0);
        assert(timer_settime(own, TIMER_ABSTIME, &timer, NULL) == 0);
        int signal;
        assert(sigwait(&set, &signal) == 0);
        timer_delete(own);
    } else if (is(how, "futex")) {
        uint32_t word = 0;
        long done = syscall(SYS_futex, &word, FUTEX_WAIT_BITSET | FUTEX_CLOCK_REALTIME, 0, &until, NULL, FUTEX_BITSET_MATCH_ANY);
        assert(done == -1 && errno == ETIMEDOUT);
    } else assert(0);
    pthread_mutex_unlock(&mutex);
}

int main(int count, char **words) {
    (void)count;
    int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(words[1]))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert(bind(listener, (void *)&address, sizeof address) == 0 && listen(listener, 10) == 0);
    for (;;) {
        int client = accept(listener, NULL, NULL);
        char request[1024], answer[1024] = "";
        ssize_t length;
        while ((length = read(client, request, sizeof request - 1)) > 0) {
            request[length] = 0;
            char *path = request + strlen("GET /");
            unsigned char bytes[16] = {0};
            if (is(path, "draw/")) {
                draw(path + 5, bytes);
                hex(answer, bytes, 16);
            } else if (is(path, "read/")) {
                long first = reading(path + 5), second = reading(path + 5);
                sprintf(answer, "%ld %ld", first, second);
            } else if (is(path, "wait/")) {
                int64_t begun = monotonic();
                wait_for(path + 5);
                sprintf(answer, "%ld", (long)(monotonic() - begun));
            }
            strcat(answer, "\n");
            assert(write(client, answer, strlen(answer)) > 0);
        }
        close(client);
    }
}
