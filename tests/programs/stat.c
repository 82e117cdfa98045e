/* What is known about files: the stat family, rights, times, file systems, extended attributes. */
#include "see.h"
#include <linux/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/time.h>
#include <sys/xattr.h>
#include <utime.h>

static void show(const char *call, const struct stat *stat) {
    same("%s: mode %o, size %ld, links %lu", call, stat->st_mode, (long)stat->st_size, (unsigned long)stat->st_nlink);
    seen("%s: inode %lu, device %u:%u, owner %u:%u, blocks %ld of %ld, modified %ld.%09ld, changed %ld.%09ld, read %ld.%09ld", call,
         (unsigned long)stat->st_ino, major(stat->st_dev), minor(stat->st_dev), stat->st_uid, stat->st_gid, (long)stat->st_blocks,
         (long)stat->st_blksize, (long)stat->st_mtim.tv_sec, stat->st_mtim.tv_nsec, (long)stat->st_ctim.tv_sec, stat->st_ctim.tv_nsec,
         (long)stat->st_atim.tv_sec, stat->st_atim.tv_nsec);
}

int main(void) {
    struct stat stat_;
    umask(022);
    int fd = must(open("file", O_CREAT | O_RDWR, 0666));
    must(write(fd, "twelve bytes", 12));
    must(symlink("file", "link"));
    must(stat("file", &stat_));
    show("stat", &stat_);
    must(lstat("link", &stat_));
    show("lstat", &stat_);
    must(fstat(fd, &stat_));
    show("fstat", &stat_);
    must(fstatat(AT_FDCWD, "link", &stat_, AT_SYMLINK_NOFOLLOW));
    show("fstatat", &stat_);
    must(stat("input.txt", &stat_));
    show("input.txt", &stat_);

    struct statx more;
    must(statx(AT_FDCWD, "file", 0, STATX_ALL, &more));
    same("statx: mask has size %d, size %llu", !!(more.stx_mask & STATX_SIZE), (unsigned long long)more.stx_size);
    seen("statx: born %lld.%09u, inode %llu, mount %llu", (long long)more.stx_btime.tv_sec, more.stx_btime.tv_nsec,
         (unsigned long long)more.stx_ino, (unsigned long long)more.stx_mnt_id);

    must(chmod("file", 0640));
    must(fchmod(fd, 04711));
    must(fchmodat(AT_FDCWD, "file", 0600, 0));
    must(chown("file", getuid(), getgid()));
    must(fchown(fd, (uid_t)-1, (gid_t)-1));
    must(lchown("link", (uid_t)-1, (gid_t)-1));
    must(stat("file", &stat_));
    show("changed", &stat_);
    same("access %d %d %d", access("file", R_OK | W_OK), access("file", F_OK), faccessat(AT_FDCWD, "not there", F_OK, 0));
    same("euidaccess %d", euidaccess("file", R_OK));

    struct timespec times[2] = {{1000000000, 5}, {1100000000, 123456789}};
    must(utimensat(AT_FDCWD, "file", times, 0));
    must(stat("file", &stat_));
    same("utimensat: %ld.%09ld", (long)stat_.st_mtim.tv_sec, stat_.st_mtim.tv_nsec);
    times[0].tv_nsec = UTIME_OMIT, times[1].tv_nsec = UTIME_NOW;
    must(futimens(fd, times));
    must(stat("file", &stat_));
    seen("futimens: %ld.%09ld", (long)stat_.st_mtim.tv_sec, stat_.st_mtim.tv_nsec);
    struct timeval values[2] = {{1200000000, 7}, {1200000001, 8}};
    must(utimes("file", values));
    must(utime("file", &(struct utimbuf){1300000000, 1300000001}));
    must(stat("file", &stat_));
    same("utime: %ld", (long)stat_.st_mtim.tv_sec);

    struct statfs system;
    must(statfs(".", &system));
    seen("statfs: type %#lx, %lu of %lu blocks free, %lu inodes free", (long)system.f_type, system.f_bfree, system.f_blocks, system.f_ffree);
    must(fstatfs(fd, &system));
    struct statvfs view;
    must(statvfs(".", &view));
    seen("statvfs: %lu free, flags %lu, names of %lu", view.f_bavail, view.f_flag, view.f_namemax);
    same("pathconf %ld, fpathconf %ld", pathconf(".", _PC_NAME_MAX), fpathconf(fd, _PC_PIPE_BUF));

    char value[100];
    if (setxattr("file", "user.colour", "blue", 4, 0) == 0) {
        seen("getxattr %zd %.4s", must(getxattr("file", "user.colour", value, sizeof value)), value);
        seen("listxattr %zd", must(listxattr("file", value, sizeof value)));
        seen("fgetxattr %zd", must(fgetxattr(fd, "user.colour", value, sizeof value)));
        must(removexattr("file", "user.colour"));
    } else
        seen("no extended attributes here: %m");
    refused(stat("not there", &stat_));
    refused(fstat(555, &stat_));
    refused(chmod("not there", 0600));
    same("umask was %o", umask(077));
    return 0;
}
