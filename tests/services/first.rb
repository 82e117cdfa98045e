# What the first request needs, the others find: a cache of the process, which looks at the time for each.
#
#     first.rb PORT [filled]
#
# Each request is answered with a time of its own. With `filled` the cache is full from the beginning.
require "socket"

CACHE = {}

def fill
  return unless CACHE.empty?

  CACHE[:filled] = Time.now
  CACHE[:again] = Process.clock_gettime(Process::CLOCK_REALTIME)
end

def answer
  fill
  "#{Time.now.to_f} #{Process.clock_gettime(Process::CLOCK_REALTIME)}"
end

def serve(client)
  while (line = client.gets)
    line = client.gets until line == "\r\n"
    text = answer
    client.write("HTTP/1.1 200 OK\r\nContent-Length: #{text.bytesize}\r\n\r\n#{text}")
  end
end

fill if ARGV.include?("filled")
server = TCPServer.new("127.0.0.1", Integer(ARGV[0]))
loop { Thread.new(server.accept) { |client| serve(client) } }
