/*
 * What a transaction's statements saw: notes in memory of this backend, which become a part of the
 * transaction's record.
 *
 * A snapshot is noted where it differs from the one before, so a transaction under REPEATABLE READ
 * has one. The ids in its list are as Postgres keeps them, 32 bits and unsorted: the next snapshot
 * is compared with them, and the reader of the record has more time to make them whole.
 */
#include "hindcast.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "storage/lwlock.h"
#include "storage/procarray.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

/* The widest distance in time at which two ids are certainly less than 2^31 apart. */
#define REFERENCE_AGE_MAX (60 * USECS_PER_SEC)

/* Memory that a long transaction needed is not kept for those that follow. */
#define KEPT_MAX (64 * 1024)

static char *bytes = NULL;
static Size room = 0;
static Size used = 0;

/* Offset of the last snapshot among the notes. */
static bool any_snapshot = false;
static Size last_snapshot;

/* The statement of the last recheck, or NO_STATEMENT. */
#define NO_STATEMENT PG_UINT32_MAX
static uint32 last_recheck = NO_STATEMENT;

/* What can be seen when a statement has failed. */
static SnapshotData behind_failure = {SNAPSHOT_MVCC};

/*
 * An id with its epoch. It is derived from one that is known in full and was the next one not long
 * ago; asking for that takes a lock that all backends share, so it is asked for once a minute.
 */
FullTransactionId
full_xid(TransactionId xid)
{
	static uint64 reference;
	static TimestampTz asked = 0;
	TimestampTz now = GetCurrentTransactionStartTimestamp();
	int32		distance;

	if (!TransactionIdIsNormal(xid))
		return FullTransactionIdFromEpochAndXid(0, xid);
	if (asked == 0 || now - asked > REFERENCE_AGE_MAX || now < asked)
	{
		reference = U64FromFullTransactionId(ReadNextFullTransactionId());
		asked = now;
	}
	distance = (int32) (xid - (TransactionId) reference);
	/* A transaction may last, so what it sees moves the reference on. */
	if (distance > 0)
		reference += distance;
	return FullTransactionIdFromU64(distance > 0 ? reference : reference + distance);
}

/* Memory with room for so many bytes, or NULL if that is more than a record may have. */
void *
grown(void *old, Size *old_room, Size needed)
{
	Size		limit = (Size) ring_size_kb * 1024 / 4;
	Size		new_room = Max(*old_room, 1024);
	void	   *larger;

	if (needed <= *old_room)
		return old;
	while (new_room < needed)
		new_room *= 2;
	if (needed > limit)
		return NULL;
	larger = MemoryContextAllocExtended(TopMemoryContext, new_room, MCXT_ALLOC_NO_OOM);
	if (larger == NULL)
		return NULL;
	if (old != NULL)
	{
		memcpy(larger, old, *old_room);
		pfree(old);
	}
	*old_room = new_room;
	return larger;
}

/* A new note at the end, or NULL: then it is counted as left out. */
static Note *
add_note(Size length, NoteKind kind, NotePlace place)
{
	char	   *enough = grown(bytes, &room, used + length);
	Note	   *note;

	if (enough == NULL)
	{
		transaction_left_out();
		return NULL;
	}
	bytes = enough;
	note = (Note *) (bytes + used);
	used += length;
	note->statement = transaction_statements();
	note->kind = kind;
	note->place = place;
	note->unused = 0;
	return note;
}

static bool
same_as_last(FullTransactionId xmin, FullTransactionId xmax, uint32 count, const TransactionId *running)
{
	SnapshotNote *last = (SnapshotNote *) (bytes + last_snapshot);

	return any_snapshot &&
		FullTransactionIdEquals(last->xmin, xmin) &&
		FullTransactionIdEquals(last->xmax, xmax) &&
		last->count == count &&
		memcmp(last->running, running, count * sizeof(TransactionId)) == 0;
}

/* Whether it shows less than the last one, as what a function runs that takes no snapshot of its own. */
static bool
shows_less_than_last(FullTransactionId xmax, uint32 count)
{
	SnapshotNote *last = (SnapshotNote *) (bytes + last_snapshot);

	return any_snapshot &&
		(FullTransactionIdPrecedes(xmax, last->xmax) ||
		 (FullTransactionIdEquals(xmax, last->xmax) && count > last->count));
}

/* Memory for it is taken before, since where a statement has failed nothing else may. */
static void
prepare_for_failure(void)
{
	if (behind_failure.xip != NULL)
		return;
	behind_failure.subxip = malloc(GetMaxSnapshotSubxidCount() * sizeof(TransactionId));
	if (behind_failure.subxip == NULL)
		return;
	behind_failure.xip = malloc(GetMaxSnapshotXidCount() * sizeof(TransactionId));
	if (behind_failure.xip != NULL)
		return;
	free(behind_failure.subxip);
	behind_failure.subxip = NULL;
}

/* Notes what the statement at hand sees, unless that is what the one before saw. */
void
note_snapshot(Snapshot snapshot, NotePlace place)
{
	/* A standby knows no difference between transactions and their subtransactions. */
	TransactionId *running = snapshot->takenDuringRecovery ? snapshot->subxip : snapshot->xip;
	uint32		count = snapshot->takenDuringRecovery ? (uint32) snapshot->subxcnt : snapshot->xcnt;
	FullTransactionId xmin = full_xid(snapshot->xmin);
	FullTransactionId xmax = full_xid(snapshot->xmax);
	Size		start = used;
	SnapshotNote *note;

	prepare_for_failure();
	if (snapshot->snapshot_type != SNAPSHOT_MVCC)
		return;
	if (place != PLACE_BEHIND && same_as_last(xmin, xmax, count, running))
		return;
	if (place == PLACE_NESTED && shows_less_than_last(xmax, count))
		return;
	note = (SnapshotNote *) add_note(SNAPSHOT_NOTE_LENGTH(count), NOTE_SNAPSHOT, place);
	if (note == NULL)
		return;
	note->xmin = xmin;
	note->xmax = xmax;
	note->count = count;
	if (count > 0)
		memcpy(note->running, running, count * sizeof(TransactionId));
	any_snapshot = true;
	last_snapshot = start;
}

static void
add_recheck(void)
{
	if (last_recheck == transaction_statements())
		return;
	last_recheck = transaction_statements();
	(void) add_note(sizeof(Note), NOTE_RECHECK, PLACE_OWN);
}

/*
 * Notes what a query sees that a function within the statement at hand runs. If that is more than
 * is noted of it, the statement saw more than its snapshot, as one that waited. The checks of
 * foreign keys run queries, too, and change nothing of what it saw.
 */
void
note_nested_snapshot(Snapshot snapshot)
{
	Size		before = used;
	bool		first = !any_snapshot;

	note_snapshot(snapshot, PLACE_NESTED);
	if (used > before && !first && !InNoForceRLSOperation() && !IsolationUsesXactSnapshot())
		add_recheck();
}

/*
 * Notes that the statement at hand waited for a lock, or found a row changed since its snapshot.
 *
 * It saw more than its snapshot: at most what had committed when its transaction did. One without
 * an id has no place among the commits. So what can be seen by now is noted behind it, as that of
 * the next statement.
 */
void
note_recheck(void)
{
	if (!TransactionIdIsValid(GetTopTransactionIdIfAny()) && !IsolationUsesXactSnapshot() &&
		!IsInParallelMode())
		note_snapshot(GetLatestSnapshot(), PLACE_NESTED);
	add_recheck();
}

/*
 * A client rolls back. If the statement before waited, what can be seen by now is noted behind it:
 * who rolls back has no place among the commits either.
 */
void
note_rollback(void)
{
	if (last_recheck == NO_STATEMENT || last_recheck + 1 != transaction_statements() ||
		IsolationUsesXactSnapshot() || IsInParallelMode())
		return;
	note_snapshot(GetLatestSnapshot(), PLACE_OWN);
}

/* Whether a statement failed because of what another transaction had done, seen or not. */
static bool
lost(int error, bool waited)
{
	switch (error)
	{
		case ERRCODE_UNIQUE_VIOLATION:
		case ERRCODE_EXCLUSION_VIOLATION:
		case ERRCODE_FOREIGN_KEY_VIOLATION:
			return true;
			/* These waited in vain: what they waited for was not over. */
		case ERRCODE_LOCK_NOT_AVAILABLE:
		case ERRCODE_T_R_DEADLOCK_DETECTED:
		case ERRCODE_QUERY_CANCELED:
			return false;
		default:
			return waited;
	}
}

/*
 * A statement is failing: to be called while its error is being handled. If it failed because
 * of another transaction, that has committed, and can be seen now. That is noted as what the
 * statement saw, before any lock is given back: who waited for one is not in it.
 *
 * The error may have come while a lock of the server's memory was held.
 */
void
note_failure(bool waited)
{
	if (!transaction_is_noted() || IsolationUsesXactSnapshot() || !lost(geterrcode(), waited))
		return;
	if (behind_failure.xip != NULL && !LWLockHeldByMe(ProcArrayLock))
		note_snapshot(GetSnapshotData(&behind_failure), PLACE_BEHIND);
	else
		add_recheck();
}

RingPart
notes(void)
{
	RingPart	part = {bytes, used};

	return part;
}

void
forget_notes(void)
{
	used = 0;
	any_snapshot = false;
	last_recheck = NO_STATEMENT;
	if (room > KEPT_MAX)
	{
		pfree(bytes);
		bytes = NULL;
		room = 0;
	}
}
