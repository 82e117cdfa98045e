/* The keywords with which a C prototype says what crosses the interface when it is called.
 *
 * Include it last, after the headers that define the types you use: the keywords are short words, and some of
 * them (sync, in) are also names in system headers. Every prototype in your own file, after this line, is part of the
 * interface; prototypes of headers that you include are not.
 *
 *     #include <sys/types.h>
 *     #include "hindcast.h"
 *
 *     ssize_t read(int fd, out bsize(result) void *buf, size_t count) kernel(read) block;
 *
 * An expression may use the names of the parameters, `result`, numbers, sizeof, casts, `p->field`, `*p`, `p[i]`, ?:, least(a, b),
 * greatest(a, b), length(string) and length_within(string, most). Sizes are in bytes; a negative size counts as zero.
 */
#ifndef HINDCAST_H
#define HINDCAST_H

/* Two steps, so that macros in an expression (PATH_MAX) are replaced before it becomes text. Keywords whose
 * arguments may be keywords themselves become text as they are written. */
#define HINDCAST_KEYWORD(...) HINDCAST_TEXT(__VA_ARGS__)
#define HINDCAST_TEXT(...) __attribute__((annotate("hindcast " #__VA_ARGS__)))

/* ---- Parameters: which way data goes ---- */

/* Read only. What scalars and pointers to const are without a keyword. */
#define in HINDCAST_KEYWORD(in)
/* Written by the function: sizeof *p bytes, or those of an array parameter `int pair[2]`, unless bsize says otherwise. */
#define out HINDCAST_KEYWORD(out)
/* Both. `bsize` counts for both directions. */
#define inout HINDCAST_KEYWORD(inout)
/* A NUL-terminated string that is read. */
#define instr HINDCAST_KEYWORD(instr)
/* How many bytes. With `out` it is evaluated after the call and may use `result`; nothing is written when the call fails,
 * unless `always` stands beside it. */
#define bsize(...) HINDCAST_KEYWORD(bsize(__VA_ARGS__))
/* An `out` that is also written when the call fails. */
#define always HINDCAST_KEYWORD(always)
/* May be a null pointer; then nothing is transferred. */
#define nullable HINDCAST_KEYWORD(nullable)
/* Not compared between recording and replay: addresses and the like that may differ. */
#define unchecked HINDCAST_KEYWORD(unchecked)
/* An array of n NUL-terminated strings (char **), for the parameters of callbacks. */
#define strings(...) HINDCAST_KEYWORD(strings(__VA_ARGS__))
/* struct iovec[count]; what was transferred is `result` bytes in total: iovec(in, count), iovec(out, count). */
#define iovec(...) __attribute__((annotate("hindcast iovec(" #__VA_ARGS__ ")")))
/* struct msghdr with everything it points to: msghdr(in), msghdr(out). */
#define msghdr(...) __attribute__((annotate("hindcast msghdr(" #__VA_ARGS__ ")")))
/* These bytes are output: written again in replay when fd is the original standard output or error. echo(fd, size) */
#define echo(...) HINDCAST_KEYWORD(echo(__VA_ARGS__))
/* A function of the program that this one calls: callback(during) only before it returns, callback(later) also afterwards.
 * The parameters of the function pointer type carry annotations as well; `in` is what the program is handed. */
#define callback(...) __attribute__((annotate("hindcast callback(" #__VA_ARGS__ ")")))

/* ---- Parameters and results: memory that belongs to the library ---- */

/* The pointer that is handed out (by the function, or through an out parameter) leads into memory of the library; the program gets a copy.
 * xpointer(none) a new copy each time, xpointer(thread) one per thread, xpointer(process) one for all,
 * xpointer(until(key)) a new one each time, until a function with releases(key) is called, xpointer(callback) until the
 * running callback returns; a second argument tells
 * how much: bsize(expr), default a NUL-terminated string. On a function it is about the result. */
#define xpointer(...) __attribute__((annotate("hindcast xpointer(" #__VA_ARGS__ ")")))
/* What was handed out under xpointer(until(key)) ends with this call. */
#define releases(...) HINDCAST_KEYWORD(releases(__VA_ARGS__))

/* Gives back what xpointer(none) handed out, through this parameter: frees(pointer). */
#define frees(...) __attribute__((annotate("hindcast frees(" #__VA_ARGS__ ")")))

/* ---- Functions: how they run ---- */

/* Exactly one system call, SYS_<name>, with these arguments. The trap runs the same code. */
#define kernel(...) __attribute__((annotate("hindcast kernel(" #__VA_ARGS__ ")")))
/* No symbol of that name; only the trap uses it. */
#define trap_only HINDCAST_KEYWORD(trap_only)
/* May wait for somebody else; a signal can interrupt it. */
#define block HINDCAST_KEYWORD(block)
/* Other names with the same prototype: alias(open64, __open). */
#define alias(...) __attribute__((annotate("hindcast alias(" #__VA_ARGS__ ")")))
/* How failure shows, so that errno is recorded with it: fails(minus1), fails(null); fails(nonzero) fails by its result alone;
 * fails(never) is the default. System calls (kernel) need nothing: the kernel's way is known. */
#define fails(...) __attribute__((annotate("hindcast fails(" #__VA_ARGS__ ")")))
/* Known, and its code is written by hand: of an interface of your own, in the C file of the same name beside the header, if there
 * is one, by hindcast_runtime.h. Its number there is HINDCAST_NUMBER_<name>. A size may be had from such a function: it is called
 * before the call that needs it. */
#define by_hand HINDCAST_KEYWORD(by_hand)
/* Touches nothing outside the program: never interposed. */
#define harmless HINDCAST_KEYWORD(harmless)

/* ---- Functions and parameters: file descriptors ---- */

/* The result, or each element of an out array, is a new descriptor: newfd(file), newfd(internal) (both ends may be in this
 * process), newfd(socket), newfd(poll), newfd(other). */
#define newfd(...) __attribute__((annotate("hindcast newfd(" #__VA_ARGS__ ")")))
/* Closes the descriptor that this parameter holds: closefd(fd) */
#define closefd(...) __attribute__((annotate("hindcast closefd(" #__VA_ARGS__ ")")))

/* ---- Functions: order and asynchronous transfers ---- */

/* Calls with the same key are replayed in the order in which they were recorded: sync(key) and sync(key, before)
 * take their place before the call begins (a write), sync(key, after) when it has happened (a read that waited). Key 0 means no order. */
#define sync(...) HINDCAST_KEYWORD(sync(__VA_ARGS__))
/* Begins a transfer into the buffer parameter, to be finished by a call with the same key: prepare(key, buffer) */
#define prepare(...) HINDCAST_KEYWORD(prepare(__VA_ARGS__))
/* Finishes it: so many bytes have arrived in the buffer that was prepared with that key: commit(key, size) */
#define commit(...) HINDCAST_KEYWORD(commit(__VA_ARGS__))

/* ---- Functions: smaller logs ---- */

/* Often returns the same as the last time: then only that is recorded. */
#define cache HINDCAST_KEYWORD(cache)
/* Is executed again in replay and not recorded: for what gives the same again. */
#define reproduce HINDCAST_KEYWORD(reproduce)

/* ---- Functions that expressions may use ---- */

long least(long, long);
long greatest(long, long);
unsigned long length(const char *string);
/* The same for a string that may end at `most` bytes without a NUL. */
unsigned long length_within(const char *string, long most);
/* What orders reads and writes of a descriptor: a pipe within the process has a key, most have none (0). */
unsigned long sync_key(int fd);

#endif
