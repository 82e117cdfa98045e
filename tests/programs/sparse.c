/* Files with holes, mapped: the mapping shows the holes as zeros, and a recording does not hold them. */
#include "see.h"
#include <sys/mman.h>

enum { PAGE = 4096 };
static const size_t SIZE = (size_t)1 << 30;

static void write_at(int fd, size_t offset, unsigned seed) {
    unsigned char bytes[3 * PAGE];
    fill(bytes, sizeof bytes, seed);
    must(pwrite(fd, bytes, sizeof bytes, (off_t)offset));
}

static void show(const char *what, const unsigned char *bytes, size_t offset) { same("%s at %zu: %016lx", what, offset, sum(bytes + offset, 4 * PAGE)); }

int main(void) {
    int fd = must(open("data", O_CREAT | O_RDWR, 0600));
    must(ftruncate(fd, (off_t)SIZE));
    const size_t places[] = {0, 40 * PAGE, SIZE / 2, SIZE - 3 * PAGE};
    for (unsigned i = 0; i < 4; i++)
        write_at(fd, places[i], i + 1);
    must(lseek(fd, 77, SEEK_SET));
    unsigned char *whole = must(mmap(NULL, SIZE, PROT_READ, MAP_PRIVATE, fd, 0));
    same("stands at %ld", (long)must(lseek(fd, 0, SEEK_CUR)));
    for (unsigned i = 0; i < 3; i++)
        show("whole", whole, places[i]);
    same("the end: %016lx", sum(whole + SIZE - 3 * PAGE, 3 * PAGE));
    unsigned char *shared = must(mmap(NULL, SIZE / 2, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 38 * PAGE));
    show("shared", shared, 0);
    show("shared", shared, 2 * PAGE);
    shared[PAGE] = 7;
    same("written: %d", shared[PAGE]);
    unsigned char *hole = must(mmap(NULL, 16 * PAGE, PROT_READ, MAP_PRIVATE, fd, 100 * PAGE));
    show("a hole", hole, PAGE);

    /* More parts than are told apart. */
    int many = must(open("many", O_CREAT | O_RDWR, 0600));
    must(ftruncate(many, 4096 * PAGE));
    for (int i = 0; i < 300; i++) {
        int value = i;
        must(pwrite(many, &value, sizeof value, (off_t)i * 8 * PAGE));
    }
    unsigned char *parts = must(mmap(NULL, 4096 * PAGE, PROT_READ, MAP_PRIVATE, many, 0));
    same("many parts: %016lx", sum(parts, 4096 * PAGE));
    return 0;
}
