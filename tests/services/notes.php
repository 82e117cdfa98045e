<?php
// Notes of people who log in, for php-fpm: each request connects to the database, at READ COMMITTED.
//
// POST /login/NAME makes a session, whose token is a cookie, and answers with what writing takes. POST /note/TEXT writes
// a note, and GET /notes lists them, for who has a session that has not expired. The database is in $DATABASE_URL.

$database = pg_connect(getenv('DATABASE_URL'));
// A web server in front has rewritten the query.
[, $what, $text] = explode('/', $_GET['path'] . '/');

function format(float $moment): string
{
    return DateTime::createFromFormat('U.u', sprintf('%.6F', $moment))->format('Y-m-d H:i:s.uO');
}

function answer($what): void
{
    header('Content-Type: application/json');
    echo json_encode($what);
    exit;
}

function session(): array
{
    global $database;
    $select = 'SELECT person, csrf FROM session WHERE token = $1 AND expires > $2';
    $found = pg_query_params($database, $select, [$_COOKIE['session'] ?? '', format(microtime(true))]);
    $session = pg_fetch_assoc($found);
    if (!$session) {
        http_response_code(401);
        answer('log in');
    }
    return $session;
}

switch ($what) {
    case 'login':
        [$token, $csrf] = [bin2hex(random_bytes(24)), uniqid() . mt_rand()];
        $expires = format(microtime(true) + (float) getenv('LIFETIME'));
        $insert = 'INSERT INTO session (token, csrf, person, expires) VALUES ($1, $2, $3, $4)';
        pg_query_params($database, $insert, [$token, $csrf, $text, $expires]);
        header("Set-Cookie: session=$token");
        error_log("$text logs in");
        answer(['csrf' => $csrf, 'until' => $expires]);
    case 'note':
        pg_query($database, 'BEGIN');
        $session = session();
        if ($session['csrf'] !== ($_SERVER['HTTP_X_CSRF'] ?? '')) {
            http_response_code(401);
            answer('another session\'s');
        }
        $number = pg_fetch_assoc(pg_query($database, 'UPDATE counter SET n = n + 1 RETURNING n'))['n'];
        $id = vsprintf('%s%s-%s-%s-%s-%s%s%s', str_split(bin2hex(random_bytes(16)), 4));
        $insert = 'INSERT INTO note (id, person, text, number, written) VALUES ($1, $2, $3, $4, $5)';
        pg_query_params($database, $insert, [$id, $session['person'], $text, $number, format(microtime(true))]);
        pg_query($database, 'COMMIT');
        answer(['note' => $id, 'number' => $number, 'sent' => strlen(file_get_contents('php://input'))]);
    default:
        $select = 'SELECT id, text, number, written FROM note WHERE person = $1 ORDER BY number';
        answer(pg_fetch_all(pg_query_params($database, $select, [session()['person']])));
}
