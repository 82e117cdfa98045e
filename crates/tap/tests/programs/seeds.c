// Draws as OpenSSL does for the seed of its generator; made a library that is called so.
#define _GNU_SOURCE
#include <assert.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

void seed(unsigned char *entropy, unsigned char *random) {
    assert(getentropy(entropy, 16) == 0);
    assert(syscall(SYS_getrandom, random, 16L, 0L) == 16);
}
