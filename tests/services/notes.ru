# Notes of people who log in: Puma with threads, each with a connection of its own while it has work, at READ COMMITTED.
#
#     puma notes.ru        the database is in DATABASE_URL
#
# POST /login/NAME makes a session, whose token is a cookie, and answers with what writing takes. POST /note/TEXT writes a note, and GET /notes
# lists them, for who has a session that has not expired.
require "active_support"
require "active_support/notifications"
require "json"
require "openssl"
require "pg"
require "securerandom"

LIFETIME = Float(ENV["LIFETIME"])
IDLE = Queue.new
FORMAT = "%Y-%m-%d %H:%M:%S.%6N%z"

def connected
  connection = begin
    IDLE.pop(true)
  rescue ThreadError
    PG.connect(ENV["DATABASE_URL"])
  end
  yield connection
ensure
  IDLE << connection if connection
end

def session_of(connection, env)
  token = env["HTTP_COOKIE"].to_s[/session=([^;]+)/, 1]
  select = "SELECT person, csrf FROM session WHERE token = $1 AND expires > $2"
  connection.exec_params(select, [token, Time.now.strftime(FORMAT)]).first
end

def log_in(name)
  token, csrf = SecureRandom.urlsafe_base64(24), OpenSSL::Random.random_bytes(8).unpack1("H*")
  expires = Time.now + LIFETIME
  insert = "INSERT INTO session (token, csrf, person, expires) VALUES ($1, $2, $3, $4)"
  connected { |c| c.exec_params(insert, [token, csrf, name, expires.strftime(FORMAT)]) }
  answer({ csrf: csrf, until: expires.to_f }, "set-cookie" => "session=#{token}")
end

def write(text, env)
  note, number = SecureRandom.uuid, nil
  written = connected do |connection|
    connection.transaction do
      session = session_of(connection, env)
      next false unless session && session["csrf"] == env["HTTP_X_CSRF"]
      number = connection.exec("UPDATE counter SET n = n + 1 RETURNING n").first["n"]
      insert = "INSERT INTO note (id, person, text, number, written) VALUES ($1, $2, $3, $4, $5)"
      connection.exec_params(insert, [note, session["person"], text, number, Time.now.strftime(FORMAT)])
    end
  end
  return [401, {}, []] unless written
  answer({ note: note, number: number, at: Time.now.to_r.to_s, lots: lots })
end

# Of all that draw: of the system, and of the generator that all threads share. As in Rails, a thread draws an id when it is first measured.
def lots
  ActiveSupport::Notifications.subscribed(proc {}, "lots") { ActiveSupport::Notifications.instrument("lots") {} }
  order = (1..9).to_a
  [SecureRandom.random_number, SecureRandom.rand(9), rand, rand(9), Kernel.rand(1..9), Random.rand(1.0), Random.bytes(2).unpack1("S"),
   Random.random_number(9), Random.new.rand(9), order.shuffle, order.sample, order.sample(2)]
end

def notes(env)
  connected do |connection|
    session = session_of(connection, env)
    next [401, {}, []] unless session
    select = "SELECT id, text, number, written FROM note WHERE person = $1 ORDER BY number"
    answer(connection.exec_params(select, [session["person"]]).to_a)
  end
end

def answer(what, headers = {})
  [200, { "content-type" => "application/json" }.merge(headers), [JSON.generate(what)]]
end

run(lambda do |env|
  what, text = env["PATH_INFO"].delete_prefix("/").split("/")
  case what
  when "login" then log_in(text)
  when "note" then write(text, env)
  else notes(env)
  end
end)
