/* The process and the machine around it: ids, limits, scheduling, randomness, names. */

#ifndef HINDCAST_SYSTEM_H
#define HINDCAST_SYSTEM_H
#include "hindcast.h"
#include "types.h"

kernel(getpid) alias(__getpid)
pid_t getpid(void);

kernel(getppid)
pid_t getppid(void);

kernel(gettid)
pid_t gettid(void);

kernel(getuid)
uid_t getuid(void);

kernel(geteuid)
uid_t geteuid(void);

kernel(getgid)
gid_t getgid(void);

kernel(getegid)
gid_t getegid(void);

kernel(getresuid)
int getresuid(out uid_t *real, out uid_t *effective, out uid_t *saved);

kernel(getresgid)
int getresgid(out gid_t *real, out gid_t *effective, out gid_t *saved);

kernel(getgroups)
int getgroups(int room, nullable out bsize(room ? result * 4 : 0) gid_t *groups);

by_hand int __getgroups_chk(int room, gid_t *groups, size_t size);

/* libc carries these to every thread of the process, so the stubs by hand leave that to libc. */
kernel(setuid) by_hand
int setuid(uid_t user);

kernel(setgid) by_hand
int setgid(gid_t group);

kernel(setreuid) by_hand
int setreuid(uid_t real, uid_t effective);

kernel(setregid) by_hand
int setregid(gid_t real, gid_t effective);

kernel(setresuid) by_hand
int setresuid(uid_t real, uid_t effective, uid_t saved);

kernel(setresgid) by_hand
int setresgid(gid_t real, gid_t effective, gid_t saved);

kernel(setgroups) by_hand
int setgroups(size_t count, nullable const gid_t *groups);

by_hand int seteuid(uid_t user);
by_hand int setegid(gid_t group);

kernel(setfsuid)
int setfsuid(uid_t user);

kernel(setfsgid)
int setfsgid(gid_t group);

kernel(getpgid) alias(__getpgid)
pid_t getpgid(pid_t process);

kernel(getpgrp)
pid_t getpgrp(void);

kernel(setpgid) alias(__setpgid)
int setpgid(pid_t process, pid_t group);

kernel(getsid)
pid_t getsid(pid_t process);

kernel(setsid)
pid_t setsid(void);

kernel(getpriority) trap_only
int kernel_getpriority(int which, unsigned who);

kernel(setpriority)
int setpriority(int which, unsigned who, int priority);

kernel(uname)
int uname(out bsize(UTSNAME_BYTES) void *name);

kernel(sysinfo)
int sysinfo(out bsize(SYSINFO_BYTES) void *info);

kernel(getrusage)
int getrusage(int who, out bsize(RUSAGE_BYTES) void *usage);

kernel(getrlimit) alias(getrlimit64, __getrlimit)
int getrlimit(int resource, out bsize(16) void *limit);

kernel(setrlimit) alias(setrlimit64)
int setrlimit(int resource, in bsize(16) const void *limit);

kernel(prlimit64) alias(prlimit64)
int prlimit(pid_t process, int resource, nullable in bsize(16) const void *wanted, nullable out bsize(16) void *old);

kernel(getrandom)
ssize_t getrandom(out bsize(result) void *buffer, size_t size, unsigned flags);
by_hand int getentropy(void *buffer, size_t size);

kernel(getcpu) trap_only
int kernel_getcpu(nullable out unsigned *cpu, nullable out unsigned *node, unchecked void *unused);
by_hand int getcpu(unsigned *cpu, unsigned *node);
by_hand int sched_getcpu(void);

/* The kernel answers with the size of its mask; libc clears the rest and answers with zero. Asked by libc about another thread,
 * the process is that thread's kernel id, which libc keeps for itself and which is another one in replay. */
kernel(sched_getaffinity) trap_only
long kernel_sched_getaffinity(unchecked pid_t process, size_t size, out bsize(result) void *mask);
by_hand int sched_getaffinity(pid_t process, size_t size, void *mask);

/* Not checked: libc passes the thread's number as the kernel gave it in this run, which is another one in replay. */
kernel(sched_setaffinity)
int sched_setaffinity(unchecked pid_t process, size_t size, in bsize(size) const void *mask);

kernel(sched_getparam)
int sched_getparam(unchecked pid_t process, out int *priority);

kernel(sched_setparam)
int sched_setparam(unchecked pid_t process, in bsize(4) const void *priority);

kernel(sched_getscheduler)
int sched_getscheduler(unchecked pid_t process);

kernel(sched_setscheduler)
int sched_setscheduler(unchecked pid_t process, int policy, in bsize(4) const void *priority);

kernel(sched_get_priority_max)
int sched_get_priority_max(int policy);

kernel(sched_get_priority_min)
int sched_get_priority_min(int policy);

kernel(sched_rr_get_interval)
int sched_rr_get_interval(unchecked pid_t process, out bsize(16) void *interval);

kernel(sched_getattr) trap_only
int kernel_sched_getattr(unchecked pid_t process, out bsize(size) void *attributes, unsigned size, unsigned flags);

kernel(sched_setattr) trap_only
int kernel_sched_setattr(pid_t process, in bsize(48) const void *attributes, unsigned flags);

kernel(capget) by_hand
int capget(void *header, void *data);

kernel(capset)
int capset(in bsize(4) void *header, unchecked const void *data);

kernel(prctl) by_hand
int prctl(int option, unsigned long a, unsigned long b, unsigned long c, unsigned long d);

kernel(personality)
int personality(unsigned long persona);

by_hand long syscall(long number, long a, long b, long c, long d, long e, long f);

kernel(sethostname)
int sethostname(in bsize(length) const char *name, size_t length);

kernel(setdomainname)
int setdomainname(in bsize(length) const char *name, size_t length);

/* libc addresses a thread by the number that the kernel gave it, which is another one in replay: recorded where the program
 * still says which thread it means. */
int pthread_setname_np(unsigned long thread, instr const char *name) fails(nonzero);
int pthread_getname_np(unsigned long thread, out bsize(result == 0 ? size : 0) char *name, size_t size) fails(nonzero);
int pthread_setaffinity_np(unsigned long thread, size_t size, in bsize(size) const void *mask) fails(nonzero);
int pthread_getaffinity_np(unsigned long thread, size_t size, out bsize(result == 0 ? size : 0) void *mask) fails(nonzero);
int pthread_setschedparam(unsigned long thread, int policy, in bsize(4) const void *priority) fails(nonzero);
int pthread_getschedparam(unsigned long thread, out int *policy, out int *priority) fails(nonzero);
int pthread_setschedprio(unsigned long thread, int priority) fails(nonzero);
int pthread_getcpuclockid(unsigned long thread, out int *clock) fails(nonzero);

/* System V: what one process shares with another. */
kernel(semget)
int semget(int key, int count, int flags);

kernel(semop) block
int semop(int id, in bsize(count * 6) void *operations, size_t count);

kernel(semtimedop) block
int semtimedop(int id, in bsize(count * 6) void *operations, size_t count, nullable in bsize(16) const void *timeout);

kernel(semctl) by_hand
int semctl(int id, int number, int command, long argument);

kernel(msgget)
int msgget(int key, int flags);

kernel(msgsnd) block
int msgsnd(int id, in bsize(size + 8) const void *message, size_t size, int flags);

kernel(msgrcv) block
ssize_t msgrcv(int id, out bsize(result + 8) void *message, size_t size, long type, int flags);

kernel(msgctl) by_hand
int msgctl(int id, int command, void *argument);

kernel(shmget)
int shmget(int key, size_t size, int flags);

kernel(shmctl) by_hand
int shmctl(int id, int command, void *argument);

kernel(mlock)
int mlock(const void *start, size_t size);

kernel(mlock2)
int mlock2(const void *start, size_t size, unsigned flags);

kernel(munlock)
int munlock(const void *start, size_t size);

kernel(mlockall)
int mlockall(int flags);

kernel(munlockall)
int munlockall(void);

kernel(mincore)
int mincore(unchecked void *start, size_t size, out bsize((size + 4095) / 4096) unsigned char *pages);

#endif
