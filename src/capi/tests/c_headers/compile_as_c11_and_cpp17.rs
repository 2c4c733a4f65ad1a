//! Every header stands alone, and programs that were written for the published ones find the same sizes, offsets, numbers and
//! signatures. No warning is accepted.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::c::{compilers, folder, here, output};
use crate::headers::{include_dir, HEADERS};

fn compiles(mut compiler: Command, source: &str) {
    compiler
        .arg("-I")
        .arg(include_dir())
        .args(["-fsyntax-only", "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = compiler
        .spawn()
        .unwrap_or_else(|e| panic!("{compiler:?} did not start: {e}"));
    child
        .stdin
        .take()
        .expect("it is piped")
        .write_all(source.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(
        output.status.success(),
        "{compiler:?}:\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn every_header_stands_alone_and_may_be_included_twice() {
    for is_cpp in [false, true] {
        for header in HEADERS {
            for compiler in compilers(is_cpp) {
                compiles(
                    compiler,
                    &format!("#include <{0}>\n#include <{0}>\nint used;\n", header.file),
                );
            }
        }
    }
}

#[test]
fn sizes_offsets_numbers_and_signatures_are_the_published_ones() {
    for file in ["ctests/layout.c", "ctests/signatures.c"] {
        let source = std::fs::read_to_string(here(file)).unwrap();
        for is_cpp in [false, true] {
            compilers(is_cpp)
                .into_iter()
                .for_each(|compiler| compiles(compiler, &source));
        }
    }
}

#[test]
fn a_wrong_number_or_signature_would_not_compile() {
    for (wrong, right) in [
        (
            "static_assert(sizeof(frt_runtime_export_v1) == 120, \"\");",
            "static_assert(sizeof(frt_runtime_export_v1) == 128, \"\");",
        ),
        (
            "int (*f)(frt_ctx, long) = frt_ctx_stream;",
            "int (*f)(frt_ctx, int) = frt_ctx_stream;",
        ),
    ] {
        let source =
            |line: &str| format!("#include <assert.h>\n#include \"flashrt/runtime.h\"\n{line}\n");
        for is_cpp in [false, true] {
            for mut compiler in compilers(is_cpp) {
                compiler.arg("-I").arg(include_dir());
                compiles(compilers(is_cpp).remove(0), &source(right));
                let file = folder("wrong").join(format!("wrong{}.c", u8::from(is_cpp)));
                std::fs::write(&file, source(wrong)).unwrap();
                assert!(
                    !output(compiler.arg("-fsyntax-only").arg(file))
                        .status
                        .success(),
                    "{wrong}"
                );
            }
        }
    }
}
