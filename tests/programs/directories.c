/* Directories: making, walking, changing into; the libc walkers make their system calls out of sight of any stub. */
#include "see.h"
#include <dirent.h>
#include <fnmatch.h>
#include <ftw.h>
#include <glob.h>
#include <sys/syscall.h>

static int visit(const char *path, const struct stat *stat, int kind, struct FTW *at) {
    seen("walked %s: kind %d, level %d, inode %lu", path, kind, at->level, (unsigned long)stat->st_ino);
    return 0;
}

static int by_name(const struct dirent **a, const struct dirent **b) { return strcmp((*a)->d_name, (*b)->d_name); }

int main(void) {
    char path[4096];
    seen("in %s", must(getcwd(path, sizeof path)));
    must(mkdir("tree", 0755));
    for (int i = 0; i < 300; i++) {
        snprintf(path, sizeof path, "tree/file-with-a-somewhat-long-name-%03d", i);
        must(close(must(open(path, O_CREAT | O_WRONLY, 0600))));
    }
    must(mkdirat(AT_FDCWD, "tree/branch", 0700));
    must(symlink("../elsewhere", "tree/branch/dangling"));

    DIR *folder = must(opendir("tree"));
    int count = 0;
    long middle = 0;
    for (struct dirent *entry; (entry = readdir(folder)); count++) {
        seen("%s inode %lu kind %d", entry->d_name, (unsigned long)entry->d_ino, entry->d_type);
        if (count == 150)
            middle = telldir(folder);
    }
    same("%d entries in tree", count);
    seen("the middle is at %ld", middle);
    seekdir(folder, middle);
    seen("behind it: %s", must(readdir(folder))->d_name);
    rewinddir(folder);
    seen("first again: %s", must(readdir(folder))->d_name);
    must(fchdir(dirfd(folder)));
    seen("in %s", must(getcwd(path, sizeof path)));
    must(closedir(folder));
    must(chdir(".."));

    struct dirent **names;
    count = must(scandir("tree", &names, NULL, by_name));
    for (int i = 0; i < count; i++) {
        if (i < 5)
            same("sorted: %s", names[i]->d_name);
        free(names[i]);
    }
    free(names);

    must(nftw("tree", visit, 8, FTW_PHYS | FTW_DEPTH));
    glob_t found;
    must_be_zero(glob("tree/*-01[0-4]", 0, NULL, &found));
    for (size_t i = 0; i < found.gl_pathc; i++)
        same("glob: %s", found.gl_pathv[i]);
    globfree(&found);

    int fd = must(open("tree", O_RDONLY | O_DIRECTORY));
    char entries[1024];
    long size = must(syscall(SYS_getdents64, fd, entries, sizeof entries));
    seen("getdents64 by number: %ld bytes, sum %016lx", size, sum(entries, (size_t)size));
    must(close(fd));

    refused(rmdir("tree"));
    refused(mkdir("tree", 0700));
    refused(opendir("not there"));
    refused(chdir("input.txt"));
    must(unlink("tree/branch/dangling"));
    must(rmdir("tree/branch"));
    must(unlinkat(AT_FDCWD, "tree/file-with-a-somewhat-long-name-007", 0));
    seen("temporary folder %s", must(mkdtemp(strcpy(path, "folder-XXXXXX"))));
    return 0;
}
