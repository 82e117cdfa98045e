'use server';

import bcrypt from 'bcryptjs';
import { eq } from 'drizzle-orm';
import { redirect } from 'next/navigation';
import { database } from '../../lib/database';
import { people } from '../../lib/schema';
import { session } from '../../lib/session';

export async function login(form) {
  const person = await database.query.people.findFirst({ where: eq(people.name, String(form.get('name'))) });
  if (!person || !(await bcrypt.compare(String(form.get('password')), person.password))) {
    redirect('/login?failed=1');
  }
  const own = await session();
  own.person = { id: person.id, name: person.name, since: Date.now() };
  await own.save();
  redirect('/notes');
}
