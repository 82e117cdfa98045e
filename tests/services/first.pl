#!/usr/bin/env perl
# What the first request needs, the others find: a cache of the process, which looks at the time for each.
#
#     perl first.pl PORT [filled]
#
# Each request is answered with a time of its own. With `filled` the cache is full from the beginning.
use strict;
use warnings;
use IO::Socket::INET;
use Time::HiRes qw(gettimeofday);

my %cache;

sub fill {
    return if %cache;
    $cache{filled} = Time::HiRes::time;
    $cache{again}  = gettimeofday;
    $cache{day}    = localtime;
    $cache{second} = time;
}

sub answer {
    fill();
    return join ' ', Time::HiRes::time, scalar gettimeofday, time, scalar localtime, scalar gmtime;
}

sub serve {
    my $client = shift;
    while (defined(my $line = <$client>)) {
        $line = <$client> until $line eq "\r\n";
        my $text = answer();
        print $client "HTTP/1.1 200 OK\r\nContent-Length: ", length $text, "\r\n\r\n$text";
    }
}

fill() if grep { $_ eq 'filled' } @ARGV;
my $server = IO::Socket::INET->new(LocalAddr => "127.0.0.1:$ARGV[0]", Listen => 5, ReuseAddr => 1) or die $@;
while (my $client = $server->accept) { serve($client) }
