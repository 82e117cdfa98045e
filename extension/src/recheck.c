/*
 * Whether a statement waited for another transaction, or went on with a newer version of a row than
 * its snapshot shows, or may have.
 *
 * Who waits for a lock sets the timer that looks for deadlocks, and the timer keeps when it was set
 * last.
 *
 * Under READ COMMITTED a statement that meets a row which was changed after its snapshot waits for
 * the change to commit, and looks at the row again. Two kinds of nodes do so. They keep an executor
 * state for it from the first time on: one that modifies until the statement ends, one that locks
 * until there are no more rows. The latter is therefore watched, each time that it asks for a row.
 */
#include "hindcast.h"

#include "access/xact.h"
#include "executor/executor.h"
#include "nodes/execnodes.h"
#include "nodes/nodeFuncs.h"
#include "utils/memutils.h"
#include "utils/timeout.h"

/* A node that locks, and the one beneath it whose function was replaced. */
typedef struct Watched
{
	struct Watched *next;
	LockRowsState *node;
	PlanState  *beneath;
	ExecProcNodeMtd fetch;
	bool		rechecked;
	MemoryContextCallback callback;
} Watched;

static Watched *watching = NULL;

static Watched *
watched_above(PlanState *beneath)
{
	Watched    *watched = watching;

	while (watched != NULL && watched->beneath != beneath)
		watched = watched->next;
	return watched;
}

static TupleTableSlot *
fetch(PlanState *beneath)
{
	Watched    *watched = watched_above(beneath);

	if (watched->node->lr_epqstate.recheckestate != NULL)
		watched->rechecked = true;
	return watched->fetch(beneath);
}

/* The memory of the query is about to go. */
static void
unwatch(void *argument)
{
	Watched   **at = &watching;

	while (*at != argument)
		at = &(*at)->next;
	*at = (*at)->next;
}

static bool
watch_node(PlanState *node, void *context)
{
	Watched    *watched;

	if (node == NULL)
		return false;
	if (IsA(node, LockRowsState))
	{
		watched = MemoryContextAllocZero(node->state->es_query_cxt, sizeof(Watched));
		watched->node = (LockRowsState *) node;
		watched->beneath = outerPlanState(node);
		watched->fetch = watched->beneath->ExecProcNodeReal;
		watched->callback.func = unwatch;
		watched->callback.arg = watched;
		watched->next = watching;
		watching = watched;
		MemoryContextRegisterResetCallback(node->state->es_query_cxt, &watched->callback);
		ExecSetExecProcNode(watched->beneath, fetch);
	}
	return planstate_tree_walker(node, watch_node, context);
}

/* A query was started. */
void
recheck_watch(QueryDesc *query)
{
	if (query->plannedstmt->rowMarks != NIL && !IsolationUsesXactSnapshot())
		(void) watch_node(query->planstate, NULL);
}

/* How many rows a plan gives that only says them, or 0 if that is not known. */
static uint64
rows_of(Plan *plan)
{
	if (IsA(plan, ValuesScan))
		return list_length(((ValuesScan *) plan)->values_lists);
	return IsA(plan, Result) && outerPlan(plan) == NULL ? 1 : 0;
}

/*
 * Whether ON CONFLICT DO NOTHING may have found a row. How many rows one below the top was given
 * is not known.
 */
static bool
left_out(ModifyTableState *node)
{
	ModifyTable *plan = (ModifyTable *) node->ps.plan;
	uint64		inserted = node->ps.state->es_processed;
#if PG_VERSION_NUM >= 140000
	Plan	   *source = outerPlan(plan);
#else
	Plan	   *source = linitial(plan->plans);
#endif

	return plan->onConflictAction == ONCONFLICT_NOTHING &&
		(!node->canSetTag || inserted == 0 || inserted < rows_of(source));
}

static bool
any_left_out(PlanState *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, ModifyTableState) && left_out((ModifyTableState *) node))
		return true;
	return planstate_tree_walker(node, any_left_out, context);
}

static bool
found(PlanState *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, ModifyTableState) &&
		((ModifyTableState *) node)->mt_epqstate.recheckestate != NULL)
		return true;
	if (IsA(node, LockRowsState))
	{
		Watched    *watched = watched_above(outerPlanState(node));

		if (((LockRowsState *) node)->lr_epqstate.recheckestate != NULL ||
			(watched != NULL && watched->rechecked))
			return true;
	}
	return planstate_tree_walker(node, found, context);
}

/* Whether a query that ran, and was not ended yet, went on with a newer version of a row. */
bool
recheck_found(QueryDesc *query)
{
	PlannedStmt *statement = query->plannedstmt;

	if (query->operation == CMD_SELECT && statement->rowMarks == NIL && !statement->hasModifyingCTE)
		return false;
	return !IsolationUsesXactSnapshot() && found(query->planstate, NULL);
}

/*
 * Whether it left out a row since there was one. That need not be one that its snapshot shows, and
 * it holds no lock on it.
 */
bool
recheck_left_out(QueryDesc *query)
{
	if (query->operation != CMD_INSERT && !query->plannedstmt->hasModifyingCTE)
		return false;
	return !IsolationUsesXactSnapshot() && any_left_out(query->planstate, NULL);
}

/* Whether it passes over rows that are locked. */
bool
recheck_skips(QueryDesc *query)
{
	ListCell   *each;

	foreach(each, query->plannedstmt->rowMarks)
	{
		if (((PlanRowMark *) lfirst(each))->waitPolicy == LockWaitSkip)
			return !IsolationUsesXactSnapshot();
	}
	return false;
}

/* When the session began to wait for a lock last, or 0. */
TimestampTz
last_wait(void)
{
	return get_timeout_start_time(DEADLOCK_TIMEOUT);
}
