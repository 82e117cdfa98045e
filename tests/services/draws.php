<?php
// Answers with what a way to draw, or to read the clock, gives: `php -S ADDRESS draws.php`. GET / lists the ways.
$ways = [
    'bytes' => fn() => bin2hex(random_bytes(8)),
    'int' => fn() => random_int(0, 1000000000),
    'mt_rand' => fn() => [mt_rand(), mt_rand(1, 6)],
    'rand' => fn() => rand(),
    'shuffle' => fn() => str_shuffle('abcdefghijklmnopqrstuvwxyz'),
    'array' => fn() => array_rand(range(1, 1000), 5),
    'uniqid' => fn() => [uniqid(), uniqid('', true)],
    'lcg' => fn() => lcg_value(),
    'session' => fn() => session_create_id(),
    'openssl' => fn() => bin2hex(openssl_random_pseudo_bytes(8)),
    'password' => fn() => password_hash('x', PASSWORD_BCRYPT, ['cost' => 4]),
    'time' => fn() => [time(), microtime(true), (new DateTime())->format('c u')],
    'request' => fn() => $_SERVER['REQUEST_TIME_FLOAT'],
];
$way = trim($_SERVER['REQUEST_URI'], '/');
header('Content-Type: application/json');
echo json_encode(isset($ways[$way]) ? $ways[$way]() : array_keys($ways));
