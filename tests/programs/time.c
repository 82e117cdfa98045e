/* Clocks, calendars, sleeping, processor time: through libc, through the vDSO, by number and by instruction. */
#include "see.h"
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timeb.h>
#include <sys/times.h>
#include <time.h>
#include <x86intrin.h>

static void show(const char *clock, const struct timespec *at) { seen("%s: %ld.%09ld", clock, (long)at->tv_sec, at->tv_nsec); }

int main(void) {
    struct timespec now, left;
    static const struct {
        clockid_t id;
        const char *name;
    } clocks[] = {{CLOCK_REALTIME, "realtime"}, {CLOCK_MONOTONIC, "monotonic"}, {CLOCK_BOOTTIME, "boot"}, {CLOCK_TAI, "tai"}, {CLOCK_REALTIME_COARSE, "coarse"}, {CLOCK_MONOTONIC_COARSE, "monotonic coarse"}, {CLOCK_MONOTONIC_RAW, "raw"}, {CLOCK_PROCESS_CPUTIME_ID, "process"}, {CLOCK_THREAD_CPUTIME_ID, "thread"}};
    for (size_t i = 0; i < sizeof clocks / sizeof *clocks; i++) {
        must(clock_gettime(clocks[i].id, &now));
        show(clocks[i].name, &now);
        must(clock_getres(clocks[i].id, &now));
        show("resolution", &now);
    }
    struct timeval day;
    must(gettimeofday(&day, NULL));
    seen("gettimeofday %ld.%06ld", (long)day.tv_sec, (long)day.tv_usec);
    time_t seconds, same_seconds = time(&seconds);
    seen("time %ld", (long)seconds);
    same("both ways alike: %d", seconds == same_seconds);
    must(syscall(SYS_clock_gettime, CLOCK_REALTIME, &now));
    show("by number", &now);
    timespec_get(&now, TIME_UTC);
    show("timespec_get", &now);
    seen("time stamp counter %llu", __rdtsc());
    unsigned processor;
    seen("and with the processor %llu", __rdtscp(&processor));
    unsigned cpu, node;
    must(getcpu(&cpu, &node));
    seen("on processor %u of node %u, or %d", cpu, node, sched_getcpu());

    char text[100];
    struct tm parts;
    localtime_r(&seconds, &parts);
    strftime(text, sizeof text, "%A %d %B %Y %H:%M:%S %Z", &parts);
    seen("%s", text);
    seen("%s", asctime(gmtime(&seconds)));
    seen("%s", ctime(&seconds));
    seconds = 1000000000;
    setenv("TZ", "Europe/Berlin", 1);
    tzset();
    same("in Berlin: %s%ld seconds off", ctime(&seconds), timezone);
    gmtime_r(&seconds, &parts);
    same("mktime %ld, timegm %ld", (long)mktime(&parts), (long)timegm(&parts));
    same("%s", strptime("2001-09-09", "%Y-%m-%d", &parts));

    must(clock_gettime(CLOCK_MONOTONIC, &now));
    must(nanosleep(&(struct timespec){0, 3000000}, &left));
    now.tv_nsec += 9000000;
    if (now.tv_nsec >= 1000000000)
        now.tv_sec++, now.tv_nsec -= 1000000000;
    must_be_zero(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &now, NULL));
    must(usleep(1000));
    same("slept, %u left", sleep(0));
    must(clock_gettime(CLOCK_MONOTONIC, &left));
    seen("too long by %ld ns", (left.tv_sec - now.tv_sec) * 1000000000 + left.tv_nsec - now.tv_nsec);

    struct tms used;
    seen("times %ld", (long)must(times(&used)));
    seen("clock %ld", (long)clock());
    struct rusage usage;
    must(getrusage(RUSAGE_SELF, &usage));
    seen("used %ld.%06ld s, %ld faults, %ld kB", (long)usage.ru_utime.tv_sec, (long)usage.ru_utime.tv_usec, usage.ru_minflt, usage.ru_maxrss);
    clockid_t own;
    must_be_zero(clock_getcpuclockid(0, &own));
    must(clock_gettime(own, &now));
    show("own", &now);
    volatile clockid_t wrong = 77;
    refused(clock_gettime(wrong, &now));
    refused(nanosleep(&(struct timespec){0, -1}, NULL));
    return 0;
}
