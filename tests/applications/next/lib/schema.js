import { integer, pgTable, serial, text, timestamp } from 'drizzle-orm/pg-core';

export const people = pgTable('people', {
  id: serial('id').primaryKey(),
  name: text('name').notNull().unique(),
  password: text('password').notNull(),
});

export const notes = pgTable('notes', {
  id: serial('id').primaryKey(),
  owner: integer('owner').notNull().references(() => people.id),
  title: text('title').notNull(),
  status: text('status').notNull().default('draft'),
  created: timestamp('created', { withTimezone: true }).notNull().defaultNow(),
  changed: timestamp('changed', { withTimezone: true }),
});

export const tags = pgTable('tags', {
  name: text('name').primaryKey(),
  uses: integer('uses').notNull(),
});
