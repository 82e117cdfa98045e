import { desc, eq, sql } from 'drizzle-orm';
import { NextResponse } from 'next/server';
import { database } from '../../../lib/database';
import { notes, people, tags } from '../../../lib/schema';
import { session } from '../../../lib/session';

// The change of one line: how many notes a list has.
const LIST = process.env.CHANGED ? 5 : 20;

export async function GET(request) {
  const { person } = await session();
  if (!person) {
    return NextResponse.json({ error: 'Nobody has logged in.' }, { status: 401 });
  }
  const newest = request.nextUrl.searchParams.get('sort') === 'newest';
  const list = await database
    .select({ id: notes.id, title: notes.title, status: notes.status, created: notes.created, by: people.name })
    .from(notes)
    .innerJoin(people, eq(notes.owner, people.id))
    .orderBy(newest ? desc(notes.id) : notes.title, notes.id)
    .limit(LIST);
  return NextResponse.json(list);
}

export async function POST(request) {
  const { person } = await session();
  if (!person) {
    return NextResponse.json({ error: 'Nobody has logged in.' }, { status: 401 });
  }
  const { title, tag } = await request.json();
  const note = await database.transaction(async (transaction) => {
    const [added] = await transaction.insert(notes).values({ owner: person.id, title }).returning();
    await transaction
      .insert(tags)
      .values({ name: tag, uses: 1 })
      .onConflictDoUpdate({ target: tags.name, set: { uses: sql`${tags.uses} + 1` } });
    return added;
  });
  return NextResponse.json(note, { status: 201 });
}
