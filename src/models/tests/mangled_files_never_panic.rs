//! Weights and statistics from untrusted bytes: an error or a success, never a panic or a huge allocation.

use std::path::Path;

use flashrt_models::stats::Stats;
use flashrt_models::weights::Weights;
use proptest::prelude::*;

fn open(name: &str, bytes: &[u8]) -> Result<Weights, flashrt_models::Error> {
    let path =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    std::fs::write(&path, bytes).unwrap();
    let weights = Weights::open(&path, &|n: &str| n.into());
    std::fs::remove_file(&path).unwrap();
    weights
}

fn small() -> Vec<u8> {
    let header = r#"{"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},"b":{"dtype":"BF16","shape":[4],"data_offsets":[24,32]},"c":{"dtype":"F32","shape":[0,7],"data_offsets":[32,32]}}"#;
    file(header, 32)
}

fn file(header: &str, data: usize) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.resize(bytes.len() + data, 0);
    bytes
}

#[test]
fn hostile_headers_are_refused() {
    assert_eq!(
        open("good", &small()).unwrap().names().collect::<Vec<_>>(),
        ["a", "b", "c"]
    );
    for (what, header, data) in [
        (
            "overflowing shape",
            r#"{"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}}"#,
            0,
        ),
        (
            "shape beyond its bytes",
            r#"{"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}}"#,
            8,
        ),
        (
            "descending offsets",
            r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}}"#,
            8,
        ),
        (
            "gap",
            r#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}"#,
            8,
        ),
        (
            "overlap",
            r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}"#,
            8,
        ),
        (
            "end beyond the file",
            r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#,
            7,
        ),
        (
            "bytes left over",
            r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#,
            9,
        ),
        (
            "unknown type",
            r#"{"a":{"dtype":"F33","shape":[2],"data_offsets":[0,8]}}"#,
            8,
        ),
        ("not an object", "[]", 0),
        (
            "negative shape",
            r#"{"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}}"#,
            8,
        ),
    ] {
        let error = open("hostile", &file(header, data))
            .err()
            .unwrap_or_else(|| panic!("{what} was accepted"));
        assert!(
            matches!(error, flashrt_models::Error::WeightsFormat { .. }),
            "{what}: {error}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn changed_bytes(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6), cut in any::<prop::sample::Index>(), truncate in any::<bool>()) {
        let mut bytes = small();
        for (at, value) in changes {
            let i = at.index(bytes.len());
            bytes[i] = value;
        }
        if truncate {
            bytes.truncate(cut.index(bytes.len()));
        }
        if let Ok(weights) = open("changed", &bytes) {
            for name in weights.names() {
                let shape = weights.shape(name).unwrap();
                prop_assert!(shape.iter().product::<usize>() <= bytes.len());
            }
        }
    }

    #[test]
    fn any_statistics_text(text in "[\\[\\]{}\",:0-9a-z_.e+-]{0,80}") {
        let _ = Stats::parse(text.as_bytes(), Path::new("stats.json"));
    }
}
