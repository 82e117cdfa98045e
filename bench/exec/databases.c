/* Two threads on SQLite in memory: each with a database of its own, or both with one connection.
 *
 *     databases private|shared ROWS        each thread inserts so many rows, then reads and updates each of them by key
 *
 * SQLite's own locks are all that the threads share if their databases are private: those of its allocator and page cache.
 * Says `begin` and `end` on its standard output, see locks.c. */
#include <pthread.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static sqlite3 *shared;
static int rows;

static void must(int code, sqlite3 *database) {
    if (code != SQLITE_OK && code != SQLITE_DONE && code != SQLITE_ROW) {
        fprintf(stderr, "%s\n", sqlite3_errmsg(database));
        exit(1);
    }
}

static sqlite3 *make(void) {
    sqlite3 *database;
    must(sqlite3_open_v2(":memory:", &database, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_FULLMUTEX, NULL), database);
    must(sqlite3_exec(database, "CREATE TABLE t(k INTEGER PRIMARY KEY, v TEXT)", NULL, NULL, NULL), database);
    return database;
}

static void *work(void *argument) {
    long number = (long)argument;
    sqlite3 *database = shared ? shared : make();
    const char *texts[] = {
        "INSERT INTO t VALUES(?, 'some text that is not very short')",
        "SELECT v FROM t WHERE k = ?",
        "UPDATE t SET v = v || '.' WHERE k = ?",
    };
    for (int i = 0; i < 3; i++) {
        sqlite3_stmt *statement;
        must(sqlite3_prepare_v2(database, texts[i], -1, &statement, NULL), database);
        for (int row = 0; row < rows; row++) {
            sqlite3_bind_int64(statement, 1, number * 1000000000L + row);
            must(sqlite3_step(statement), database);
            must(sqlite3_reset(statement), database);
        }
        sqlite3_finalize(statement);
    }
    return NULL;
}

int main(int count, char **words) {
    if (count != 3)
        return 2;
    rows = atoi(words[2]);
    sqlite3_initialize();
    if (!strcmp(words[1], "shared"))
        shared = make();
    pthread_t workers[2];
    write(1, "begin\n", 6);
    for (long i = 0; i < 2; i++)
        pthread_create(&workers[i], NULL, work, (void *)i);
    for (int i = 0; i < 2; i++)
        pthread_join(workers[i], NULL);
    write(1, "end\n", 4);
    return 0;
}
