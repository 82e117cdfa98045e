// Every request writes rows with its own name: Bun's own server, by routes and by one function, and a pool of `pg` that is smaller
// than the load. Answers say what is drawn and read of the clock. Nothing here knows of tracing.
//
//     bun marks_bun.ts PORT        the database is in DATABASE_URL
import { randomBytes } from 'node:crypto'
import { Pool } from 'pg'

const pool = new Pool({ connectionString: process.env.DATABASE_URL, max: 3 })
const INSERT = 'INSERT INTO mark VALUES ($1, $2)'

async function transaction(name: string) {
  const client = await pool.connect()
  try {
    await client.query('BEGIN')
    await client.query(INSERT, [name, 1])
    await Bun.sleep(1)
    await client.query(INSERT, [name, 2])
    await client.query('COMMIT')
  } finally {
    client.release()
  }
}

async function answer(name: string) {
  const drawn = [crypto.randomUUID(), Bun.randomUUIDv7(), randomBytes(8).toString('hex'), Math.random(), Date.now(), new Date()]
  // Two at a time are hashed in other threads.
  const salted = ['bcrypt', 'argon2id'].map(name => Bun.password.hash('secret', options(name)))
  return Response.json({ name, drawn, salted: await Promise.all(salted) })
}

function options(algorithm: string) {
  return algorithm === 'bcrypt' ? { algorithm, cost: 4 } : { algorithm, memoryCost: 1024, timeCost: 1 }
}

const server = Bun.serve({
  port: Number(process.argv[2]),
  hostname: '127.0.0.1',
  routes: {
    '/routed/:name': {
      async POST(request) {
        await transaction(request.params.name)
        return answer(request.params.name)
      },
    },
    '/several/:name': async request => {
      const { name } = request.params
      await Promise.all([1, 2].map(step => pool.query(INSERT, [name, step])))
      return answer(name)
    },
  },
  async fetch(request) {
    const name = new URL(request.url).pathname.split('/').pop()!
    await request.text()
    await transaction(name)
    return answer(name)
  },
})
process.on('SIGINT', () => server.stop().then(() => process.exit()))
