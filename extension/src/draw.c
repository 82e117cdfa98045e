/*
 * What a transaction draws or reads that no snapshot determines: values of sequences, moments of
 * the clock, random numbers, UUIDs and bytes.
 *
 *	 nextval('s')           ─▶ fmgr_builtins[…] ─▶ noted_nextval ─▶ nextval_oid
 *	 DEFAULT of an identity ─▶ identity.c ──────────────┘
 *
 * Built-in functions are called by the address that a table of the server's has for their number.
 * As the library is loaded, before any session is there, the addresses of a few are replaced by
 * functions that call the original and note what it returned. So it does not matter what makes the
 * call: a statement, a default, a view, a trigger, a function in any language.
 *
 *	 gen_random_bytes(16)   ─▶ import.c ────▶ noted_strong_random ─▶ pg_strong_random
 *
 * Functions of large objects are in large.c.
 *
 * Random bytes of the functions of pgcrypto are noted, and those of a replay are drawn again: a
 * setting says which.
 *
 * Not noted: calls in expressions that were compiled (by JIT, for statements that are expensive),
 * those in parallel workers, and what a transaction draws after DRAWS_MAX notes.
 */
#include "hindcast.h"

#include "access/parallel.h"
#include "access/xact.h"
#include "utils/fmgrtab.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/uuid.h"

/* More of a transaction are not noted. */
#define DRAWS_MAX (64 * 1024)

/* Memory that a long transaction needed is not kept for those that follow. */
#define KEPT_MAX (64 * 1024)

static Draw *draws = NULL;
static Size room = 0;
static uint32 count = 0;

/* A new one, or NULL: it is not to be noted. */
static Draw *
add_draw(DrawKind kind)
{
	Draw	   *enough;
	Draw	   *draw;

	if (count == DRAWS_MAX || !transaction_is_noted())
		return NULL;
	enough = grown(draws, &room, (count + 1) * sizeof(Draw));
	if (enough == NULL)
		return NULL;
	draws = enough;
	draw = &draws[count++];
	memset(draw, 0, sizeof(Draw));
	draw->statement = transaction_statements();
	draw->kind = kind;
	draw->subtransaction = GetCurrentSubTransactionId();
	return draw;
}

/* Notes a value of a sequence. Consecutive ones of a statement are one note. */
void
note_nextval(Oid sequence, int64 value)
{
	Draw	   *last = count > 0 ? &draws[count - 1] : NULL;
	Draw	   *draw;

	if (last != NULL && last->kind == DRAW_NEXTVAL && last->sequence == sequence &&
		last->statement == transaction_statements() &&
		last->subtransaction == GetCurrentSubTransactionId() &&
		last->value.run.first + last->value.run.count == value)
	{
		last->value.run.count++;
		return;
	}
	draw = add_draw(DRAW_NEXTVAL);
	if (draw == NULL)
		return;
	draw->sequence = sequence;
	draw->value.run.first = value;
	draw->value.run.count = 1;
}

/* Notes the number of a large object that is made. */
void
note_object(Oid object)
{
	Draw	   *draw = add_draw(DRAW_OBJECT);

	if (draw != NULL)
		draw->value.object = object;
}

/*
 * A subtransaction is rolled back. Those with higher numbers ended within it, so what all of them
 * drew is at the end. What a function undoes by itself, it undoes again in a replay; what the
 * client undoes, it may have seen.
 */
void
draws_undone(SubTransactionId id, bool by_client)
{
	uint32		from = count;

	while (from > 0 && draws[from - 1].subtransaction >= id)
		draws[--from].undone = true;
	if (!by_client)
		count = from;
}

RingPart
all_draws(void)
{
	RingPart	part = {draws, count * sizeof(Draw)};

	return part;
}

void
forget_draws(void)
{
	count = 0;
	if (room > KEPT_MAX)
	{
		pfree(draws);
		draws = NULL;
		room = 0;
	}
}

/* Functions of the server that are replaced, by their names in its source. */
typedef struct Replaced
{
	const char *name;
	PGFunction	by;
	PGFunction	original;
} Replaced;

static Datum noted_nextval(PG_FUNCTION_ARGS);
static Datum noted_clock_timestamp(PG_FUNCTION_ARGS);
static Datum noted_random(PG_FUNCTION_ARGS);
static Datum noted_uuid(PG_FUNCTION_ARGS);

enum
{
	NEXTVAL,
	CLOCK_TIMESTAMP,
	RANDOM,
	RANDOM_UUID
};

static Replaced replaced[] = {
	[NEXTVAL] = {"nextval_oid", noted_nextval},
	[CLOCK_TIMESTAMP] = {"clock_timestamp", noted_clock_timestamp},
	[RANDOM] = {"drandom", noted_random},
	[RANDOM_UUID] = {"gen_random_uuid", noted_uuid},
};

static Datum
noted_nextval(PG_FUNCTION_ARGS)
{
	Datum		value = replaced[NEXTVAL].original(fcinfo);

	note_nextval(PG_GETARG_OID(0), DatumGetInt64(value));
	return value;
}

static Datum
noted_clock_timestamp(PG_FUNCTION_ARGS)
{
	Datum		value = replaced[CLOCK_TIMESTAMP].original(fcinfo);
	Draw	   *draw = add_draw(DRAW_CLOCK);

	if (draw != NULL)
		draw->value.moment = DatumGetTimestampTz(value);
	return value;
}

static Datum
noted_random(PG_FUNCTION_ARGS)
{
	Datum		value = replaced[RANDOM].original(fcinfo);
	Draw	   *draw = add_draw(DRAW_RANDOM);

	if (draw != NULL)
		draw->value.number = DatumGetFloat8(value);
	return value;
}

static Datum
noted_uuid(PG_FUNCTION_ARGS)
{
	Datum		value = replaced[RANDOM_UUID].original(fcinfo);
	Draw	   *draw = add_draw(DRAW_UUID);

	if (draw != NULL)
		memcpy(draw->value.uuid, DatumGetUUIDP(value)->data, UUID_LEN);
	return value;
}

/* The bytes that are to be drawn, as hexadecimal digits. */
#define PINNED_BYTES "hindcast_pins.bytes"

static int
digit(char letter)
{
	if (letter >= '0' && letter <= '9')
		return letter - '0';
	if (letter >= 'a' && letter <= 'f')
		return letter - 'a' + 10;
	return -1;
}

/* Takes as many from the front of the setting, if it has them. */
static bool
pinned_bytes(uint8 *bytes, Size length)
{
	const char *pinned;

	if (!IsTransactionState() || IsInParallelMode())
		return false;
	pinned = GetConfigOption(PINNED_BYTES, true, false);
	if (pinned == NULL || strlen(pinned) < 2 * length)
		return false;
	for (Size i = 0; i < length; i++)
	{
		int			high = digit(pinned[2 * i]);
		int			low = digit(pinned[2 * i + 1]);

		if (high < 0 || low < 0)
			return false;
		bytes[i] = (uint8) (high << 4 | low);
	}
	(void) set_config_option(PINNED_BYTES, pstrdup(pinned + 2 * length), PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_LOCAL, true, 0, false);
	return true;
}

/* Takes the place of pg_strong_random() in pgcrypto. */
static bool
noted_strong_random(void *bytes, size_t length)
{
	if (!pinned_bytes(bytes, length) && !pg_strong_random(bytes, length))
		return false;
	for (Size from = 0; from < length;)
	{
		Draw	   *draw = add_draw(DRAW_BYTES);

		if (draw == NULL)
			break;
		draw->length = Min(length - from, sizeof(draw->value.bytes));
		memcpy(draw->value.bytes, (uint8 *) bytes + from, draw->length);
		from += draw->length;
	}
	return true;
}

static bool
replace(const FmgrBuiltin *builtin)
{
	for (Size i = 0; i < lengthof(replaced); i++)
	{
		if (strcmp(replaced[i].name, builtin->funcName) != 0)
			continue;
		replaced[i].original = builtin->func;
		return write_read_only((void **) &builtin->func, replaced[i].by);
	}
	return true;
}

/* Once, in the postmaster: the processes of sessions inherit it. */
void
draws_init(void)
{
	for (int i = 0; i < fmgr_nbuiltins; i++)
	{
		if (!replace(&fmgr_builtins[i]) || !large_replace(&fmgr_builtins[i]))
		{
			ereport(LOG,
					(errmsg("hindcast does not record what %s() returns: %m", fmgr_builtins[i].funcName)));
			return;
		}
	}
	if (!replace_import("pgcrypto", "pg_strong_random", noted_strong_random))
		ereport(LOG, (errmsg("hindcast does not record what functions of pgcrypto draw")));
}
