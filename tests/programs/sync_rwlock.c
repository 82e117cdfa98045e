/* Read-write locks and spin locks. Writers keep a digest of their order; readers show what they saw. */
#include "see.h"
#include <pthread.h>
#include <time.h>

enum { THREADS = 4, LOCKS = 6, ROUNDS = 15000 };

static pthread_rwlock_t locks[LOCKS];
static uint64_t digests[LOCKS];
static pthread_spinlock_t spins[LOCKS];
static uint64_t spun[LOCKS];

static void *work(void *argument) {
    int me = (int)(intptr_t)argument, failures = 0;
    uint64_t seed = (uint64_t)me * 31 + 7, read = 0;
    for (int i = 0; i < ROUNDS; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        int at = (int)((seed >> 33) % LOCKS);
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        switch ((seed >> 50) % 16) {
        case 0:
            if (pthread_rwlock_trywrlock(&locks[at])) {
                failures++;
                continue;
            }
            break;
        case 1:
            if (pthread_rwlock_timedwrlock(&locks[at], &until)) {
                failures++;
                continue;
            }
            break;
        case 2:
            if (pthread_spin_trylock(&spins[at])) {
                failures++;
                continue;
            }
            spun[at] = (spun[at] ^ (uint64_t)me) * 0x100000001b3u;
            pthread_spin_unlock(&spins[at]);
            continue;
        case 3: case 4:
            pthread_spin_lock(&spins[at]);
            spun[at] = (spun[at] ^ (uint64_t)me) * 0x100000001b3u;
            pthread_spin_unlock(&spins[at]);
            continue;
        case 5: case 6:
            must_be_zero(pthread_rwlock_wrlock(&locks[at]));
            break;
        case 7:
            if (pthread_rwlock_tryrdlock(&locks[at])) {
                failures++;
                continue;
            }
            goto reads;
        case 8:
            if (pthread_rwlock_clockrdlock(&locks[at], CLOCK_REALTIME, &until)) {
                failures++;
                continue;
            }
            goto reads;
        default:
            must_be_zero(pthread_rwlock_rdlock(&locks[at]));
        reads:
            read = (read ^ digests[at]) * 0x100000001b3u;
            must_be_zero(pthread_rwlock_unlock(&locks[at]));
            continue;
        }
        digests[at] = (digests[at] ^ (uint64_t)me) * 0x100000001b3u;
        must_be_zero(pthread_rwlock_unlock(&locks[at]));
    }
    seen("thread %d: failures %d, read %016lx", me, failures, read);
    return NULL;
}

int main(void) {
    for (int i = 0; i < LOCKS; i++) {
        pthread_rwlockattr_t attributes;
        pthread_rwlockattr_init(&attributes);
        if (i % 2)
            pthread_rwlockattr_setkind_np(&attributes, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
        must_be_zero(pthread_rwlock_init(&locks[i], &attributes));
        must_be_zero(pthread_spin_init(&spins[i], PTHREAD_PROCESS_PRIVATE));
    }
    pthread_t threads[THREADS];
    for (intptr_t i = 0; i < THREADS; i++)
        must_be_zero(pthread_create(&threads[i], NULL, work, (void *)i));
    for (int i = 0; i < THREADS; i++)
        must_be_zero(pthread_join(threads[i], NULL));
    for (int i = 0; i < LOCKS; i++)
        seen("lock %d: %016lx, spin lock: %016lx", i, digests[i], spun[i]);
    return 0;
}
