import { desc, eq } from 'drizzle-orm';
import { redirect } from 'next/navigation';
import { database } from '../../lib/database';
import { notes, tags } from '../../lib/schema';
import { session } from '../../lib/session';

export default async function Page() {
  const { person } = await session();
  if (!person) {
    redirect('/login');
  }
  const [own, used] = await Promise.all([
    database.select().from(notes).where(eq(notes.owner, person.id)).orderBy(desc(notes.id)).limit(20),
    database.select().from(tags).orderBy(desc(tags.uses), tags.name),
  ]);
  return (
    <main>
      <h1>Notes of {person.name}</h1>
      <ul>
        {own.map((note) => (
          <li key={note.id}>
            {note.title} ({note.status}, {note.created.toISOString()})
          </li>
        ))}
      </ul>
      <p>{used.map((tag) => `${tag.name}: ${tag.uses}`).join(', ')}</p>
    </main>
  );
}
