//! The name that programs ask the loader for: `libflashrt.so.0`, whatever file it was linked as.
//!
//! The number grows when a program that was linked before stops working; see docs/c_abi.md.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libflashrt.so.0");
    }
}
