/* What the stubs of a user's own interface call in the runtime. Used by generated code; written by nobody by hand.
 * The other side is crates/runtime/src/doors/user_interface.rs. */
#ifndef HINDCAST_RUNTIME_H
#define HINDCAST_RUNTIME_H

struct hindcast_call {
    _Alignas(16) unsigned char room[512];
};
struct hindcast_upcall;
struct hindcast_thread;

/* ---- Numbers and real functions ---- */

unsigned hindcast_interface(const char *const *names, unsigned count);
void *hindcast_next(const char *name, void *own);

/* ---- One call ---- */

int hindcast_enter(struct hindcast_call *, unsigned function);
void hindcast_leave(struct hindcast_call *);
int hindcast_is_recording(const struct hindcast_call *);
void hindcast_input(struct hindcast_call *, unsigned long value);
void hindcast_input_bytes(struct hindcast_call *, const void *, long bytes);
void hindcast_input_string(struct hindcast_call *, const char *);
void hindcast_input_iovec(struct hindcast_call *, const void *, long count);
void hindcast_sync_before(struct hindcast_call *, unsigned long key);
void hindcast_sync_after(struct hindcast_call *, unsigned long key);
unsigned long hindcast_sync_key(int fd);
void hindcast_cache(struct hindcast_call *);
void hindcast_blocks(struct hindcast_call *);
int hindcast_runs(struct hindcast_call *);
long hindcast_ran(struct hindcast_call *, int failure, long value);
void hindcast_out(struct hindcast_call *, void *, long bytes);
void hindcast_out_iovec(struct hindcast_call *, const void *, long count, long total);
void hindcast_out_msghdr(struct hindcast_call *, void *, long result);
void hindcast_echo(struct hindcast_call *, int fd, const void *, long bytes);

enum { HINDCAST_MINUS1, HINDCAST_NULL, HINDCAST_NONZERO, HINDCAST_NEVER };

/* ---- Memory of the library ---- */

enum { HINDCAST_OWNER_NONE, HINDCAST_OWNER_THREAD, HINDCAST_OWNER_PROCESS, HINDCAST_OWNER_CALLBACK, HINDCAST_OWNER_UNTIL };
/* bytes < 0: a string. */
void *hindcast_shadow(struct hindcast_call *, void *real, long bytes, int owner, unsigned long key, unsigned long place);
void hindcast_release(struct hindcast_call *, unsigned long key);
void *hindcast_real(const struct hindcast_call *, void *copy);
void hindcast_free(struct hindcast_call *, void *copy);
void hindcast_prepare(struct hindcast_call *, unsigned long key, void *buffer, long bytes);
void hindcast_commit(struct hindcast_call *, unsigned long key, long bytes);
/* The whole buffer may have been filled; with `again` another transfer into it follows under this key. */
void hindcast_arrived(struct hindcast_call *, unsigned long key, int again);
void hindcast_forget(unsigned long key);

/* ---- What cannot be recorded ---- */

void hindcast_ends(const char *because);

/* ---- Descriptors ---- */

enum { HINDCAST_FILE, HINDCAST_INTERNAL, HINDCAST_SOCKET, HINDCAST_POLL, HINDCAST_OTHER };
void hindcast_opened(int fd, int kind);
void hindcast_closed(int fd);

/* ---- Functions of the program ---- */

void *hindcast_stand_in(const struct hindcast_call *, void *stub, void *program);
struct hindcast_upcall *hindcast_upcall(unsigned function, unsigned parameter, double number, unsigned result_bytes);
void hindcast_upcall_value(struct hindcast_upcall *, unsigned long value);
void hindcast_upcall_bytes(struct hindcast_upcall *, const void *, long bytes);
void hindcast_upcall_string(struct hindcast_upcall *, const char *);
void hindcast_upcall_strings(struct hindcast_upcall *, const void *, long count);
unsigned long hindcast_upcall_run(struct hindcast_upcall *);

/* ---- Into system space without a trace ---- */

struct hindcast_thread *hindcast_step_down(void);
void hindcast_step_up(struct hindcast_thread *);

/* ---- What expressions may use ---- */

static inline long hindcast_least(long a, long b) { return a < b ? a : b; }
static inline long hindcast_greatest(long a, long b) { return a > b ? a : b; }
static inline long hindcast_length(const char *text) { return (long)__builtin_strlen(text); }
static inline long hindcast_length_within(const char *text, long most)
{
    long length = 0;
    while (length < most && text[length])
        length++;
    return length;
}
static inline unsigned long hindcast_float_bits(float value)
{
    union { float value; unsigned bits; } both = { value };
    return both.bits;
}
static inline unsigned long hindcast_double_bits(double value)
{
    union { double value; unsigned long bits; } both = { value };
    return both.bits;
}
static inline float hindcast_float(long bits)
{
    union { unsigned bits; float value; } both = { (unsigned)bits };
    return both.value;
}
static inline double hindcast_double(long bits)
{
    union { long bits; double value; } both = { bits };
    return both.value;
}

#endif
