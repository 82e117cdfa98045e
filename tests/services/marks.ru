# Every request writes rows with its own name: Puma, whose reactor reads requests that come in pieces, and threads that answer. Nothing
# here knows of tracing.
#
#     puma marks.ru        the database is in DATABASE_URL
require "pg"

# Whoever needs a connection takes one that is free, or makes one.
idle = Queue.new

run(lambda do |env|
  name = env["PATH_INFO"].split("/").last
  connection = begin
    idle.pop(true)
  rescue ThreadError
    PG.connect(ENV["DATABASE_URL"])
  end
  connection.transaction do
    2.times { |step| connection.exec_params("INSERT INTO mark VALUES ($1, $2)", [name, step]) }
  end
  idle << connection
  [200, { "content-type" => "text/plain" }, [name]]
end)
