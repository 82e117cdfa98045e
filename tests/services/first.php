<?php
// What the first request needs, the others find: a cache of the process, which looks at the time for each.
//
//     php first.php PORT [filled]
//
// Each request is answered with a time of its own. With `filled` the cache is full from the beginning.
class Cache
{
    private static array $found = [];

    public static function fill(): void
    {
        if (self::$found) {
            return;
        }
        self::$found = ['filled' => microtime(true), 'again' => new DateTimeImmutable(), 'seconds' => time()];
    }
}

function answer(): string
{
    Cache::fill();
    return microtime(true) . ' ' . (new DateTimeImmutable())->format('U.u') . ' ' . time();
}

if (in_array('filled', $argv)) {
    Cache::fill();
}
$server = stream_socket_server("tcp://127.0.0.1:$argv[1]");
while (true) {
    $client = stream_socket_accept($server, -1);
    while (($line = fgets($client)) !== false) {
        while ($line !== false && trim($line) !== '') {
            $line = fgets($client);
        }
        $text = answer();
        fwrite($client, "HTTP/1.1 200 OK\r\nContent-Length: " . strlen($text) . "\r\n\r\n$text");
    }
}
