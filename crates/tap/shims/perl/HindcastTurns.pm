package HindcastTurns;

# Tells the tap which request code in Perl works on, where a loop of Mojolicious serves several, what code asks
# for the time, and has each request draw its own numbers from `rand`: loaded by `perl -M`. Servers of processes,
# as Starman, are known without. Without the tap it does nothing.
#
#   data of a connection arrives ──▶ the handler works for the connection's request
#   a callback is left in the loop ▶ it works for who has left it
#   rand, time ────────────────────▶ the tap draws or reads the clock, by the code that asks

use strict;
use warnings;
use Config ();

use constant RESERVED => 0x48494e44;
use constant NOBODY   => "\0" x 8;
# Where the tap is told what code draws, or asks for the time.
use constant CALLER => 4 << 32;
# How many requests a replay holds at a time; 0: it is none.
use constant HELD => $ENV{HINDCAST_POOL} || 0;

# Numbers of system calls, which are made by libc's `syscall`: read, write, pread64, pwrite64 and getrandom.
my %CALLS = (x86_64 => [0, 1, 17, 18, 318], aarch64 => [63, 64, 67, 68, 278]);
my ($READ, $WRITE, $PREAD, $PWRITE, $GETRANDOM) = @{$CALLS{(split /-/, $Config::Config{archname})[0]} // []};

# The request that is worked on, as far as it is said: eight bytes.
our $turn;
# The request in which the program has set a seed; undef: none.
my $seeded;

sub begin {
    my $number = NOBODY;
    return defined $PREAD && syscall($PREAD, RESERVED, $number, 8, 0) == 8;
}

# The request that has come last by a descriptor.
sub request_of {
    my $descriptor = 0 + shift;
    my $number     = NOBODY;
    syscall($PREAD, RESERVED, $number, 8, $descriptor);
    return $number;
}

# The request that this thread works on, or has read last.
sub request {
    return $turn if defined $turn;
    my $number = NOBODY;
    syscall($READ, RESERVED, $number, 8);
    return $number;
}

sub tell_thread {
    my $number = shift;
    syscall($WRITE, RESERVED, $number, 8);
}

# Calls a function that works for a request. Afterwards, also if it dies, the thread works for who it did before.
sub in_turn {
    my ($request, $work) = splice @_, 0, 2;
    my $before = HindcastTurns::Before->new($turn // NOBODY);
    local $turn = $request;
    tell_thread($request);
    return $work->(@_);
}

# A callback, which works for who has left it, or for nobody.
sub bound {
    my $work = shift;
    my $request = $turn // NOBODY;
    return sub { in_turn($request, $work, @_) };
}

# Puts what `make` makes of a function in its place.
sub replace {
    my ($name, $make) = @_;
    no strict 'refs';
    no warnings 'redefine';
    return unless defined &$name;
    *$name = $make->(\&$name);
}

# What a connection's data is given to. It works for the request that has come by it.
sub of_connection {
    my $real = shift;
    return sub {
        my ($daemon, $id) = @_;
        my $stream = $daemon->ioloop->stream($id);
        my $descriptor = $stream && $stream->handle && fileno $stream->handle;
        return $real->(@_) unless defined $descriptor;
        return in_turn(request_of($descriptor), $real, @_);
    };
}

# What takes callbacks, from this argument on.
sub binding_from {
    my $first = shift;
    return sub {
        my $real = shift;
        return sub {
            my @arguments = @_;
            $_ = bound($_) for grep { ref eq 'CODE' } @arguments[$first .. $#arguments];
            return $real->(@arguments);
        };
    };
}

# A stream may carry what several requests ask, one after the other.
sub for_nobody {
    my $real = shift;
    return sub { in_turn(NOBODY, $real, @_) };
}

# The manager of a prefork server. A loop stands still where code waits for its database. In a replay that may be for
# a request of another client of the same process, so each client has a process.
sub of_manager {
    my $real = shift;
    return sub {
        my $manager = shift;
        if (HELD && HELD > $manager->workers) {
            $manager->workers(HELD);
            $manager->ioloop->max_connections(1);
        }
        return $manager->$real(@_);
    };
}

my $is_watched;

# A program listens: what serves is loaded by then.
sub serves {
    return if $is_watched || !defined &Mojo::Server::Daemon::_read;
    $is_watched = 1;
    # A request that has come before the last answer is over is begun by what ends that.
    replace("Mojo::Server::Daemon::$_", \&of_connection) for qw(_read _write _finish);
    replace('Mojo::Server::Prefork::_manage', \&of_manager);
    replace('Mojo::IOLoop::Stream::start', \&for_nobody);
    replace("Mojo::Reactor::Poll::$_", binding_from(2)) for qw(io _timer);
    replace('Mojo::Reactor::EV::_timer', binding_from(2));
    replace('Mojo::Reactor::Poll::next_tick', binding_from(1));
    replace('Mojo::Promise::then', binding_from(1));
    replace('Mojo::UserAgent::start', binding_from(2));
}

my %codes;

# A hash of who draws: the innermost function, with its file, and the innermost one of another file that it
# works for.
sub code {
    my ($of, $innermost) = ('');
    for my $depth (0 .. 16) {
        my (undef, $file) = caller $depth;
        last unless defined $file;
        my $function = (caller $depth + 1)[3] // '';
        next if $file eq __FILE__ || defined $innermost && $file eq $innermost;
        my ($end) = $file =~ m{((?:[^/]*/)?[^/]*)\z};
        $of .= "$end $function\n";
        last if defined $innermost;
        $innermost = $file;
    }
    return $codes{$of} //= hash($of);
}

# FNV-1a, in halves, since Perl's numbers are no longer than 64 bits.
sub hash {
    my ($low, $high) = (0x811c9dc5, 0x01000193);
    for my $byte (unpack 'C*', shift) {
        $low  = (($low ^ $byte) * 0x01000193) & 0xffffffff;
        $high = (($high ^ $byte ^ $low) * 0x01000193) & 0xffffffff;
    }
    return pack 'V2', $low, $high;
}

# Calls what draws or asks for the time, for the code that has called the shim.
sub by_caller {
    my $work = shift;
    my ($code, $none) = (code(), NOBODY);
    syscall($PWRITE, RESERVED, $code, 8, CALLER);
    my @result = wantarray ? $work->(@_) : scalar $work->(@_);
    syscall($PWRITE, RESERVED, $none, 0, CALLER);
    return wantarray ? @result : $result[0];
}

# A number from 0 up to 1, with 48 bits as Perl's own.
sub draw {
    my $drawn = NOBODY;
    my $count = by_caller(sub { syscall($GETRANDOM, $drawn, 8, 0) });
    return CORE::rand() if $count != 8;
    my ($low, $high) = unpack 'V2', $drawn;
    return ($low / 4294967296 + ($high & 0xffff)) / 65536;
}

# `time`, `localtime` and `gmtime`, in place of Perl's own.
sub moment () { return by_caller(sub { CORE::time }) }

sub local_time (;$) { return CORE::localtime(@_ ? $_[0] : moment()) }

sub universal_time (;$) { return CORE::gmtime(@_ ? $_[0] : moment()) }

# A function of a module that asks for the time. Its prototype stays, by which Perl reads how it is called.
sub reading {
    my $real = shift;
    my $reading = sub { by_caller($real, @_) };
    return defined prototype $real ? &Scalar::Util::set_prototype($reading, prototype $real) : $reading;
}

sub is_seeded { return defined $seeded && $seeded eq request() }

# `rand` and `srand`, in place of Perl's own. A seed counts for the request that sets it, and what is set outside of
# requests for none: servers set one in each of their processes.
sub number (;$) {
    return CORE::rand($_[0] // 1) if is_seeded();
    my $limit = $_[0] || 1;
    return draw() * $limit;
}

sub seed (;$) {
    $seeded = defined $_[0] ? request() : undef;
    return defined $_[0] ? CORE::srand($_[0]) : CORE::srand();
}

sub wait_for_clients (*$) {
    serves();
    my ($socket, $queue) = @_;
    if (!ref $socket && ref \$socket ne 'GLOB') {
        require Symbol;
        $socket = Symbol::qualify_to_ref($socket, scalar caller);
    }
    return CORE::listen($socket, $queue);
}

BEGIN {
    my $folder = __FILE__ =~ s{/[^/]*\z}{}r;
    @INC = grep { ref || $_ ne $folder } @INC;
}

if (begin()) {
    no warnings 'once';
    *CORE::GLOBAL::rand      = \&number;
    *CORE::GLOBAL::srand     = \&seed;
    *CORE::GLOBAL::time      = \&moment;
    *CORE::GLOBAL::localtime = \&local_time;
    *CORE::GLOBAL::gmtime    = \&universal_time;
    *CORE::GLOBAL::listen    = \&wait_for_clients;
    # Of `shuffle` and `sample`.
    $List::Util::RAND = \&draw;
    # Whoever imports them is given these. Debian's smallest Perl has no such module.
    require Scalar::Util;
    eval { require Time::HiRes };
    replace("Time::HiRes::$_", \&reading) for qw(time gettimeofday clock_gettime);
}

package HindcastTurns::Before;

sub new { my ($class, $request) = @_; return bless \$request, $class }

sub DESTROY { HindcastTurns::tell_thread(${$_[0]}) }

1;
