#!/usr/bin/env perl
# Every request writes rows with its own name, and shows what it draws and the order of a table of hashes: Mojolicious
# with Mojo::Pg, in processes of a loop each. Nothing here knows of tracing.
#
#     perl marks.pl PORT        the database is in DATABASE_URL
use Mojolicious::Lite -signatures;
use List::Util qw(shuffle);
use Mojo::Pg;
use Mojo::Server::Prefork;

my $url = $ENV{DATABASE_URL} =~ s/^postgres:/postgresql:/r;
helper pg => sub { state $pg = Mojo::Pg->new($url) };

my $insert = 'INSERT INTO mark VALUES (?, ?)';

# Its keys come in another order in each table that is made, unless a process is told not to change it.
sub shown ($name) {
    my %table = map { ($_ => 1) } 'a' .. 'p';
    return {name => $name, drawn => rand(1000), order => join('', shuffle('a' .. 'h')), keys => join('', keys %table)};
}

# The loop stands still until the database has answered.
post '/transaction/:name' => sub ($c) {
    my $name = $c->param('name');
    my $transaction = (my $db = $c->pg->db)->begin;
    $db->query($insert, $name, $_) for 0, 1;
    $transaction->commit;
    $c->render(json => shown($name));
};

# The loop goes on with others meanwhile.
post '/promises/:name' => sub ($c) {
    my $name = $c->param('name');
    $c->render_later;
    $c->pg->db->query_p($insert, $name, 0)->then(sub {
        Mojo::Promise->timer(0.002);
    })->then(sub {
        $c->pg->db->query_p($insert, $name, 1);
    })->then(sub {
        $c->render(json => shown($name));
    })->catch(sub ($error) { $c->render(text => $error, status => 500) });
};

app->log->level('warn');
my $server = Mojo::Server::Prefork->new(app => app, listen => ["http://127.0.0.1:$ARGV[0]"], workers => 2, silent => 1);
$server->pid_file("/tmp/hindcast-marks-$ARGV[0].pid");
$server->run;
