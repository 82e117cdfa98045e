import { getIronSession } from 'iron-session';
import { cookies } from 'next/headers';

/** Who has logged in, in an encrypted cookie. */
export function session() {
  return getIronSession(cookies(), {
    cookieName: 'session',
    password: process.env.SESSION_SECRET,
    cookieOptions: { secure: false },
  });
}
