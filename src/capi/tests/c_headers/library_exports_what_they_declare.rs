//! The shared library exports the functions of the headers and nothing else, under the name that programs ask the loader for.

use std::collections::BTreeSet;
use std::process::Command;

use crate::c::{built, run};
use crate::headers::{declared, HEADERS};

#[test]
fn exported_symbols_are_the_declared_functions() {
    let mut wanted = BTreeSet::new();
    for header in HEADERS {
        let text = header.generate();
        wanted.extend(text.lines().filter_map(declared).map(String::from));
    }
    assert!(wanted.len() > 70, "{} functions", wanted.len());

    let table = run(Command::new("nm")
        .args(["-D", "--defined-only", "--format=posix"])
        .arg(built().join("libflashrt_capi.so")));
    let exported: BTreeSet<String> = table
        .lines()
        .filter_map(|line| line.split(' ').next())
        .map(String::from)
        .collect();
    assert_eq!(exported, wanted);
}

#[test]
fn the_loader_knows_the_library_by_its_versioned_name() {
    let table = run(Command::new("readelf")
        .args(["-d", "-W"])
        .arg(built().join("libflashrt_capi.so")));
    assert!(
        table.contains("Library soname: [libflashrt.so.0]"),
        "{table}"
    );
}
