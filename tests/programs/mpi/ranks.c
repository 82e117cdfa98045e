/* Ranks whose results depend on who was first. `mpi window` does what cannot be recorded. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROUNDS = 30, MOST = 64 };

static int rank, size;
static unsigned long digest = 17;

static void add(const void *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        digest = digest * 31 + ((const unsigned char *)bytes)[i];
}

static int drawn(int below) { return (int)(drand48() * below); }

/* Rank 0 takes whatever comes, into four buffers at a time. */
static void wildcards(void)
{
    MPI_Comm wild;
    MPI_Comm_dup(MPI_COMM_WORLD, &wild);
    if (rank == 0) {
        int values[4][MOST] = { 0 };
        MPI_Request requests[4];
        for (int i = 0; i < 4; i++)
            MPI_Irecv(values[i], MOST, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, wild, &requests[i]);
        for (int left = ROUNDS * (size - 1); left > 0; left--) {
            int which, count;
            MPI_Status status;
            MPI_Waitany(4, requests, &which, &status);
            MPI_Get_count(&status, MPI_INT, &count);
            add(&status.MPI_SOURCE, sizeof(int));
            add(&status.MPI_TAG, sizeof(int));
            add(values[which], count * sizeof(int));
            MPI_Irecv(values[which], MOST, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, wild, &requests[which]);
        }
        for (int i = 0; i < 4; i++) {
            MPI_Cancel(&requests[i]);
            MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
        }
    } else {
        for (int round = 0; round < ROUNDS; round++) {
            int values[MOST], count = drawn(MOST);
            for (int i = 0; i < count; i++)
                values[i] = drawn(1 << 30);
            MPI_Request request;
            MPI_Isend(values, count, MPI_INT, 0, round, wild, &request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        }
    }
    MPI_Comm_free(&wild);
}

/* Requests that are used again, looked at until they are done; a type of every third number. */
static void ring(void)
{
    MPI_Datatype thirds;
    MPI_Type_vector(5, 1, 3, MPI_SHORT, &thirds);
    MPI_Type_commit(&thirds);
    short out[15], in[15] = { 0 };
    MPI_Request requests[2];
    MPI_Send_init(out, 1, thirds, (rank + 1) % size, 7, MPI_COMM_WORLD, &requests[0]);
    MPI_Recv_init(in, 1, thirds, MPI_ANY_SOURCE, 7, MPI_COMM_WORLD, &requests[1]);
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < 15; i++)
            out[i] = drawn(1000);
        MPI_Startall(2, requests);
        int left = 2;
        while (left > 0) {
            int done, indices[2];
            MPI_Status statuses[2];
            MPI_Testsome(2, requests, &done, indices, statuses);
            if (done == MPI_UNDEFINED)
                break;
            left -= done;
        }
        add(in, sizeof in);
    }
    MPI_Request_free(&requests[0]);
    MPI_Request_free(&requests[1]);
    MPI_Type_free(&thirds);
}

static void together(void)
{
    double number = drand48(), all[size], sum;
    MPI_Request requests[2];
    MPI_Iallgather(&number, 1, MPI_DOUBLE, all, 1, MPI_DOUBLE, MPI_COMM_WORLD, &requests[0]);
    MPI_Ibarrier(MPI_COMM_WORLD, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    add(all, sizeof all);
    MPI_Allreduce(&number, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    add(&sum, sizeof sum);
    MPI_Allreduce(MPI_IN_PLACE, all, size, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    add(all, sizeof all);

    /* Each rank gives as many as its number, with room between. */
    int counts[size], places[size], given[size], got[2 * size * size];
    memset(got, 0, sizeof got);
    for (int i = 0; i < size; i++) {
        counts[i] = i;
        places[i] = i * size;
        given[i] = drawn(1 << 20);
    }
    MPI_Gatherv(given, rank, MPI_INT, got, counts, places, MPI_INT, size - 1, MPI_COMM_WORLD);
    add(got, sizeof got);

    MPI_Comm half;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half);
    int in_half;
    MPI_Comm_rank(half, &in_half);
    MPI_Bcast(given, size, MPI_INT, 0, half);
    add(given, sizeof given);
    add(&in_half, sizeof in_half);
    MPI_Comm_free(&half);
}

static void window(void)
{
    MPI_Win win;
    int memory = 0;
    MPI_Win_create(&memory, sizeof memory, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    MPI_Win_fence(0, win);
    MPI_Win_free(&win);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    srand48(now.tv_nsec + rank);
    if (argc > 1 && !strcmp(argv[1], "window"))
        window();
    wildcards();
    ring();
    together();
    printf("rank %d of %d: %lx\n", rank, size, digest);
    MPI_Finalize();
    return 0;
}
