# What a request draws and reads of the clock while work that it has posted does so, too, and a thread
# that it has started.
#
#     puma apart.ru
require "concurrent"
require "json"
require "securerandom"

POOL = Concurrent::FixedThreadPool.new(2)

def drawn(times: 30)
  Array.new(times) do
    sleep 0.0005
    [SecureRandom.hex(4), rand(1_000_000), Time.now.to_f]
  end
end

run(lambda do |_|
  apart = Queue.new
  POOL.post { apart << drawn }
  started = Thread.new(times: 20) { |times:| drawn(times: times) }
  own = drawn
  [200, { "content-type" => "application/json" }, [JSON.generate([own, apart.pop, started.value])]]
end)
