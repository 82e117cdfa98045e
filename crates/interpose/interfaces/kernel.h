/* System calls that have no stub of their own: programs reach them through libc's inner calls,
 * `syscall(2)`, or rarely. Only the trap meets them, by number. */

#ifndef HINDCAST_KERNEL_H
#define HINDCAST_KERNEL_H
#include "hindcast.h"
#include "types.h"

/* ---- Message queues of POSIX ---- */

kernel(mq_open) trap_only block newfd(other)
int kernel_mq_open(instr const char *name, int flags, unchecked mode_t mode, unchecked const void *attributes);

kernel(mq_unlink) trap_only
int kernel_mq_unlink(instr const char *name);

kernel(mq_timedsend) trap_only block
int kernel_mq_timedsend(int queue, in bsize(size) const void *message, size_t size, unsigned priority, nullable in bsize(16) const void *deadline);

kernel(mq_timedreceive) trap_only block
ssize_t kernel_mq_timedreceive(int queue, out bsize(result) void *message, size_t size, nullable out unsigned *priority, nullable in bsize(16) const void *deadline);

kernel(mq_notify) trap_only
int kernel_mq_notify(int queue, unchecked const void *event);

kernel(mq_getsetattr) trap_only
int kernel_mq_getsetattr(int queue, unchecked const void *wanted, nullable out bsize(64) void *old);

/* ---- Processes and threads seen from outside ---- */

kernel(pidfd_open) trap_only newfd(other)
int kernel_pidfd_open(pid_t process, unsigned flags);

kernel(pidfd_getfd) trap_only newfd(file)
int kernel_pidfd_getfd(int process, int target, unsigned flags);

kernel(kcmp) trap_only
int kernel_kcmp(pid_t one, pid_t two, int type, unsigned long a, unsigned long b);

kernel(process_vm_readv) trap_only
ssize_t kernel_process_vm_readv(pid_t process, iovec(out, count) const struct iovec *local, size_t count,
                                unchecked const struct iovec *remote, size_t remote_count, unsigned long flags);

kernel(process_vm_writev) trap_only
ssize_t kernel_process_vm_writev(pid_t process, iovec(in, count) const struct iovec *local, size_t count,
                                 unchecked const struct iovec *remote, size_t remote_count, unsigned long flags);

kernel(process_madvise) trap_only
ssize_t kernel_process_madvise(int process, unchecked const struct iovec *vector, size_t count, int advice, unsigned flags);

kernel(process_mrelease) trap_only
int kernel_process_mrelease(int process, unsigned flags);

kernel(ioprio_get) trap_only
int kernel_ioprio_get(int which, int who);

kernel(ioprio_set) trap_only
int kernel_ioprio_set(int which, int who, int priority);

kernel(setns) trap_only
int kernel_setns(int fd, int type);

kernel(unshare) trap_only
int kernel_unshare(unsigned long flags);

/* ---- Where memory lies: asked, and not repeated in replay ---- */

kernel(mbind) trap_only
int kernel_mbind(void *start, unsigned long size, int mode, unchecked const void *nodes, unsigned long count, unsigned flags);

kernel(set_mempolicy) trap_only
int kernel_set_mempolicy(int mode, unchecked const void *nodes, unsigned long count);

kernel(get_mempolicy) trap_only
int kernel_get_mempolicy(nullable out int *mode, nullable out bsize((count + 63) / 64 * 8) void *nodes, unsigned long count,
                         unchecked void *address, unsigned long flags);

kernel(set_mempolicy_home_node) trap_only
int kernel_set_mempolicy_home_node(unsigned long start, unsigned long size, unsigned long node, unsigned long flags);

kernel(migrate_pages) trap_only
long kernel_migrate_pages(pid_t process, unsigned long count, unchecked const void *from, unchecked const void *to);

kernel(move_pages) trap_only
long kernel_move_pages(pid_t process, unsigned long count, unchecked const void *pages, unchecked const void *nodes,
                       nullable out bsize(count * 4) void *status, int flags);

/* ---- Administration ---- */

kernel(mount) trap_only block
int kernel_mount(nullable instr const char *source, instr const char *target, nullable instr const char *type, unsigned long flags, unchecked const void *data);

kernel(umount2) trap_only block
int kernel_umount2(instr const char *target, int flags);

kernel(pivot_root) trap_only
int kernel_pivot_root(instr const char *root, instr const char *old);

kernel(swapon) trap_only
int kernel_swapon(instr const char *path, int flags);

kernel(swapoff) trap_only
int kernel_swapoff(instr const char *path);

kernel(acct) trap_only
int kernel_acct(nullable instr const char *path);

kernel(vhangup) trap_only
int kernel_vhangup(void);

kernel(syslog) trap_only block
int kernel_syslog(int type, nullable out bsize(type >= 2 && type <= 4 ? result : 0) void *buffer, int size);

kernel(sysfs) trap_only
int kernel_sysfs(int option, unchecked unsigned long a, unchecked unsigned long b);

kernel(init_module) trap_only
int kernel_init_module(unchecked void *image, unsigned long size, instr const char *parameters);

kernel(finit_module) trap_only
int kernel_finit_module(int fd, instr const char *parameters, int flags);

kernel(delete_module) trap_only
int kernel_delete_module(instr const char *name, unsigned flags);

kernel(add_key) trap_only
int kernel_add_key(instr const char *type, nullable instr const char *description, unchecked const void *payload, size_t size, int keyring);

kernel(request_key) trap_only
int kernel_request_key(instr const char *type, instr const char *description, nullable instr const char *information, int keyring);

kernel(open_tree) trap_only newfd(file)
int kernel_open_tree(int directory, instr const char *path, unsigned flags);

kernel(move_mount) trap_only
int kernel_move_mount(int from_directory, instr const char *from, int to_directory, instr const char *to, unsigned flags);

kernel(fsopen) trap_only newfd(file)
int kernel_fsopen(instr const char *name, unsigned flags);

kernel(fsconfig) trap_only
int kernel_fsconfig(int fd, unsigned command, nullable instr const char *key, unchecked const void *value, int extra);

kernel(fsmount) trap_only newfd(file)
int kernel_fsmount(int fd, unsigned flags, unsigned attributes);

kernel(fspick) trap_only newfd(file)
int kernel_fspick(int directory, instr const char *path, unsigned flags);

kernel(mount_setattr) trap_only
int kernel_mount_setattr(int directory, instr const char *path, unsigned flags, in bsize(size) const void *attributes, size_t size);

kernel(statmount) trap_only
int kernel_statmount(in bsize(24) const void *request, out bsize(size) void *buffer, size_t size, unsigned flags);

kernel(listmount) trap_only
ssize_t kernel_listmount(in bsize(24) const void *request, out bsize(result * 8) void *ids, size_t count, unsigned flags);

kernel(lsm_list_modules) trap_only
int kernel_lsm_list_modules(nullable out bsize(result * 8) void *ids, inout unsigned *size, unsigned flags);

kernel(landlock_create_ruleset) trap_only newfd(file)
int kernel_landlock_create_ruleset(unchecked const void *attributes, size_t size, unsigned flags);

/* Only what asks: a filter ends recording. */
kernel(seccomp) trap_only by_hand
int kernel_seccomp(unsigned operation, unsigned flags, void *argument);

kernel(landlock_add_rule) trap_only
int kernel_landlock_add_rule(int fd, int type, unchecked const void *attributes, unsigned flags);

#endif
