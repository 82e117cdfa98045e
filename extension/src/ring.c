/*
 * The ring in shared memory: many backends write, a few sessions read, each of them everything.
 *
 * Positions only grow; a byte's place is its position modulo the ring's size. A writer reserves
 * room by moving `written_to`, copies its record there, and then stores the length in the record's
 * first word, which was zero until then. Readers stop at a zero. What the last of them has taken is
 * filled with zeros again before `read_to` is moved, which gives the room back.
 *
 * Readers take turns by a lock, which no writer takes. One that lets more than half of the ring
 * wait for it while another goes on is left behind, and told so.
 *
 * Between reserving and storing the length nothing can throw or be interrupted. A process that is
 * killed there leaves a hole, and takes the whole server through a restart, in which the ring is
 * made anew.
 */
#include "hindcast.h"

#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"

#define CACHE_LINE 128

/* A session that reads. Changed under the lock. */
typedef struct Reader
{
	int			pid;			/* 0: nobody */
	bool		left_behind;
	uint64		read_to;		/* what it has taken in transactions that committed */
} Reader;

typedef struct Ring
{
	int64		epoch;			/* when it was made */
	uint64		size;
	Reader		readers[RING_READERS];
	char		pad0[CACHE_LINE];
	pg_atomic_uint64 written_to;
	pg_atomic_uint64 records;
	char		pad1[CACHE_LINE];
	pg_atomic_uint64 read_to;
	pg_atomic_uint64 lost;
	char		pad2[CACHE_LINE];
	char		bytes[FLEXIBLE_ARRAY_MEMBER];
} Ring;

/* Before each record. */
typedef struct RecordHead
{
	volatile uint32 length;		/* this included; 0: not there yet */
	uint32		unused;
} RecordHead;

int			ring_size_kb = 16 * 1024;

static Ring *ring = NULL;
static LWLock *readers_lock = NULL;

/* This session as a reader, if it is one, and up to where its transaction has taken. */
static Reader *self = NULL;
static uint64 taken_to = 0;

static Size
shmem_size(void)
{
	return add_size(MAXALIGN(offsetof(Ring, bytes)), mul_size(ring_size_kb, 1024));
}

/* Before ring_startup, while the server asks how much it is to share. */
void
ring_request(void)
{
	RequestAddinShmemSpace(shmem_size());
	RequestNamedLWLockTranche("hindcast", 1);
}

/* Called with AddinShmemInitLock held. */
void
ring_startup(void)
{
	bool		found;

	ring = ShmemInitStruct("hindcast", shmem_size(), &found);
	readers_lock = &GetNamedLWLockTranche("hindcast")->lock;
	if (found)
		return;
	memset(ring, 0, shmem_size());
	ring->epoch = GetCurrentTimestamp();
	ring->size = (uint64) ring_size_kb * 1024;
	pg_atomic_init_u64(&ring->written_to, 0);
	pg_atomic_init_u64(&ring->records, 0);
	pg_atomic_init_u64(&ring->read_to, 0);
	pg_atomic_init_u64(&ring->lost, 0);
}

bool
ring_exists(void)
{
	return ring != NULL;
}

static RecordHead *
head_at(uint64 position)
{
	return (RecordHead *) &ring->bytes[position % ring->size];
}

/* The part of a stretch that lies before the end of the memory. */
static Size
first_part(uint64 position, Size length)
{
	return Min(length, ring->size - position % ring->size);
}

/* Copies to this place, which goes on at the beginning: the place behind. */
static Size
copy_in(Size place, const char *bytes, Size length)
{
	Size		first = Min(length, ring->size - place);

	memcpy(&ring->bytes[place], bytes, first);
	if (first == length)
		return place + length;
	memcpy(ring->bytes, bytes + first, length - first);
	return length - first;
}

/* Writes a record, or counts it as lost if there is no room. */
void
ring_write(const RingPart *parts, int count)
{
	Size		length = sizeof(RecordHead);
	uint64		start;
	RecordHead *head;
	Size		place;

	for (int i = 0; i < count; i++)
		length += parts[i].length;

	start = pg_atomic_read_u64(&ring->written_to);
	do
	{
		uint64		used = start - pg_atomic_read_u64(&ring->read_to);

		/* The end of a record is aligned as its beginning, so heads are never split. */
		if (MAXALIGN(length) > ring->size - used)
		{
			pg_atomic_fetch_add_u64(&ring->lost, 1);
			return;
		}
	} while (!pg_atomic_compare_exchange_u64(&ring->written_to, &start, start + MAXALIGN(length)));

	head = head_at(start);
	place = (char *) (head + 1) - ring->bytes;
	for (int i = 0; i < count; i++)
	{
		if (parts[i].length > 0)
			place = copy_in(place, parts[i].bytes, parts[i].length);
	}
	pg_write_barrier();
	head->length = (uint32) length;
	pg_atomic_fetch_add_u64(&ring->records, 1);
}

uint64
ring_lost(void)
{
	return pg_atomic_read_u64(&ring->lost);
}

int64
ring_epoch(void)
{
	return ring->epoch;
}

RingStatus
ring_status(void)
{
	RingStatus	status;
	uint64		read_to = pg_atomic_read_u64(&ring->read_to);

	pg_read_barrier();
	status.epoch = ring->epoch;
	status.size = (int64) ring->size;
	status.used = (int64) (pg_atomic_read_u64(&ring->written_to) - read_to);
	status.records = (int64) pg_atomic_read_u64(&ring->records);
	status.lost = (int64) pg_atomic_read_u64(&ring->lost);
	status.reader_count = 0;
	LWLockAcquire(readers_lock, LW_SHARED);
	for (int i = 0; i < RING_READERS; i++)
	{
		if (ring->readers[i].pid != 0)
			status.readers[status.reader_count++] = ring->readers[i].pid;
	}
	LWLockRelease(readers_lock);
	return status;
}

/* Gives back the room of what all readers have taken. Called with the lock held. */
static void
give_back(void)
{
	uint64		read_to = pg_atomic_read_u64(&ring->read_to);
	uint64		written_to = pg_atomic_read_u64(&ring->written_to);
	uint64		least = written_to;
	uint64		most = read_to;
	bool		anybody = false;
	Size		length;
	Size		first;

	for (int i = 0; i < RING_READERS; i++)
	{
		if (ring->readers[i].pid != 0)
			most = Max(most, ring->readers[i].read_to);
	}
	for (int i = 0; i < RING_READERS; i++)
	{
		Reader	   *reader = &ring->readers[i];

		if (reader->pid == 0 || reader->left_behind)
			continue;
		if (reader->read_to < most && written_to - reader->read_to > ring->size / 2)
		{
			reader->left_behind = true;
			continue;
		}
		anybody = true;
		least = Min(least, reader->read_to);
	}
	if (!anybody)
		return;
	length = least - read_to;
	first = first_part(read_to, length);
	memset(&ring->bytes[read_to % ring->size], 0, first);
	memset(ring->bytes, 0, length - first);
	pg_write_barrier();
	pg_atomic_write_u64(&ring->read_to, least);
}

static void
release(int code, Datum argument)
{
	LWLockAcquire(readers_lock, LW_EXCLUSIVE);
	self->pid = 0;
	give_back();
	LWLockRelease(readers_lock);
	self = NULL;
}

/* Makes this session a reader, until it ends. */
void
ring_claim(void)
{
	Reader	   *mine = NULL;

	if (self != NULL)
		return;
	LWLockAcquire(readers_lock, LW_EXCLUSIVE);
	for (int i = 0; i < RING_READERS && mine == NULL; i++)
	{
		if (ring->readers[i].pid == 0)
			mine = &ring->readers[i];
	}
	if (mine != NULL)
	{
		mine->pid = MyProcPid;
		mine->left_behind = false;
		mine->read_to = pg_atomic_read_u64(&ring->read_to);
	}
	LWLockRelease(readers_lock);
	if (mine == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("%d sessions take hindcast's records already", RING_READERS),
				 errhint("SELECT readers FROM hindcast.status() shows their processes. Stop a recorder.")));
	self = mine;
	taken_to = mine->read_to;
	before_shmem_exit(release, (Datum) 0);
}

bool
ring_claimed_here(void)
{
	return self != NULL;
}

/* Bytes that this reader has not taken, those that are still being written included. */
Size
ring_left(void)
{
	return pg_atomic_read_u64(&ring->written_to) - taken_to;
}

/*
 * While the lock is held after this, what this reader has not taken stays. One that was left behind
 * is none any more when its session takes again.
 */
static void
keep_readers(void)
{
	LWLockAcquire(readers_lock, LW_SHARED);
	if (!self->left_behind)
		return;
	LWLockRelease(readers_lock);
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("hindcast's records went on without this session"),
			 errdetail("More than half of the ring waited for it while another session took records."),
			 errhint("Take oftener, or raise hindcast.ring_size. A new session begins with what is there now.")));
}

/* The length of the next record, or 0. Only for a reader. */
Size
ring_peek(void)
{
	uint32		length = 0;

	keep_readers();
	if (taken_to != pg_atomic_read_u64(&ring->written_to))
		length = head_at(taken_to)->length;
	pg_read_barrier();
	LWLockRelease(readers_lock);
	return length == 0 ? 0 : length - sizeof(RecordHead);
}

/* Copies the next record, of this length, and moves on. */
void
ring_take(char *into, Size length)
{
	uint64		from = taken_to + sizeof(RecordHead);
	Size		first = first_part(from, length);

	keep_readers();
	memcpy(into, &ring->bytes[from % ring->size], first);
	memcpy(into + first, ring->bytes, length - first);
	LWLockRelease(readers_lock);
	taken_to += MAXALIGN(sizeof(RecordHead) + length);
}

/* The reader's transaction has ended: what it took is given up, or stays to be taken again. */
void
ring_taken(bool committed)
{
	if (!committed)
		taken_to = self->read_to;
	if (taken_to == self->read_to)
		return;
	LWLockAcquire(readers_lock, LW_EXCLUSIVE);
	self->read_to = taken_to;
	give_back();
	LWLockRelease(readers_lock);
}
