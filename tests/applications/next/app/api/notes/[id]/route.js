import { and, eq } from 'drizzle-orm';
import { NextResponse } from 'next/server';
import { database } from '../../../../lib/database';
import { notes } from '../../../../lib/schema';
import { session } from '../../../../lib/session';

/** Finds the note of somebody who has logged in, and does something with it. */
async function own(params, act) {
  const { person } = await session();
  const [note] = await act(and(eq(notes.id, Number(params.id)), eq(notes.owner, person?.id ?? 0)));
  return note ? NextResponse.json(note) : NextResponse.json({ error: 'There is no such note.' }, { status: 404 });
}

export async function GET(request, { params }) {
  return own(params, (which) => database.select().from(notes).where(which));
}

export async function PATCH(request, { params }) {
  const { title, status } = await request.json();
  const values = { title, status, changed: new Date() };
  return own(params, (which) => database.update(notes).set(values).where(which).returning());
}

export async function DELETE(request, { params }) {
  return own(params, (which) => database.delete(notes).where(which).returning());
}
