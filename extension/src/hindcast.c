/*
 * Settings and hooks.
 *
 * Loaded by shared_preload_libraries it records; by LOAD it only lets a session use somebody else's
 * snapshot.
 */
#include "hindcast.h"

#include "access/xact.h"
#include "executor/executor.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "tcop/pquery.h"
#include "tcop/utility.h"
#include "utils/snapmgr.h"

#if PG_VERSION_NUM < 130000 || PG_VERSION_NUM >= 190000
#error "hindcast is for Postgres 13 to 18"
#endif

PG_MODULE_MAGIC;

void		_PG_init(void);

static ExecutorStart_hook_type previous_ExecutorStart = NULL;
static ExecutorRun_hook_type previous_ExecutorRun = NULL;
static ExecutorFinish_hook_type previous_ExecutorFinish = NULL;
static ProcessUtility_hook_type previous_ProcessUtility = NULL;
static shmem_startup_hook_type previous_shmem_startup = NULL;
#if PG_VERSION_NUM >= 150000
static shmem_request_hook_type previous_shmem_request = NULL;
#endif

static int	depth = 0;

/* How many statements are being executed, one inside the other. */
int
statement_depth(void)
{
	return depth;
}

/*
 * Whether a client sent this query. Outside of any statement, functions can also run because of a
 * plan that is being made, or as deferred triggers at the commit; what they execute is not what the
 * portal holds, or is in a portal of their own.
 */
static bool
is_the_clients(PlannedStmt *statement)
{
	return depth == 0 && ActivePortal != NULL &&
		list_member_ptr(ActivePortal->stmts, statement) && ActivePortal->name[0] != '<';
}

static void
hindcast_ExecutorStart(QueryDesc *query, int flags)
{
	bool		clients = is_the_clients(query->plannedstmt);
	bool		noted = transaction_is_noted();

	/* A rule can make several queries of one statement. */
	if (clients && linitial(ActivePortal->stmts) == query->plannedstmt)
		transaction_statement();
	impose_read_only();
	impose_snapshot(query, clients);
	if (noted && query->snapshot != InvalidSnapshot)
	{
		if (clients)
			note_snapshot(query->snapshot, PLACE_OWN);
		else
			note_nested_snapshot(query->snapshot);
	}
	else if (!noted && ring_exists())
		transaction_left_out();

	if (previous_ExecutorStart)
		previous_ExecutorStart(query, flags);
	else
		standard_ExecutorStart(query, flags);

	if (noted)
		recheck_watch(query);
}

#if PG_VERSION_NUM >= 180000
#define RUN_PARAMETERS QueryDesc *query, ScanDirection direction, uint64 count
#define RUN_ARGUMENTS query, direction, count
#else
#define RUN_PARAMETERS QueryDesc *query, ScanDirection direction, uint64 count, bool execute_once
#define RUN_ARGUMENTS query, direction, count, execute_once
#endif

static void
hindcast_ExecutorRun(RUN_PARAMETERS)
{
	TimestampTz waited = last_wait();

	depth++;
	PG_TRY();
	{
		if (previous_ExecutorRun)
			previous_ExecutorRun(RUN_ARGUMENTS);
		else
			standard_ExecutorRun(RUN_ARGUMENTS);
	}
	PG_CATCH();
	{
		depth--;
		note_failure(last_wait() != waited);
		PG_RE_THROW();
	}
	PG_END_TRY();
	depth--;
	if (!transaction_is_noted())
		return;
	if (recheck_left_out(query) && !IsInParallelMode())
		note_snapshot(GetLatestSnapshot(), PLACE_BEHIND);
	else if (last_wait() != waited || recheck_found(query))
	{
		/* By its next snapshot those may be over whose rows it skipped. */
		if (recheck_skips(query) && !IsInParallelMode())
			note_snapshot(GetLatestSnapshot(), PLACE_BEHIND);
		else
			note_recheck();
	}
}

static void
hindcast_ExecutorFinish(QueryDesc *query)
{
	TimestampTz waited = last_wait();

	depth++;
	PG_TRY();
	{
		if (previous_ExecutorFinish)
			previous_ExecutorFinish(query);
		else
			standard_ExecutorFinish(query);
	}
	PG_CATCH();
	{
		depth--;
		note_failure(last_wait() != waited);
		PG_RE_THROW();
	}
	PG_END_TRY();
	depth--;
	/* Foreign keys are checked here. */
	if (transaction_is_noted() && last_wait() != waited)
		note_recheck();
}

/* Whether a failed block goes on after this, from where a savepoint was. */
static bool
revives(Node *statement)
{
	return IsA(statement, TransactionStmt) &&
		((TransactionStmt *) statement)->kind == TRANS_STMT_ROLLBACK_TO;
}

static void
note_utility(PlannedStmt *statement, ProcessUtilityContext context)
{
	bool		clients = depth == 0 && context == PROCESS_UTILITY_TOPLEVEL;

	/*
	 * A block that failed has its record already, and what failed has left its snapshot behind:
	 * neither is the next transaction's.
	 */
	if (IsAbortedTransactionBlockState() && !revives(statement->utilityStmt))
		return;
	if (clients)
		transaction_statement();
	if (IsA(statement->utilityStmt, TransactionStmt))
	{
		TransactionStmt *transaction = (TransactionStmt *) statement->utilityStmt;

		if (transaction->kind == TRANS_STMT_PREPARE)
			transaction_prepared(ENDED_PREPARE, transaction->gid);
		else if (transaction->kind == TRANS_STMT_COMMIT_PREPARED)
			transaction_prepared(ENDED_COMMIT_PREPARED, transaction->gid);
		else if (transaction->kind == TRANS_STMT_ROLLBACK_PREPARED)
			transaction_prepared(ENDED_ROLLBACK_PREPARED, transaction->gid);
		else if (transaction->kind == TRANS_STMT_ROLLBACK && clients && transaction_is_noted())
			note_rollback();
	}
	if (IsAbortedTransactionBlockState() || !ActiveSnapshotSet())
		return;
	if (transaction_is_noted())
		note_snapshot(GetActiveSnapshot(), clients ? PLACE_OWN : PLACE_NESTED);
	else if (ring_exists())
		transaction_left_out();
}

#if PG_VERSION_NUM >= 140000
#define UTILITY_PARAMETERS \
	PlannedStmt *statement, const char *text, bool read_only_tree, ProcessUtilityContext context, \
	ParamListInfo parameters, QueryEnvironment *environment, DestReceiver *target, QueryCompletion *done
#define UTILITY_ARGUMENTS statement, text, read_only_tree, context, parameters, environment, target, done
#else
#define UTILITY_PARAMETERS \
	PlannedStmt *statement, const char *text, ProcessUtilityContext context, \
	ParamListInfo parameters, QueryEnvironment *environment, DestReceiver *target, QueryCompletion *done
#define UTILITY_ARGUMENTS statement, text, context, parameters, environment, target, done
#endif

static void
hindcast_ProcessUtility(UTILITY_PARAMETERS)
{
	TimestampTz waited = last_wait();
	uint64		ordinal = transaction_ordinal();
	bool		copies = IsA(statement->utilityStmt, CopyStmt);
	bool		imposed;

	impose_read_only();
	imposed = impose_on_utility(statement->utilityStmt,
								depth == 0 && context == PROCESS_UTILITY_TOPLEVEL);
	note_utility(statement, context);
	depth++;
	PG_TRY();
	{
		if (previous_ProcessUtility)
			previous_ProcessUtility(UTILITY_ARGUMENTS);
		else
			standard_ProcessUtility(UTILITY_ARGUMENTS);
	}
	PG_CATCH();
	{
		depth--;
		if (copies)
			note_failure(last_wait() != waited);
		PG_RE_THROW();
	}
	PG_END_TRY();
	depth--;
	if (imposed)
		PopActiveSnapshot();
	/* Some begin transactions of their own. */
	if (transaction_is_noted() && last_wait() != waited && transaction_ordinal() == ordinal)
		note_recheck();
}

static void
hindcast_shmem_startup(void)
{
	if (previous_shmem_startup)
		previous_shmem_startup();
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	ring_startup();
	LWLockRelease(AddinShmemInitLock);
}

#if PG_VERSION_NUM >= 150000
static void
hindcast_shmem_request(void)
{
	if (previous_shmem_request)
		previous_shmem_request();
	ring_request();
}
#endif

static void
define_recording_settings(void)
{
	DefineCustomIntVariable("hindcast.ring_size",
							"Memory for records that were not taken yet.",
							"When it is full, records are counted as lost.",
							&ring_size_kb, 16 * 1024, 64, 1024 * 1024,
							PGC_POSTMASTER, GUC_UNIT_KB, NULL, NULL, NULL);
	DefineCustomBoolVariable("hindcast.enabled",
							 "Records transactions.", NULL,
							 &recording_enabled, true,
							 PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomStringVariable("hindcast.databases",
							   "Names of the databases to be recorded, separated by commas.",
							   "Empty for all.",
							   &recorded_databases, "",
							   PGC_SIGHUP, GUC_LIST_INPUT,
							   databases_check, databases_assign, NULL);
}

static void
define_imposing_settings(void)
{
	DefineCustomStringVariable("hindcast.snapshot",
							   "The snapshot that statements of this session run with.",
							   "As pg_current_snapshot() writes it. Empty for their own.",
							   &imposed_snapshot, "",
							   PGC_SUSET, 0,
							   imposed_snapshot_check, imposed_snapshot_assign, NULL);
	DefineCustomBoolVariable("hindcast.snapshot_writes",
							 "Lets statements write that run with hindcast.snapshot.", NULL,
							 &imposed_snapshot_writes, false,
							 PGC_SUSET, 0, NULL, NULL, NULL);
	DefineCustomStringVariable("hindcast.next_snapshot",
							   "The snapshot that the next statement of this session runs with, without the functions in it.",
							   "As pg_current_snapshot() writes it.",
							   &next_snapshot, "",
							   PGC_SUSET, 0,
							   imposed_snapshot_check, next_snapshot_assign, NULL);
}

static void
install_recording_hooks(void)
{
	previous_ExecutorRun = ExecutorRun_hook;
	ExecutorRun_hook = hindcast_ExecutorRun;
	previous_ExecutorFinish = ExecutorFinish_hook;
	ExecutorFinish_hook = hindcast_ExecutorFinish;
	previous_shmem_startup = shmem_startup_hook;
	shmem_startup_hook = hindcast_shmem_startup;
#if PG_VERSION_NUM >= 150000
	previous_shmem_request = shmem_request_hook;
	shmem_request_hook = hindcast_shmem_request;
#else
	ring_request();
#endif
	transaction_init();
	draws_init();
	identity_init();
}

void
_PG_init(void)
{
	define_imposing_settings();
	previous_ExecutorStart = ExecutorStart_hook;
	ExecutorStart_hook = hindcast_ExecutorStart;
	previous_ProcessUtility = ProcessUtility_hook;
	ProcessUtility_hook = hindcast_ProcessUtility;
	if (process_shared_preload_libraries_in_progress)
	{
		define_recording_settings();
		install_recording_hooks();
	}
#if PG_VERSION_NUM >= 150000
	MarkGUCPrefixReserved("hindcast");
#else
	EmitWarningsOnPlaceholders("hindcast");
#endif
}
