/* A segment of System V, which any other process may write to at any time. */
#include "see.h"
#include <sys/ipc.h>
#include <sys/shm.h>
#include <time.h>

int main(void) {
    struct timespec now;
    must(clock_gettime(CLOCK_REALTIME, &now));
    seen("before: %ld.%09ld", (long)now.tv_sec, now.tv_nsec);
    fflush(stdout);
    int segment = must(shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600));
    seen("segment %d", segment);
    char *attached = must(shmat(segment, NULL, 0));
    seen("attached at %p", (void *)attached);
    strcpy(attached, "of System V");
    same("%s", attached);
    struct shmid_ds state;
    must(shmctl(segment, IPC_STAT, &state));
    seen("attached %ld at %ld", (long)state.shm_nattch, (long)state.shm_atime);
    must(shmdt(attached));
    must(shmctl(segment, IPC_RMID, NULL));
    return 4;
}
