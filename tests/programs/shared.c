/* Memory, semaphores and queues with names, used within one process. */
#include "see.h"
#include <mqueue.h>
#include <semaphore.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <time.h>

int main(void) {
    char name[64], back[200];
    snprintf(name, sizeof name, "/hindcast-%d", getpid());
    seen("%s", name);
    int fd = must(shm_open(name, O_CREAT | O_EXCL | O_RDWR, 0600));
    must(ftruncate(fd, 8192));
    char *memory = must(mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    seen("shared at %p", (void *)memory);
    strcpy(memory, "in shared memory");
    must(pread(fd, back, 20, 0));
    same("%s", back);
    must(shm_unlink(name));

    sem_t *semaphore = must(sem_open(name, O_CREAT | O_EXCL, 0600, 2));
    must(sem_wait(semaphore));
    must(sem_trywait(semaphore));
    refused(sem_trywait(semaphore));
    must(sem_post(semaphore));
    int value;
    must(sem_getvalue(semaphore, &value));
    same("value %d", value);
    must(sem_close(semaphore));
    must(sem_unlink(name));

    struct mq_attr attributes = {.mq_maxmsg = 4, .mq_msgsize = 100};
    mqd_t queue = mq_open(name, O_CREAT | O_EXCL | O_RDWR | O_NONBLOCK, 0600, &attributes);
    if (queue >= 0) {
        must(mq_send(queue, "low", 3, 1));
        must(mq_send(queue, "high", 4, 9));
        unsigned priority;
        ssize_t size = must(mq_receive(queue, back, 100, &priority));
        same("%.*s with %u", (int)size, back, priority);
        must(mq_getattr(queue, &attributes));
        same("%ld left", attributes.mq_curmsgs);
        must(mq_close(queue));
        must(mq_unlink(name));
    }

    int set = must(semget(IPC_PRIVATE, 2, IPC_CREAT | 0600));
    struct sembuf up = {1, 3, 0}, down = {1, -2, IPC_NOWAIT};
    must(semop(set, &up, 1));
    must(semtimedop(set, &down, 1, &(struct timespec){1, 0}));
    same("semctl %d", must(semctl(set, 1, GETVAL)));
    refused(semop(set, &down, 1));
    must(semctl(set, 0, IPC_RMID));
    int messages = must(msgget(IPC_PRIVATE, IPC_CREAT | 0600));
    struct {
        long kind;
        char text[20];
    } message = {7, "a message"};
    must(msgsnd(messages, &message, 10, 0));
    memset(&message, 0, sizeof message);
    ssize_t size = must(msgrcv(messages, &message, 20, 0, 0));
    same("msgrcv %zd: %ld %s", size, message.kind, message.text);
    must(msgctl(messages, IPC_RMID, NULL));
    return 0;
}
