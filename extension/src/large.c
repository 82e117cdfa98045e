/*
 * Large objects: the calls that clients make of their functions by the protocol, and the numbers
 * that new ones draw.
 *
 *	 the protocol's function call ─▶ fmgr_builtins[…] ─▶ called_… ─▶ be_lo_…
 *	 SELECT lo_from_bytea(0, …)   ─────────┘
 *
 * Drivers do not write `SELECT lo_creat(-1)`. They send the function's number in a message of its
 * own, which passes the executor and all of its hooks. So these functions are replaced as those are
 * that draw (draw.c), and what no statement is around is counted as a statement, with what it sees.
 *
 * A new large object has a number that the server draws. It is noted, and the next one of a setting
 * is taken in its place, if there is one: that is how a replay makes the same object.
 */
#include "hindcast.h"

#include "access/parallel.h"
#include "access/xact.h"
#include "catalog/pg_largeobject.h"
#include "utils/fmgrtab.h"
#include "utils/guc.h"
#include "utils/snapmgr.h"

/* The numbers that are to be drawn, in decimal and with a space between. */
#define PINNED_OBJECTS "hindcast_pins.objects"

/* Takes the first number of the setting. InvalidOid: there is none, or it is taken. */
static Oid
pinned_object(void)
{
	const char *pinned;
	char	   *rest;
	unsigned long number;

	if (!IsTransactionState() || IsInParallelMode())
		return InvalidOid;
	pinned = GetConfigOption(PINNED_OBJECTS, true, false);
	if (pinned == NULL || *pinned == '\0')
		return InvalidOid;
	number = strtoul(pinned, &rest, 10);
	if (rest == pinned || number > PG_UINT32_MAX)
		return InvalidOid;
	(void) set_config_option(PINNED_OBJECTS, pstrdup(rest), PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_LOCAL, true, 0, false);
	return LargeObjectExists((Oid) number) ? InvalidOid : (Oid) number;
}

/* The functions, by their names in the server's source without what all begin with. */
#define CALLS(call) \
	call(lo_open) call(lo_close) call(loread) call(lowrite) call(lo_lseek) call(lo_lseek64) \
	call(lo_tell) call(lo_tell64) call(lo_creat) call(lo_create) call(lo_unlink) \
	call(lo_truncate) call(lo_truncate64) call(lo_get) call(lo_get_fragment) call(lo_put) \
	call(lo_from_bytea) call(lo_import)

#define NUMBER(name) CALL_##name,
enum
{
	CALLS(NUMBER)
	CALL_COUNT
};

static PGFunction originals[CALL_COUNT];

/* What a client calls by the protocol is a statement of its transaction. */
static void
note_call(void)
{
	if (statement_depth() > 0)
		return;
	transaction_statement();
	if (!transaction_is_noted())
	{
		if (ring_exists())
			transaction_left_out();
	}
	else if (ActiveSnapshotSet())
		note_snapshot(GetActiveSnapshot(), PLACE_OWN);
}

static Datum
called(int which, PG_FUNCTION_ARGS)
{
	bool		draws = which == CALL_lo_creat || which == CALL_lo_import;
	bool		draws_for_zero = which == CALL_lo_create || which == CALL_lo_from_bytea;
	Datum		value;

	note_call();
	if (draws_for_zero && !PG_ARGISNULL(0) && PG_GETARG_OID(0) == InvalidOid)
	{
		draws = true;
		fcinfo->args[0].value = ObjectIdGetDatum(pinned_object());
		value = originals[which] (fcinfo);
	}
	else if (which == CALL_lo_creat)
	{
		Oid			pinned = pinned_object();

		/* Its argument has been without meaning for long. */
		value = OidIsValid(pinned)
			? DirectFunctionCall1(originals[CALL_lo_create], ObjectIdGetDatum(pinned))
			: originals[which] (fcinfo);
	}
	else
		value = originals[which] (fcinfo);
	if (draws)
		note_object(DatumGetObjectId(value));
	return value;
}

#define WRAPPER(name) \
	static Datum called_##name(PG_FUNCTION_ARGS) { return called(CALL_##name, fcinfo); }
CALLS(WRAPPER)

#define PLACE(name) [CALL_##name] = {"be_" #name, called_##name},
static const struct
{
	const char *name;
	PGFunction	by;
}			calls[CALL_COUNT] = {CALLS(PLACE)};

/* Puts ours in the place of a function, if it is one of these. Whether that did not fail. */
bool
large_replace(const FmgrBuiltin *builtin)
{
	for (int i = 0; i < CALL_COUNT; i++)
	{
		if (strcmp(calls[i].name, builtin->funcName) != 0)
			continue;
		originals[i] = builtin->func;
		return write_read_only((void **) &builtin->func, calls[i].by);
	}
	return true;
}
