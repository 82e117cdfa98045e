//! What an annotated header means, and what is said when it cannot be understood.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use expect_test::{Expect, expect};
use hindcast_interpose::model::{Code, Interface, Transfer, Type};
use hindcast_interpose::{InterfaceError, interfaces_folder, read};

fn header(text: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("test.h");
    std::fs::write(
        &path,
        format!("#include <sys/types.h>\n#include <limits.h>\n#include \"hindcast.h\"\n{text}"),
    )
    .expect("the folder is writable");
    (folder, path)
}

fn understood(text: &str) -> Result<Interface, String> {
    let (folder, path) = header(text);
    let short = |error: InterfaceError| {
        error
            .to_string()
            .replace(&format!("{}/", folder.path().display()), "")
    };
    read(&path, &[&interfaces_folder()]).map_err(short)
}

fn check(text: &str, expected: Expect) {
    let mut shown = String::new();
    match understood(text) {
        Ok(interface) => {
            for function in &interface.functions {
                let _ = writeln!(shown, "{} -> {}", function.name, kind(function.result));
                for parameter in &function.parameters {
                    let transfer = match &parameter.transfer {
                        Transfer::Value => "value".to_owned(),
                        Transfer::In(size) => format!("in {}", size.text),
                        Transfer::InString => "in string".to_owned(),
                        Transfer::Out(size) => format!("out {}", size.text),
                        Transfer::InOut(size) => format!("in and out {}", size.text),
                        Transfer::Strings(count) => format!("{} strings", count.text),
                        Transfer::Iovec { out, count } => {
                            format!("iovec[{}] {}", count.text, if *out { "out" } else { "in" })
                        }
                        Transfer::Msghdr { out } => {
                            format!("message {}", if *out { "out" } else { "in" })
                        }
                        Transfer::Callback(callback) => {
                            format!("callback with {} parameters", callback.parameters.len())
                        }
                    };
                    let _ = writeln!(
                        shown,
                        "  {}: {}, {transfer}",
                        parameter.name,
                        kind(parameter.kind)
                    );
                }
            }
        }
        Err(error) => {
            let _ = writeln!(shown, "{error}");
        }
    }
    expected.assert_eq(&shown);
}

fn kind(kind: Type) -> String {
    match kind {
        Type::Void => "nothing".to_owned(),
        Type::Pointer => "pointer".to_owned(),
        Type::Integer { bytes, signed } => {
            format!("{}{}", if signed { "i" } else { "u" }, u32::from(bytes) * 8)
        }
        Type::Float { bytes } => format!("f{}", u32::from(bytes) * 8),
        Type::Aggregate { bytes } => format!("{bytes} bytes"),
    }
}

#[test]
fn scalars_and_constant_pointees_go_in_without_a_word() {
    check(
        "struct point { int x, y; };\n\
         ssize_t f(int a, unsigned char b, double c, const struct point *d, void *e, struct nobody_knows *g);\n",
        expect![[r#"
            f -> i64
              a: i32, value
              b: u8, value
              c: f64, value
              d: pointer, in sizeof(*d)
              e: pointer, value
              g: pointer, value
        "#]],
    );
}

#[test]
fn keywords_stand_before_parameters_and_on_either_side_of_functions() {
    check(
        "block ssize_t f(int fd, out bsize(result) void *p, size_t n);\n",
        expect![[r#"
            f -> i64
              fd: i32, value
              p: pointer, out result
              n: u64, value
        "#]],
    );
    check(
        "int f(instr const char *a, inout bsize(8) void *b, out int pair[2], nullable out long *c) block alias(g, h);\n",
        expect![[r#"
            f -> i32
              a: pointer, in string
              b: pointer, in and out 8
              pair: pointer, out sizeof(*pair) * (2)
              c: pointer, out sizeof(*c)
        "#]],
    );
}

#[test]
fn macros_in_expressions_are_replaced() {
    check(
        "int f(out bsize(PATH_MAX) char *path);\n",
        expect![[r#"
        f -> i32
          path: pointer, out 4096
    "#]],
    );
}

#[test]
fn only_what_the_header_itself_declares_is_part_of_the_interface() {
    let interface = understood("#include <unistd.h>\nint f(void);\n").expect("a good header");
    let names: Vec<_> = interface
        .functions
        .iter()
        .map(|function| function.name.as_str())
        .collect();
    assert_eq!(names, ["f"]);
}

#[test]
fn callbacks_have_annotated_parameters_of_their_own() {
    check(
        "int f(callback(during) int (*each)(void *data, int n, strings(n) char **names), void *data);\n",
        expect![[r#"
            f -> i32
              each: pointer, callback with 3 parameters
              data: pointer, value
        "#]],
    );
}

#[test]
fn the_compiler_tells_the_types_of_a_callbacks_parameters() {
    let types = |parameters: &str| -> Result<String, String> {
        let text = format!(
            "#include <stdint.h>\ntypedef long long sqlite3_int64;\n\
             typedef struct {{ sqlite3_int64 a, b; }} sqlite3_int64_pair;\n\
             int f(callback(later) void (*seen)({parameters}));\n"
        );
        let interface = understood(&text)?;
        match &interface.functions[0].parameters[0].transfer {
            Transfer::Callback(callback) => Ok(callback
                .parameters
                .iter()
                .map(|parameter| kind(parameter.kind))
                .collect::<Vec<_>>()
                .join(" ")),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(
        types(
            "sqlite3_int64 row, const unsigned long n, int64_t a, uint16_t b, intptr_t c, void *d"
        )
        .as_deref(),
        Ok("i64 u64 i64 u16 i64 pointer")
    );
    // The first begins like a type that is known.
    for (parameters, why) in [
        (
            "sqlite3_int64_pair both",
            "parameter `both` is a structure passed by value",
        ),
        (
            "int n, double average",
            "write a whole number or a pointer as the parameter of a callback",
        ),
    ] {
        let error = types(parameters).expect_err(parameters);
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn harmless_functions_and_those_by_hand_need_no_annotations() {
    let interface = understood("harmless int f(char *, ...);\nby_hand int g(char *p, ...);\n")
        .expect("a good header");
    assert_eq!(interface.functions[0].code, Code::Harmless);
    assert_eq!(interface.functions[1].code, Code::ByHand { call: None });
}

#[test]
fn what_happens_behind_a_pointer_must_be_said() {
    check(
        "\nint f(int *p);\n",
        expect![[r#"
        test.h:5: what happens behind `int *p` is not said; write in, out or inout, and bsize(BYTES) when it is more than one
    "#]],
    );
    check(
        "int f(const char *p);\n",
        expect![[r#"
        test.h:4: what happens behind `const char *p` is not said; write instr for a string, bsize(BYTES) for bytes, unchecked for neither
    "#]],
    );
    check(
        "int f(out void *p);\n",
        expect![[r#"
        test.h:4: nobody knows how much lies behind `void *p`; write bsize(BYTES)
    "#]],
    );
}

#[test]
fn a_keyword_in_the_wrong_place_is_named_with_what_to_write() {
    check(
        "int f(int fd) out;\n",
        expect![[r#"
        test.h:4: `out` is not understood; write this before a parameter; here it stands beside the function
    "#]],
    );
    check(
        "int f(in out bsize(4) void *p);\n",
        expect![[r#"
        test.h:4: `out` is not understood; write one direction per parameter; inout for both
    "#]],
    );
    check(
        "int f(out int n);\n",
        expect![[r#"
        test.h:4: `out` is not understood; write nothing: `int n` is no pointer
    "#]],
    );
    check(
        "int f(in bsize(result) const void *p);\n",
        expect![[r#"
        test.h:4: `bsize(result)` is not understood; write a size without `result`: what is read is known before the call
    "#]],
    );
    check(
        "int f(void) fails(sometimes);\n",
        expect![[r#"
        test.h:4: `fails(sometimes)` is not understood; write fails(minus1), fails(null), fails(nonzero) or fails(never)
    "#]],
    );
    check(
        "int f(int fd) newfd(door);\n",
        expect![[r#"
        test.h:4: `newfd(door)` is not understood; write newfd(file), newfd(internal), newfd(socket), newfd(poll) or newfd(other)
    "#]],
    );
    check(
        "int f(int fd) closefd(df);\n",
        expect![[r#"
        test.h:4: `closefd(df)` is not understood; write the name of a parameter
    "#]],
    );
}

#[test]
fn expressions_that_cannot_be_computed_say_why() {
    check(
        "int f(out bsize(n +) void *p, int n);\n",
        expect![[r#"
        test.h:4: `n +` cannot be computed: this is no C expression
    "#]],
    );
    check(
        "int f(out bsize(n++) void *p, int n);\n",
        expect![[r#"
        test.h:4: `n++` cannot be computed: an annotation changes nothing: no ++ and --
    "#]],
    );
    check(
        "int f(out bsize(1.5) void *p);\n",
        expect![[r#"
        test.h:4: `1.5` cannot be computed: sizes and keys are whole numbers
    "#]],
    );
    check(
        "int f(in bsize(q + 1) const void *p, int *q);\n",
        expect![[r#"
        test.h:4: `q + 1` cannot be computed: `q` is a pointer: write p[i] or cast it to a number
    "#]],
    );
    check(
        "int f(out bsize(m) void *p, int n);\n",
        expect![[r#"
        the C compiler refuses test.h:
        test.h:4: error: ‘m’ undeclared (first use in this function)
    "#]],
    );
}

#[test]
fn what_cannot_have_a_stub_is_refused() {
    check(
        "int f(instr const char *format, ...);\n",
        expect![[r#"
        test.h:4: f takes a variable number of arguments; write by_hand or harmless, or annotate its va_list sibling
    "#]],
    );
    check(
        "struct two { long a, b; };\nint f(struct two both);\n",
        expect![[r#"
        test.h:5: parameter `both` is a structure passed by value; write by_hand, or annotate what lies above or below
    "#]],
    );
    check(
        "int f(int);\n",
        expect![[r#"
        test.h:4: the parameter `int` has no name; give it one
    "#]],
    );
    check(
        "int f(void) trap_only;\n",
        expect![[r#"
        test.h:4: trap_only without kernel(NAME): the trap knows system calls, not symbols
    "#]],
    );
    check(
        "int f(void);\nint g(void) alias(f);\n",
        expect![[r#"
        test.h:5: f was declared already, at test.h:4; keep one
    "#]],
    );
    check(
        "int f(out int *n) cache;\n",
        expect![[r#"
        test.h:4: cache is for functions that give nothing but their result
    "#]],
    );
    check(
        "extern int block value;\n",
        expect![[r#"
        test.h:4: `block` stands at something that is no function; write the prototype out, without typedefs around it
    "#]],
    );
    check(
        "int f(;\n",
        expect![[r#"
        test.h:4: this is no C declaration: `;`
    "#]],
    );
}

#[test]
fn a_header_that_does_not_exist_is_the_compilers_to_report() {
    let error = read(Path::new("/nowhere/at/all.h"), &[])
        .expect_err("there is none")
        .to_string();
    assert!(
        error.starts_with("the C compiler refuses /nowhere/at/all.h"),
        "{error}"
    );
}
