/* Waiting for descriptors. */

#ifndef HINDCAST_POLLING_H
#define HINDCAST_POLLING_H
#include "hindcast.h"
#include "types.h"

/* By hand: only `fd` and `events` go in, `revents` may be uninitialised. */
kernel(poll) block by_hand
int poll(void *fds, unsigned long count, int timeout_ms);
by_hand int __poll(void *fds, unsigned long count, int timeout_ms);
by_hand int __poll_chk(void *fds, unsigned long count, int timeout_ms, size_t room);

/* libc hides that the kernel updates the timeout. */
kernel(ppoll) block by_hand trap_only
int kernel_ppoll(void *fds, unsigned long count, void *timeout, const void *mask, size_t mask_size);
by_hand int ppoll(void *fds, unsigned long count, const void *timeout, const void *mask);
by_hand int __ppoll_chk(void *fds, unsigned long count, const void *timeout, const void *mask, size_t room);

kernel(select) alias(__select) block
int select(int count,
           nullable inout bsize(FD_SET_BYTES(count)) void *readable,
           nullable inout bsize(FD_SET_BYTES(count)) void *writable,
           nullable inout bsize(FD_SET_BYTES(count)) void *exceptional,
           nullable inout bsize(16) void *timeout);

kernel(pselect6) block trap_only
int kernel_pselect6(int count,
                    nullable inout bsize(FD_SET_BYTES(count)) void *readable,
                    nullable inout bsize(FD_SET_BYTES(count)) void *writable,
                    nullable inout bsize(FD_SET_BYTES(count)) void *exceptional,
                    nullable inout bsize(16) void *timeout,
                    unchecked const void *mask);
by_hand int pselect(int count, void *readable, void *writable, void *exceptional, const void *timeout, const void *mask);

/* What one thread registers, another may be woken for and find in the data word: the registration comes first. */
kernel(epoll_create) newfd(internal)
int epoll_create(int size);

kernel(epoll_create1) newfd(internal)
int epoll_create1(int flags);

/* The data word is not checked: programs fill four of its eight bytes and leave the rest as it was. */
kernel(epoll_ctl) cache sync(sync_key(fd), before)
int epoll_ctl(int fd, int operation, int target, nullable in bsize(4) const void *event);

kernel(epoll_wait) block sync(sync_key(fd), after)
int epoll_wait(int fd, out bsize(result * EPOLL_EVENT_BYTES) void *events, int room, int timeout_ms);

kernel(epoll_pwait) block sync(sync_key(fd), after) trap_only
int kernel_epoll_pwait(int fd, out bsize(result * EPOLL_EVENT_BYTES) void *events, int room, int timeout_ms,
                       nullable in bsize(8) const void *mask, size_t mask_size);
by_hand int epoll_pwait(int fd, void *events, int room, int timeout_ms, const void *mask);

kernel(epoll_pwait2) block sync(sync_key(fd), after) trap_only
int kernel_epoll_pwait2(int fd, out bsize(result * EPOLL_EVENT_BYTES) void *events, int room,
                        nullable in bsize(16) const void *timeout, nullable in bsize(8) const void *mask, size_t mask_size);

#endif
