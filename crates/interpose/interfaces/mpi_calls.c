/* The functions of mpi_calls.h that are by hand. PMPI_ names are the library's own, which MPI promises to tools. */
#include <limits.h>
#include <stdlib.h>

#define ENTER(call, FUNCTION) hindcast_enter(call, hindcast_number(HINDCAST_NUMBER_##FUNCTION))

/* ---- Asked of the library ---- */

/* A recorded call of its own, whose result a replay has from the log. */
#define ASKED(FUNCTION, ANSWER)                                       \
    struct hindcast_call call;                                        \
    if (!ENTER(&call, FUNCTION))                                      \
        return ANSWER;                                                \
    hindcast_cache(&call);                                            \
    long hindcast_value = 0;                                          \
    if (hindcast_runs(&call))                                         \
        hindcast_value = ANSWER;                                      \
    hindcast_value = hindcast_ran(&call, HINDCAST_NEVER, hindcast_value); \
    hindcast_leave(&call);                                            \
    return hindcast_value

/* From the buffer's address to the end of the last element: 0 where the library does not know the type. */
static long bytes_of(long count, MPI_Datatype datatype)
{
    MPI_Aint from, extent, true_from, true_extent;
    if (count <= 0 || PMPI_Type_get_extent(datatype, &from, &extent) || PMPI_Type_get_true_extent(datatype, &true_from, &true_extent))
        return 0;
    return true_from + true_extent + (count - 1) * extent;
}

/* The types that most buffers have, whose sizes need no asking. */
static long size_of(MPI_Datatype datatype)
{
    if (datatype == MPI_BYTE || datatype == MPI_CHAR)
        return 1;
    if (datatype == MPI_INT || datatype == MPI_UNSIGNED || datatype == MPI_FLOAT)
        return 4;
    if (datatype == MPI_LONG || datatype == MPI_UNSIGNED_LONG || datatype == MPI_DOUBLE)
        return 8;
    return 0;
}

static long asked_bytes(long count, MPI_Datatype datatype)
{
    ASKED(hindcast_mpi_bytes, bytes_of(count, datatype));
}

long hindcast_mpi_bytes(long count, MPI_Datatype datatype)
{
    if (count <= 0)
        return 0;
    long size = size_of(datatype);
    return size ? count * size : asked_bytes(count, datatype);
}

long hindcast_mpi_rank(MPI_Comm comm)
{
    int rank = MPI_PROC_NULL;
    ASKED(hindcast_mpi_rank, (PMPI_Comm_rank(comm, &rank), rank));
}

/* Of an intercommunicator, the other side: these are who is sent to and received from. */
static long others_in(MPI_Comm comm)
{
    int is_inter = 0, size = 0;
    PMPI_Comm_test_inter(comm, &is_inter);
    if (is_inter)
        PMPI_Comm_remote_size(comm, &size);
    else
        PMPI_Comm_size(comm, &size);
    return size;
}

long hindcast_mpi_size(MPI_Comm comm)
{
    ASKED(hindcast_mpi_size, others_in(comm));
}

static long bytes_at(const int *counts, const int *places, MPI_Datatype datatype, MPI_Comm comm)
{
    MPI_Aint from, extent;
    long most = 0, size = others_in(comm);
    if (PMPI_Type_get_extent(datatype, &from, &extent))
        return 0;
    for (long rank = 0; rank < size; rank++) {
        if (counts[rank] > 0) {
            long end = places[rank] * extent + bytes_of(counts[rank], datatype);
            most = end > most ? end : most;
        }
    }
    return most;
}

long hindcast_mpi_bytes_at(const int *counts, const int *places, MPI_Datatype datatype, MPI_Comm comm)
{
    ASKED(hindcast_mpi_bytes_at, bytes_at(counts, places, datatype, comm));
}

/* ---- Requests that are completed ---- */

/* The arguments of the eight functions, each of which has some of them. */
struct completion {
    int count;
    MPI_Request *requests;
    int *flag;
    /* One that is done, or how many are, with their indices. */
    int *index;
    int *done, *indices;
    MPI_Status *statuses;
    /* How many statuses the library writes. */
    int status_count;
    int waits;
    int (*real)(struct completion *);
};

static int is_done(const struct completion *it, int place)
{
    if (it->flag && !*it->flag)
        return 0;
    if (it->index)
        return *it->index == place;
    if (!it->done)
        return 1;
    for (int i = 0; *it->done != MPI_UNDEFINED && i < *it->done; i++)
        if (it->indices[i] == place)
            return 1;
    return 0;
}

static void out(struct hindcast_call *call, void *memory, long bytes)
{
    if (memory && memory != (void *)MPI_STATUS_IGNORE && memory != (void *)MPI_STATUSES_IGNORE)
        hindcast_out(call, memory, bytes);
}

/* Results are written when it fails as well: some of the requests may be done. */
static void give(struct hindcast_call *call, struct completion *it)
{
    out(call, it->flag, sizeof *it->flag);
    out(call, it->index, sizeof *it->index);
    out(call, it->done, sizeof *it->done);
    if (it->done && *it->done != MPI_UNDEFINED)
        out(call, it->indices, *it->done * sizeof *it->indices);
    if (it->done)
        it->status_count = *it->done == MPI_UNDEFINED ? 0 : *it->done;
    out(call, it->statuses, it->status_count * sizeof *it->statuses);
    out(call, it->requests, it->count * sizeof *it->requests);
}

static int complete(unsigned function, struct completion *it)
{
    struct hindcast_call call;
    if (!hindcast_enter(&call, hindcast_number(function)))
        return it->real(it);
    MPI_Request before[it->count > 0 ? it->count : 1];
    for (int i = 0; i < it->count; i++) {
        before[i] = it->requests[i];
        hindcast_input(&call, (unsigned long)before[i]);
    }
    if (it->waits)
        hindcast_blocks(&call);
    long result = 0;
    if (hindcast_runs(&call))
        result = it->real(it);
    result = hindcast_ran(&call, HINDCAST_NEVER, result);
    give(&call, it);
    for (int i = 0; i < it->count; i++) {
        if (before[i] == MPI_REQUEST_NULL)
            continue;
        /* One that stays is persistent. */
        if (is_done(it, i) || it->requests[i] != before[i])
            hindcast_arrived(&call, (unsigned long)before[i], it->requests[i] == before[i]);
    }
    hindcast_leave(&call);
    return result;
}

#define REAL(NAME, CALL)                          \
    static int real_##NAME(struct completion *it) \
    {                                             \
        return CALL;                              \
    }
REAL(wait, PMPI_Wait(it->requests, it->statuses))
REAL(test, PMPI_Test(it->requests, it->flag, it->statuses))
REAL(waitall, PMPI_Waitall(it->count, it->requests, it->statuses))
REAL(testall, PMPI_Testall(it->count, it->requests, it->flag, it->statuses))
REAL(waitany, PMPI_Waitany(it->count, it->requests, it->index, it->statuses))
REAL(testany, PMPI_Testany(it->count, it->requests, it->index, it->flag, it->statuses))
REAL(waitsome, PMPI_Waitsome(it->count, it->requests, it->done, it->indices, it->statuses))
REAL(testsome, PMPI_Testsome(it->count, it->requests, it->done, it->indices, it->statuses))

#define COMPLETE(FUNCTION, ...) return complete(HINDCAST_NUMBER_##FUNCTION, &(struct completion){ __VA_ARGS__ })

int MPI_Wait(MPI_Request *request, MPI_Status *status)
{
    COMPLETE(MPI_Wait, .count = 1, .requests = request, .statuses = status, .status_count = 1, .waits = 1, .real = real_wait);
}

int MPI_Test(MPI_Request *request, int *flag, MPI_Status *status)
{
    COMPLETE(MPI_Test, .count = 1, .requests = request, .flag = flag, .statuses = status, .status_count = 1, .real = real_test);
}

int MPI_Waitall(int count, MPI_Request *requests, MPI_Status *statuses)
{
    COMPLETE(MPI_Waitall, .count = count, .requests = requests, .statuses = statuses, .status_count = count, .waits = 1, .real = real_waitall);
}

int MPI_Testall(int count, MPI_Request *requests, int *flag, MPI_Status *statuses)
{
    COMPLETE(MPI_Testall, .count = count, .requests = requests, .flag = flag, .statuses = statuses, .status_count = count, .real = real_testall);
}

int MPI_Waitany(int count, MPI_Request *requests, int *index, MPI_Status *status)
{
    COMPLETE(MPI_Waitany, .count = count, .requests = requests, .index = index, .statuses = status, .status_count = 1, .waits = 1, .real = real_waitany);
}

int MPI_Testany(int count, MPI_Request *requests, int *index, int *flag, MPI_Status *status)
{
    COMPLETE(MPI_Testany, .count = count, .requests = requests, .index = index, .flag = flag, .statuses = status, .status_count = 1, .real = real_testany);
}

int MPI_Waitsome(int count, MPI_Request *requests, int *done, int *indices, MPI_Status *statuses)
{
    COMPLETE(MPI_Waitsome, .count = count, .requests = requests, .done = done, .indices = indices, .statuses = statuses, .waits = 1, .real = real_waitsome);
}

int MPI_Testsome(int count, MPI_Request *requests, int *done, int *indices, MPI_Status *statuses)
{
    COMPLETE(MPI_Testsome, .count = count, .requests = requests, .done = done, .indices = indices, .statuses = statuses, .real = real_testsome);
}

int MPI_Request_free(MPI_Request *request)
{
    struct hindcast_call call;
    if (!ENTER(&call, MPI_Request_free))
        return PMPI_Request_free(request);
    unsigned long key = (unsigned long)*request;
    hindcast_input(&call, key);
    long result = 0;
    if (hindcast_runs(&call))
        result = PMPI_Request_free(request);
    result = hindcast_ran(&call, HINDCAST_NEVER, result);
    hindcast_out(&call, request, sizeof *request);
    hindcast_forget(key);
    hindcast_leave(&call);
    return result;
}

/* ---- Memory ---- */

int MPI_Alloc_mem(MPI_Aint size, MPI_Info info, void *base)
{
    void *memory = malloc(size > 0 ? size : 1);
    if (!memory)
        return MPI_ERR_NO_MEM;
    *(void **)base = memory;
    return MPI_SUCCESS;
}

int MPI_Free_mem(void *base)
{
    free(base);
    return MPI_SUCCESS;
}

/* ---- What ends a recording ---- */

#define ENDS(BECAUSE, CALL)                    \
    {                                          \
        hindcast_ends("the program " BECAUSE); \
        return P##CALL;                        \
    }
#define WINDOW "lets other ranks write into its memory (an MPI window)"
#define RANKS "gets ranks that were not there when it began (MPI_Comm_spawn, MPI_Comm_connect)"

int MPI_Win_create(void *base, MPI_Aint size, int unit, MPI_Info info, MPI_Comm comm, MPI_Win *win)
ENDS(WINDOW, MPI_Win_create(base, size, unit, info, comm, win))
int MPI_Win_allocate(MPI_Aint size, int unit, MPI_Info info, MPI_Comm comm, void *base, MPI_Win *win)
ENDS(WINDOW, MPI_Win_allocate(size, unit, info, comm, base, win))
int MPI_Win_allocate_shared(MPI_Aint size, int unit, MPI_Info info, MPI_Comm comm, void *base, MPI_Win *win)
ENDS(WINDOW, MPI_Win_allocate_shared(size, unit, info, comm, base, win))
int MPI_Win_create_dynamic(MPI_Info info, MPI_Comm comm, MPI_Win *win)
ENDS(WINDOW, MPI_Win_create_dynamic(info, comm, win))
int MPI_File_open(MPI_Comm comm, const char *name, int mode, MPI_Info info, MPI_File *file)
ENDS("opens a file with all ranks of a communicator (MPI_File_open)", MPI_File_open(comm, name, mode, info, file))
int MPI_Comm_spawn(const char *command, char **argv, int most, MPI_Info info, int root, MPI_Comm comm, MPI_Comm *made, int *codes)
ENDS(RANKS, MPI_Comm_spawn(command, argv, most, info, root, comm, made, codes))
int MPI_Comm_accept(const char *port, MPI_Info info, int root, MPI_Comm comm, MPI_Comm *made)
ENDS(RANKS, MPI_Comm_accept(port, info, root, comm, made))
int MPI_Comm_connect(const char *port, MPI_Info info, int root, MPI_Comm comm, MPI_Comm *made)
ENDS(RANKS, MPI_Comm_connect(port, info, root, comm, made))
