/* MPI, so that one rank of a program is replayed by itself: R2's third interface.
 *
 * What a rank gets from the others is what these functions give; shared memory, sockets and threads of the library lie beneath.
 * mpi.h is that of the implementation that is installed, whose handles and constants differ; nothing here depends on which one it is.
 *
 * The buffer of a transfer that does not block is filled when the request is completed: the functions that do so are by hand, in
 * mpi_calls.c, as are the sizes of types and communicators, which the library knows and a replay has from the log.
 *
 * Not here: windows (other ranks write into a program's memory), files, and ranks that are started or connected later. What
 * begins with these ends the recording, and says so. */
#include <mpi.h>
#include "hindcast.h"

/* ---- Asked of the library, before a call that needs them ---- */

long hindcast_mpi_bytes(long count, MPI_Datatype datatype) by_hand;
long hindcast_mpi_bytes_at(const int *counts, const int *places, MPI_Datatype datatype, MPI_Comm comm) by_hand;
long hindcast_mpi_rank(MPI_Comm comm) by_hand;
long hindcast_mpi_size(MPI_Comm comm) by_hand;

#define GIVEN(buffer, count, type) bsize((buffer) == MPI_IN_PLACE ? 0 : hindcast_mpi_bytes(count, type))
#define ALL(buffer, count, type) bsize((buffer) == MPI_IN_PLACE ? 0 : hindcast_mpi_bytes((long)(count) * hindcast_mpi_size(comm), type))
#define ALL_AT(buffer, counts, places, type) bsize((buffer) == MPI_IN_PLACE ? 0 : hindcast_mpi_bytes_at(counts, places, type, comm))
#define ROOTS(bytes) bsize(hindcast_mpi_rank(comm) == root ? bytes : 0)
#define INTS(n) bsize((n) * sizeof(int))
#define PER_RANK bsize(hindcast_mpi_size(comm) * sizeof(int))
#define STATUS out bsize((unsigned long)status == (unsigned long)MPI_STATUS_IGNORE ? 0 : sizeof(MPI_Status)) MPI_Status *status

/* ---- The library ---- */

int MPI_Init(unchecked int *argc, unchecked char ***argv) block fails(nonzero);
int MPI_Init_thread(unchecked int *argc, unchecked char ***argv, int required, out int *provided) block fails(nonzero);
int MPI_Initialized(out int *flag) fails(nonzero);
int MPI_Finalize(void) block fails(nonzero);
int MPI_Finalized(out int *flag) fails(nonzero);
int MPI_Abort(MPI_Comm comm, int code) block;
int MPI_Query_thread(out int *provided) fails(nonzero);
int MPI_Is_thread_main(out int *flag) fails(nonzero);
double MPI_Wtime(void);
double MPI_Wtick(void);
int MPI_Get_processor_name(out bsize(MPI_MAX_PROCESSOR_NAME) char *name, out int *length_of_name) fails(nonzero);
int MPI_Get_version(out int *version, out int *subversion) fails(nonzero);
int MPI_Get_library_version(out bsize(MPI_MAX_LIBRARY_VERSION_STRING) char *version, out int *length_of_version) fails(nonzero);
int MPI_Error_class(int code, out int *class_of_code) fails(nonzero);
int MPI_Error_string(int code, out bsize(MPI_MAX_ERROR_STRING) char *text, out int *length_of_text) fails(nonzero);
int MPI_Pcontrol(const int level, ...) harmless;
/* Memory of the program like any other. */
int MPI_Alloc_mem(MPI_Aint size, MPI_Info info, void *base) by_hand;
int MPI_Free_mem(void *base) by_hand;
int MPI_Get_address(unchecked const void *location, out MPI_Aint *address) fails(nonzero);

int MPI_Info_create(out MPI_Info *info) fails(nonzero);
int MPI_Info_set(MPI_Info info, instr const char *key, instr const char *value) fails(nonzero);
int MPI_Info_get(MPI_Info info, instr const char *key, int most, out bsize(*flag ? most + 1 : 0) char *value, out int *flag) fails(nonzero);
int MPI_Info_free(inout MPI_Info *info) fails(nonzero);

/* ---- Communicators and groups ---- */

int MPI_Comm_rank(MPI_Comm comm, out int *rank) fails(nonzero);
int MPI_Comm_size(MPI_Comm comm, out int *size) fails(nonzero);
int MPI_Comm_remote_size(MPI_Comm comm, out int *size) fails(nonzero);
int MPI_Comm_test_inter(MPI_Comm comm, out int *flag) fails(nonzero);
int MPI_Comm_compare(MPI_Comm one, MPI_Comm other, out int *result_of_it) fails(nonzero);
int MPI_Comm_dup(MPI_Comm comm, out MPI_Comm *made) block fails(nonzero);
int MPI_Comm_dup_with_info(MPI_Comm comm, MPI_Info info, out MPI_Comm *made) block fails(nonzero);
int MPI_Comm_create(MPI_Comm comm, MPI_Group group, out MPI_Comm *made) block fails(nonzero);
int MPI_Comm_create_group(MPI_Comm comm, MPI_Group group, int tag, out MPI_Comm *made) block fails(nonzero);
int MPI_Comm_split(MPI_Comm comm, int color, int key, out MPI_Comm *made) block fails(nonzero);
int MPI_Comm_split_type(MPI_Comm comm, int kind, int key, MPI_Info info, out MPI_Comm *made) block fails(nonzero);
int MPI_Intercomm_create(MPI_Comm local, int leader, MPI_Comm peer, int remote, int tag, out MPI_Comm *made) block fails(nonzero);
int MPI_Intercomm_merge(MPI_Comm comm, int high, out MPI_Comm *made) block fails(nonzero);
int MPI_Comm_free(inout MPI_Comm *comm) block fails(nonzero);
int MPI_Comm_set_name(MPI_Comm comm, instr const char *name) fails(nonzero);
int MPI_Comm_get_name(MPI_Comm comm, out bsize(MPI_MAX_OBJECT_NAME) char *name, out int *length_of_name) fails(nonzero);
int MPI_Comm_set_errhandler(MPI_Comm comm, MPI_Errhandler handler) fails(nonzero);
int MPI_Comm_get_errhandler(MPI_Comm comm, out MPI_Errhandler *handler) fails(nonzero);
int MPI_Errhandler_free(inout MPI_Errhandler *handler) fails(nonzero);
int MPI_Comm_group(MPI_Comm comm, out MPI_Group *group) fails(nonzero);
int MPI_Group_size(MPI_Group group, out int *size) fails(nonzero);
int MPI_Group_rank(MPI_Group group, out int *rank) fails(nonzero);
int MPI_Group_compare(MPI_Group one, MPI_Group other, out int *result_of_it) fails(nonzero);
int MPI_Group_incl(MPI_Group group, int n, in INTS(n) const int *ranks, out MPI_Group *made) fails(nonzero);
int MPI_Group_excl(MPI_Group group, int n, in INTS(n) const int *ranks, out MPI_Group *made) fails(nonzero);
int MPI_Group_union(MPI_Group one, MPI_Group other, out MPI_Group *made) fails(nonzero);
int MPI_Group_intersection(MPI_Group one, MPI_Group other, out MPI_Group *made) fails(nonzero);
int MPI_Group_difference(MPI_Group one, MPI_Group other, out MPI_Group *made) fails(nonzero);
int MPI_Group_translate_ranks(MPI_Group one, int n, in INTS(n) const int *ranks, MPI_Group other, out INTS(n) int *translated) fails(nonzero);
int MPI_Group_free(inout MPI_Group *group) fails(nonzero);

/* ---- Topologies ---- */

int MPI_Dims_create(int nodes, int dimensions, inout INTS(dimensions) int *sizes) fails(nonzero);
int MPI_Cart_create(MPI_Comm comm, int dimensions, in INTS(dimensions) const int *sizes, in INTS(dimensions) const int *periods, int reorder, out MPI_Comm *made) block fails(nonzero);
int MPI_Cartdim_get(MPI_Comm comm, out int *dimensions) fails(nonzero);
int MPI_Cart_get(MPI_Comm comm, int most, out INTS(most) int *sizes, out INTS(most) int *periods, out INTS(most) int *coordinates) fails(nonzero);
int MPI_Cart_rank(MPI_Comm comm, unchecked const int *coordinates, out int *rank) fails(nonzero);
int MPI_Cart_coords(MPI_Comm comm, int rank, int most, out INTS(most) int *coordinates) fails(nonzero);
int MPI_Cart_shift(MPI_Comm comm, int direction, int by, out int *source, out int *destination) fails(nonzero);
int MPI_Cart_sub(MPI_Comm comm, unchecked const int *remains, out MPI_Comm *made) block fails(nonzero);

/* ---- Types and operations ---- */

int MPI_Type_size(MPI_Datatype datatype, out int *size) fails(nonzero);
int MPI_Type_get_extent(MPI_Datatype datatype, out MPI_Aint *from, out MPI_Aint *extent) fails(nonzero);
int MPI_Type_get_true_extent(MPI_Datatype datatype, out MPI_Aint *from, out MPI_Aint *extent) fails(nonzero);
int MPI_Type_contiguous(int count, MPI_Datatype of, out MPI_Datatype *made) fails(nonzero);
int MPI_Type_vector(int count, int size, int stride, MPI_Datatype of, out MPI_Datatype *made) fails(nonzero);
int MPI_Type_create_hvector(int count, int size, MPI_Aint stride, MPI_Datatype of, out MPI_Datatype *made) fails(nonzero);
int MPI_Type_indexed(int count, in INTS(count) const int *sizes, in INTS(count) const int *places, MPI_Datatype of, out MPI_Datatype *made) fails(nonzero);
int MPI_Type_create_hindexed(int count, in INTS(count) const int *sizes, in bsize(count * sizeof(MPI_Aint)) const MPI_Aint *places, MPI_Datatype of, out MPI_Datatype *made) fails(nonzero);
int MPI_Type_create_indexed_block(int count, int size, in INTS(count) const int *places, MPI_Datatype of, out MPI_Datatype *made) fails(nonzero);
int MPI_Type_create_struct(int count, in INTS(count) const int *sizes, in bsize(count * sizeof(MPI_Aint)) const MPI_Aint *places, in bsize(count * sizeof(MPI_Datatype)) const MPI_Datatype *types, out MPI_Datatype *made) fails(nonzero);
int MPI_Type_create_subarray(int dimensions, in INTS(dimensions) const int *sizes, in INTS(dimensions) const int *parts, in INTS(dimensions) const int *starts, int order, MPI_Datatype of, out MPI_Datatype *made) fails(nonzero);
int MPI_Type_create_resized(MPI_Datatype of, MPI_Aint from, MPI_Aint extent, out MPI_Datatype *made) fails(nonzero);
int MPI_Type_dup(MPI_Datatype of, out MPI_Datatype *made) fails(nonzero);
int MPI_Type_commit(inout MPI_Datatype *datatype) fails(nonzero);
int MPI_Type_free(inout MPI_Datatype *datatype) fails(nonzero);
int MPI_Pack_size(int count, MPI_Datatype datatype, MPI_Comm comm, out int *size) fails(nonzero);
int MPI_Pack(in GIVEN(from, count, datatype) const void *from, int count, MPI_Datatype datatype, out bsize(size) void *to, int size, inout int *position, MPI_Comm comm) fails(nonzero);
int MPI_Unpack(in bsize(size) const void *from, int size, inout int *position, out GIVEN(to, count, datatype) void *to, int count, MPI_Datatype datatype, MPI_Comm comm) fails(nonzero);
/* The library calls it beneath the cut; what it made of its operands is in the buffers of who asked. */
int MPI_Op_create(unchecked MPI_User_function *function, int commutes, out MPI_Op *made) fails(nonzero);
int MPI_Op_free(inout MPI_Op *op) fails(nonzero);

/* ---- Messages ---- */

int MPI_Send(in GIVEN(buffer, count, datatype) const void *buffer, int count, MPI_Datatype datatype, int to, int tag, MPI_Comm comm) block fails(nonzero);
int MPI_Ssend(in GIVEN(buffer, count, datatype) const void *buffer, int count, MPI_Datatype datatype, int to, int tag, MPI_Comm comm) block fails(nonzero);
int MPI_Bsend(in GIVEN(buffer, count, datatype) const void *buffer, int count, MPI_Datatype datatype, int to, int tag, MPI_Comm comm) block fails(nonzero);
int MPI_Rsend(in GIVEN(buffer, count, datatype) const void *buffer, int count, MPI_Datatype datatype, int to, int tag, MPI_Comm comm) block fails(nonzero);
int MPI_Recv(out GIVEN(buffer, count, datatype) void *buffer, int count, MPI_Datatype datatype, int from, int tag, MPI_Comm comm, STATUS) block fails(nonzero);
int MPI_Sendrecv(in GIVEN(given, given_count, given_type) const void *given, int given_count, MPI_Datatype given_type, int to, int given_tag,
                 out GIVEN(got, got_count, got_type) void *got, int got_count, MPI_Datatype got_type, int from, int got_tag, MPI_Comm comm, STATUS) block fails(nonzero);
int MPI_Sendrecv_replace(inout GIVEN(buffer, count, datatype) void *buffer, int count, MPI_Datatype datatype, int to, int given_tag, int from, int got_tag, MPI_Comm comm, STATUS) block fails(nonzero);
int MPI_Probe(int from, int tag, MPI_Comm comm, STATUS) block fails(nonzero);
int MPI_Iprobe(int from, int tag, MPI_Comm comm, out int *flag, STATUS) fails(nonzero);
int MPI_Mprobe(int from, int tag, MPI_Comm comm, out MPI_Message *message, STATUS) block fails(nonzero);
int MPI_Improbe(int from, int tag, MPI_Comm comm, out int *flag, out MPI_Message *message, STATUS) fails(nonzero);
int MPI_Mrecv(out GIVEN(buffer, count, datatype) void *buffer, int count, MPI_Datatype datatype, inout MPI_Message *message, STATUS) block fails(nonzero);
int MPI_Get_count(const MPI_Status *status, MPI_Datatype datatype, out int *count) fails(nonzero);
int MPI_Get_elements(const MPI_Status *status, MPI_Datatype datatype, out int *count) fails(nonzero);
/* The library only reads what lies there, and nobody else does. */
int MPI_Buffer_attach(unchecked void *buffer, int size) fails(nonzero);
int MPI_Buffer_detach(out bsize(sizeof(void *)) void *buffer, out int *size) block fails(nonzero);

/* ---- Messages that are completed later ---- */

int MPI_Isend(in GIVEN(buffer, count, datatype) const void *buffer, int count, MPI_Datatype datatype, int to, int tag, MPI_Comm comm, out MPI_Request *request) fails(nonzero);
int MPI_Issend(in GIVEN(buffer, count, datatype) const void *buffer, int count, MPI_Datatype datatype, int to, int tag, MPI_Comm comm, out MPI_Request *request) fails(nonzero);
int MPI_Ibsend(in GIVEN(buffer, count, datatype) const void *buffer, int count, MPI_Datatype datatype, int to, int tag, MPI_Comm comm, out MPI_Request *request) fails(nonzero);
int MPI_Irsend(in GIVEN(buffer, count, datatype) const void *buffer, int count, MPI_Datatype datatype, int to, int tag, MPI_Comm comm, out MPI_Request *request) fails(nonzero);
int MPI_Irecv(out GIVEN(buffer, count, datatype) void *buffer, int count, MPI_Datatype datatype, int from, int tag, MPI_Comm comm, out MPI_Request *request) prepare(*request, buffer) fails(nonzero);
int MPI_Imrecv(out GIVEN(buffer, count, datatype) void *buffer, int count, MPI_Datatype datatype, inout MPI_Message *message, out MPI_Request *request) prepare(*request, buffer) fails(nonzero);
int MPI_Send_init(unchecked const void *buffer, int count, MPI_Datatype datatype, int to, int tag, MPI_Comm comm, out MPI_Request *request) fails(nonzero);
int MPI_Ssend_init(unchecked const void *buffer, int count, MPI_Datatype datatype, int to, int tag, MPI_Comm comm, out MPI_Request *request) fails(nonzero);
int MPI_Bsend_init(unchecked const void *buffer, int count, MPI_Datatype datatype, int to, int tag, MPI_Comm comm, out MPI_Request *request) fails(nonzero);
int MPI_Rsend_init(unchecked const void *buffer, int count, MPI_Datatype datatype, int to, int tag, MPI_Comm comm, out MPI_Request *request) fails(nonzero);
int MPI_Recv_init(out GIVEN(buffer, count, datatype) void *buffer, int count, MPI_Datatype datatype, int from, int tag, MPI_Comm comm, out MPI_Request *request) prepare(*request, buffer) fails(nonzero);
int MPI_Start(inout MPI_Request *request) fails(nonzero);
int MPI_Startall(int count, inout bsize(count * sizeof(MPI_Request)) MPI_Request *requests) fails(nonzero);
int MPI_Cancel(in MPI_Request *request) fails(nonzero);
int MPI_Test_cancelled(const MPI_Status *status, out int *flag) fails(nonzero);
int MPI_Request_get_status(MPI_Request request, out int *flag, STATUS) fails(nonzero);

int MPI_Request_free(MPI_Request *request) by_hand;
int MPI_Wait(MPI_Request *request, MPI_Status *status) by_hand;
int MPI_Test(MPI_Request *request, int *flag, MPI_Status *status) by_hand;
int MPI_Waitall(int count, MPI_Request *requests, MPI_Status *statuses) by_hand;
int MPI_Testall(int count, MPI_Request *requests, int *flag, MPI_Status *statuses) by_hand;
int MPI_Waitany(int count, MPI_Request *requests, int *index, MPI_Status *status) by_hand;
int MPI_Testany(int count, MPI_Request *requests, int *index, int *flag, MPI_Status *status) by_hand;
int MPI_Waitsome(int count, MPI_Request *requests, int *done, int *indices, MPI_Status *statuses) by_hand;
int MPI_Testsome(int count, MPI_Request *requests, int *done, int *indices, MPI_Status *statuses) by_hand;

/* ---- All of a communicator ---- */

int MPI_Barrier(MPI_Comm comm) block fails(nonzero);
int MPI_Bcast(inout GIVEN(buffer, count, datatype) void *buffer, int count, MPI_Datatype datatype, int root, MPI_Comm comm) block fails(nonzero);
int MPI_Reduce(in GIVEN(given, count, datatype) const void *given, out ROOTS(hindcast_mpi_bytes(count, datatype)) void *got, int count, MPI_Datatype datatype, MPI_Op op, int root, MPI_Comm comm) block fails(nonzero);
int MPI_Allreduce(in GIVEN(given, count, datatype) const void *given, out GIVEN(got, count, datatype) void *got, int count, MPI_Datatype datatype, MPI_Op op, MPI_Comm comm) block fails(nonzero);
int MPI_Reduce_scatter_block(in ALL(given, count, datatype) const void *given, out GIVEN(got, count, datatype) void *got, int count, MPI_Datatype datatype, MPI_Op op, MPI_Comm comm) block fails(nonzero);
int MPI_Reduce_scatter(unchecked const void *given, out GIVEN(got, counts[hindcast_mpi_rank(comm)], datatype) void *got, in PER_RANK const int *counts, MPI_Datatype datatype, MPI_Op op, MPI_Comm comm) block fails(nonzero);
int MPI_Scan(in GIVEN(given, count, datatype) const void *given, out GIVEN(got, count, datatype) void *got, int count, MPI_Datatype datatype, MPI_Op op, MPI_Comm comm) block fails(nonzero);
int MPI_Exscan(in GIVEN(given, count, datatype) const void *given, out GIVEN(got, count, datatype) void *got, int count, MPI_Datatype datatype, MPI_Op op, MPI_Comm comm) block fails(nonzero);
int MPI_Gather(in GIVEN(given, given_count, given_type) const void *given, int given_count, MPI_Datatype given_type,
               out ROOTS(hindcast_mpi_bytes((long)got_count * hindcast_mpi_size(comm), got_type)) void *got, int got_count, MPI_Datatype got_type, int root, MPI_Comm comm) block fails(nonzero);
int MPI_Gatherv(in GIVEN(given, given_count, given_type) const void *given, int given_count, MPI_Datatype given_type,
                out ROOTS(hindcast_mpi_bytes_at(counts, places, got_type, comm)) void *got, unchecked const int *counts, unchecked const int *places, MPI_Datatype got_type, int root, MPI_Comm comm) block fails(nonzero);
int MPI_Scatter(in ROOTS(hindcast_mpi_bytes((long)given_count * hindcast_mpi_size(comm), given_type)) const void *given, int given_count, MPI_Datatype given_type,
                out GIVEN(got, got_count, got_type) void *got, int got_count, MPI_Datatype got_type, int root, MPI_Comm comm) block fails(nonzero);
int MPI_Scatterv(in ROOTS(hindcast_mpi_bytes_at(counts, places, given_type, comm)) const void *given, unchecked const int *counts, unchecked const int *places, MPI_Datatype given_type,
                 out GIVEN(got, got_count, got_type) void *got, int got_count, MPI_Datatype got_type, int root, MPI_Comm comm) block fails(nonzero);
int MPI_Allgather(in GIVEN(given, given_count, given_type) const void *given, int given_count, MPI_Datatype given_type,
                  out ALL(got, got_count, got_type) void *got, int got_count, MPI_Datatype got_type, MPI_Comm comm) block fails(nonzero);
int MPI_Allgatherv(in GIVEN(given, given_count, given_type) const void *given, int given_count, MPI_Datatype given_type,
                   out ALL_AT(got, counts, places, got_type) void *got, in PER_RANK const int *counts, in PER_RANK const int *places, MPI_Datatype got_type, MPI_Comm comm) block fails(nonzero);
int MPI_Alltoall(in ALL(given, given_count, given_type) const void *given, int given_count, MPI_Datatype given_type,
                 out ALL(got, got_count, got_type) void *got, int got_count, MPI_Datatype got_type, MPI_Comm comm) block fails(nonzero);
int MPI_Alltoallv(in ALL_AT(given, given_counts, given_places, given_type) const void *given, unchecked const int *given_counts, unchecked const int *given_places, MPI_Datatype given_type,
                  out ALL_AT(got, got_counts, got_places, got_type) void *got, in PER_RANK const int *got_counts, in PER_RANK const int *got_places, MPI_Datatype got_type, MPI_Comm comm) block fails(nonzero);

int MPI_Ibarrier(MPI_Comm comm, out MPI_Request *request) fails(nonzero);
int MPI_Ibcast(out GIVEN(buffer, count, datatype) void *buffer, int count, MPI_Datatype datatype, int root, MPI_Comm comm, out MPI_Request *request) prepare(*request, buffer) fails(nonzero);
int MPI_Ireduce(in GIVEN(given, count, datatype) const void *given, out ROOTS(hindcast_mpi_bytes(count, datatype)) void *got, int count, MPI_Datatype datatype, MPI_Op op, int root, MPI_Comm comm, out MPI_Request *request) prepare(*request, got) fails(nonzero);
int MPI_Iallreduce(in GIVEN(given, count, datatype) const void *given, out GIVEN(got, count, datatype) void *got, int count, MPI_Datatype datatype, MPI_Op op, MPI_Comm comm, out MPI_Request *request) prepare(*request, got) fails(nonzero);
int MPI_Igather(in GIVEN(given, given_count, given_type) const void *given, int given_count, MPI_Datatype given_type,
                out ROOTS(hindcast_mpi_bytes((long)got_count * hindcast_mpi_size(comm), got_type)) void *got, int got_count, MPI_Datatype got_type, int root, MPI_Comm comm, out MPI_Request *request) prepare(*request, got) fails(nonzero);
int MPI_Iscatter(in ROOTS(hindcast_mpi_bytes((long)given_count * hindcast_mpi_size(comm), given_type)) const void *given, int given_count, MPI_Datatype given_type,
                 out GIVEN(got, got_count, got_type) void *got, int got_count, MPI_Datatype got_type, int root, MPI_Comm comm, out MPI_Request *request) prepare(*request, got) fails(nonzero);
int MPI_Iallgather(in GIVEN(given, given_count, given_type) const void *given, int given_count, MPI_Datatype given_type,
                   out ALL(got, got_count, got_type) void *got, int got_count, MPI_Datatype got_type, MPI_Comm comm, out MPI_Request *request) prepare(*request, got) fails(nonzero);
int MPI_Ialltoall(in ALL(given, given_count, given_type) const void *given, int given_count, MPI_Datatype given_type,
                  out ALL(got, got_count, got_type) void *got, int got_count, MPI_Datatype got_type, MPI_Comm comm, out MPI_Request *request) prepare(*request, got) fails(nonzero);

/* ---- What ends a recording ---- */

int MPI_Win_create(void *base, MPI_Aint size, int unit, MPI_Info info, MPI_Comm comm, MPI_Win *win) by_hand;
int MPI_Win_allocate(MPI_Aint size, int unit, MPI_Info info, MPI_Comm comm, void *base, MPI_Win *win) by_hand;
int MPI_Win_allocate_shared(MPI_Aint size, int unit, MPI_Info info, MPI_Comm comm, void *base, MPI_Win *win) by_hand;
int MPI_Win_create_dynamic(MPI_Info info, MPI_Comm comm, MPI_Win *win) by_hand;
int MPI_File_open(MPI_Comm comm, const char *name, int mode, MPI_Info info, MPI_File *file) by_hand;
int MPI_Comm_spawn(const char *command, char **argv, int most, MPI_Info info, int root, MPI_Comm comm, MPI_Comm *made, int *codes) by_hand;
int MPI_Comm_accept(const char *port, MPI_Info info, int root, MPI_Comm comm, MPI_Comm *made) by_hand;
int MPI_Comm_connect(const char *port, MPI_Info info, int root, MPI_Comm comm, MPI_Comm *made) by_hand;
