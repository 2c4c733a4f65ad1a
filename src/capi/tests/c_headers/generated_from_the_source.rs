//! The committed headers are what cbindgen makes of the Rust side today. `FLASHRT_BLESS=1 cargo test` writes them.

use crate::headers::{declared, include_dir, HEADERS};

#[test]
fn the_committed_headers_are_the_generated_ones() {
    let is_blessed = std::env::var_os("FLASHRT_BLESS").is_some();
    for header in HEADERS {
        let path = include_dir().join(header.file);
        let text = header.generate();
        if is_blessed {
            std::fs::create_dir_all(path.parent().expect("below include")).unwrap();
            std::fs::write(&path, &text).unwrap();
        }
        let committed =
            std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let differs = committed.lines().zip(text.lines()).find(|(a, b)| a != b);
        assert!(
            committed == text,
            "{} is not what its sources give (FLASHRT_BLESS=1 writes it); first difference: {differs:?}",
            header.file
        );
    }
}

#[test]
fn every_published_function_is_declared_in_its_header_once() {
    for header in HEADERS {
        let text = header.generate();
        for name in header.published {
            let count = text
                .lines()
                .filter(|line| declared(line) == Some(name))
                .count();
            assert_eq!(count, 1, "{}: {name}", header.file);
        }
    }
}
