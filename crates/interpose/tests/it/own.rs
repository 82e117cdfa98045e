//! Interfaces of one's own, built.

use std::path::PathBuf;

use hindcast_interpose::{build, interfaces_folder, write_headers};
use tempfile::TempDir;

fn written(folder: &TempDir, name: &str, text: &str) -> PathBuf {
    let path = folder.path().join(name);
    std::fs::write(&path, text).expect("writable");
    path
}

#[test]
fn the_headers_that_are_carried_along_are_those_of_the_tree() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    write_headers(folder.path()).expect("writable");
    for name in ["hindcast.h", "hindcast_runtime.h"] {
        let carried = std::fs::read(folder.path().join(name)).expect("written");
        assert_eq!(
            carried,
            std::fs::read(interfaces_folder().join(name)).expect("in the tree")
        );
    }
}

#[test]
fn an_interface_of_ones_own_is_one_library_with_its_functions() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let header = folder.path().join("dice.h");
    std::fs::write(
        &header,
        "#include \"hindcast.h\"\n\
         typedef struct dice dice;\n\
         dice *dice_new(int sides);\n\
         int dice_roll(dice *d, out bsize(result * sizeof(int)) int *values, unsigned long count) fails(minus1) alias(dice_throw);\n\
         xpointer(thread) const char *dice_name(dice *d);\n\
         void dice_each(dice *d, callback(later) void (*seen)(void *data, int n, instr const char *text), void *data);\n\
         double dice_average(const dice *d);\n\
         by_hand int dice_printf(const char *format, ...);\n",
    )
    .expect("writable");
    let built = build(&header, folder.path()).expect("a C compiler, and good code");
    assert_eq!(built.functions.len(), 5);
    let data = std::fs::read(&built.library).expect("there");
    use object::{Object, ObjectSymbol};
    let library = object::File::parse(&*data).expect("ELF");
    let mut defined: Vec<_> = library
        .dynamic_symbols()
        .filter(|symbol| symbol.is_definition())
        .filter_map(|symbol| {
            symbol
                .name()
                .ok()
                .filter(|name| name.starts_with("dice"))
                .map(str::to_owned)
        })
        .collect();
    defined.sort();
    assert_eq!(
        defined,
        [
            "dice_average",
            "dice_each",
            "dice_name",
            "dice_new",
            "dice_roll",
            "dice_throw"
        ]
    );
}

/// Its functions are numbered with the others, and sizes that it knows are asked for before the
/// call.
#[test]
fn a_c_file_beside_the_header_has_the_functions_by_hand() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let header = written(
        &folder,
        "dice.h",
        "#include \"hindcast.h\"\n\
         long dice_bytes(int sides) by_hand;\n\
         int dice_fill(out bsize(dice_bytes(sides)) void *values, int sides);\n\
         int dice_start(out bsize(8) void *value, out int *request) prepare(*request, value);\n",
    );
    written(
        &folder,
        "dice.c",
        "long dice_bytes(int sides) { return HINDCAST_NUMBER_dice_bytes + sides; }\n",
    );
    let built = build(&header, folder.path()).expect("a C compiler, and good code");
    assert_eq!(built.functions, ["dice_bytes", "dice_fill", "dice_start"]);
    let text = std::fs::read_to_string(folder.path().join("dice_stubs.c")).expect("it was made");
    let place = |what: &str| {
        text.find(what)
            .unwrap_or_else(|| panic!("no {what} in:\n{text}"))
    };
    let asked = place("hindcast_asked_0 = (long)(dice_bytes(sides))");
    assert!(asked < place("hindcast_enter(hindcast, hindcast_number(1))"));
    place("hindcast_out(hindcast, values, hindcast_asked_0)");
    // The key of a transfer is what the call gives.
    place("hindcast_prepare(hindcast, (unsigned long)(*request), value, 8)");
    assert!(!text.contains("hindcast_sync_before"), "{text}");
}

#[test]
fn a_size_by_hand_that_needs_the_result_is_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let header = written(
        &folder,
        "dice.h",
        "#include \"hindcast.h\"\n\
         long dice_bytes(int sides) by_hand;\n\
         int dice_fill(out bsize(dice_bytes(result)) void *values);\n",
    );
    written(&folder, "dice.c", "");
    let error = build(&header, folder.path()).expect_err("there is no result yet");
    assert!(
        error.to_string().contains("asked before the call"),
        "{error}"
    );
}

#[test]
fn a_header_without_functions_is_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let header = folder.path().join("nothing.h");
    std::fs::write(&header, "#include \"hindcast.h\"\n").expect("writable");
    let error = build(&header, folder.path())
        .expect_err("nothing to interpose")
        .to_string();
    assert!(error.contains("declares no function"), "{error}");
}
