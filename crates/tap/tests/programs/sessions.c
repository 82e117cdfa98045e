// Does with the file of a session what PHP does, and with a file beside it.
//
//   sessions FOLDER

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utime.h>

// By this a program is known as PHP.
struct {
    const char *name;
} sapi_module = {"fpm-fcgi"};

static const char *folder;

static const char *at(const char *name) {
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void look(const char *when, const char *name) {
    struct stat found;
    int is_there = stat(at(name), &found) == 0;
    printf("%s: %s %s\n", when, name, is_there ? "is there" : "is not there");
}

static void add(const char *name, const char *word) {
    char before[64] = "";
    int file = open(at(name), O_RDWR | O_CREAT, 0600);
    if (file < 0 || read(file, before, sizeof before - 1) < 0 || write(file, word, strlen(word)) < 0)
        perror(name);
    close(file);
    printf("added to %s: \"%s\"\n", name, before);
}

int main(int count, char **arguments) {
    folder = arguments[count - 1];
    look("before", "sess_4k2");
    add("sess_4k2", "+");
    add("sess_4k2", "+");
    if (utime(at("sess_4k2"), NULL) != 0 || access(at("sess_4k2"), R_OK) != 0)
        perror("sess_4k2");
    if (unlink(at("sess_4k2")) != 0)
        perror("sess_4k2");
    look("removed", "sess_4k2");
    add("sess_4k2", "+");
    add("notes", "+");
    return 0;
}
