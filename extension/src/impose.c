/*
 * Statements that run with a snapshot which somebody else took, perhaps long ago.
 *
 * The snapshot replaces the one that the statement came with, just before the executor starts. Row
 * versions that it needs must still be there: that is for those to see to who impose it, by a
 * session with a snapshot as old.
 *
 * Statements run without parallel workers: these would import the snapshot from the session, which
 * does not protect what such an old one needs.
 *
 * One setting holds for all statements of a session, functions and triggers in them included. The
 * other is for the next one that the client sends, and for what functions in it see that take no
 * snapshot of their own: it goes on as if it had begun earlier and waited since.
 *
 * The invariant to keep: an imposed snapshot sees nothing that the statement's own does not. A row
 * whose transaction still runs would be taken for one whose transaction aborted, and be marked as
 * such for everybody.
 */
#include "hindcast.h"

#include "access/parallel.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

/* Ids that may still be told apart when only 32 bits of them are known. */
#define XID_DISTANCE_MAX ((uint64) INT_MAX)

/* What a setting says; `running` ascends. */
typedef struct Imposed
{
	uint64		xmin;
	uint64		xmax;
	/* Of the next statement only: that has come. A setting that comes back is not for another one. */
	bool		used;
	uint32		count;
	uint64		running[FLEXIBLE_ARRAY_MEMBER];
} Imposed;

char	   *imposed_snapshot = NULL;
bool		imposed_snapshot_writes = false;
char	   *next_snapshot = NULL;

static const Imposed *imposed = NULL;
static Imposed *imposed_next = NULL;

static bool
read_id(const char **at, char stop, uint64 *id)
{
	char	   *end;

	if (**at < '0' || **at > '9')
		return false;
	errno = 0;
	*id = strtoull(*at, &end, 10);
	if (errno != 0 || (*end != stop && *end != '\0'))
		return false;
	*at = *end == '\0' ? end : end + 1;
	return stop != ':' || *end == ':';
}

/* Reads xmin:xmax:xip,xip as pg_current_snapshot() writes it. */
static bool
read_snapshot(const char *text, Imposed *into)
{
	uint64		last = 0;

	if (!read_id(&text, ':', &into->xmin) || !read_id(&text, ':', &into->xmax))
		return false;
	if (into->xmin < FirstNormalTransactionId || into->xmin > into->xmax)
		return false;
	into->used = false;
	into->count = 0;
	while (*text != '\0')
	{
		uint64		id;

		if (!read_id(&text, ',', &id) || id < into->xmin || id >= into->xmax || id <= last)
			return false;
		if (text[-1] == ',' && *text == '\0')
			return false;
		into->running[into->count++] = last = id;
	}
	return true;
}

bool
imposed_snapshot_check(char **newval, void **extra, GucSource source)
{
	Imposed    *read;
	Size		room;

	if (**newval == '\0')
		return true;
	/* No more ids than every second character. */
	room = offsetof(Imposed, running) + (strlen(*newval) / 2 + 1) * sizeof(uint64);
#if PG_VERSION_NUM >= 160000
	read = guc_malloc(LOG, room);
#else
	read = malloc(room);
#endif
	if (read == NULL)
		return false;
	if (!read_snapshot(*newval, read))
	{
#if PG_VERSION_NUM >= 160000
		guc_free(read);
#else
		free(read);
#endif
		GUC_check_errdetail("A snapshot is written as by pg_current_snapshot(): xmin:xmax:xip,xip with ascending ids.");
		return false;
	}
	*extra = read;
	return true;
}

void
imposed_snapshot_assign(const char *newval, void *extra)
{
	imposed = extra;
}

void
next_snapshot_assign(const char *newval, void *extra)
{
	imposed_next = extra;
}

/* Refuses writes from here to the end of the transaction, as Postgres refuses them. */
void
impose_read_only(void)
{
	if (imposed != NULL && !imposed_snapshot_writes && !IsParallelWorker())
		XactReadOnly = true;
}

static bool
imposed_as_running(const Imposed *imposed, uint64 id)
{
	uint32		low = 0;
	uint32		high = imposed->count;

	while (low < high)
	{
		uint32		middle = low + (high - low) / 2;

		if (imposed->running[middle] == id)
			return true;
		if (imposed->running[middle] < id)
			low = middle + 1;
		else
			high = middle;
	}
	return false;
}

static void
refuse_if_running(const Imposed *imposed, TransactionId xid)
{
	uint64		id = U64FromFullTransactionId(full_xid(xid));

	if (id < imposed->xmax && !imposed_as_running(imposed, id))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("hindcast.snapshot sees transaction " UINT64_FORMAT ", which is not over yet", id),
				 errhint("Wait for its end before a statement that saw it.")));
}

/* The imposed snapshot must not see more than this one, which is Postgres' own. */
static void
refuse_unless_within(const Imposed *imposed, Snapshot own)
{
	uint64		own_xmax = U64FromFullTransactionId(full_xid(own->xmax));

	if (imposed->xmax > own_xmax)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("hindcast.snapshot ends at transaction " UINT64_FORMAT ", and the next one here is " UINT64_FORMAT,
						imposed->xmax, own_xmax),
				 errhint("It was taken in another database cluster, or later than this transaction's snapshot.")));
	if (own_xmax - imposed->xmin > XID_DISTANCE_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("hindcast.snapshot is too old: it begins at transaction " UINT64_FORMAT, imposed->xmin)));
	for (uint32 i = 0; i < own->xcnt; i++)
		refuse_if_running(imposed, own->xip[i]);
}

static bool
is_imposed(const Imposed *imposed, Snapshot snapshot)
{
	if (snapshot->xmin != (TransactionId) imposed->xmin ||
		snapshot->xmax != (TransactionId) imposed->xmax ||
		snapshot->xcnt != imposed->count || !snapshot->suboverflowed)
		return false;
	for (uint32 i = 0; i < imposed->count; i++)
	{
		if (snapshot->xip[i] != (TransactionId) imposed->running[i])
			return false;
	}
	return true;
}

/* The plan may be in a cache, so it is copied to be changed. */
static void
without_workers(QueryDesc *query)
{
	PlannedStmt *copy;

	if (!query->plannedstmt->parallelModeNeeded)
		return;
	copy = MemoryContextAlloc(GetMemoryChunkContext(query), sizeof(PlannedStmt));
	*copy = *query->plannedstmt;
	copy->parallelModeNeeded = false;
	query->plannedstmt = copy;
}

/* Whether a statement with this snapshot is to have the imposed one instead. */
static bool
is_to_be_replaced(const Imposed *imposed, Snapshot own)
{
	if (imposed == NULL || own == InvalidSnapshot || own->snapshot_type != SNAPSHOT_MVCC ||
		is_imposed(imposed, own) || IsParallelWorker())
		return false;
	/* The checks of foreign keys must see all rows, or the keys would not hold. */
	if (InNoForceRLSOperation())
		return false;
	if (own->takenDuringRecovery)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("hindcast.snapshot cannot be used on a standby")));
	return true;
}

/* The imposed snapshot in place of this one, registered. */
static Snapshot
replacement(const Imposed *imposed, Snapshot own)
{
	SnapshotData seen;
	Snapshot	registered;

	refuse_unless_within(imposed, own);
	/* The command counter comes along, so a transaction sees its own writes. */
	seen = *own;
	seen.xmin = (TransactionId) imposed->xmin;
	seen.xmax = (TransactionId) imposed->xmax;
	seen.xcnt = imposed->count;
	seen.xip = palloc(Max(imposed->count, 1) * sizeof(TransactionId));
	for (uint32 i = 0; i < imposed->count; i++)
		seen.xip[i] = (TransactionId) imposed->running[i];
	/* Which subtransactions ran is not listed: their parents are looked up. */
	seen.subxcnt = 0;
	seen.subxip = NULL;
	seen.suboverflowed = true;
	seen.copied = false;
	seen.active_count = 0;
	seen.regd_count = 0;
	registered = RegisterSnapshot(&seen);
	pfree(seen.xip);

	/*
	 * Down to here the parents of subtransactions are looked up. This is set anew with the next
	 * snapshot of the transaction or, under REPEATABLE READ, the next transaction.
	 */
	if (TransactionIdPrecedes(registered->xmin, TransactionXmin))
		TransactionXmin = registered->xmin;
	return registered;
}

/* What is imposed on a query, which may be one that the client sent. */
static const Imposed *
imposed_on(bool clients)
{
	if (!clients || imposed_next == NULL || imposed_next->used)
		return imposed;
	imposed_next->used = true;
	return imposed_next;
}

/* Gives a query the imposed snapshot. */
void
impose_snapshot(QueryDesc *query, bool clients)
{
	const Imposed *seen = imposed_on(clients);
	Snapshot	own = query->snapshot;
	bool		active;

	if (!is_to_be_replaced(seen, own))
		return;
	query->snapshot = replacement(seen, own);
	/* Functions within the query use the active one. */
	active = ActiveSnapshotSet() && GetActiveSnapshot() == own;
	if (active)
		PopActiveSnapshot();
	UnregisterSnapshot(own);
	if (active)
		PushCopiedSnapshot(query->snapshot);
	without_workers(query);
}

/*
 * Gives the imposed snapshot to COPY TO, which may read a table without a query, and to REFRESH
 * MATERIALIZED VIEW. Both read by the active snapshot, from before they waited for the table or the
 * view. If it does, the caller pops that when the statement is over.
 */
bool
impose_on_utility(Node *statement, bool clients)
{
	bool		copies = IsA(statement, CopyStmt) && !((CopyStmt *) statement)->is_from;
	const Imposed *wanted;
	Snapshot	seen;

	if (!ActiveSnapshotSet() || (!copies && !IsA(statement, RefreshMatViewStmt)))
		return false;
	wanted = imposed_on(clients);
	if (!is_to_be_replaced(wanted, GetActiveSnapshot()))
		return false;
	seen = replacement(wanted, GetActiveSnapshot());
	PushCopiedSnapshot(seen);
	UnregisterSnapshot(seen);
	return true;
}
