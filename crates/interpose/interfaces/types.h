/* The few types the prototypes need. Structures stay opaque: what counts is their size, which the
 * kernel's contract for x86-64 fixes. */

#ifndef HINDCAST_TYPES_H
#define HINDCAST_TYPES_H

typedef unsigned long size_t;
typedef long ssize_t;
typedef long off_t;
typedef unsigned mode_t;
typedef unsigned uid_t;
typedef unsigned gid_t;
typedef int pid_t;
typedef unsigned long dev_t;
typedef unsigned socklen_t;

struct stat;
struct iovec;
struct msghdr;

#define STAT_BYTES 144
#define STATX_BYTES 256
#define STATFS_BYTES 120
#define EPOLL_EVENT_BYTES 12
#define SYSINFO_BYTES 112
#define UTSNAME_BYTES 390
#define RUSAGE_BYTES 144
/* -EINTR, as the kernel answers it. */
#define INTERRUPTED (-4)
#define FD_SET_BYTES(count) (((count) + 63) / 64 * 8)

#endif
