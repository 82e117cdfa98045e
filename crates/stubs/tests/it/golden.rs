//! What becomes of prototypes: golden pieces of generated code.

use expect_test::{Expect, expect};
use hindcast_interpose::model::Interface;
use hindcast_interpose::{interfaces_folder, read};

fn interface(text: &str) -> Interface {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("test.h");
    std::fs::write(
        &path,
        format!("#include <sys/types.h>\n#include <sys/uio.h>\n#include \"hindcast.h\"\n{text}"),
    )
    .expect("writable");
    read(&path, &[&interfaces_folder()]).expect("a good header")
}

/// The core of the function named `f`, as Rust.
fn check(text: &str, expected: Expect) {
    let files = hindcast_stubs::files(&[interface(text)], &[]);
    let module = &files
        .iter()
        .find(|file| file.name == "doors/generated/test.rs")
        .expect("one module per interface")
        .text;
    let start = module.find("fn core_f(").expect("a core");
    let start = module[..start].rfind('\n').map_or(0, |at| at + 1);
    let end = start + module[start..].find("\n}\n").expect("its end") + 3;
    expected.assert_eq(&module[start..end]);
}

#[test]
fn a_system_call_is_checked_by_what_goes_in_and_gives_what_comes_out() {
    check(
        "ssize_t f(int fd, out bsize(result) void *buf, size_t n) kernel(read) block sync(sync_key(fd), after);\n",
        expect![[r#"
            pub(crate) unsafe fn core_f(call: &mut Call, fd: i32, buf: *mut u8, n: usize) -> isize {
                unsafe {
                    call.input(fd as u64);
                    call.input(n as u64);
                    if let Some(key) = files::sync_key(fd as i32) {
                        call.sync_after(key);
                    }
                    call.blocks();
                    let result = call
                        .run_kernel(|thread| {
                            thread
                                .blocking6(
                                    libc::SYS_read,
                                    [fd as usize, buf as usize, n as usize, 0, 0, 0],
                                )
                        });
                    if result >= 0 {
                        call.out(buf, result as usize);
                    }
                    result
                }
            }
        "#]],
    );
}

#[test]
fn output_is_echoed_and_vectors_are_gathered() {
    check(
        "ssize_t f(int fd, in bsize(n) echo(fd, result) const void *buf, size_t n) kernel(write) block;\n",
        expect![[r#"
            pub(crate) unsafe fn core_f(call: &mut Call, fd: i32, buf: *mut u8, n: usize) -> isize {
                unsafe {
                    call.input(fd as u64);
                    call.input_bytes(buf, n as usize);
                    call.input(n as u64);
                    call.blocks();
                    let result = call
                        .run_kernel(|thread| {
                            thread
                                .blocking6(
                                    libc::SYS_write,
                                    [fd as usize, buf as usize, n as usize, 0, 0, 0],
                                )
                        });
                    if result >= 0 {
                        call.echo(fd as i32, buf, result as usize);
                    }
                    result
                }
            }
        "#]],
    );
    check(
        "ssize_t f(int fd, iovec(out, n) const struct iovec *v, int n) kernel(readv);\n",
        expect![[r#"
            pub(crate) unsafe fn core_f(call: &mut Call, fd: i32, v: *mut u8, n: i32) -> isize {
                unsafe {
                    call.input(fd as u64);
                    call.input(n as u64);
                    let result = call
                        .run_kernel(|_| raw::syscall6(
                            libc::SYS_readv,
                            fd as usize,
                            v as usize,
                            n as usize,
                            0,
                            0,
                            0,
                        ));
                    if result >= 0 {
                        call.out_iovec(v.cast(), n as usize, result as usize);
                    }
                    result
                }
            }
        "#]],
    );
}

#[test]
fn types_in_expressions_become_sizes_and_offsets() {
    check(
        "struct list { short a; unsigned n; };\n\
         int f(out bsize(p->n * sizeof(long)) nullable void *to, const struct list *p) kernel(ioctl);\n",
        expect![[r#"
            pub(crate) unsafe fn core_f(call: &mut Call, to: *mut u8, p: *mut u8) -> isize {
                unsafe {
                    call.input_bytes(p, 8);
                    let result = call
                        .run_kernel(|_| raw::syscall6(
                            libc::SYS_ioctl,
                            to as usize,
                            p as usize,
                            0,
                            0,
                            0,
                            0,
                        ));
                    if result >= 0 {
                        if !to.is_null() {
                            call.out(
                                to,
                                ((((p as i64).wrapping_add(4i64) as *const u32).read_unaligned()
                                    as i64)
                                    .wrapping_mul(8i64))
                                    .max(0) as usize,
                            );
                        }
                    }
                    result
                }
            }
        "#]],
    );
}

#[test]
fn new_descriptors_are_noted_and_closed_ones_forgotten() {
    check(
        "int f(int fd, int how) kernel(accept4) newfd(socket) closefd(fd);\n",
        expect![[r#"
            pub(crate) unsafe fn core_f(call: &mut Call, fd: i32, how: i32) -> isize {
                unsafe {
                    if files::is_protected(fd as i32) {
                        return -(libc::EBADF as isize);
                    }
                    call.input(fd as u64);
                    call.input(how as u64);
                    let result = call
                        .run_kernel(|_| raw::syscall6(
                            libc::SYS_accept4,
                            fd as usize,
                            how as usize,
                            0,
                            0,
                            0,
                            0,
                        ));
                    if result >= 0 {
                        call.opened(result as i32, files::Kind::Socket);
                        files::closed(fd as i32);
                    }
                    result
                }
            }
        "#]],
    );
}

#[test]
fn what_is_reproduced_runs_in_both_runs() {
    check(
        "int f(int fd) kernel(fsync) reproduce;\n",
        expect![[r#"
        pub(crate) unsafe fn core_f(fd: i32) -> isize {
            unsafe { raw::syscall6(libc::SYS_fsync, fd as usize, 0, 0, 0, 0, 0) }
        }
    "#]],
    );
}

#[test]
fn pointers_of_a_library_become_copies() {
    check(
        "typedef struct db db;\nxpointer(until(d), bsize(n * 2)) const void *f(db *d, int n);\n",
        expect![[r#"
            unsafe fn core_f(call: &mut Call, d: *mut u8, n: i32) -> *mut u8 {
                unsafe {
                    call.input(d as u64);
                    call.input(n as u64);
                    let result = call
                        .run_calling_back(
                            Failure::Never,
                            || {
                                let next = foreign::next!(
                                    f : unsafe extern "C" fn (* mut u8, i32) -> * mut u8
                                );
                                next(d, n) as i64
                            },
                            foreign::call_back,
                        );
                    let result = result as *mut u8;
                    let result = foreign::shadow(
                        call,
                        result,
                        Some(&|| ((n as i64).wrapping_mul(2i64)).max(0) as usize),
                        foreign::Owner::Until((d as i64) as u64),
                        (functions::F.0 as u64) << 8 | 0,
                    );
                    result
                }
            }
        "#]],
    );
}

#[test]
fn asynchronous_transfers_are_ordered_by_their_key() {
    check(
        "int f(void *request, out bsize(n) void *to, size_t n) prepare(request, to);\n",
        expect![[r#"
            unsafe fn core_f(call: &mut Call, request: *mut u8, to: *mut u8, n: usize) -> i32 {
                unsafe {
                    call.input(request as u64);
                    call.input(n as u64);
                    call.sync_before((request as i64) as u64);
                    let result = call
                        .run_calling_back(
                            Failure::Never,
                            || {
                                let next = foreign::next!(
                                    f : unsafe extern "C" fn (* mut u8, * mut u8, usize) -> i32
                                );
                                next(request, to, n) as i64
                            },
                            foreign::call_back,
                        );
                    let result = result as i32;
                    foreign::prepare((request as i64) as u64, to, n as usize);
                    result
                }
            }
        "#]],
    );
    check(
        "int f(void *request) commit(request, result) fails(minus1);\n",
        expect![[r#"
            unsafe fn core_f(call: &mut Call, request: *mut u8) -> i32 {
                unsafe {
                    call.input(request as u64);
                    call.sync_after((request as i64) as u64);
                    let result = call
                        .run_calling_back(
                            Failure::Minus1,
                            || {
                                let next = foreign::next!(
                                    f : unsafe extern "C" fn (* mut u8) -> i32
                                );
                                next(request) as i64
                            },
                            foreign::call_back,
                        );
                    let result = result as i32;
                    if result != -1 {
                        foreign::commit(call, (request as i64) as u64, result as usize);
                    }
                    result
                }
            }
        "#]],
    );
}
