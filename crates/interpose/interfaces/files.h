/* Files, descriptors and extended attributes: what is read and written through a number.
 *
 * Sizes of structures are written as numbers because they are part of the kernel's contract for
 * x86-64 and never change; a test in `crates/runtime/src/doors/by_hand` holds them against the `libc` crate.
 * Structures a program may leave partly uninitialised are checked only as far as the kernel reads
 * them: what lies in padding differs between two runs and says nothing about the program. */

#ifndef HINDCAST_FILES_H
#define HINDCAST_FILES_H
#include "hindcast.h"
#include "types.h"

/* Reading is by hand: files that are reproduced are read again instead of logged.
 *
 * A pipe, an event descriptor or a pair of sockets inside one process carries an order between
 * threads: the writer is entered in it before it writes, the reader after it has read. */
kernel(read) alias(__read) block sync(sync_key(fd), after) by_hand
ssize_t read(int fd, out bsize(result) void *buffer, size_t count);

kernel(write) alias(__write) block sync(sync_key(fd), before)
ssize_t write(int fd, in echo(fd, result) bsize(count) const void *buffer, size_t count);

kernel(pread64) alias(pread64, __pread64) by_hand
ssize_t pread(int fd, out bsize(result) void *buffer, size_t count, off_t offset);

kernel(pwrite64) alias(pwrite64, __pwrite64)
ssize_t pwrite(int fd, in bsize(count) const void *buffer, size_t count, off_t offset);

kernel(readv) block sync(sync_key(fd), after) by_hand
ssize_t readv(int fd, iovec(out, count) const struct iovec *vector, int count);

/* By hand: what goes to the original output is gathered from several places. */
kernel(writev) block by_hand
ssize_t writev(int fd, iovec(in, count) const struct iovec *vector, int count);

kernel(preadv) alias(preadv64) by_hand
ssize_t preadv(int fd, iovec(out, count) const struct iovec *vector, int count, off_t offset);

kernel(pwritev) alias(pwritev64)
ssize_t pwritev(int fd, iovec(in, count) const struct iovec *vector, int count, off_t offset);

kernel(preadv2) trap_only block by_hand
ssize_t kernel_preadv2(int fd, iovec(out, count) const struct iovec *vector, size_t count, long low, unchecked long high, int flags);

kernel(pwritev2) trap_only block
ssize_t kernel_pwritev2(int fd, iovec(in, count) const struct iovec *vector, size_t count, long low, unchecked long high, int flags);

/* The mode means nothing unless a file is made, and is then whatever lay in the register. */
kernel(open) alias(open64, __open, __open64) block newfd(file) by_hand
int open(instr const char *path, int flags, unchecked mode_t mode);

kernel(openat) alias(openat64) block newfd(file) by_hand
int openat(int directory, instr const char *path, int flags, unchecked mode_t mode);

kernel(openat2) trap_only block newfd(file) by_hand
int kernel_openat2(int directory, instr const char *path, in bsize(size) const void *how, size_t size);

kernel(creat) alias(creat64) block newfd(file) by_hand
int creat(instr const char *path, mode_t mode);

kernel(open_by_handle_at) newfd(file)
int open_by_handle_at(int mount, unchecked void *handle, int flags);

kernel(name_to_handle_at) by_hand
int name_to_handle_at(int directory, instr const char *path, void *handle, int *mount_id, int flags);

kernel(close) closefd(fd) by_hand
int close(int fd);

kernel(close_range) by_hand
int close_range(unsigned first, unsigned last, int flags);

kernel(lseek) alias(lseek64, __lseek) by_hand
off_t lseek(int fd, off_t offset, int whence);

kernel(stat) alias(stat64)
int stat(instr const char *path, out bsize(STAT_BYTES) struct stat *status);

kernel(lstat) alias(lstat64)
int lstat(instr const char *path, out bsize(STAT_BYTES) struct stat *status);

kernel(fstat) alias(fstat64, __fstat64)
int fstat(int fd, out bsize(STAT_BYTES) struct stat *status);

kernel(newfstatat) alias(fstatat64)
int fstatat(int directory, nullable instr const char *path, out bsize(STAT_BYTES) struct stat *status, int flags);

by_hand int __xstat(int version, const char *path, struct stat *status);
by_hand int __xstat64(int version, const char *path, struct stat *status);
by_hand int __lxstat(int version, const char *path, struct stat *status);
by_hand int __lxstat64(int version, const char *path, struct stat *status);
by_hand int __fxstat(int version, int fd, struct stat *status);
by_hand int __fxstat64(int version, int fd, struct stat *status);
by_hand int __fxstatat(int version, int directory, const char *path, struct stat *status, int flags);
by_hand int __fxstatat64(int version, int directory, const char *path, struct stat *status, int flags);

kernel(statx)
int statx(int directory, nullable instr const char *path, int flags, unsigned mask, out bsize(STATX_BYTES) void *status);

kernel(truncate) alias(truncate64)
int truncate(instr const char *path, off_t length);

kernel(ftruncate) alias(ftruncate64) cache
int ftruncate(int fd, off_t length);

kernel(fallocate) alias(fallocate64) cache
int fallocate(int fd, int mode, off_t offset, off_t length);

/* These two answer with the error itself instead of setting errno. */
kernel(fadvise64) trap_only
int kernel_fadvise64(int fd, off_t offset, off_t length, int advice);
by_hand int posix_fadvise(int fd, off_t offset, off_t length, int advice);
by_hand int posix_fadvise64(int fd, off_t offset, off_t length, int advice);

kernel(fsync) block cache
int fsync(int fd);

kernel(fdatasync) block cache
int fdatasync(int fd);

kernel(sync_file_range)
int sync_file_range(int fd, off_t offset, off_t length, unsigned flags);

kernel(syncfs) block
int syncfs(int fd);

kernel(sync) trap_only
int kernel_sync(void);

kernel(readahead)
ssize_t readahead(int fd, off_t offset, size_t count);

kernel(flock) block cache
int flock(int fd, int operation);

kernel(dup) by_hand
int dup(int fd);

kernel(dup2) by_hand
int dup2(int fd, int wanted);

kernel(dup3) by_hand
int dup3(int fd, int wanted, int flags);

kernel(fcntl) block by_hand
int fcntl(int fd, int command, long argument);
by_hand int fcntl64(int fd, int command, long argument);

kernel(ioctl) block by_hand
int ioctl(int fd, unsigned long request, long argument);

kernel(pipe) by_hand
int pipe(int *ends);

kernel(pipe2) by_hand
int pipe2(int *ends, int flags);

kernel(eventfd2) newfd(internal)
int eventfd(unsigned initial, int flags);

kernel(eventfd) trap_only newfd(internal)
int kernel_eventfd(unsigned initial);

kernel(memfd_create) newfd(file)
int memfd_create(instr const char *name, unsigned flags);

kernel(memfd_secret) trap_only newfd(file)
int kernel_memfd_secret(unsigned flags);

kernel(sendfile) alias(sendfile64) block by_hand
ssize_t sendfile(int target, int source, nullable inout off_t *offset, size_t count);

kernel(splice) block by_hand
ssize_t splice(int source, nullable inout off_t *source_offset, int target, nullable inout off_t *target_offset, size_t length, unsigned flags);

kernel(tee) block
ssize_t tee(int source, int target, size_t length, unsigned flags);

kernel(vmsplice) block trap_only
ssize_t kernel_vmsplice(int fd, unchecked const struct iovec *vector, size_t count, unsigned flags);

kernel(copy_file_range) by_hand
ssize_t copy_file_range(int source, nullable inout off_t *source_offset, int target, nullable inout off_t *target_offset, size_t length, unsigned flags);

kernel(getxattr)
ssize_t getxattr(instr const char *path, instr const char *name, nullable out bsize(size ? result : 0) void *value, size_t size);

kernel(lgetxattr)
ssize_t lgetxattr(instr const char *path, instr const char *name, nullable out bsize(size ? result : 0) void *value, size_t size);

kernel(fgetxattr)
ssize_t fgetxattr(int fd, instr const char *name, nullable out bsize(size ? result : 0) void *value, size_t size);

kernel(setxattr)
int setxattr(instr const char *path, instr const char *name, nullable in bsize(size) const void *value, size_t size, int flags);

kernel(lsetxattr)
int lsetxattr(instr const char *path, instr const char *name, nullable in bsize(size) const void *value, size_t size, int flags);

kernel(fsetxattr)
int fsetxattr(int fd, instr const char *name, nullable in bsize(size) const void *value, size_t size, int flags);

kernel(listxattr)
ssize_t listxattr(instr const char *path, nullable out bsize(size ? result : 0) char *names, size_t size);

kernel(llistxattr)
ssize_t llistxattr(instr const char *path, nullable out bsize(size ? result : 0) char *names, size_t size);

kernel(flistxattr)
ssize_t flistxattr(int fd, nullable out bsize(size ? result : 0) char *names, size_t size);

kernel(removexattr)
int removexattr(instr const char *path, instr const char *name);

kernel(lremovexattr)
int lremovexattr(instr const char *path, instr const char *name);

kernel(fremovexattr)
int fremovexattr(int fd, instr const char *name);

kernel(cachestat) trap_only
int kernel_cachestat(unsigned fd, in bsize(16) const void *range, out bsize(40) void *status, unsigned flags);

/* Checked variants: a length the compiler knows is compared first, as libc does. */
by_hand ssize_t __read_chk(int fd, void *buffer, size_t count, size_t room);
by_hand ssize_t __pread_chk(int fd, void *buffer, size_t count, off_t offset, size_t room);
by_hand ssize_t __pread64_chk(int fd, void *buffer, size_t count, off_t offset, size_t room);
by_hand int __open_2(const char *path, int flags);
by_hand int __open64_2(const char *path, int flags);
by_hand int __openat_2(int directory, const char *path, int flags);
by_hand int __openat64_2(int directory, const char *path, int flags);

by_hand int __close(int fd);
by_hand int __dup2(int fd, int wanted);
by_hand int __pipe(int *ends);
by_hand int __fcntl(int fd, int command, long argument);
by_hand int __libc_fcntl64(int fd, int command, long argument);

#endif
