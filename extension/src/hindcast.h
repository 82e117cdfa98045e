/*
 * hindcast: what every transaction saw and drew.
 *
 *	 ExecutorStart ──▶ snapshot.c ──┐
 *	 ProcessUtility ────────────────┤
 *	 nextval(), random() … ▶ draw.c ┤
 *	 lo_open(), lo_creat() ▶ large.c┼──▶ transaction.c ──▶ ring.c ──▶ sql.c: hindcast.take()
 *	 transaction callbacks ─────────┘
 *
 * impose.c is the other direction: a statement runs with a snapshot that somebody else took.
 *
 * Start reading at transaction.c. The invariant to keep: a backend never waits for the ring, and
 * no failure to record is an error. What cannot be recorded is counted.
 */
#ifndef HINDCAST_H
#define HINDCAST_H

#include "postgres.h"

#include "access/transam.h"
#include "executor/execdesc.h"
#include "nodes/nodes.h"
#include "utils/fmgrtab.h"
#include "utils/guc.h"
#include "utils/snapshot.h"
#include "utils/timestamp.h"

#define HINDCAST_VERSION "1.2"

/* hindcast.c */

extern int	statement_depth(void);

/* ring.c */

/* Sessions that can read at a time. */
#define RING_READERS 16

/* A stretch of bytes of a record. */
typedef struct RingPart
{
	const void *bytes;
	Size		length;
} RingPart;

typedef struct RingStatus
{
	int64		epoch;
	int64		size;
	int64		used;
	int64		records;
	int64		lost;
	int			reader_count;
	int			readers[RING_READERS];
} RingStatus;

extern int	ring_size_kb;

extern void ring_request(void);
extern void ring_startup(void);
extern bool ring_exists(void);
extern void ring_write(const RingPart *parts, int count);
extern uint64 ring_lost(void);
extern int64 ring_epoch(void);
extern RingStatus ring_status(void);
extern void ring_claim(void);
extern bool ring_claimed_here(void);
extern Size ring_left(void);
extern Size ring_peek(void);
extern void ring_take(char *into, Size length);
extern void ring_taken(bool committed);

/* transaction.c */

/* In records, so a number is never given another meaning. */
typedef enum Ended
{
	ENDED_COMMIT,
	ENDED_ABORT,
	ENDED_TERMINATED,
	ENDED_PREPARE,
	ENDED_COMMIT_PREPARED,
	ENDED_ROLLBACK_PREPARED
} Ended;

/* Of records, notes and what they hold, as hindcast.take_binary() gives them away. */
#define HINDCAST_LAYOUT 4

/*
 * A record in the ring: this, then the notes, then what was drawn, then the subtransactions, then
 * the name of a prepared transaction without a terminating zero.
 */
typedef struct TransactionRecord
{
	FullTransactionId xid;
	uint64		ordinal;
	uint64		lost;
	TimestampTz backend_start;
	TimestampTz started;
	TimestampTz ended_at;
	XLogRecPtr	end_lsn;
	Oid			database;
	int32		pid;
	uint32		statements;
	uint32		left_out;
	uint32		notes_length;
	uint32		draws;
	uint32		subxids;
	uint8		backend_type;
	uint8		isolation;
	uint8		ended;
	uint8		gid_length;
} TransactionRecord;

typedef struct SubXid
{
	TransactionId xid;
	SubTransactionId id;
	uint32		aborted;
} SubXid;

extern bool recording_enabled;
extern char *recorded_databases;

extern void transaction_init(void);
extern bool databases_check(char **newval, void **extra, GucSource source);
extern void databases_assign(const char *newval, void *extra);
extern bool transaction_is_noted(void);
extern void transaction_statement(void);
extern uint32 transaction_statements(void);
extern uint64 transaction_ordinal(void);
extern void transaction_left_out(void);
extern void transaction_prepared(Ended how, const char *gid);

/* snapshot.c */

/* What is noted about a statement. Its length is a multiple of eight. */
typedef enum NoteKind
{
	NOTE_SNAPSHOT,
	NOTE_RECHECK
} NoteKind;

/* Whose a snapshot is. Of rechecks it says nothing. In records as well. */
typedef enum NotePlace
{
	PLACE_OWN,					/* the statement's */
	PLACE_NESTED,				/* of something within the statement, or behind it */
	PLACE_BEHIND				/* what could be seen when it was through: that is what decided */
} NotePlace;

typedef struct Note
{
	uint32		statement;
	uint8		kind;
	uint8		place;
	uint16		unused;
} Note;

/* A note of this kind goes on with this, and with so many ids. */
typedef struct SnapshotNote
{
	Note		note;
	FullTransactionId xmin;
	FullTransactionId xmax;
	uint64		count;
	TransactionId running[FLEXIBLE_ARRAY_MEMBER];
} SnapshotNote;

#define SNAPSHOT_NOTE_LENGTH(count) \
	MAXALIGN(offsetof(SnapshotNote, running) + (count) * sizeof(TransactionId))

extern FullTransactionId full_xid(TransactionId xid);
extern void note_snapshot(Snapshot snapshot, NotePlace place);
extern void note_nested_snapshot(Snapshot snapshot);
extern void note_recheck(void);
extern void note_rollback(void);
extern void note_failure(bool waited);
extern RingPart notes(void);
extern void forget_notes(void);
extern void *grown(void *bytes, Size *room, Size needed);

/* draw.c */

/* In records, so a number is never given another meaning. */
typedef enum DrawKind
{
	DRAW_NEXTVAL,
	DRAW_CLOCK,
	DRAW_RANDOM,
	DRAW_UUID,
	DRAW_BYTES,					/* of more than there is room for there are several */
	DRAW_OBJECT					/* the number of a large object */
} DrawKind;

/* What a statement drew. */
typedef struct Draw
{
	uint32		statement;
	uint8		kind;
	uint8		undone;			/* with a savepoint, by the client */
	uint16		length;			/* of bytes */
	Oid			sequence;
	SubTransactionId subtransaction;
	union
	{
		struct
		{
			int64		first;
			int64		count;	/* so many consecutive ones */
		}			run;
		TimestampTz moment;
		float8		number;
		uint8		uuid[16];
		uint8		bytes[16];
		Oid			object;
	}			value;
} Draw;

extern void draws_init(void);
extern void note_nextval(Oid sequence, int64 value);
extern void note_object(Oid object);
extern void draws_undone(SubTransactionId id, bool by_client);
extern RingPart all_draws(void);
extern void forget_draws(void);

/* large.c */

extern bool large_replace(const FmgrBuiltin *builtin);

/* import.c */

extern bool write_read_only(void **at, void *address);
extern bool replace_import(const char *library, const char *symbol, void *by);

/* identity.c */

extern void identity_init(void);

/* recheck.c */

extern void recheck_watch(QueryDesc *query);
extern bool recheck_found(QueryDesc *query);
extern bool recheck_left_out(QueryDesc *query);
extern bool recheck_skips(QueryDesc *query);
extern TimestampTz last_wait(void);

/* impose.c */

extern char *imposed_snapshot;
extern bool imposed_snapshot_writes;
extern char *next_snapshot;

extern bool imposed_snapshot_check(char **newval, void **extra, GucSource source);
extern void imposed_snapshot_assign(const char *newval, void *extra);
extern void next_snapshot_assign(const char *newval, void *extra);
extern void impose_read_only(void);
extern void impose_snapshot(QueryDesc *query, bool clients);
extern bool impose_on_utility(Node *statement, bool clients);

#endif							/* HINDCAST_H */
