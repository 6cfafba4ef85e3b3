//! Keeps the module loaded: threads of the library, and destructors of thread-local variables, may still run.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let system = std::env::var("CARGO_CFG_TARGET_OS").unwrap_or_default();
    if ["linux", "android", "freebsd"].contains(&&*system) {
        println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    }
}
