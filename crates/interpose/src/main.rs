//! Temporary
fn main() {
    let include = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("interfaces");
    for header in std::env::args().skip(1) {
        match hindcast_interpose::read(header.as_ref(), &[&include]) {
            Ok(interface) => println!("{header}: {} functions", interface.functions.len()),
            Err(error) => println!("{error}"),
        }
    }
}
