/* A program with a database: prepared statements, values of each type, a callback, a function, an order and a hook of its own. */
#include "../see.h"
#include <sqlite3.h>
#include <time.h>

static sqlite3 *database;
static int changes;

static void check(int answer, const char *what) {
    if (answer != SQLITE_OK && answer != SQLITE_ROW && answer != SQLITE_DONE) {
        fprintf(stderr, "%s: %s\n", what, sqlite3_errmsg(database));
        exit(98);
    }
}

static void execute(const char *sql) { check(sqlite3_exec(database, sql, NULL, NULL, NULL), sql); }

static int each(void *context, int columns, char **values, char **names) {
    for (int i = 0; i < columns; i++)
        seen("%s: %s = %s", (const char *)context, names[i], values[i] ? values[i] : "NULL");
    return 0;
}

static void twice(sqlite3_context *context, int count, sqlite3_value **values) {
    (void)count;
    sqlite3_result_int64(context, 2 * sqlite3_value_int64(values[0]));
}

static void updated(void *context, int kind, const char *name, const char *table, sqlite3_int64 row) {
    (void)context, (void)kind, (void)name, (void)table, (void)row;
    changes++;
}

int main(int count, char **arguments) {
    if (count < 2)
        return 2;
    same("threads %d", sqlite3_threadsafe() != 0);
    seen("version %s", sqlite3_libversion());
    check(sqlite3_open(arguments[1], &database), "open");
    check(sqlite3_busy_timeout(database, 1000), "busy timeout");
    check(sqlite3_create_function(database, "twice", 1, SQLITE_UTF8, NULL, twice, NULL, NULL), "function");
    sqlite3_update_hook(database, updated, NULL);
    execute("CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT, weight REAL, picture BLOB, at TEXT DEFAULT CURRENT_TIMESTAMP)");
    sqlite3_stmt *insert, *select;
    check(sqlite3_prepare_v2(database, "INSERT INTO item (name, weight, picture) VALUES (?1, ?2, ?3)", -1, &insert, NULL), "prepare");
    char name[40], picture[300];
    for (int round = 0; round < 20; round++) {
        execute("BEGIN");
        for (int i = 0; i < 100; i++) {
            snprintf(name, sizeof name, "item %d of round %d", i, round);
            fill(picture, sizeof picture, (uint64_t)(round * 100 + i));
            check(sqlite3_bind_text(insert, 1, name, -1, SQLITE_TRANSIENT), "text");
            check(sqlite3_bind_double(insert, 2, i / 4.0), "double");
            if (i % 10)
                check(sqlite3_bind_blob(insert, 3, picture, sizeof picture, SQLITE_STATIC), "blob");
            else
                check(sqlite3_bind_null(insert, 3), "null");
            check(sqlite3_step(insert), "step");
            check(sqlite3_reset(insert), "reset");
        }
        execute(round % 5 == 4 ? "ROLLBACK" : "COMMIT");
    }
    same("last row %lld, %d changed, hook saw %d", (long long)sqlite3_last_insert_rowid(database), sqlite3_total_changes(database), changes);
    check(sqlite3_finalize(insert), "finalize");

    check(sqlite3_prepare_v2(database, "SELECT id, name, weight, picture, at, random(), twice(id) FROM item WHERE weight > ? ORDER BY name", -1, &select, NULL), "prepare");
    check(sqlite3_bind_int64(select, 1, 20), "bind");
    uint64_t all = 0;
    int rows = 0;
    while (sqlite3_step(select) == SQLITE_ROW) {
        const void *blob = sqlite3_column_blob(select, 3);
        all = all * 31 + sum(blob ? blob : "", (size_t)sqlite3_column_bytes(select, 3));
        if (rows++ % 100 == 0) {
            same("%s weighs %g, twice %lld is %d, type %d", sqlite3_column_text(select, 1), sqlite3_column_double(select, 2), (long long)sqlite3_column_int64(select, 0), sqlite3_column_int(select, 6), sqlite3_column_type(select, 3));
            seen("made %s, random %lld, text at %p", sqlite3_column_text(select, 4), (long long)sqlite3_column_int64(select, 5), (void *)sqlite3_column_text(select, 1));
        }
    }
    same("%d rows of %d columns named %s, pictures %016lx", rows, sqlite3_column_count(select), sqlite3_column_name(select, 1), all);
    check(sqlite3_finalize(select), "finalize");
    check(sqlite3_exec(database, "SELECT hex(randomblob(8)) AS bytes, datetime('now') AS now, count(*) AS n FROM item", each, (void *)"asked", NULL), "exec");
    char *message = NULL;
    same("an error: %d", sqlite3_exec(database, "SELECT * FROM nothing", each, NULL, &message));
    same("%s, code %d", message, sqlite3_extended_errcode(database));
    sqlite3_free(message);
    char *quoted = sqlite3_mprintf("%q", "it's");
    same("%s", quoted);
    sqlite3_free(quoted);
    same("memory is counted: %d", sqlite3_memory_used() > 0);
    check(sqlite3_close(database), "close");
    struct stat about;
    must(stat(arguments[1], &about));
    seen("the file has %ld bytes, written %ld", (long)about.st_size, (long)about.st_mtime);
    return 0;
}
