/* The descriptors of the process, as the kernel lists them: those of a recorder are not among them. */
#include "see.h"
#include <dirent.h>
#include <sys/syscall.h>

static void list(const char *folder) {
    DIR *open = must(opendir(folder));
    int count = 0, highest = 0;
    struct dirent *entry;
    while ((entry = readdir(open))) {
        int number = atoi(entry->d_name);
        count += entry->d_name[0] != '.';
        highest = number > highest ? number : highest;
    }
    same("%s: %d, up to %d", folder, count, highest);
    must(closedir(open));
}

int main(void) {
    for (int i = 0; i < 40; i++)
        must(dup(0));
    list("/proc/self/fd");
    list("/proc/self/fdinfo");
    list("/proc/thread-self/fd");
    /* Little by little. */
    int folder = must(open("/proc/self/fd", O_RDONLY | O_DIRECTORY));
    char bytes[100];
    long read, all = 0;
    while ((read = must(syscall(SYS_getdents64, folder, bytes, sizeof bytes))) > 0)
        all += read;
    same("in pieces: %ld", all);
    return 0;
}
