/*
 * Identity columns draw from their sequences by an expression of its own, which calls no function
 * that could be replaced (see draw.c). So it becomes a call, of hindcast.identity_nextval(), before
 * the statement is planned.
 *
 * Like the expression, the function asks for no right to the sequence. The executor looks for the
 * right to the function alone, which everybody has. In the text of a statement it takes the right to
 * the schema, too, and the function refuses calls that were not made here.
 *
 * COPY makes its defaults by itself: what it draws for identity columns is not noted.
 */
#include "hindcast.h"

#include "catalog/namespace.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "commands/sequence.h"
#include "fmgr.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/planner.h"
#include "utils/builtins.h"
#include "utils/syscache.h"

PG_FUNCTION_INFO_V1(hindcast_identity_nextval);

/* Where no text has put a call: parsed ones are at 0 or later, stored ones at -1. */
#define MADE_HERE (-2)

static planner_hook_type previous_planner = NULL;

/* The function's number in this database, or none: the extension is not there. */
static Oid
identity_nextval(void)
{
	Oid			schema = get_namespace_oid("hindcast", true);
	Oid			argument = OIDOID;

	if (!OidIsValid(schema))
		return InvalidOid;
	return GetSysCacheOid3(PROCNAMEARGSNSP, Anum_pg_proc_oid,
						   CStringGetDatum("identity_nextval"),
						   PointerGetDatum(buildoidvector(&argument, 1)),
						   ObjectIdGetDatum(schema));
}

static bool
draws_identity(Node *node, void *nothing)
{
	if (node == NULL)
		return false;
	if (IsA(node, NextValueExpr))
		return true;
	if (IsA(node, Query))
		return query_tree_walker((Query *) node, draws_identity, nothing, 0);
	return expression_tree_walker(node, draws_identity, nothing);
}

static Node *
with_calls(Node *node, void *function)
{
	if (node == NULL)
		return NULL;
	if (IsA(node, NextValueExpr))
	{
		NextValueExpr *draws = (NextValueExpr *) node;
		Const	   *sequence = makeConst(OIDOID, -1, InvalidOid, sizeof(Oid),
										 ObjectIdGetDatum(draws->seqid), false, true);
		FuncExpr   *call = makeFuncExpr(*(Oid *) function, draws->typeId, list_make1(sequence),
										InvalidOid, InvalidOid, COERCE_EXPLICIT_CALL);

		call->location = MADE_HERE;
		return (Node *) call;
	}
	if (IsA(node, Query))
		return (Node *) query_tree_mutator((Query *) node, with_calls, function, 0);
	return expression_tree_mutator(node, with_calls, function);
}

static PlannedStmt *
hindcast_planner(Query *query, const char *text, int options, ParamListInfo parameters)
{
	/* What only reads draws for no column. */
	bool		writes = query->commandType != CMD_SELECT || query->hasModifyingCTE;

	if (writes && transaction_is_noted() && draws_identity((Node *) query, NULL))
	{
		Oid			function = identity_nextval();

		if (OidIsValid(function))
			query = (Query *) with_calls((Node *) query, &function);
	}
	if (previous_planner)
		return previous_planner(query, text, options, parameters);
	return standard_planner(query, text, options, parameters);
}

Datum
hindcast_identity_nextval(PG_FUNCTION_ARGS)
{
	Oid			sequence = PG_GETARG_OID(0);
	FuncExpr   *call = (FuncExpr *) fcinfo->flinfo->fn_expr;
	int64		value;

	if (call == NULL || !IsA(call, FuncExpr) || call->location != MADE_HERE)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("hindcast.identity_nextval() is called for identity columns only"),
				 errhint("Use nextval().")));
	value = nextval_internal(sequence, false);
	note_nextval(sequence, value);
	switch (call->funcresulttype)
	{
		case INT2OID:
			PG_RETURN_INT16((int16) value);
		case INT4OID:
			PG_RETURN_INT32((int32) value);
		default:
			PG_RETURN_INT64(value);
	}
}

void
identity_init(void)
{
	previous_planner = planner_hook;
	planner_hook = hindcast_planner;
}
