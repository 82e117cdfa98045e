/* What a process is given: arguments, environment, auxiliary vector, limits, identity; and what the system says about itself. */
#include "see.h"
#include <grp.h>
#include <sched.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>

extern char **environ;

int main(int count, char **arguments) {
    for (int i = 1; i < count; i++)
        same("argument %d: %s", i, arguments[i]);
    seen("I am %s, %s, %s", arguments[0], program_invocation_name, (char *)getauxval(AT_EXECFN));
    for (char **variable = environ; *variable; variable++)
        seen("%s", *variable);
    same("HOME %s, secure %s", getenv("HOME") ? "is there" : "is not there", secure_getenv("HOME") ? "too" : "not");
    must(setenv("COLOUR", "blue", 1));
    must(setenv("COLOUR", "red", 0));
    static char pair[] = "SHAPE=round";
    must_be_zero(putenv(pair));
    must(unsetenv("HOME"));
    same("%s %s %s", getenv("COLOUR"), getenv("SHAPE"), getenv("HOME") ? "still" : "gone");
    clearenv();
    same("cleared: %d", environ == NULL || *environ == NULL);
    int entry;
    seen("stack %p, data %p, text %p, heap %p", (void *)&entry, (void *)&environ, (void *)main, malloc(10));
    seen("page %lu, capabilities %#lx, clock ticks %lu, program headers %#lx", getauxval(AT_PAGESZ), getauxval(AT_HWCAP), getauxval(AT_CLKTCK), getauxval(AT_PHDR));

    seen("process %d of %d, group %d, session %d, thread %d", getpid(), getppid(), getpgrp(), getsid(0), gettid());
    seen("user %u %u, group %u %u", getuid(), geteuid(), getgid(), getegid());
    gid_t groups[64];
    seen("%d groups", must(getgroups(64, groups)));
    uid_t real, effective, saved;
    must(getresuid(&real, &effective, &saved));
    seen("saved %u", saved);
    struct rlimit limit;
    must(getrlimit(RLIMIT_NOFILE, &limit));
    seen("files %lu of %lu", limit.rlim_cur, limit.rlim_max);
    limit.rlim_cur = 300;
    must(setrlimit(RLIMIT_NOFILE, &limit));
    same("now %d", getdtablesize());
    must(prlimit(0, RLIMIT_STACK, NULL, &limit));
    seen("stack of %lu", limit.rlim_cur);
    cpu_set_t set;
    must(sched_getaffinity(0, sizeof set, &set));
    seen("may run on %d, there are %ld, %d configured", CPU_COUNT(&set), sysconf(_SC_NPROCESSORS_ONLN), get_nprocs_conf());
    errno = 0;
    seen("priority %d", getpriority(PRIO_PROCESS, 0));
    same("scheduler %d", must(sched_getscheduler(0)));
    char name[17] = "";
    must(prctl(PR_SET_NAME, "renamed"));
    must(prctl(PR_GET_NAME, name));
    same("name %s", name);

    struct utsname system;
    must(uname(&system));
    seen("%s %s %s %s", system.sysname, system.nodename, system.release, system.machine);
    char host[65];
    must(gethostname(host, sizeof host));
    seen("host %s, id %lx", host, gethostid());
    struct sysinfo info;
    must(sysinfo(&info));
    seen("up %ld s, load %lu, %lu of %lu free, %d processes", info.uptime, info.loads[0], info.freeram, info.totalram, info.procs);
    seen("pages %ld, free %ld", get_phys_pages(), get_avphys_pages());
    double load[3];
    int averages = getloadavg(load, 3);
    seen("load average of %d: %g", averages, load[0]);
    size_t size = confstr(_CS_GNU_LIBC_VERSION, host, sizeof host);
    seen("%.*s", (int)size, host);

    FILE *status = must(fopen("/proc/self/status", "r"));
    char line[300];
    while (fgets(line, sizeof line, status))
        if (!strncmp(line, "Pid:", 4) || !strncmp(line, "VmSize:", 7))
            seen("%s", line);
    same("command line %s", fopen("/proc/self/cmdline", "r") ? "readable" : "not readable");
    ssize_t length = must(readlink("/proc/self/exe", line, sizeof line));
    seen("/proc/self/exe is %.*s", (int)length, line);
    return 0;
}
