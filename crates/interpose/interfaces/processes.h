/* Signals that are sent and waited for, and the ends of children. What changes the process itself (handlers, masks, fork, exec,
 * exit) is in crates/runtime/src/doors/signals and crates/runtime/src/doors/process; libc's functions are thin around all of these, so
 * only the trap meets them. */

#ifndef HINDCAST_PROCESSES_H
#define HINDCAST_PROCESSES_H
#include "hindcast.h"
#include "types.h"

/* ---- Signals that are sent. In replay nothing is sent: what arrived is in the log. ---- */

kernel(kill) trap_only
int kernel_kill(pid_t process, int signal);

/* Thread numbers are the kernel's, and libc keeps them to itself: other ones in replay. */
kernel(tkill) trap_only
int kernel_tkill(unchecked pid_t thread, int signal);

kernel(tgkill) trap_only
int kernel_tgkill(unchecked pid_t process, unchecked pid_t thread, int signal);

kernel(rt_sigqueueinfo) trap_only
int kernel_rt_sigqueueinfo(pid_t process, int signal, unchecked const void *information);

kernel(rt_tgsigqueueinfo) trap_only
int kernel_rt_tgsigqueueinfo(unchecked pid_t process, unchecked pid_t thread, int signal, unchecked const void *information);

kernel(pidfd_send_signal) trap_only
int kernel_pidfd_send_signal(int process, int signal, unchecked const void *information, unsigned flags);

/* ---- Signals that are waited for ---- */

kernel(rt_sigpending) trap_only
int kernel_rt_sigpending(out bsize(size) void *set, size_t size);

kernel(rt_sigtimedwait) block trap_only
int kernel_rt_sigtimedwait(in bsize(8) const void *set, nullable out bsize(128) void *information, nullable in bsize(16) const void *limit, size_t size);

kernel(pause) block trap_only
int kernel_pause(void);

/* By hand in signals: the mask is the runtime's matter. */
by_hand int kernel_rt_sigsuspend(const void *mask, size_t size);

kernel(signalfd) trap_only newfd(other)
int kernel_signalfd(int fd, in bsize(8) const void *mask, size_t size);

kernel(signalfd4) trap_only newfd(other)
int kernel_signalfd4(int fd, in bsize(8) const void *mask, size_t size, int flags);

/* ---- The ends of children. By hand in process: replay waits for the children that it has. ---- */

by_hand pid_t kernel_wait4(pid_t process, void *status, int options, void *usage);
by_hand int kernel_waitid(int which, pid_t process, void *information, int options, void *usage);
/* ---- Other images and shared memory of a vfork. By hand in process: events beside those of fork and exec. ---- */

by_hand int kernel_execve(const char *path, void *arguments, void *environment);
/* The image could not be executed after all. */
by_hand int kernel_execve_failed(void);
/* What the child of a vfork left in its parent's stack. */
by_hand int kernel_vfork_memory(void);

#endif
