/* Paths and directories: what is asked of, and done to, names in the file system. */

#ifndef HINDCAST_PATHS_H
#define HINDCAST_PATHS_H
#include "hindcast.h"
#include "types.h"

kernel(access) cache
int access(instr const char *path, int mode);

kernel(faccessat) trap_only
int kernel_faccessat(int directory, instr const char *path, int mode);

kernel(faccessat2) trap_only
int kernel_faccessat2(int directory, instr const char *path, int mode, int flags);

kernel(unlink)
int unlink(instr const char *path);

kernel(unlinkat)
int unlinkat(int directory, instr const char *path, int flags);

kernel(rename)
int rename(instr const char *from, instr const char *to);

kernel(renameat)
int renameat(int from_directory, instr const char *from, int to_directory, instr const char *to);

kernel(renameat2)
int renameat2(int from_directory, instr const char *from, int to_directory, instr const char *to, unsigned flags);

kernel(mkdir)
int mkdir(instr const char *path, mode_t mode);

kernel(mkdirat)
int mkdirat(int directory, instr const char *path, mode_t mode);

kernel(rmdir)
int rmdir(instr const char *path);

kernel(link)
int link(instr const char *from, instr const char *to);

kernel(linkat)
int linkat(int from_directory, instr const char *from, int to_directory, instr const char *to, int flags);

kernel(symlink)
int symlink(instr const char *target, instr const char *path);

kernel(symlinkat)
int symlinkat(instr const char *target, int directory, instr const char *path);

kernel(readlink)
ssize_t readlink(instr const char *path, out bsize(result) char *buffer, size_t size);

kernel(readlinkat)
ssize_t readlinkat(int directory, instr const char *path, out bsize(result) char *buffer, size_t size);

by_hand ssize_t __readlink_chk(const char *path, char *buffer, size_t size, size_t room);
by_hand ssize_t __readlinkat_chk(int directory, const char *path, char *buffer, size_t size, size_t room);

kernel(chmod)
int chmod(instr const char *path, mode_t mode);

kernel(fchmod)
int fchmod(int fd, mode_t mode);

kernel(fchmodat) trap_only
int kernel_fchmodat(int directory, instr const char *path, mode_t mode);

kernel(fchmodat2) trap_only
int kernel_fchmodat2(int directory, instr const char *path, mode_t mode, unsigned flags);

kernel(chown)
int chown(instr const char *path, uid_t owner, gid_t group);

kernel(lchown)
int lchown(instr const char *path, uid_t owner, gid_t group);

kernel(fchown)
int fchown(int fd, uid_t owner, gid_t group);

kernel(fchownat)
int fchownat(int directory, instr const char *path, uid_t owner, gid_t group, int flags);

kernel(mknod)
int mknod(instr const char *path, mode_t mode, dev_t device);

kernel(mknodat)
int mknodat(int directory, instr const char *path, mode_t mode, dev_t device);

kernel(chdir)
int chdir(instr const char *path);

kernel(fchdir)
int fchdir(int fd);

kernel(chroot)
int chroot(instr const char *path);

kernel(umask)
mode_t umask(mode_t mask);

/* libc's own getcwd allocates and answers with a pointer; the kernel answers with a length. */
kernel(getcwd) trap_only
long kernel_getcwd(out bsize(result) char *buffer, size_t size);

/* The runtime's own descriptors are left out of /proc/self/fd. */
kernel(getdents64) by_hand
ssize_t getdents64(int fd, out bsize(result) void *buffer, size_t size);

kernel(getdents) trap_only
ssize_t kernel_getdents(unsigned fd, out bsize(result) void *buffer, unsigned size);

kernel(utime)
int utime(instr const char *path, nullable in bsize(16) const void *times);

kernel(utimes)
int utimes(instr const char *path, nullable in bsize(32) const void *times);

kernel(futimesat) trap_only
int kernel_futimesat(int directory, nullable instr const char *path, nullable in bsize(32) const void *times);

/* libc refuses a null path here and keeps it for futimens. */
kernel(utimensat) trap_only
int kernel_utimensat(int directory, nullable instr const char *path, nullable in bsize(32) const void *times, int flags);

kernel(statfs) alias(statfs64, __statfs)
int statfs(instr const char *path, out bsize(STATFS_BYTES) void *status);

kernel(fstatfs) alias(fstatfs64)
int fstatfs(int fd, out bsize(STATFS_BYTES) void *status);

kernel(ustat) trap_only
int kernel_ustat(unsigned device, out bsize(32) void *status);

kernel(inotify_init) newfd(other)
int inotify_init(void);

kernel(inotify_init1) newfd(other)
int inotify_init1(int flags);

kernel(inotify_add_watch)
int inotify_add_watch(int fd, instr const char *path, unsigned mask);

kernel(inotify_rm_watch)
int inotify_rm_watch(int fd, int watch);

kernel(fanotify_init) newfd(other)
int fanotify_init(unsigned flags, unsigned event_flags);

kernel(fanotify_mark)
int fanotify_mark(int fd, unsigned flags, unsigned long mask, int directory, nullable instr const char *path);

#endif
