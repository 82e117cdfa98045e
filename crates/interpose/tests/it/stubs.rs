//! What becomes of prototypes of one's own: golden pieces of C.

use expect_test::{Expect, expect};
use hindcast_interpose::model::Interface;
use hindcast_interpose::{c, interfaces_folder, read};

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

/// The stub of the function named `f`, as C.
fn check_c(text: &str, expected: Expect) {
    let file = c::file(&interface(text), "test.h", None).expect("functions of a library");
    let start = file.find("hindcast_first + index").expect("the beginning");
    let start = start + file[start..].find("}\n").expect("its end") + 3;
    expected.assert_eq(&file[start..]);
}

#[test]
fn an_interface_of_ones_own_becomes_c() {
    check_c(
        "int f(instr const char *name, out nullable int *n, double x);\n",
        expect![[r#"
        int f(const char *name, int *n, double x)
        {
            static __typeof__(&f) hindcast_real_function;
            if (!hindcast_real_function)
                hindcast_real_function = (__typeof__(&f))hindcast_next("f", (void *)&f);
            struct hindcast_call hindcast_call, *hindcast = &hindcast_call;
            if (!hindcast_enter(hindcast, hindcast_number(0)))
                return hindcast_real_function(name, n, x);
            hindcast_input_string(hindcast, name);
            hindcast_input(hindcast, hindcast_double_bits(x));
            long hindcast_value = 0;
            if (hindcast_runs(hindcast))
                hindcast_value = (long)hindcast_real_function(name, n, x);
            hindcast_value = hindcast_ran(hindcast, HINDCAST_NEVER, hindcast_value);
            __typeof__(f(name, n, x)) result = (__typeof__(f(name, n, x)))hindcast_value;
            if (n) hindcast_out(hindcast, n, sizeof(*n));
            hindcast_leave(hindcast);
            return result;
        }
    "#]],
    );
    check_c(
        "xpointer(none) char *f(callback(during) int (*each)(void *data, in bsize(n) const void *p, int n), void *data) fails(null);\n",
        expect![[r#"
            static int  hindcast_upcall_f_0(void *data, const void *p, int n, double hindcast_stand_in_number)
            {
                struct hindcast_upcall *hindcast = hindcast_upcall(hindcast_number(0), 0, hindcast_stand_in_number, 4);
                hindcast_upcall_value(hindcast, (unsigned long)data);
                hindcast_upcall_bytes(hindcast, p, p ? (n) : 0);
                hindcast_upcall_value(hindcast, (unsigned long)n);
                return (int )hindcast_upcall_run(hindcast);
            }

            char *f(int (*each)(void *data, const void *p, int n), void *data)
            {
                static __typeof__(&f) hindcast_real_function;
                if (!hindcast_real_function)
                    hindcast_real_function = (__typeof__(&f))hindcast_next("f", (void *)&f);
                struct hindcast_call hindcast_call, *hindcast = &hindcast_call;
                if (!hindcast_enter(hindcast, hindcast_number(0)))
                    return hindcast_real_function(each, data);
                hindcast_input(hindcast, (unsigned long)each);
                hindcast_input(hindcast, (unsigned long)data);
                each = (__typeof__(each))hindcast_stand_in(hindcast, (void *)&hindcast_upcall_f_0, (void *)each);
                long hindcast_value = 0;
                if (hindcast_runs(hindcast))
                    hindcast_value = (long)hindcast_real_function(each, data);
                hindcast_value = hindcast_ran(hindcast, HINDCAST_NULL, hindcast_value);
                __typeof__(f(each, data)) result = (__typeof__(f(each, data)))hindcast_value;
                result = (__typeof__(result))hindcast_shadow(hindcast, (void *)result, -1, HINDCAST_OWNER_NONE, (unsigned long)(0), (unsigned long)hindcast_number(0) << 8 | 0);
                hindcast_leave(hindcast);
                return result;
            }
        "#]],
    );
    check_c(
        "void f(unchecked void *text) frees(text);\n",
        expect![[r#"
        void f(void *text)
        {
            static __typeof__(&f) hindcast_real_function;
            if (!hindcast_real_function)
                hindcast_real_function = (__typeof__(&f))hindcast_next("f", (void *)&f);
            struct hindcast_call hindcast_call, *hindcast = &hindcast_call;
            if (!hindcast_enter(hindcast, hindcast_number(0))) {
                hindcast_real_function(text);
                return;
            }
            void *hindcast_freed = (void *)text;
            text = hindcast_real(hindcast, hindcast_freed);
            long hindcast_value = 0;
            if (hindcast_runs(hindcast))
                hindcast_real_function(text);
            hindcast_value = hindcast_ran(hindcast, HINDCAST_NEVER, hindcast_value);
            hindcast_free(hindcast, hindcast_freed);
            hindcast_leave(hindcast);
        }
    "#]],
    );
}

#[test]
fn a_system_call_in_an_interface_of_ones_own_is_refused() {
    let error = c::file(&interface("int f(int fd) kernel(close);\n"), "test.h", None)
        .expect_err("system calls are built in");
    assert!(
        error.to_string().ends_with("so leave kernel(...) out"),
        "{error}"
    );
}
