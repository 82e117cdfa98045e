/* Mapped files and anonymous memory: what is read through them, and where they are. */
#include "see.h"
#include <sys/mman.h>

int main(void) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    int fd = must(open("data", O_CREAT | O_RDWR, 0600));
    must(ftruncate(fd, (off_t)(16 * page)));
    unsigned char *shared = must(mmap(NULL, 16 * page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    seen("shared at %p", (void *)shared);
    fill(shared, 16 * page, 4);
    must(msync(shared, 16 * page, MS_SYNC));
    same("shared: %016lx", sum(shared, 16 * page));
    char bytes[64];
    must(pread(fd, bytes, sizeof bytes, (off_t)page));
    same("read back: %d", memcmp(bytes, shared + page, sizeof bytes));

    unsigned char *private = must(mmap(NULL, 4 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, (off_t)(4 * page)));
    seen("private at %p", (void *)private);
    same("private: %016lx", sum(private, 4 * page));
    private[0] = 'x';
    same("the file underneath stays: %d", shared[4 * page] == private[0]);

    int input = must(open("input.txt", O_RDONLY));
    off_t size = must(lseek(input, 0, SEEK_END));
    char *text = must(mmap(NULL, (size_t)size, PROT_READ, MAP_PRIVATE | MAP_POPULATE, input, 0));
    must(close(input));
    same("input.txt: %ld bytes, %016lx", (long)size, sum(text, (size_t)size));
    /* The part of the last page behind the end reads as zeros. */
    same("behind it: %d", text[size]);

    unsigned char *memory = must(mmap(NULL, 8 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    seen("anonymous at %p", (void *)memory);
    fill(memory, 8 * page, 5);
    unsigned char *moved = must(mremap(memory, 8 * page, 64 * page, MREMAP_MAYMOVE));
    seen("moved to %p", (void *)moved);
    same("moved: %016lx", sum(moved, 64 * page));
    must(mprotect(moved, page, PROT_READ));
    must(madvise(moved + 2 * page, page, MADV_DONTNEED));
    same("after madvise: %016lx", sum(moved, 8 * page));
    must(munmap(moved + 4 * page, page));
    unsigned char *fixed = must(mmap(moved + 4 * page, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
    same("fixed where asked: %d", fixed == moved + 4 * page);
    unsigned char resident[64];
    must(mincore(shared, 16 * page, resident));
    seen("resident: %016lx", sum(resident, 16));
    must(mlock(shared, page));
    must(munlock(shared, page));
    must(munmap(shared, 16 * page));
    unsigned char *again = must(mmap(NULL, 3 * page, PROT_READ, MAP_SHARED, fd, (off_t)page));
    seen("again at %p", (void *)again);
    same("again: %016lx", sum(again, 3 * page));
    int *between = must(mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    *between = 7;
    same("shared and anonymous: %d", *between);
    must(mprotect(between, page, PROT_NONE));
    refused(mmap(NULL, 0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    refused(mmap(NULL, page, PROT_READ, MAP_PRIVATE, 555, 0));
    refused(munmap((void *)1, page));
    return 0;
}
