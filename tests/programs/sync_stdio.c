/* Streams that threads share, and functions of libc that keep something inside. */
#include "see.h"
#include <pthread.h>
#include <time.h>

enum { THREADS = 4, LINES = 300 };

static FILE *shared, *input;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t drawn;

static void *work(void *argument) {
    int me = (int)(intptr_t)argument, read = 0, busy = 0;
    uint64_t mine = 0;
    char line[64];
    for (int i = 0; i < LINES; i++) {
        fprintf(shared, "%d says %d and %.3f, %s %d %d %d %d\n", me, i, i / 7.0, "that is all", 1, 2, 3, 4);
        fputs("x", shared);
        putc('y', shared);
        fwrite("z\n", 1, 2, shared);
        if (fgets(line, sizeof line, input))
            read += atoi(line);
        mine = (mine ^ (uint64_t)rand()) * 0x100000001b3u;
        mine = (mine ^ (uint64_t)random()) * 0x100000001b3u;
        if (i % 50 == 0)
            fflush(shared);
        if (i % 64 == 0) {
            time_t now = time(NULL);
            struct tm broken;
            localtime_r(&now, &broken);
            strftime(line, sizeof line, "%H:%M:%S", &broken);
            printf("~ thread %d at %s\n", me, line);
        }
        if (ftrylockfile(shared) == 0) {
            fputc_unlocked('!', shared);
            funlockfile(shared);
        } else {
            busy++;
        }
    }
    pthread_mutex_lock(&lock);
    drawn ^= mine;
    pthread_mutex_unlock(&lock);
    seen("thread %d: read %d, drawn %016lx, busy %d", me, read, mine, busy);
    return NULL;
}

int main(void) {
    shared = must(tmpfile());
    input = must(tmpfile());
    for (int i = 0; i < THREADS * LINES; i++)
        fprintf(input, "%d\n", i);
    rewind(input);
    srand(17);
    pthread_t threads[THREADS];
    for (intptr_t i = 0; i < THREADS; i++)
        must_be_zero(pthread_create(&threads[i], NULL, work, (void *)i));
    for (int i = 0; i < THREADS; i++)
        must_be_zero(pthread_join(threads[i], NULL));
    rewind(shared);
    char *text = NULL;
    size_t size = 0;
    uint64_t digest = 0;
    long length = 0;
    for (ssize_t n; (n = getline(&text, &size, shared)) > 0; length += n)
        digest ^= sum(text, (size_t)n) * (uint64_t)(length + 1);
    seen("what they wrote: %016lx, %ld bytes", digest, length);
    free(text);
    fclose(shared);
    fclose(input);
    return 0;
}
