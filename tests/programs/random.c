/* Where programs get their randomness from. */
#include "see.h"
#include <cpuid.h>
#include <immintrin.h>
#include <sys/auxv.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>

__attribute__((target("rdrnd"))) static int hardware(unsigned long long *word) { return _rdrand64_step(word); }
__attribute__((target("rdseed"))) static int seed(unsigned long long *word) { return _rdseed64_step(word); }

int main(void) {
    unsigned char bytes[300];
    must(getrandom(bytes, 300, 0));
    seen("getrandom %016lx", sum(bytes, 300));
    must(getrandom(bytes, 16, GRND_NONBLOCK | GRND_RANDOM));
    seen("getrandom %016lx", sum(bytes, 16));
    must(getentropy(bytes, 256));
    seen("getentropy %016lx", sum(bytes, 256));
    must(syscall(SYS_getrandom, bytes, 8, 0));
    seen("by number %016lx", sum(bytes, 8));
    int urandom = must(open("/dev/urandom", O_RDONLY));
    must(read(urandom, bytes, 100));
    seen("urandom %016lx", sum(bytes, 100));
    FILE *file = must(fopen("/dev/random", "r"));
    same("fread %zu", fread(bytes, 1, 20, file));
    seen("random %016lx", sum(bytes, 20));
    seen("arc4random %u, below 1000: %u", arc4random(), arc4random_uniform(1000));
    arc4random_buf(bytes, 77);
    seen("arc4random_buf %016lx", sum(bytes, 77));
    seen("given at the start: %016lx", sum((void *)getauxval(AT_RANDOM), 16));

    srand((unsigned)time(NULL) ^ (unsigned)getpid());
    int first = rand();
    seen("rand %d %d", first, rand());
    srandom((unsigned)(uintptr_t)bytes ^ (unsigned)(uintptr_t)file);
    seen("random of addresses %ld", random());
    srand48((long)clock());
    double real = drand48();
    seen("drand48 %.17g, then %ld", real, lrand48());
    srand(42);
    first = rand();
    same("rand of 42: %d %d", first, rand());
    char state[64];
    initstate(42, state, sizeof state);
    same("random of 42: %ld", random());

    unsigned a, b, c, d;
    unsigned long long word = 0;
    if (__get_cpuid(1, &a, &b, &c, &d) && c & bit_RDRND)
        {
        int there = hardware(&word);
        seen("rdrand %d %llx", there, word);
    }
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d) && b & bit_RDSEED)
        {
        int there = seed(&word);
        seen("rdseed %d %llx", there, word);
    }
    return 0;
}
