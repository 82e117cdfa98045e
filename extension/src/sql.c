/*
 * What SQL sees: hindcast.take(), hindcast.take_binary() and hindcast.status().
 */
#include "hindcast.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/pg_lsn.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"
#include "utils/xid8.h"

#define TAKE_COLUMNS 23
#define TAKE_BINARY_COLUMNS 3
#define STATUS_COLUMNS 7

PG_FUNCTION_INFO_V1(hindcast_take);
PG_FUNCTION_INFO_V1(hindcast_take_binary);
PG_FUNCTION_INFO_V1(hindcast_status);

/* An array that is being put together. */
typedef struct Elements
{
	Datum	   *values;
	int			count;
} Elements;

static Elements
elements(Size most)
{
	Elements	made = {palloc(Max(most, 1) * sizeof(Datum)), 0};

	return made;
}

static void
add(Elements *list, Datum value)
{
	list->values[list->count++] = value;
}

static Datum
int4_array(Elements list)
{
	return PointerGetDatum(construct_array(list.values, list.count, INT4OID, sizeof(int32), true, TYPALIGN_INT));
}

static Datum
bool_array(Elements list)
{
	return PointerGetDatum(construct_array(list.values, list.count, BOOLOID, sizeof(bool), true, TYPALIGN_CHAR));
}

static Datum
text_array(Elements list)
{
	return PointerGetDatum(construct_array(list.values, list.count, TEXTOID, -1, false, TYPALIGN_INT));
}

static Datum
xid8_array(Elements list)
{
	return PointerGetDatum(construct_array(list.values, list.count, XID8OID, sizeof(FullTransactionId),
										   FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
}

static int
compare_offsets(const void *left, const void *right)
{
	uint32		a = *(const uint32 *) left;
	uint32		b = *(const uint32 *) right;

	return a < b ? -1 : a > b;
}

/* As pg_current_snapshot() writes it. The ids are replaced by their distance from xmin, in order. */
static Datum
snapshot_text(SnapshotNote *note)
{
	StringInfoData text;
	uint64		xmin = U64FromFullTransactionId(note->xmin);

	for (uint64 i = 0; i < note->count; i++)
		note->running[i] -= (TransactionId) xmin;
	qsort(note->running, note->count, sizeof(TransactionId), compare_offsets);
	initStringInfo(&text);
	appendStringInfo(&text, UINT64_FORMAT ":" UINT64_FORMAT ":",
					 xmin, U64FromFullTransactionId(note->xmax));
	for (uint64 i = 0; i < note->count; i++)
		appendStringInfo(&text, i == 0 ? UINT64_FORMAT : "," UINT64_FORMAT, xmin + note->running[i]);
	return CStringGetTextDatum(text.data);
}

/* Fills the columns snapshots to rechecked. */
static void
show_notes(char *at, Size length, Datum *values)
{
	Elements	snapshots = elements(length / sizeof(Note));
	Elements	statements = elements(length / sizeof(Note));
	Elements	nested = elements(length / sizeof(Note));
	Elements	rechecks = elements(length / sizeof(Note));
	char	   *end = at + length;

	while (at < end)
	{
		Note	   *note = (Note *) at;

		if (note->kind == NOTE_SNAPSHOT)
		{
			SnapshotNote *snapshot = (SnapshotNote *) at;

			at += SNAPSHOT_NOTE_LENGTH(snapshot->count);
			add(&snapshots, snapshot_text(snapshot));
			add(&statements, Int32GetDatum((int32) note->statement));
			add(&nested, BoolGetDatum(note->place != PLACE_OWN));
		}
		else
		{
			at += sizeof(Note);
			add(&rechecks, Int32GetDatum((int32) note->statement));
		}
	}
	values[0] = text_array(snapshots);
	values[1] = int4_array(statements);
	values[2] = bool_array(nested);
	values[3] = int4_array(rechecks);
}

/* What was drawn: as the call that drew it, and what it returned. */
static Datum
draw_text(const Draw *draw)
{
	StringInfoData text;

	initStringInfo(&text);
	switch ((DrawKind) draw->kind)
	{
		case DRAW_NEXTVAL:
			appendStringInfo(&text, "nextval(%u) " INT64_FORMAT, draw->sequence, draw->value.run.first);
			if (draw->value.run.count > 1)
				appendStringInfo(&text, " to " INT64_FORMAT,
								 draw->value.run.first + draw->value.run.count - 1);
			break;
		case DRAW_CLOCK:
			appendStringInfo(&text, "clock_timestamp() %s", timestamptz_to_str(draw->value.moment));
			break;
		case DRAW_RANDOM:
			appendStringInfo(&text, "random() %s",
							 DatumGetCString(DirectFunctionCall1(float8out, Float8GetDatum(draw->value.number))));
			break;
		case DRAW_UUID:
			appendStringInfo(&text, "gen_random_uuid() %s",
							 DatumGetCString(DirectFunctionCall1(uuid_out, PointerGetDatum(draw->value.uuid))));
			break;
		case DRAW_BYTES:
			appendStringInfoString(&text, "gen_random_bytes() ");
			for (int i = 0; i < draw->length; i++)
				appendStringInfo(&text, "%02x", draw->value.bytes[i]);
			break;
		case DRAW_OBJECT:
			appendStringInfo(&text, "lo_creat() %u", draw->value.object);
			break;
	}
	return CStringGetTextDatum(text.data);
}

static Datum
draw_texts(const Draw *draws, uint32 count)
{
	Elements	texts = elements(count);

	for (uint32 i = 0; i < count; i++)
	{
		if (!draws[i].undone)
			add(&texts, draw_text(&draws[i]));
	}
	return text_array(texts);
}

/* Fills the columns subxids and aborted_subxids. */
static void
show_subxids(const TransactionRecord *record, const SubXid *subxids, Datum *values)
{
	Elements	committed = elements(record->subxids);
	Elements	aborted = elements(record->subxids);
	uint64		top = U64FromFullTransactionId(record->xid);

	for (uint32 i = 0; i < record->subxids; i++)
	{
		/* A subtransaction's id is assigned after its parent's. */
		uint64		id = top + (uint32) (subxids[i].xid - (uint32) top);

		add(subxids[i].aborted ? &aborted : &committed,
			FullTransactionIdGetDatum(FullTransactionIdFromU64(id)));
	}
	values[0] = xid8_array(committed);
	values[1] = xid8_array(aborted);
}

static const char *
isolation_name(int level)
{
	switch (level)
	{
		case XACT_READ_UNCOMMITTED:
			return "read uncommitted";
		case XACT_READ_COMMITTED:
			return "read committed";
		case XACT_REPEATABLE_READ:
			return "repeatable read";
		default:
			return "serializable";
	}
}

static const char *
ended_name(Ended ended)
{
	switch (ended)
	{
		case ENDED_COMMIT:
			return "commit";
		case ENDED_ABORT:
			return "abort";
		case ENDED_TERMINATED:
			return "terminated";
		case ENDED_PREPARE:
			return "prepare";
		case ENDED_COMMIT_PREPARED:
			return "commit prepared";
		case ENDED_ROLLBACK_PREPARED:
			return "rollback prepared";
	}
	return "unknown";
}

/* A record as columns, in the order of hindcast.take's. */
static void
show_record(char *bytes, int64 epoch, Datum *values, bool *nulls)
{
	TransactionRecord *record = (TransactionRecord *) bytes;
	char	   *note = bytes + sizeof(TransactionRecord);
	Draw	   *draws = (Draw *) (note + record->notes_length);
	SubXid	   *subxids = (SubXid *) (draws + record->draws);
	char	   *gid = (char *) (subxids + record->subxids);

	memset(nulls, 0, TAKE_COLUMNS * sizeof(bool));
	values[0] = Int64GetDatum(epoch);
	values[1] = Int64GetDatum((int64) record->lost);
	values[2] = ObjectIdGetDatum(record->database);
	values[3] = Int32GetDatum(record->pid);
	values[4] = TimestampTzGetDatum(record->backend_start);
	values[5] = CStringGetTextDatum(GetBackendTypeDesc((BackendType) record->backend_type));
	values[6] = Int64GetDatum((int64) record->ordinal);
	values[7] = FullTransactionIdGetDatum(record->xid);
	nulls[7] = !FullTransactionIdIsValid(record->xid);
	show_subxids(record, subxids, &values[8]);
	values[10] = CStringGetTextDatum(isolation_name(record->isolation));
	values[11] = TimestampTzGetDatum(record->started);
	values[12] = Int32GetDatum((int32) record->statements);
	show_notes(note, record->notes_length, &values[13]);
	values[17] = CStringGetTextDatum(ended_name((Ended) record->ended));
	values[18] = TimestampTzGetDatum(record->ended_at);
	values[19] = LSNGetDatum(record->end_lsn);
	nulls[19] = record->end_lsn == InvalidXLogRecPtr;
	nulls[20] = record->gid_length == 0;
	if (!nulls[20])
		values[20] = PointerGetDatum(cstring_to_text_with_len(gid, record->gid_length));
	values[21] = Int32GetDatum((int32) record->left_out);
	values[22] = draw_texts(draws, record->draws);
}

static void
refuse_other_version(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("the extension in this database is not the version of its library, " HINDCAST_VERSION),
			 errhint("ALTER EXTENSION hindcast UPDATE")));
}

/* Makes this session one that takes records. */
static void
begin_taking(void)
{
	if (!ring_exists())
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("hindcast does not record: its library is not in shared_preload_libraries"),
				 errhint("Set shared_preload_libraries = 'hindcast' and restart the server.")));
	/* What a subtransaction took could not be put back alone. */
	if (IsSubTransaction())
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("hindcast.take cannot be called within a savepoint"),
				 errhint("Call it in the transaction itself.")));
	ring_claim();
}

/* A store for the rows of a function, as the executor expects it. */
static Tuplestorestate *
result_store(FunctionCallInfo fcinfo, TupleDesc *columns)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	MemoryContext previous;
	Tuplestorestate *store;

	if (result == NULL || !IsA(result, ReturnSetInfo) || !(result->allowedModes & SFRM_Materialize))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("hindcast.take is called where a set of rows cannot be returned"),
				 errhint("SELECT * FROM hindcast.take()")));
	previous = MemoryContextSwitchTo(result->econtext->ecxt_per_query_memory);
	if (get_call_result_type(fcinfo, NULL, columns) != TYPEFUNC_COMPOSITE ||
		(*columns)->natts != TAKE_COLUMNS)
		refuse_other_version();
	store = tuplestore_begin_heap(true, false, work_mem);
	result->returnMode = SFRM_Materialize;
	result->setResult = store;
	result->setDesc = *columns;
	MemoryContextSwitchTo(previous);
	return store;
}

Datum
hindcast_take(PG_FUNCTION_ARGS)
{
	int			most = PG_GETARG_INT32(0);
	TupleDesc	columns;
	Tuplestorestate *store = result_store(fcinfo, &columns);
	MemoryContext one_record;
	MemoryContext previous;
	int64		epoch;
	Size		length;

	begin_taking();
	epoch = ring_epoch();

	one_record = AllocSetContextCreate(CurrentMemoryContext, "hindcast record", ALLOCSET_DEFAULT_SIZES);
	previous = MemoryContextSwitchTo(one_record);
	while (most-- > 0 && (length = ring_peek()) > 0)
	{
		Datum		values[TAKE_COLUMNS];
		bool		nulls[TAKE_COLUMNS];
		char	   *bytes = palloc(length);

		ring_take(bytes, length);
		show_record(bytes, epoch, values, nulls);
		tuplestore_putvalues(store, columns, values, nulls);
		MemoryContextReset(one_record);
		CHECK_FOR_INTERRUPTS();
	}
	MemoryContextSwitchTo(previous);
	MemoryContextDelete(one_record);
	return (Datum) 0;
}

/*
 * Records as they are in the ring, for who reads very many: the layout's number, then each with its
 * length and whether a client of this database caused it.
 */
Datum
hindcast_take_binary(PG_FUNCTION_ARGS)
{
	Size		most = (Size) Max(PG_GETARG_INT32(0), 0);
	Datum		values[TAKE_BINARY_COLUMNS];
	bool		nulls[TAKE_BINARY_COLUMNS] = {false};
	TupleDesc	columns;
	StringInfoData taken;
	uint32		layout = HINDCAST_LAYOUT;
	Size		length;

	if (get_call_result_type(fcinfo, NULL, &columns) != TYPEFUNC_COMPOSITE ||
		columns->natts != TAKE_BINARY_COLUMNS)
		refuse_other_version();
	begin_taking();
	initStringInfo(&taken);
	appendStringInfoSpaces(&taken, VARHDRSZ);
	appendBinaryStringInfo(&taken, (char *) &layout, sizeof(layout));
	/* One is always taken: it may be longer than what was asked for. */
	for (bool first = true; (length = ring_peek()) > 0; first = false)
	{
		TransactionRecord *record;
		uint32		head[2] = {(uint32) length, 0};

		if (!first && taken.len + sizeof(head) + length > most)
			break;
		enlargeStringInfo(&taken, (int) (sizeof(head) + length));
		record = palloc(length);
		ring_take((char *) record, length);
		head[1] = record->database == MyDatabaseId && record->backend_type == B_BACKEND;
		appendBinaryStringInfo(&taken, (char *) head, sizeof(head));
		appendBinaryStringInfo(&taken, (char *) record, (int) length);
		pfree(record);
	}
	SET_VARSIZE(taken.data, taken.len);
	values[0] = Int64GetDatum(ring_epoch());
	values[1] = Int64GetDatum((int64) ring_left());
	values[2] = PointerGetDatum(taken.data);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(columns), values, nulls)));
}

Datum
hindcast_status(PG_FUNCTION_ARGS)
{
	Datum		values[STATUS_COLUMNS];
	bool		nulls[STATUS_COLUMNS];
	TupleDesc	columns;

	if (get_call_result_type(fcinfo, NULL, &columns) != TYPEFUNC_COMPOSITE ||
		columns->natts != STATUS_COLUMNS)
		refuse_other_version();
	memset(nulls, !ring_exists(), sizeof(nulls));
	values[0] = CStringGetTextDatum(HINDCAST_VERSION);
	nulls[0] = false;
	if (ring_exists())
	{
		RingStatus	status = ring_status();
		Elements	readers = elements(RING_READERS);

		values[1] = Int64GetDatum(status.epoch);
		values[2] = Int64GetDatum(status.size);
		values[3] = Int64GetDatum(status.used);
		values[4] = Int64GetDatum(status.records);
		values[5] = Int64GetDatum(status.lost);
		for (int i = 0; i < status.reader_count; i++)
			add(&readers, Int32GetDatum(status.readers[i]));
		values[6] = int4_array(readers);
	}
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(columns), values, nulls)));
}
