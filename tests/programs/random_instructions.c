/* Random numbers of the processor by programs that do not ask cpuid: every width, in code that was there, and in code that was made. */
#include "see.h"
#include <immintrin.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/mman.h>

/* cpuid says in a recording that there are none. */
static bool has(const char *feature) {
    static char text[1 << 16];
    FILE *file = must(fopen("/proc/cpuinfo", "r"));
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    must(fclose(file));
    return strstr(text, feature) != NULL;
}

__attribute__((target("rdrnd"))) static void rdrand(void) {
    for (int i = 0; i < 3; i++) {
        unsigned short narrow = 0;
        unsigned middle = 0;
        unsigned long long wide = 0;
        int there = _rdrand16_step(&narrow) + _rdrand32_step(&middle) + _rdrand64_step(&wide);
        seen("rdrand %d: %x %x %llx", there, narrow, middle, wide);
    }
    unsigned long flags, whole = ~0ul;
    do
        __asm__ volatile("rdrand %w0; pushfq; pop %1" : "+r"(whole), "=&r"(flags)::"cc");
    while (!(flags & 1));
    seen("the lower quarter of %lx", whole);
    same("the rest of it is %lx, the flags are %lx", whole >> 16, flags & 0x8d5);
    register unsigned long high __asm__("r13") = ~0ul;
    __asm__ volatile("1: rdrand %k0; jnc 1b" : "+r"(high)::"cc");
    seen("the lower half of %lx", high);
    same("the upper half is %lx", high >> 32);
}

__attribute__((target("rdseed"))) static void rdseed(void) {
    unsigned long long wide = 0;
    int there = _rdseed64_step(&wide);
    seen("rdseed %d: %llx", there, wide);
}

static void rdpid(void) {
    unsigned long processor;
    __asm__ volatile("rdpid %0" : "=r"(processor));
    seen("processor %lx", processor);
}

/* mov eax, 0xf0c70fa2; rdrand rax; ret: only the second instruction is one. */
static void made(void) {
    static const unsigned char code[] = {0xb8, 0xa2, 0x0f, 0xc7, 0xf0, 0x48, 0x0f, 0xc7, 0xf0, 0xc3};
    unsigned char *page = must(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    for (int round = 0; round < 2; round++) {
        memcpy(page, code, sizeof code);
        must(mprotect(page, 4096, PROT_READ | PROT_EXEC));
        seen("made: %lx", ((unsigned long (*)(void))page)());
        must(mprotect(page, 4096, PROT_READ | PROT_WRITE));
    }
}

static sigjmp_buf back;
static void on_fault(int signal) { siglongjmp(back, signal); }

/* The program's own faults stay its own. */
static void faults(void) {
    signal(SIGILL, on_fault);
    signal(SIGSEGV, on_fault);
    int caught = sigsetjmp(back, 1);
    if (!caught)
        __asm__ volatile("ud2");
    same("ud2 raises %d", caught);
    caught = sigsetjmp(back, 1);
    if (!caught)
        __asm__ volatile("hlt");
    same("hlt raises %d", caught);
    caught = sigsetjmp(back, 1);
    if (!caught)
        *(volatile int *)0x8000000000000000ul = 1;
    same("a write to nowhere raises %d", caught);
}

int main(void) {
    if (has(" rdrand"))
        rdrand(), made();
    if (has(" rdseed"))
        rdseed();
    if (has(" rdpid"))
        rdpid();
    faults();
    return 0;
}
