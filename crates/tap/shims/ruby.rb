# Tells the tap which request a thread of Puma works on: loaded by `ruby -r`. Puma's reactor reads
# requests that come in several pieces, and a thread of its pool answers. Other servers are known
# without. What Ruby's shared generator gives is each request's own. Without the tap it does nothing.
module HindcastTurns
  RESERVED = 0x48494e44
  NOBODY = ("\0" * 8).b.freeze
  # Bytes of a key.
  KEY = 32
  # How many connections a pool has to have room for; 0: as many as the service wants.
  CONNECTIONS = ENV["HINDCAST_POOL"].to_i
  # A folder of the replay's, and when the replayed period begins, in microseconds since 1970.
  FILES, UNTIL = ENV["HINDCAST_FILES"]&.match(/\A(.+):(-?\d+)\z/)&.captures
  # Of a thread: the request that it works on, and the generator that this has there.
  Turn = Struct.new(:request, :generator)

  # `rand` and `srand`, in front of Ruby's own. Who sets the seed gets Ruby's sequence from there on.
  module Numbers
    def rand(limit = 0)
      HindcastTurns.number(limit) { super(limit) }
    end

    def srand(*seed)
      HindcastTurns.is_seeded = !seed.empty?
      super
    end
  end

  # The same of `Random`, which takes no 0 and nothing negative, and the seeds of other generators.
  module StrictNumbers
    def rand(*arguments)
      generator = HindcastTurns.generator
      generator ? generator.rand(*arguments) : super
    end

    def new(*arguments)
      seed = HindcastTurns.seed if arguments.empty? && equal?(::Random)
      seed ? super(seed) : super
    end

    def new_seed
      HindcastTurns.seed || super
    end

    def bytes(count)
      generator = HindcastTurns.generator
      generator ? generator.bytes(count) : super
    end

    def random_number(*arguments)
      generator = HindcastTurns.generator
      generator ? generator.random_number(*arguments) : super
    end

    def srand(*seed)
      HindcastTurns.is_seeded = !seed.empty?
      super
    end
  end

  # Of arrays: they ask Ruby's generator unless another one is given.
  module Order
    %i[shuffle shuffle! sample].each do |name|
      define_method(name) do |*arguments, **options|
        generator = HindcastTurns.generator unless options.key?(:random)
        options = { random: generator } if generator
        super(*arguments, **options)
      end
    end
  end

  # In front of that of pools of threads (concurrent-ruby), by which Rails runs jobs in the background.
  # A thread that the pool starts for it is the pool's.
  module Executor
    def post(*arguments, &task)
      handed = HindcastTurns.handed_over(task)
      HindcastTurns.for_nobody { super(*arguments, &handed) }
    end
  end

  # Of threads: one that a request starts works for it, unless a library of Ruby's own does, which
  # starts a thread for a time limit.
  module Started
    OWN = RbConfig::CONFIG["rubylibdir"]

    %i[new start fork].each do |name|
      define_method(name) do |*arguments, &task|
        own = task&.source_location&.first&.start_with?(OWN)
        super(*arguments, &(own ? task : HindcastTurns.handed_over(task)))
      end
      ruby2_keywords(name)
    end
  end

  # Of those pools: in a replay tasks begin in another order, and one that must end first may be
  # behind those that wait for it. So each has a thread. A pool of one thread is there for the order.
  module Threads
    private

    def ns_add_busy_worker
      @max_length = self.class::DEFAULT_MAX_POOL_SIZE if CONNECTIONS > 0 && @max_length > 1
      super
    end
  end

  # Of Rails' pools of connections: in a replay more requests may hold one and wait than originally,
  # and what they wait for needs one.
  module Connections
    def checkout(*)
      @size = [@size, CONNECTIONS].max
      super
    end
  end

  # Of Sequel's, likewise.
  module SequelConnections
    def hold(*)
      @max_size = [@max_size, CONNECTIONS].max
      super
    end
  end

  # Of Rails' caches in files: those that the recorded service has put there are from later.
  module Files
    def cache_path
      @hindcast_path ||= HindcastTurns.own_folder(super)
    end
  end

  # Of Puma's threads, likewise: one of its processes has read a request, and all of its threads wait
  # for what that does.
  module Workers
    def <<(work)
      @max = [@max, CONNECTIONS].max
      super
    end
  end

  # In front of Rails' own. Each thread draws its id once, in the request that it first works on: in
  # a replay that may be another one, so it is not the request's.
  module Instrumenter
    private

    def unique_id
      HindcastTurns.out_of_turn { super() }
    end
  end

  # In front of Puma's own.
  module Server
    def run(*)
      HindcastTurns.pin_libraries
      super
    end

    private

    def handle_request(client, *arguments)
      HindcastTurns.in_turn(HindcastTurns.request_of(client)) { super }
    end
  end

  class << self
    # Whether the service has set the seed of Ruby's generator.
    attr_accessor :is_seeded

    # Of the request that the thread works on, if it does: made when the request first asks, since
    # its seed is drawn from the system.
    def generator
      turn = Thread.current.thread_variable_get(:hindcast_turn)
      turn.generator ||= Random.new(seed) if turn && !is_seeded
    end

    # What a request draws, or the process: Ruby's own has the number of the process in it, and an address.
    def seed
      Random.urandom(16).unpack("L*").inject { |all, more| all << 32 | more }
    end

    # Says whose turn this thread is while a block runs.
    def in_turn(request)
      thread = Thread.current
      before = thread.thread_variable_get(:hindcast_turn)
      tell(request)
      thread.thread_variable_set(:hindcast_turn, Turn.new(request)) if request != NOBODY
      yield
    ensure
      thread.thread_variable_set(:hindcast_turn, before)
      tell(before ? before.request : NOBODY)
    end

    # What a block draws is not the request's.
    def out_of_turn
      turn = Thread.current.thread_variable_get(:hindcast_turn)
      tell(NOBODY) if turn
      yield
    ensure
      tell(turn.request) if turn
    end

    # What a block starts is not the request's.
    def for_nobody
      thread = Thread.current
      turn = thread.thread_variable_get(:hindcast_turn)
      thread.thread_variable_set(:hindcast_turn, nil)
      yield
    ensure
      thread.thread_variable_set(:hindcast_turn, turn)
    end

    # A block that another thread calls, for the request that this one works on and apart from it: it
    # has a key of its own, which the request draws.
    def handed_over(task)
      turn = Thread.current.thread_variable_get(:hindcast_turn)
      return task unless turn && task

      apart = turn.request.byteslice(0, NOBODY.bytesize) + Random.urandom(KEY)
      ->(*arguments, **named) { HindcastTurns.in_turn(apart) { task.call(*arguments, **named) } }
    end

    # The application is loaded by then.
    def pin_libraries
      if defined?(::Concurrent::RubyExecutorService)
        ::Concurrent::RubyExecutorService.prepend(Executor)
        ::Concurrent::RubyThreadPoolExecutor.prepend(Threads)
      end
      if defined?(::ActiveRecord::ConnectionAdapters::ConnectionPool)
        ::ActiveRecord::ConnectionAdapters::ConnectionPool.prepend(Connections)
      end
      if defined?(::Sequel)
        %i[ThreadedConnectionPool TimedQueueConnectionPool].each do |name|
          ::Sequel.const_get(name).prepend(SequelConnections) if ::Sequel.const_defined?(name, false)
        end
      end
      if defined?(::ActiveSupport::Notifications::Instrumenter)
        ::ActiveSupport::Notifications::Instrumenter.prepend(Instrumenter)
      end
    end

    # The replay's, in the place of a folder of a cache, with what that had before the replayed period.
    def own_folder(path)
      %w[digest fileutils tmpdir].each { |library| require library }
      own = File.join(FILES, Digest::SHA256.hexdigest(File.expand_path(path)))
      return own if Dir.exist?(own)

      made = Dir.mktmpdir("cache", FILES)
      Dir.glob("[0-9A-F][0-9A-F][0-9A-F]/**/*", base: path).each do |name|
        from = File.join(path, name)
        next unless File.file?(from) && File.mtime(from).to_r * 1_000_000 < UNTIL.to_i

        FileUtils.mkdir_p(File.dirname(File.join(made, name)))
        FileUtils.cp(from, File.join(made, name), preserve: true)
      end
      # Several processes may come at a time: one has it.
      File.rename(made, own)
      own
    rescue SystemCallError
      FileUtils.rm_rf(made) if made
      Dir.exist?(own) ? own : path
    end

    def pin
      ::Kernel.singleton_class.prepend(Numbers)
      ::Object.include(Numbers.dup.tap { |numbers| numbers.module_eval { private :rand, :srand } })
      ::Random.singleton_class.prepend(StrictNumbers)
      ::Array.prepend(Order)
      ::Thread.singleton_class.prepend(Started)
    end

    # What `rand` gives for a limit, which may be of any kind that it takes.
    def number(limit)
      made = generator
      return yield unless made
      return limit.size&.zero? ? nil : made.rand(limit) if limit.is_a?(Range)

      limit = limit.to_i.abs
      limit.zero? ? made.rand : made.rand(limit)
    end

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
      @write.call(RESERVED, number, number.bytesize)
    end

    private

    def function(name, arguments)
      address = Fiddle::Handle::DEFAULT[name]
      Fiddle::Function.new(address, arguments, Fiddle::TYPE_LONG, need_gvl: true)
    end
  end

  # Calls a block with a class, when it has been loaded.
  def self.watch(name)
    watch = TracePoint.new(:end) do |point|
      if Module.instance_method(:name).bind(point.self).call == name
        watch.disable
        yield point.self
      end
    end
    watch.enable
  end

  # An application may put something into its caches while it starts.
  watch("ActiveSupport::Cache::FileStore") { |store| store.prepend(Files) } if FILES

  # A thread of Ruby may change the thread it runs on where it is asked for.
  if RUBY_ENGINE == "ruby" && ENV["RUBY_MN_THREADS"] != "1"
    watch("Puma::Server") do |server|
      if HindcastTurns.begin
        HindcastTurns.pin
        server.prepend(Server)
        ::Puma::ThreadPool.prepend(Workers)
      end
    end
    # What was drawn at the start is drawn again.
    ::Random.srand(HindcastTurns.seed)
  end
end
