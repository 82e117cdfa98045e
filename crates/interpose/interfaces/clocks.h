/* Clocks, sleeping and timers. The fast functions of the vDSO have stubs here with the meaning of the
 * system call; what reaches the vDSO past them is patched to make that call, and traps. */

#ifndef HINDCAST_CLOCKS_H
#define HINDCAST_CLOCKS_H
#include "hindcast.h"
#include "types.h"

kernel(clock_gettime) alias(__clock_gettime)
int clock_gettime(int clock, out bsize(16) void *time);

kernel(clock_getres)
int clock_getres(int clock, nullable out bsize(16) void *resolution);

kernel(clock_settime)
int clock_settime(int clock, in bsize(16) const void *time);

kernel(gettimeofday) alias(__gettimeofday)
int gettimeofday(nullable out bsize(16) void *time, nullable out bsize(8) void *zone);

kernel(settimeofday)
int settimeofday(nullable in bsize(16) const void *time, nullable in bsize(8) const void *zone);

kernel(time)
long time(nullable out long *seconds);

kernel(times)
long times(nullable out bsize(32) void *usage);

/* What remains is written when a signal cut the sleep short, which is a failure (-EINTR). */
kernel(nanosleep) alias(__nanosleep) block
int nanosleep(in bsize(16) const void *wanted, nullable out always bsize(result == INTERRUPTED ? 16 : 0) void *remaining);

/* libc's function answers with the error itself. */
kernel(clock_nanosleep) block trap_only
int kernel_clock_nanosleep(int clock, int flags, in bsize(16) const void *wanted, nullable out always bsize(result == INTERRUPTED ? 16 : 0) void *remaining);
by_hand int clock_nanosleep(int clock, int flags, const void *wanted, void *remaining);

kernel(adjtimex)
int adjtimex(inout bsize(208) unchecked void *state);

kernel(clock_adjtime)
int clock_adjtime(int clock, inout bsize(208) unchecked void *state);

kernel(alarm)
unsigned alarm(unsigned seconds);

kernel(getitimer)
int getitimer(int which, out bsize(32) void *current);

kernel(setitimer)
int setitimer(int which, nullable in bsize(32) const void *wanted, nullable out bsize(32) void *old);

/* Timers of POSIX have a number of libc's around the kernel's, and a thread: only the calls beneath. */
kernel(timer_create) trap_only
int kernel_timer_create(int clock, unchecked const void *event, out int *timer);

kernel(timer_settime) trap_only
int kernel_timer_settime(int timer, int flags, in bsize(32) const void *wanted, nullable out bsize(32) void *old);

kernel(timer_gettime) trap_only
int kernel_timer_gettime(int timer, out bsize(32) void *current);

kernel(timer_getoverrun) trap_only
int kernel_timer_getoverrun(int timer);

kernel(timer_delete) trap_only
int kernel_timer_delete(int timer);

kernel(timerfd_create) newfd(other)
int timerfd_create(int clock, int flags);

kernel(timerfd_settime)
int timerfd_settime(int fd, int flags, in bsize(32) const void *wanted, nullable out bsize(32) void *old);

kernel(timerfd_gettime)
int timerfd_gettime(int fd, out bsize(32) void *current);

#endif
