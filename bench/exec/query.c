/* R2's section 8.4: the degrees of a social graph's nodes, asked ten times of a SQLite file.
 *
 *     query FILE make EDGES
 *     query FILE file|memory [TIMES]       where temporary tables are kept
 *
 * Says `begin` and `end` on its standard output, see locks.c. */
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static sqlite3 *database;

static void run(const char *text) {
    if (sqlite3_exec(database, text, NULL, NULL, NULL)) {
        fprintf(stderr, "%s\n", sqlite3_errmsg(database));
        exit(1);
    }
}

static void make(long edges) {
    run("CREATE TABLE edge(src_uid INTEGER, dest_uid INTEGER); BEGIN");
    sqlite3_stmt *insert;
    sqlite3_prepare_v2(database, "INSERT INTO edge VALUES(?, ?)", -1, &insert, NULL);
    unsigned long state = 1;
    for (long i = 0; i < edges; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        sqlite3_bind_int64(insert, 1, (long)(state >> 33) % 40000);
        sqlite3_bind_int64(insert, 2, (long)(state >> 13) % 40000);
        sqlite3_step(insert);
        sqlite3_reset(insert);
    }
    sqlite3_finalize(insert);
    run("COMMIT");
}

int main(int count, char **words) {
    if (count < 3 || sqlite3_open(words[1], &database))
        return 2;
    if (!strcmp(words[2], "make")) {
        make(atol(words[3]));
        return 0;
    }
    run(strcmp(words[2], "file") ? "PRAGMA temp_store = MEMORY" : "PRAGMA temp_store = FILE");
    int times = count > 3 ? atoi(words[3]) : 10;
    long sum = 0;
    write(1, "begin\n", 6);
    for (int i = 0; i < times; i++) {
        sqlite3_stmt *query;
        sqlite3_prepare_v2(database, "SELECT COUNT(*) FROM edge GROUP BY src_uid", -1, &query, NULL);
        while (sqlite3_step(query) == SQLITE_ROW)
            sum += sqlite3_column_int64(query, 0);
        sqlite3_finalize(query);
    }
    write(1, "end\n", 4);
    sqlite3_close(database);
    printf("%ld\n", sum);
    return 0;
}
