/*
 * The ring in shared memory: many backends write, one session reads.
 *
 * Positions only grow; a byte's place is its position modulo the ring's size. A writer reserves
 * room by moving `written_to`, copies its record there, and then stores the length in the record's
 * first word, which was zero until then. The reader stops at a zero. What it has taken it fills
 * with zeros again before it moves `read_to`, which gives the room back.
 *
 * Between reserving and storing the length nothing can throw or be interrupted. A process that is
 * killed there leaves a hole, and takes the whole server through a restart, in which the ring is
 * made anew.
 */
#include "hindcast.h"

#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/ipc.h"
#include "storage/shmem.h"

#define CACHE_LINE 128

typedef struct Ring
{
	int64		epoch;			/* when it was made */
	uint64		size;
	pg_atomic_uint32 reader;	/* process, or 0 */
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

/* The reader's: whether it is this session, and up to where its transaction has taken. */
static bool claimed = false;
static uint64 taken_to = 0;

Size
ring_shmem_size(void)
{
	return add_size(MAXALIGN(offsetof(Ring, bytes)), mul_size(ring_size_kb, 1024));
}

/* Called with AddinShmemInitLock held. */
void
ring_startup(void)
{
	bool		found;

	ring = ShmemInitStruct("hindcast", ring_shmem_size(), &found);
	if (found)
		return;
	memset(ring, 0, ring_shmem_size());
	ring->epoch = GetCurrentTimestamp();
	ring->size = (uint64) ring_size_kb * 1024;
	pg_atomic_init_u32(&ring->reader, 0);
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
	status.reader = (int) pg_atomic_read_u32(&ring->reader);
	return status;
}

static void
release(int code, Datum argument)
{
	pg_atomic_write_u32(&ring->reader, 0);
}

/* Makes this session the reader, until it ends. */
void
ring_claim(void)
{
	uint32		nobody = 0;

	if (claimed)
		return;
	if (!pg_atomic_compare_exchange_u32(&ring->reader, &nobody, (uint32) MyProcPid))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("process %u takes hindcast's records already", nobody),
				 errdetail("A record is given to one session only."),
				 errhint("Stop the recorder that this process belongs to, or SELECT pg_terminate_backend(%u).",
						 nobody)));
	before_shmem_exit(release, (Datum) 0);
	claimed = true;
	taken_to = pg_atomic_read_u64(&ring->read_to);
}

bool
ring_claimed_here(void)
{
	return claimed;
}

/* Bytes that the reader has not taken, those that are still being written included. */
Size
ring_left(void)
{
	return pg_atomic_read_u64(&ring->written_to) - taken_to;
}

/* The length of the next record, or 0. Only for the reader. */
Size
ring_peek(void)
{
	uint32		length;

	if (taken_to == pg_atomic_read_u64(&ring->written_to))
		return 0;
	length = head_at(taken_to)->length;
	pg_read_barrier();
	return length == 0 ? 0 : length - sizeof(RecordHead);
}

/* Copies the next record, of this length, and moves on. */
void
ring_take(char *into, Size length)
{
	uint64		from = taken_to + sizeof(RecordHead);
	Size		first = first_part(from, length);

	memcpy(into, &ring->bytes[from % ring->size], first);
	memcpy(into + first, ring->bytes, length - first);
	taken_to += MAXALIGN(sizeof(RecordHead) + length);
}

/* The reader's transaction has ended: what it took is given up, or stays to be taken again. */
void
ring_taken(bool committed)
{
	uint64		read_to = pg_atomic_read_u64(&ring->read_to);
	Size		length = taken_to - read_to;
	Size		first = first_part(read_to, length);

	if (!committed)
	{
		taken_to = read_to;
		return;
	}
	memset(&ring->bytes[read_to % ring->size], 0, first);
	memset(ring->bytes, 0, length - first);
	pg_write_barrier();
	pg_atomic_write_u64(&ring->read_to, taken_to);
}
