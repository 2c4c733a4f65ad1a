//! The committed C headers: made by cbindgen from the Rust side, accepted by strict C and C++ compilers, true to the library.

#[path = "../c/mod.rs"]
mod c;
mod compile_as_c11_and_cpp17;
mod generated_from_the_source;
mod headers;
mod library_exports_what_they_declare;
