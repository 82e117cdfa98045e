/* SQLite as the cut: what the library does with files is not recorded, only what it tells its client (R2, section 5.2).
 *
 * Databases, statements and the like are handles: the client never looks behind them, so their addresses are values like any
 * other. Text and blobs of a row live until the statement moves on, so do their copies (`until(stmt)`). Code
 * of the program that SQLite calls is an upcall where it is a function passed as a parameter; the tables of functions of virtual
 * tables and file systems are called below the cut, as parts of the library: they do not run in replay.
 *
 * Not here, and therefore not to be used through this interface: UTF-16, sqlite3_get_table, sessions, snapshots. */

#ifndef HINDCAST_SQLITE3_H
#define HINDCAST_SQLITE3_H
#include "hindcast.h"

typedef struct sqlite3 sqlite3;
typedef struct sqlite3_stmt sqlite3_stmt;
typedef struct sqlite3_value sqlite3_value;
typedef struct sqlite3_context sqlite3_context;
typedef struct sqlite3_blob sqlite3_blob;
typedef struct sqlite3_backup sqlite3_backup;
typedef struct sqlite3_str sqlite3_str;
typedef struct sqlite3_mutex sqlite3_mutex;
typedef struct sqlite3_vfs sqlite3_vfs;
typedef struct sqlite3_module sqlite3_module;
typedef long sqlite3_int64;
typedef unsigned long sqlite3_uint64;

/* Text with a length, or up to its NUL. */
#define TEXT(text, bytes) in bsize((bytes) < 0 ? length(text) : length_within(text, bytes)) nullable
/* What becomes of memory that was passed. */
#define DESTROY callback(later) void (*destroy)(void *memory)

/* ---- The library ---- */

harmless const char *sqlite3_libversion(void);
harmless const char *sqlite3_sourceid(void);
harmless int sqlite3_libversion_number(void);
harmless int sqlite3_threadsafe(void);
harmless int sqlite3_compileoption_used(const char *name);
harmless const char *sqlite3_compileoption_get(int n);
harmless int sqlite3_complete(const char *sql);
harmless int sqlite3_stricmp(const char *a, const char *b);
harmless int sqlite3_strnicmp(const char *a, const char *b, int bytes);
harmless int sqlite3_strglob(const char *pattern, const char *text);
harmless int sqlite3_strlike(const char *pattern, const char *text, unsigned escape);
harmless int sqlite3_keyword_count(void);
harmless int sqlite3_keyword_name(int n, const char **name, int *bytes);
harmless int sqlite3_keyword_check(const char *text, int bytes);
harmless const char *sqlite3_errstr(int code);

int sqlite3_initialize(void);
int sqlite3_shutdown(void);
int sqlite3_os_init(void);
int sqlite3_os_end(void);
/* What these two take depends on the option: registers that an option does not use hold anything. */
int sqlite3_config(int option, unchecked long a, unchecked long b, unchecked long c);
int sqlite3_db_config(sqlite3 *db, int option, unchecked long a, out always nullable unchecked bsize(option > 1001 && option < 2000 ? 4 : 0) int *state);
int sqlite3_test_control(int option, unchecked long a, unchecked long b, unchecked long c, unchecked long d);
int sqlite3_enable_shared_cache(int on);
int sqlite3_status(int what, out int *current, out int *highest, int reset);
int sqlite3_status64(int what, out sqlite3_int64 *current, out sqlite3_int64 *highest, int reset);
sqlite3_int64 sqlite3_memory_used(void);
sqlite3_int64 sqlite3_memory_highwater(int reset);
sqlite3_int64 sqlite3_soft_heap_limit64(sqlite3_int64 bytes);
sqlite3_int64 sqlite3_hard_heap_limit64(sqlite3_int64 bytes);
void sqlite3_soft_heap_limit(int bytes);
int sqlite3_release_memory(int bytes);
void sqlite3_randomness(int bytes, out bsize(bytes) nullable void *memory);
int sqlite3_sleep(int ms) block;
int sqlite3_auto_extension(void *entry);
int sqlite3_cancel_auto_extension(void *entry);
void sqlite3_reset_auto_extension(void);
sqlite3_vfs *sqlite3_vfs_find(nullable instr const char *name);
int sqlite3_vfs_register(sqlite3_vfs *vfs, int make_default);
int sqlite3_vfs_unregister(sqlite3_vfs *vfs);
sqlite3_mutex *sqlite3_mutex_alloc(int kind);
void sqlite3_mutex_free(sqlite3_mutex *mutex);
void sqlite3_mutex_enter(sqlite3_mutex *mutex) block sync(mutex, after);
int sqlite3_mutex_try(sqlite3_mutex *mutex) sync(mutex, after);
void sqlite3_mutex_leave(sqlite3_mutex *mutex);

/* ---- Memory and formatting ---- */

by_hand void *sqlite3_malloc(int bytes);
by_hand void *sqlite3_malloc64(sqlite3_uint64 bytes);
by_hand void *sqlite3_realloc(void *block, int bytes);
by_hand void *sqlite3_realloc64(void *block, sqlite3_uint64 bytes);
by_hand void sqlite3_free(void *block);
by_hand sqlite3_uint64 sqlite3_msize(void *block);
by_hand char *sqlite3_mprintf(const char *format, ...);
by_hand char *sqlite3_snprintf(int bytes, char *text, const char *format, ...);
by_hand void sqlite3_str_appendf(sqlite3_str *text, const char *format, ...);
xpointer(none) char *sqlite3_vmprintf(instr const char *format, unchecked void *arguments);
char *sqlite3_vsnprintf(int bytes, out bsize(bytes) char *text, instr const char *format, unchecked void *arguments);
sqlite3_str *sqlite3_str_new(sqlite3 *db);
xpointer(none) char *sqlite3_str_finish(sqlite3_str *text);
void sqlite3_str_vappendf(sqlite3_str *text, instr const char *format, unchecked void *arguments);
void sqlite3_str_append(sqlite3_str *text, in bsize(bytes) const char *more, int bytes);
void sqlite3_str_appendall(sqlite3_str *text, instr const char *more);
void sqlite3_str_appendchar(sqlite3_str *text, int count, char c);
void sqlite3_str_reset(sqlite3_str *text);
int sqlite3_str_errcode(sqlite3_str *text);
int sqlite3_str_length(sqlite3_str *text);
xpointer(thread) char *sqlite3_str_value(sqlite3_str *text);

/* ---- Databases ---- */

int sqlite3_open(instr const char *name, out sqlite3 **db) block;
int sqlite3_open_v2(instr const char *name, out sqlite3 **db, int flags, nullable instr const char *vfs) block;
int sqlite3_close(sqlite3 *db) block;
int sqlite3_close_v2(sqlite3 *db) block;
int sqlite3_exec(sqlite3 *db, nullable instr const char *sql,
                 callback(during) int (*row)(void *data, int count, strings(count) char **values, strings(count) char **names),
                 void *data, out nullable xpointer(none) char **message) block;
xpointer(thread) const char *sqlite3_errmsg(sqlite3 *db);
int sqlite3_errcode(sqlite3 *db) cache;
int sqlite3_extended_errcode(sqlite3 *db) cache;
int sqlite3_extended_result_codes(sqlite3 *db, int on);
int sqlite3_error_offset(sqlite3 *db);
int sqlite3_system_errno(sqlite3 *db);
int sqlite3_changes(sqlite3 *db) cache;
sqlite3_int64 sqlite3_changes64(sqlite3 *db) cache;
int sqlite3_total_changes(sqlite3 *db);
sqlite3_int64 sqlite3_total_changes64(sqlite3 *db);
sqlite3_int64 sqlite3_last_insert_rowid(sqlite3 *db);
void sqlite3_set_last_insert_rowid(sqlite3 *db, sqlite3_int64 rowid);
int sqlite3_get_autocommit(sqlite3 *db) cache;
int sqlite3_txn_state(sqlite3 *db, nullable instr const char *schema);
void sqlite3_interrupt(sqlite3 *db);
int sqlite3_is_interrupted(sqlite3 *db);
int sqlite3_busy_timeout(sqlite3 *db, int ms);
int sqlite3_busy_handler(sqlite3 *db, callback(later) int (*busy)(void *data, int count), void *data);
void sqlite3_progress_handler(sqlite3 *db, int steps, callback(later) int (*progress)(void *data), void *data);
int sqlite3_set_authorizer(sqlite3 *db,
                           callback(later) int (*authorize)(void *data, int action, instr const char *a, instr const char *b,
                                                            instr const char *c, instr const char *d),
                           void *data);
void *sqlite3_commit_hook(sqlite3 *db, callback(later) int (*hook)(void *data), void *data);
void *sqlite3_rollback_hook(sqlite3 *db, callback(later) void (*hook)(void *data), void *data);
void *sqlite3_update_hook(sqlite3 *db,
                          callback(later) void (*hook)(void *data, int action, instr const char *database, instr const char *table,
                                                       sqlite3_int64 rowid),
                          void *data);
void *sqlite3_wal_hook(sqlite3 *db, callback(later) int (*hook)(void *data, sqlite3 *of, instr const char *database, int pages), void *data);
void *sqlite3_trace(sqlite3 *db, callback(later) void (*trace)(void *data, instr const char *sql), void *data);
void *sqlite3_profile(sqlite3 *db, callback(later) void (*profile)(void *data, instr const char *sql, unsigned long ns), void *data);
/* Behind the last argument is the statement's text (1), its time (2), or nothing. */
int sqlite3_trace_v2(sqlite3 *db, unsigned mask,
                     callback(later) int (*trace)(unsigned event, void *data, void *subject, in bsize(event == 1 ? length(x) + 1 : 8) const void *x),
                     void *data);
int sqlite3_limit(sqlite3 *db, int what, int value);
int sqlite3_db_status(sqlite3 *db, int what, out always int *current, out always int *highest, int reset);
int sqlite3_db_readonly(sqlite3 *db, nullable instr const char *schema);
int sqlite3_db_release_memory(sqlite3 *db);
int sqlite3_db_cacheflush(sqlite3 *db) block;
sqlite3_mutex *sqlite3_db_mutex(sqlite3 *db);
xpointer(process) const char *sqlite3_db_name(sqlite3 *db, int n);
xpointer(process) const char *sqlite3_db_filename(sqlite3 *db, nullable instr const char *schema);
int sqlite3_file_control(sqlite3 *db, nullable instr const char *schema, int operation, out always nullable bsize(8) void *argument) block;
int sqlite3_wal_autocheckpoint(sqlite3 *db, int pages);
int sqlite3_wal_checkpoint(sqlite3 *db, nullable instr const char *schema) block;
int sqlite3_wal_checkpoint_v2(sqlite3 *db, nullable instr const char *schema, int mode, out nullable int *pages, out nullable int *done) block;
int sqlite3_enable_load_extension(sqlite3 *db, int on);
int sqlite3_load_extension(sqlite3 *db, instr const char *file, nullable instr const char *entry, out always nullable xpointer(none) char **message);
int sqlite3_overload_function(sqlite3 *db, instr const char *name, int arguments);
int sqlite3_table_column_metadata(sqlite3 *db, nullable instr const char *database, instr const char *table, nullable instr const char *column,
                                  out nullable xpointer(process) const char **type, out nullable xpointer(process) const char **collation,
                                  out nullable int *not_null, out nullable int *primary_key, out nullable int *autoincrement);
xpointer(none, bsize(size ? *size : 0)) unsigned char *sqlite3_serialize(sqlite3 *db, nullable instr const char *schema, out nullable sqlite3_int64 *size, unsigned flags);
int sqlite3_deserialize(sqlite3 *db, nullable instr const char *schema, in bsize(size) nullable unsigned char *data, sqlite3_int64 size,
                        sqlite3_int64 room, unsigned flags);

/* ---- Statements ---- */

int sqlite3_prepare(sqlite3 *db, TEXT(sql, bytes) const char *sql, int bytes, out sqlite3_stmt **stmt, out nullable const char **tail) block;
int sqlite3_prepare_v2(sqlite3 *db, TEXT(sql, bytes) const char *sql, int bytes, out sqlite3_stmt **stmt, out nullable const char **tail) block;
int sqlite3_prepare_v3(sqlite3 *db, TEXT(sql, bytes) const char *sql, int bytes, unsigned flags, out sqlite3_stmt **stmt, out nullable const char **tail) block;
int sqlite3_step(sqlite3_stmt *stmt) block cache releases(stmt);
int sqlite3_reset(sqlite3_stmt *stmt) cache releases(stmt);
int sqlite3_finalize(sqlite3_stmt *stmt) cache releases(stmt) releases((long)stmt + 1);
xpointer(until((long)stmt + 1)) const char *sqlite3_sql(sqlite3_stmt *stmt);
xpointer(until((long)stmt + 1)) const char *sqlite3_normalized_sql(sqlite3_stmt *stmt);
xpointer(none) char *sqlite3_expanded_sql(sqlite3_stmt *stmt);
sqlite3 *sqlite3_db_handle(sqlite3_stmt *stmt);
sqlite3_stmt *sqlite3_next_stmt(sqlite3 *db, sqlite3_stmt *stmt);
int sqlite3_stmt_readonly(sqlite3_stmt *stmt) cache;
int sqlite3_stmt_isexplain(sqlite3_stmt *stmt) cache;
int sqlite3_stmt_explain(sqlite3_stmt *stmt, int mode);
int sqlite3_stmt_busy(sqlite3_stmt *stmt) cache;
int sqlite3_stmt_status(sqlite3_stmt *stmt, int what, int reset);
int sqlite3_expired(sqlite3_stmt *stmt);
int sqlite3_transfer_bindings(sqlite3_stmt *from, sqlite3_stmt *to);

int sqlite3_bind_blob(sqlite3_stmt *stmt, int index, in bsize(bytes) nullable const void *data, int bytes, DESTROY) cache;
int sqlite3_bind_blob64(sqlite3_stmt *stmt, int index, in bsize(bytes) nullable const void *data, sqlite3_uint64 bytes, DESTROY) cache;
int sqlite3_bind_text(sqlite3_stmt *stmt, int index, in bsize(bytes < 0 ? length(text) : bytes) nullable const char *text, int bytes, DESTROY) cache;
int sqlite3_bind_text64(sqlite3_stmt *stmt, int index, in bsize(bytes) nullable const char *text, sqlite3_uint64 bytes, DESTROY, unsigned char encoding) cache;
int sqlite3_bind_double(sqlite3_stmt *stmt, int index, double value) cache;
int sqlite3_bind_int(sqlite3_stmt *stmt, int index, int value) cache;
int sqlite3_bind_int64(sqlite3_stmt *stmt, int index, sqlite3_int64 value) cache;
int sqlite3_bind_null(sqlite3_stmt *stmt, int index) cache;
int sqlite3_bind_value(sqlite3_stmt *stmt, int index, const sqlite3_value *value) cache;
int sqlite3_bind_zeroblob(sqlite3_stmt *stmt, int index, int bytes) cache;
int sqlite3_bind_zeroblob64(sqlite3_stmt *stmt, int index, sqlite3_uint64 bytes) cache;
int sqlite3_bind_pointer(sqlite3_stmt *stmt, int index, void *pointer, instr const char *type, DESTROY) cache;
int sqlite3_bind_parameter_count(sqlite3_stmt *stmt) cache;
int sqlite3_bind_parameter_index(sqlite3_stmt *stmt, instr const char *name) cache;
xpointer(process) const char *sqlite3_bind_parameter_name(sqlite3_stmt *stmt, int index);
int sqlite3_clear_bindings(sqlite3_stmt *stmt) cache;

int sqlite3_column_count(sqlite3_stmt *stmt) cache;
int sqlite3_data_count(sqlite3_stmt *stmt) cache;
int sqlite3_column_type(sqlite3_stmt *stmt, int column) cache;
int sqlite3_column_bytes(sqlite3_stmt *stmt, int column) cache;
int sqlite3_column_int(sqlite3_stmt *stmt, int column);
sqlite3_int64 sqlite3_column_int64(sqlite3_stmt *stmt, int column);
double sqlite3_column_double(sqlite3_stmt *stmt, int column);
sqlite3_value *sqlite3_column_value(sqlite3_stmt *stmt, int column);
xpointer(until(stmt), bsize(sqlite3_column_bytes(stmt, column) + 1)) const unsigned char *sqlite3_column_text(sqlite3_stmt *stmt, int column);
xpointer(until(stmt), bsize(sqlite3_column_bytes(stmt, column))) const void *sqlite3_column_blob(sqlite3_stmt *stmt, int column);
xpointer(process) const char *sqlite3_column_name(sqlite3_stmt *stmt, int column);
xpointer(process) const char *sqlite3_column_decltype(sqlite3_stmt *stmt, int column);
xpointer(process) const char *sqlite3_column_database_name(sqlite3_stmt *stmt, int column);
xpointer(process) const char *sqlite3_column_table_name(sqlite3_stmt *stmt, int column);
xpointer(process) const char *sqlite3_column_origin_name(sqlite3_stmt *stmt, int column);

/* ---- Functions and collations of the program ---- */

#define FUNCTION(name) callback(later) void (*name)(sqlite3_context *context, int count, in bsize(count * 8) sqlite3_value **values)
#define LAST(name) callback(later) void (*name)(sqlite3_context *context)
#define COMPARE callback(later) int (*compare)(void *data, int a_bytes, in bsize(a_bytes) const void *a, int b_bytes, in bsize(b_bytes) const void *b)

int sqlite3_create_function(sqlite3 *db, instr const char *name, int arguments, int flags, void *data, FUNCTION(plain), FUNCTION(step), LAST(final));
int sqlite3_create_function_v2(sqlite3 *db, instr const char *name, int arguments, int flags, void *data, FUNCTION(plain), FUNCTION(step),
                               LAST(final), DESTROY);
int sqlite3_create_window_function(sqlite3 *db, instr const char *name, int arguments, int flags, void *data, FUNCTION(step), LAST(final),
                                   LAST(value), FUNCTION(inverse), DESTROY);
int sqlite3_create_collation(sqlite3 *db, instr const char *name, int flags, void *data, COMPARE);
int sqlite3_create_collation_v2(sqlite3 *db, instr const char *name, int flags, void *data, COMPARE, DESTROY);
int sqlite3_collation_needed(sqlite3 *db, void *data, callback(later) void (*needed)(void *data, sqlite3 *of, int flags, instr const char *name));
int sqlite3_create_module(sqlite3 *db, instr const char *name, const sqlite3_module *module, void *data);
int sqlite3_create_module_v2(sqlite3 *db, instr const char *name, const sqlite3_module *module, void *data, void *destroy);
int sqlite3_drop_modules(sqlite3 *db, unchecked const void *keep);

void *sqlite3_user_data(sqlite3_context *context);
sqlite3 *sqlite3_context_db_handle(sqlite3_context *context);
by_hand void *sqlite3_aggregate_context(sqlite3_context *context, int bytes);
int sqlite3_aggregate_count(sqlite3_context *context);
void *sqlite3_get_auxdata(sqlite3_context *context, int argument);
void sqlite3_set_auxdata(sqlite3_context *context, int argument, void *data, DESTROY);

int sqlite3_value_bytes(sqlite3_value *value);
int sqlite3_value_type(sqlite3_value *value);
int sqlite3_value_numeric_type(sqlite3_value *value);
int sqlite3_value_nochange(sqlite3_value *value);
int sqlite3_value_frombind(sqlite3_value *value);
int sqlite3_value_encoding(sqlite3_value *value);
unsigned sqlite3_value_subtype(sqlite3_value *value);
int sqlite3_value_int(sqlite3_value *value);
sqlite3_int64 sqlite3_value_int64(sqlite3_value *value);
double sqlite3_value_double(sqlite3_value *value);
xpointer(callback, bsize(sqlite3_value_bytes(value) + 1)) const unsigned char *sqlite3_value_text(sqlite3_value *value);
xpointer(callback, bsize(sqlite3_value_bytes(value))) const void *sqlite3_value_blob(sqlite3_value *value);
void *sqlite3_value_pointer(sqlite3_value *value, instr const char *type);
sqlite3_value *sqlite3_value_dup(const sqlite3_value *value);
void sqlite3_value_free(sqlite3_value *value);

void sqlite3_result_blob(sqlite3_context *context, in bsize(bytes) nullable const void *data, int bytes, DESTROY);
void sqlite3_result_blob64(sqlite3_context *context, in bsize(bytes) nullable const void *data, sqlite3_uint64 bytes, DESTROY);
void sqlite3_result_text(sqlite3_context *context, in bsize(bytes < 0 ? length(text) : bytes) nullable const char *text, int bytes, DESTROY);
void sqlite3_result_text64(sqlite3_context *context, in bsize(bytes) nullable const char *text, sqlite3_uint64 bytes, DESTROY, unsigned char encoding);
void sqlite3_result_text16le(sqlite3_context *context, in bsize(bytes) nullable const void *text, int bytes, DESTROY);
void sqlite3_result_text16be(sqlite3_context *context, in bsize(bytes) nullable const void *text, int bytes, DESTROY);
void sqlite3_result_double(sqlite3_context *context, double value);
void sqlite3_result_int(sqlite3_context *context, int value);
void sqlite3_result_int64(sqlite3_context *context, sqlite3_int64 value);
void sqlite3_result_null(sqlite3_context *context);
void sqlite3_result_value(sqlite3_context *context, sqlite3_value *value);
void sqlite3_result_pointer(sqlite3_context *context, void *pointer, instr const char *type, DESTROY);
void sqlite3_result_zeroblob(sqlite3_context *context, int bytes);
int sqlite3_result_zeroblob64(sqlite3_context *context, sqlite3_uint64 bytes);
void sqlite3_result_subtype(sqlite3_context *context, unsigned subtype);
void sqlite3_result_error(sqlite3_context *context, TEXT(text, bytes) const char *text, int bytes);
void sqlite3_result_error_code(sqlite3_context *context, int code);
void sqlite3_result_error_nomem(sqlite3_context *context);
void sqlite3_result_error_toobig(sqlite3_context *context);

/* Called by the code of virtual tables only, which is below the cut. */
harmless int sqlite3_declare_vtab(sqlite3 *db, const char *sql);
harmless int sqlite3_vtab_config(sqlite3 *db, int option, ...);
harmless int sqlite3_vtab_on_conflict(sqlite3 *db);
harmless int sqlite3_vtab_nochange(sqlite3_context *context);
harmless const char *sqlite3_vtab_collation(void *info, int constraint);
harmless int sqlite3_vtab_distinct(void *info);
harmless int sqlite3_vtab_in(void *info, int constraint, int handle);
harmless int sqlite3_vtab_in_first(sqlite3_value *list, sqlite3_value **value);
harmless int sqlite3_vtab_in_next(sqlite3_value *list, sqlite3_value **value);
harmless int sqlite3_vtab_rhs_value(void *info, int constraint, sqlite3_value **value);

/* ---- Blobs and copies ---- */

int sqlite3_blob_open(sqlite3 *db, instr const char *database, instr const char *table, instr const char *column, sqlite3_int64 row, int flags,
                      out sqlite3_blob **blob) block;
int sqlite3_blob_reopen(sqlite3_blob *blob, sqlite3_int64 row) block;
int sqlite3_blob_close(sqlite3_blob *blob);
int sqlite3_blob_bytes(sqlite3_blob *blob);
int sqlite3_blob_read(sqlite3_blob *blob, out bsize(result == 0 ? bytes : 0) void *data, int bytes, int offset) block;
int sqlite3_blob_write(sqlite3_blob *blob, in bsize(bytes) const void *data, int bytes, int offset) block;

sqlite3_backup *sqlite3_backup_init(sqlite3 *target, instr const char *target_name, sqlite3 *source, instr const char *source_name);
int sqlite3_backup_step(sqlite3_backup *backup, int pages) block;
int sqlite3_backup_finish(sqlite3_backup *backup) block;
int sqlite3_backup_remaining(sqlite3_backup *backup);
int sqlite3_backup_pagecount(sqlite3_backup *backup);

#endif
