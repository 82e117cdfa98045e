/* What the programs of this folder have in common.
 *
 * Each exercises one family of calls and prints everything that it saw. A line is either
 *     same(...)   what every run on any machine shows: the test compares it with a run that was not recorded, so that a program that
 *                 recording disturbs is found, or
 *     seen(...)   begins with ~ and may differ from run to run: times, process ids, random bytes, addresses, inode numbers.
 * A replay must show both again, byte for byte. `must` ends the program when a call fails that should not.
 */
#pragma once
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

__attribute__((format(printf, 1, 2), unused)) static void same(const char *format, ...) {
    va_list list;
    va_start(list, format);
    flockfile(stdout);
    vprintf(format, list);
    putchar('\n');
    funlockfile(stdout);
    va_end(list);
}

__attribute__((format(printf, 1, 2), unused)) static void seen(const char *format, ...) {
    va_list list;
    va_start(list, format);
    flockfile(stdout);
    fputs("~ ", stdout);
    vprintf(format, list);
    putchar('\n');
    funlockfile(stdout);
    va_end(list);
}

__attribute__((noreturn, unused)) static void failed(const char *file, int line, const char *what) {
    fprintf(stderr, "%s:%d: %s: %s\n", file, line, what, strerror(errno));
    fflush(stdout);
    _exit(99);
}

/* The value of a call that answers -1 or NULL when it fails. */
#define must(call)                                                                                                                         \
    ({                                                                                                                                     \
        __typeof__(call) answer_ = (call);                                                                                                 \
        if ((intptr_t)answer_ == -1 || (sizeof(answer_) == 8 && !(intptr_t)answer_ && __builtin_classify_type(answer_) == 5))             \
            failed(__FILE__, __LINE__, #call);                                                                                             \
        answer_;                                                                                                                           \
    })

/* The value of a call that answers 0, or an error number. */
#define must_be_zero(call)                                                                                                                 \
    do {                                                                                                                                   \
        int answer_ = (call);                                                                                                              \
        if (answer_ != 0) {                                                                                                                \
            errno = answer_;                                                                                                               \
            failed(__FILE__, __LINE__, #call);                                                                                             \
        }                                                                                                                                  \
    } while (0)

/* What a call that should fail failed with. */
#define refused(call)                                                                                                                      \
    ({                                                                                                                                     \
        errno = 0;                                                                                                                         \
        long answer_ = (long)(call);                                                                                                       \
        same("%s: %ld %s", #call, answer_, strerrorname_np(errno));                                                                        \
    })

/* FNV-1a: enough to see in one word whether bytes are the same. */
__attribute__((unused)) static uint64_t sum(const void *bytes, size_t size) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ ((const unsigned char *)bytes)[i]) * 0x100000001b3u;
    return hash;
}

/* Bytes that look random and are the same everywhere. */
__attribute__((unused)) static void fill(void *bytes, size_t size, uint64_t seed) {
    for (size_t i = 0; i < size; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        ((unsigned char *)bytes)[i] = (unsigned char)(seed >> 56);
    }
}
