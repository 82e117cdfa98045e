//! How the library is linked.

fn main() {
    // Before the constructors of every other library: what they do is recorded, too.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,initfirst");
    // Every relocation at load: the lazy binder would run inside stubs.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,now");
    println!("cargo:rerun-if-changed=build.rs");
}
