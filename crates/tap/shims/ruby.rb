# Tells the tap which request a thread of Puma works on: loaded by `ruby -r`. Puma's reactor reads
# requests that come in several pieces, and a thread of its pool answers. Other servers are known
# without. Without the tap it does nothing.
module HindcastTurns
  RESERVED = 0x48494e44
  NOBODY = ("\0" * 8).b.freeze

  # In front of Puma's own.
  module Server
    private

    def handle_request(client, *arguments)
      HindcastTurns.tell(HindcastTurns.request_of(client))
      super
    ensure
      HindcastTurns.tell(NOBODY)
    end
  end

  class << self
    # Whether there is somebody to tell.
    def begin
      require "fiddle"
      size, place, number = Fiddle::TYPE_SIZE_T, Fiddle::TYPE_VOIDP, Fiddle::TYPE_INT
      @pread = function("pread", [number, place, size, Fiddle::TYPE_LONG])
      @write = function("write", [number, place, size])
      @pread.call(RESERVED, NOBODY.dup, 8, 0) == 8
    rescue LoadError, StandardError
      false
    end

    # The number of the request that came by a client's connection.
    def request_of(client)
      number = NOBODY.dup
      @pread.call(RESERVED, number, 8, client.to_io.fileno)
      number
    rescue StandardError
      NOBODY
    end

    def tell(number)
      @write.call(RESERVED, number, 8)
    end

    private

    def function(name, arguments)
      address = Fiddle::Handle::DEFAULT[name]
      Fiddle::Function.new(address, arguments, Fiddle::TYPE_LONG, need_gvl: true)
    end
  end

  # A thread of Ruby may change the thread it runs on where it is asked for.
  if RUBY_ENGINE == "ruby" && ENV["RUBY_MN_THREADS"] != "1"
    WATCH = TracePoint.new(:end) do |point|
      if Module.instance_method(:name).bind(point.self).call == "Puma::Server"
        WATCH.disable
        ::Puma::Server.prepend(Server) if HindcastTurns.begin
      end
    end
    WATCH.enable
  end
end
