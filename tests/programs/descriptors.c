/* Events, timers, signals and changes of files as descriptors. */
#include "see.h"
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>

int main(void) {
    int event = must(eventfd(3, EFD_NONBLOCK)), semaphore = must(eventfd(2, EFD_SEMAPHORE | EFD_NONBLOCK | EFD_CLOEXEC));
    eventfd_t value;
    must(eventfd_write(event, 40));
    must(eventfd_read(event, &value));
    same("eventfd held %lu", (unsigned long)value);
    refused(eventfd_read(event, &value));
    for (int i = 0; i < 2; i++) {
        must(read(semaphore, &value, sizeof value));
        same("semaphore gave %lu", (unsigned long)value);
    }
    refused(read(semaphore, &value, sizeof value));
    value = 5;
    same("written %zd", must(write(semaphore, &value, sizeof value)));

    int timer = must(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC));
    struct itimerspec setting = {.it_interval = {0, 3000000}, .it_value = {0, 5000000}}, before;
    must(timerfd_settime(timer, 0, &setting, NULL));
    uint64_t expired;
    same("timer %zd", must(read(timer, &expired, sizeof expired)));
    seen("expired %lu times", (unsigned long)expired);
    usleep(20000);
    must(read(timer, &expired, sizeof expired));
    seen("expired %lu times more", (unsigned long)expired);
    must(timerfd_gettime(timer, &before));
    seen("next in %ld ns", before.it_value.tv_nsec);
    setting = (struct itimerspec){0};
    must(timerfd_settime(timer, TFD_TIMER_ABSTIME, &setting, &before));
    same("interval was %ld", before.it_interval.tv_nsec);

    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGRTMIN + 2);
    must(sigprocmask(SIG_BLOCK, &set, NULL));
    int signals = must(signalfd(-1, &set, SFD_CLOEXEC));
    must(kill(getpid(), SIGUSR1));
    must(sigqueue(getpid(), SIGRTMIN + 2, (union sigval){.sival_int = 17}));
    struct signalfd_siginfo info[3];
    ssize_t size = must(read(signals, info, sizeof info));
    for (size_t i = 0; i < (size_t)size / sizeof info[0]; i++) {
        same("signal %u with %d, code %d", info[i].ssi_signo, info[i].ssi_int, info[i].ssi_code);
        seen("from %u", info[i].ssi_pid);
    }

    int watch = must(inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
    int here = must(inotify_add_watch(watch, ".", IN_CREATE | IN_DELETE | IN_MOVE));
    must(close(must(creat("born", 0600))));
    must(rename("born", "grown"));
    must(unlink("grown"));
    char buffer[4096] __attribute__((aligned(8)));
    size = must(read(watch, buffer, sizeof buffer));
    for (char *at = buffer; at < buffer + size;) {
        struct inotify_event *change = (struct inotify_event *)at;
        same("%s: %#x", change->name, change->mask);
        seen("cookie %u", change->cookie);
        at += sizeof *change + change->len;
    }
    must(inotify_rm_watch(watch, here));
    return 0;
}
