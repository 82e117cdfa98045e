/*
 * A record for each transaction, written when it ends.
 *
 * What is known of the transaction that is under way is in memory of this backend: hooks tell of
 * its statements (hindcast.c), callbacks of its subtransactions and its end. A procedure that
 * commits ends several transactions in one statement; each has its own record.
 *
 * Callbacks come after the commit is durable and visible, so nothing here may fail.
 */
#include "hindcast.h"

#include "access/parallel.h"
#include "access/twophase.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "commands/dbcommands.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "utils/builtins.h"
#include "utils/varlena.h"

#define GID_MAX 200

/* Memory that many subtransactions needed is not kept for the transactions that follow. */
#define SUBXIDS_KEPT_MAX (64 * 1024)

bool		recording_enabled = true;
char	   *recorded_databases = NULL;

/* Names, each with its zero, and an empty one behind the last; NULL: all databases. */
static const char *wanted_databases = NULL;

/* Whether the database of this session is among them. */
static enum
{
	WANTED_UNKNOWN,
	WANTED_YES,
	WANTED_NO
}			wanted = WANTED_UNKNOWN;

/* The transaction under way. `ordinal` counts those that have ended. */
static uint64 ordinal = 0;
static uint32 statements = 0;
static uint32 left_out = 0;
static Ended prepared_how = ENDED_COMMIT;
static char prepared_gid[GID_MAX];
static uint8 prepared_gid_length = 0;
static SubXid *subxids = NULL;
static Size subxids_room = 0;
static uint32 subxids_count = 0;

bool
databases_check(char **newval, void **extra, GucSource source)
{
	char	   *copy = pstrdup(*newval);
	List	   *names;
	ListCell   *cell;
	Size		length = 1;
	char	   *flat;
	char	   *at;

	if (!SplitIdentifierString(copy, ',', &names))
	{
		GUC_check_errdetail("List syntax is invalid.");
		pfree(copy);
		return false;
	}
	if (names == NIL)
	{
		pfree(copy);
		return true;
	}
	foreach(cell, names)
		length += strlen((char *) lfirst(cell)) + 1;
#if PG_VERSION_NUM >= 160000
	flat = guc_malloc(LOG, length);
#else
	flat = malloc(length);
#endif
	if (flat == NULL)
		return false;
	at = flat;
	foreach(cell, names)
	{
		Size		name_length = strlen((char *) lfirst(cell)) + 1;

		memcpy(at, lfirst(cell), name_length);
		at += name_length;
	}
	*at = '\0';
	list_free(names);
	pfree(copy);
	*extra = flat;
	return true;
}

void
databases_assign(const char *newval, void *extra)
{
	wanted_databases = extra;
	wanted = WANTED_UNKNOWN;
}

/*
 * Whether this session's database is to be recorded. The catalog knows its name, and cannot be
 * asked while a transaction aborts; what aborts before it was ever asked is recorded.
 */
static bool
database_is_wanted(void)
{
	const char *name;

	if (wanted != WANTED_UNKNOWN)
		return wanted == WANTED_YES;
	if (wanted_databases == NULL)
	{
		wanted = WANTED_YES;
		return true;
	}
	if (!IsTransactionState())
		return true;
	name = get_database_name(MyDatabaseId);
	wanted = WANTED_NO;
	if (name == NULL)
		return false;
	for (const char *at = wanted_databases; *at != '\0'; at += strlen(at) + 1)
	{
		if (strcmp(at, name) == 0)
			wanted = WANTED_YES;
	}
	return wanted == WANTED_YES;
}

/* Transactions of a session's start are not the client's, and those of parallel workers none. */
static bool
transaction_counts(void)
{
	return IsNormalProcessingMode() && !IsParallelWorker() && OidIsValid(MyDatabaseId);
}

/* Whether the session is recorded. The one that reads the records is not. */
bool
transaction_is_noted(void)
{
	return ring_exists() && recording_enabled && !ring_claimed_here() &&
		transaction_counts() && database_is_wanted();
}

/* A statement that the client sent begins. */
void
transaction_statement(void)
{
	statements++;
}

uint32
transaction_statements(void)
{
	return statements;
}

/* How many transactions of the session have ended. */
uint64
transaction_ordinal(void)
{
	return ordinal;
}

void
transaction_left_out(void)
{
	left_out++;
}

/* A statement is about to end this transaction by preparing it, or to end a prepared one. */
void
transaction_prepared(Ended how, const char *gid)
{
	prepared_how = how;
	prepared_gid_length = (uint8) Min(strlen(gid), GID_MAX);
	memcpy(prepared_gid, gid, prepared_gid_length);
}

static void
forget(void)
{
	statements = 0;
	left_out = 0;
	prepared_how = ENDED_COMMIT;
	subxids_count = 0;
	if (subxids_room > SUBXIDS_KEPT_MAX)
	{
		pfree(subxids);
		subxids = NULL;
		subxids_room = 0;
	}
	forget_notes();
	forget_draws();
}

static Ended
how_ended(XactEvent event)
{
	switch (event)
	{
		case XACT_EVENT_PREPARE:
			return ENDED_PREPARE;
		case XACT_EVENT_COMMIT:
			return prepared_how == ENDED_PREPARE ? ENDED_COMMIT : prepared_how;
		default:
			return proc_exit_inprogress ? ENDED_TERMINATED : ENDED_ABORT;
	}
}

static void
write_record(Ended ended)
{
	TransactionRecord record;
	RingPart	parts[5];
	bool		prepared = ended == ENDED_PREPARE || ended == ENDED_COMMIT_PREPARED ||
		ended == ENDED_ROLLBACK_PREPARED;

	memset(&record, 0, sizeof(record));
	record.xid = GetTopFullTransactionIdIfAny();
	record.ordinal = ordinal;
	record.lost = ring_lost();
	record.backend_start = MyStartTimestamp;
	record.started = GetCurrentTransactionStartTimestamp();
	record.ended_at = GetCurrentTransactionStopTimestamp();
	/* Without an id there was no commit record, and the position is that of an earlier one. */
	if (ended == ENDED_COMMIT_PREPARED ||
		(ended == ENDED_COMMIT && FullTransactionIdIsValid(record.xid)))
		record.end_lsn = XactLastCommitEnd;
	record.database = MyDatabaseId;
	record.pid = MyProcPid;
	record.statements = statements;
	record.left_out = left_out;
	record.subxids = subxids_count;
	record.backend_type = (uint8) MyBackendType;
	record.isolation = (uint8) XactIsoLevel;
	record.ended = (uint8) ended;
	record.gid_length = prepared ? prepared_gid_length : 0;

	parts[1] = notes();
	record.notes_length = (uint32) parts[1].length;
	parts[0].bytes = &record;
	parts[0].length = sizeof(record);
	parts[2] = all_draws();
	record.draws = (uint32) (parts[2].length / sizeof(Draw));
	parts[3].bytes = subxids;
	parts[3].length = subxids_count * sizeof(SubXid);
	parts[4].bytes = prepared_gid;
	parts[4].length = record.gid_length;
	ring_write(parts, lengthof(parts));
}

static void
transaction_callback(XactEvent event, void *argument)
{
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
		case XACT_EVENT_PRE_PREPARE:
			/* The last occasion to ask the catalog. */
			if (transaction_counts())
				(void) database_is_wanted();
			return;
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PREPARE:
			break;
		default:
			return;
	}
	if (transaction_counts())
	{
		ordinal++;
		if (transaction_is_noted())
			write_record(how_ended(event));
	}
	forget();
	if (ring_claimed_here())
		ring_taken(event == XACT_EVENT_COMMIT);
}

/*
 * Of each subtransaction that has an id: how it ended. One that is rolled back takes those with it
 * that ended within it; they are at the end of the list and have higher numbers.
 */
static void
subtransaction_callback(SubXactEvent event, SubTransactionId id, SubTransactionId parent, void *argument)
{
	TransactionId xid = GetCurrentTransactionIdIfAny();
	bool		aborted = event == SUBXACT_EVENT_ABORT_SUB;
	SubXid	   *enough;

	if (aborted)
		draws_undone(id, statement_depth() == 0);
	if ((!aborted && event != SUBXACT_EVENT_COMMIT_SUB) || !TransactionIdIsValid(xid) ||
		!transaction_is_noted())
		return;
	if (aborted)
	{
		for (uint32 i = subxids_count; i > 0 && subxids[i - 1].id > id; i--)
			subxids[i - 1].aborted = true;
	}
	enough = grown(subxids, &subxids_room, (subxids_count + 1) * sizeof(SubXid));
	if (enough == NULL)
	{
		transaction_left_out();
		return;
	}
	subxids = enough;
	subxids[subxids_count].xid = xid;
	subxids[subxids_count].id = id;
	subxids[subxids_count].aborted = aborted;
	subxids_count++;
}

void
transaction_init(void)
{
	RegisterXactCallback(transaction_callback, NULL);
	RegisterSubXactCallback(subtransaction_callback, NULL);
}
