// What memory costs, by pattern and number of threads: nanoseconds of processor time per allocation, and the peak of memory.
//
//   cc -O2 -pthread -o heap heap.c && ./heap [pattern [threads]]
//
// Run with the heap to be measured preloaded, or without for libc's.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static uint64_t step(uint64_t *state) {
    uint64_t x = *state;
    x ^= x << 13, x ^= x >> 7, x ^= x << 17;
    return *state = x;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

typedef long (*pattern)(int thread, uint64_t seed);

// One size, freed at once.
static long pairs(int thread, uint64_t seed) {
    long n = 20000000;
    for (long i = 0; i < n; i++) {
        char *p = malloc(48);
        *(volatile char *)p = 1;
        free(p);
    }
    return n;
}

// Small objects of mixed sizes with random lifetimes.
static long small(int thread, uint64_t seed) {
    enum { LIVE = 10000 };
    static __thread char *live[LIVE];
    long n = 5000000;
    for (long i = 0; i < n; i++) {
        uint64_t r = step(&seed);
        int at = r % LIVE;
        free(live[at]);
        size_t bytes = 16 + (r >> 32) % 240;
        live[at] = malloc(bytes);
        memset(live[at], 1, 16);
    }
    for (int i = 0; i < LIVE; i++) free(live[i]), live[i] = 0;
    return n;
}

// Mostly small, sometimes up to 64 KiB.
static long mixed(int thread, uint64_t seed) {
    enum { LIVE = 4000 };
    static __thread char *live[LIVE];
    long n = 3000000;
    for (long i = 0; i < n; i++) {
        uint64_t r = step(&seed);
        int at = r % LIVE;
        free(live[at]);
        int power = (r >> 20) % 100;
        size_t bytes = power < 80 ? 16 + (r >> 32) % 500 : power < 97 ? 500 + (r >> 32) % 4000 : 4000 + (r >> 32) % 60000;
        live[at] = malloc(bytes);
        memset(live[at], 1, 16);
    }
    for (int i = 0; i < LIVE; i++) free(live[i]), live[i] = 0;
    return n;
}

// Pages as a database has them.
static long pages(int thread, uint64_t seed) {
    enum { LIVE = 2000 };
    static __thread char *live[LIVE];
    long n = 3000000;
    for (long i = 0; i < n; i++) {
        uint64_t r = step(&seed);
        int at = r % LIVE;
        free(live[at]);
        live[at] = malloc(4368);
        live[at][0] = 1;
    }
    for (int i = 0; i < LIVE; i++) free(live[i]), live[i] = 0;
    return n;
}

// Keys and values: an object, a key and a value each, replaced at random, with values that grow by realloc.
static long store(int thread, uint64_t seed) {
    enum { KEYS = 100000 };
    struct entry { char *key, *value; };
    struct entry **table = calloc(KEYS, sizeof *table);
    long n = 1500000, done = 0;
    for (long i = 0; i < n; i++) {
        uint64_t r = step(&seed);
        struct entry **e = &table[r % KEYS];
        size_t bytes = 20 + (r >> 32) % 180;
        if (*e && (r & 0x300000) == 0) {
            (*e)->value = realloc((*e)->value, bytes * 2);
            done++;
            continue;
        }
        if (*e) free((*e)->key), free((*e)->value), free(*e);
        *e = malloc(sizeof **e);
        (*e)->key = malloc(16 + r % 24);
        (*e)->value = malloc(bytes);
        memset((*e)->value, 1, bytes);
        done += 3;
    }
    for (long i = 0; i < KEYS; i++)
        if (table[i]) free(table[i]->key), free(table[i]->value), free(table[i]);
    free(table);
    return done;
}

// A buffer that grows to 64 MiB by and by, while small objects are made.
static long grow(int thread, uint64_t seed) {
    long n = 0;
    for (int round = 0; round < 3; round++) {
        size_t bytes = 64;
        char *p = malloc(bytes);
        void *chain = 0;
        while (bytes < 64 << 20) {
            bytes += bytes / 16 + 16;
            p = realloc(p, bytes);
            p[bytes - 1] = 1;
            void **next = malloc(100);
            *next = chain, chain = next;
            n += 2;
        }
        free(p);
        while (chain) {
            void *next = *(void **)chain;
            free(chain), chain = next;
        }
    }
    return n;
}

// One thread allocates, another frees.
enum { RING = 1024 };
struct ring {
    _Alignas(64) _Atomic long head;
    _Alignas(64) _Atomic long tail;
    char *slots[RING];
};
static struct ring rings[16];

static long pass(int thread, uint64_t seed) {
    struct ring *ring = &rings[thread / 2];
    long n = 4000000;
    if (thread % 2 == 0) {
        for (long i = 0; i < n; i++) {
            while (i - ring->tail >= RING) sched_yield();
            uint64_t r = step(&seed);
            char *p = malloc((r & 63) == 0 ? 2000 + (r >> 32) % 10000 : 16 + (r >> 32) % 400);
            p[0] = 1;
            ring->slots[i % RING] = p;
            ring->head = i + 1;
        }
    } else {
        for (long i = 0; i < n; i++) {
            while (ring->head <= i) sched_yield();
            free(ring->slots[i % RING]);
            ring->tail = i + 1;
        }
    }
    return n;
}

static struct { const char *name; pattern run; } patterns[] = {
    {"pairs", pairs}, {"small", small}, {"mixed", mixed}, {"pages", pages}, {"store", store}, {"grow", grow}, {"pass", pass},
};

struct job { pattern run; int thread; double ns; };

static void *work(void *argument) {
    struct job *job = argument;
    double begin = now();
    long n = job->run(job->thread, 88172645463325252ull + job->thread * 7919);
    job->ns = (now() - begin) / n;
    return 0;
}

int main(int argc, char **argv) {
    for (unsigned i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        if (argc > 1 && strcmp(argv[1], patterns[i].name)) continue;
        for (int threads = 1; threads <= 4; threads += 3) {
            if (argc > 2 && atoi(argv[2]) != threads) continue;
            int count = patterns[i].run == pass ? (threads + 1) / 2 * 2 : threads;
            // Each in a child of its own, so that none has another's memory.
            fflush(stdout);
            pid_t child = fork();
            if (child == 0) {
                struct job jobs[16];
                pthread_t ids[16];
                memset(rings, 0, sizeof rings);
                if (count == 1) {
                    jobs[0] = (struct job){patterns[i].run, 0, 0};
                    work(&jobs[0]);
                } else {
                    for (int t = 0; t < count; t++) {
                        jobs[t] = (struct job){patterns[i].run, t, 0};
                        pthread_create(&ids[t], 0, work, &jobs[t]);
                    }
                    for (int t = 0; t < count; t++) pthread_join(ids[t], 0);
                }
                double ns = 0;
                for (int t = 0; t < count; t++) ns += jobs[t].ns / count;
                struct rusage usage;
                getrusage(RUSAGE_SELF, &usage);
                printf("%-6s %d threads %8.1f ns %8.1f MiB\n", patterns[i].name, count, ns, usage.ru_maxrss / 1024.0);
                fflush(stdout);
                _exit(0);
            }
            int status;
            extern pid_t waitpid(pid_t, int *, int);
            waitpid(child, &status, 0);
            if (status) printf("%-6s %d threads failed: %#x\n", patterns[i].name, count, status);
        }
    }
}
