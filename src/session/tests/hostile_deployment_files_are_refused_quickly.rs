//! Deployment files from somebody who means harm: an error with words in bounded time and memory, never a panic.

mod common;
use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use common::*;
use flashrt_session::config::table::KEYS;
use flashrt_session::Config;
use proptest::prelude::*;

/// A liveness bound: far above what the slowest of these (a few seconds on a busy core) takes.
const SOON: Duration = Duration::from_secs(60);

fn toy() -> String {
    toy_yaml(
        "{mode: trigger}",
        "{control_rate_hz: 10}",
        "{topic: c, limits: 'off', max_step: 'off'}",
    )
}

/// The error's text, which comes soon and is short enough for a log line.
fn refused(what: &str, yaml: &str) -> String {
    let start = Instant::now();
    let error = Config::from_yaml(yaml)
        .err()
        .unwrap_or_else(|| panic!("{what} was accepted"))
        .to_string();
    assert!(start.elapsed() < SOON, "{what}: took {:?}", start.elapsed());
    assert!(
        error.len() < 2000,
        "{what}: an error of {} bytes",
        error.len()
    );
    error
}

#[test]
fn huge_files_are_refused_by_their_size() {
    for (what, text) in [
        ("spaces", " ".repeat(10 << 20)),
        ("a comment", format!("{}\n#{}", toy(), "x".repeat(10 << 20))),
        ("one key", format!("{}: 1\n", "k".repeat(10 << 20))),
        (
            "many keys",
            (0..500_000).fold(String::new(), |mut s, i| {
                let _ = writeln!(s, "k{i}: 1");
                s
            }),
        ),
    ] {
        let error = refused(what, &text);
        assert!(error.contains("bytes"), "{what}: {error}");
    }
}

#[test]
fn a_device_without_an_end_is_not_read_to_its_end() {
    let error = Config::load(Path::new("/dev/zero"), None)
        .unwrap_err()
        .to_string();
    assert!(error.contains("/dev/zero"), "{error}");
}

#[test]
fn files_that_are_no_text_and_folders_are_named() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let path = folder.join("latin1.yaml");
    std::fs::write(&path, b"model: {builtin: p\xe9}\n").unwrap();
    for path in [path.as_path(), folder, &folder.join("absent.yaml")] {
        let error = Config::load(path, None).unwrap_err().to_string();
        assert!(error.contains(&path.display().to_string()), "{error}");
    }
}

#[test]
fn nesting_repetition_and_duplicates_are_refused() {
    let deep = |open: &str, close: &str| {
        format!("model: {}{}\n", open.repeat(20_000), close.repeat(20_000))
    };
    let mut laughs = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for i in 1..12 {
        let row = vec![format!("*a{}", i - 1); 10].join(", ");
        let _ = writeln!(laughs, "a{i}: &a{i} [{row}]");
    }
    for (what, text) in [
        ("deep lists", deep("[", "]")),
        ("deep tables", deep("{a: ", "}")),
        ("dashes", format!("sessions: {}x\n", "- ".repeat(20_000))),
        ("an alias bomb", laughs),
        ("an alias of itself", "model: &m {builtin: *m}\n".into()),
        ("a merge key", toy() + "<<: {backend: cuda}\n"),
        ("a key twice", toy() + "sessions: [other]\n"),
        (
            "a nested key twice",
            toy().replace("view: front", "view: front, view: back"),
        ),
        ("two documents", toy() + "---\n" + &toy()),
        ("no document", String::new()),
        ("a number as a file", "1\n".into()),
        ("a tag", toy().replace("[main, alt]", "!secret [main, alt]")),
        ("a NUL", toy() + "\0"),
    ] {
        refused(what, &text);
    }
}

#[test]
fn dashes_inside_a_text_are_no_lists() {
    // Parses as one text; the search for lines sees 60 000 nested items.
    for filler in [
        "- ".repeat(60_000),
        "a:\n".to_string(),
        (0..400)
            .map(|i| format!("\n    {}k:", " ".repeat(i)))
            .collect(),
    ] {
        let text = toy().replace(
            "prompt: {text: go}",
            &format!("prompt:\n    text: |\n      {filler}\n"),
        ) + "unknown: 1\n";
        refused("dashes in a text", &text);
    }
}

#[test]
fn long_lists_are_refused_before_they_are_compared() {
    let list = |n: usize| {
        (0..n)
            .map(|i| format!("s{i}"))
            .collect::<Vec<_>>()
            .join(", ")
    };
    refused(
        "many sessions",
        &toy().replace("[main, alt]", &format!("[{}]", list(30_000))),
    );
    refused(
        "many sets",
        &toy().replace("[main, alt]", &format!("[{}]", list(100))),
    );
    let steps = (1..=1000)
        .map(|i| i.to_string())
        .collect::<Vec<_>>()
        .join(", ");
    refused(
        "many buckets",
        &toy().replace(
            "weights: nowhere",
            &format!("weights: nowhere, flow_steps: [{steps}]"),
        ),
    );
    refused(
        "many joints",
        &toy().replace(
            "- {name: shoulder}",
            &(0..3000)
                .map(|i| format!("- {{name: j{i}}}\n      "))
                .collect::<String>(),
        ),
    );
    refused(
        "many encodings",
        &toy().replace(
            "max_age_ms: 100}",
            &format!(
                "max_age_ms: 100, encodings: [{}]}}",
                vec!["rgb8"; 1000].join(", ")
            ),
        ),
    );
}

#[test]
fn values_that_no_number_can_hold_are_refused() {
    for value in [
        ".nan",
        ".inf",
        "-.inf",
        "1e400",
        "99999999999999999999999999",
        "-1",
        "0x",
        "''",
        "[]",
        "{}",
        "null",
        "true",
        "1_0 x",
        "2026-01-01",
    ] {
        for (from, to) in [
            ("control_rate_hz: 10", format!("control_rate_hz: {value}")),
            ("max_age_ms: 100}", format!("max_age_ms: {value}}}")),
            ("{mode: trigger}", format!("{{mode: {value}}}")),
            ("{mode: trigger}", format!("{{context_every: {value}}}")),
            ("[main, alt]", value.into()),
            (
                "limits: 'off'",
                format!("limits: {{shoulder: [0, {value}], elbow: [0, 1]}}")
                    .replace("[0, -1]", "[0, .nan]"),
            ),
            (
                "weights: nowhere",
                format!("weights: nowhere, seed: {value}"),
            ),
            (
                "weights: nowhere",
                format!("weights: nowhere, flow_steps: [{value}]"),
            ),
        ] {
            let text = toy().replace(from, &to);
            assert_ne!(text, toy());
            refused(&format!("{from} -> {to}"), &text);
        }
    }
}

#[test]
fn a_scale_must_keep_commands_finite() {
    for scale in ["1e-320", "-1e-300", "0", "-0.0", "1e7"] {
        let e = refused(
            scale,
            &toy().replace("{name: elbow}", &format!("{{name: elbow, scale: {scale}}}")),
        );
        assert!(e.contains("scale"), "{e}");
    }
}

#[test]
fn names_are_free_of_control_characters() {
    for bad in ["a\\nb", "a\\0b", "\\e[31m", "a b"] {
        for (what, from, to) in [
            ("view", "view: front", format!("view: \"{bad}\"")),
            ("topic", "topic: camera/image", format!("topic: \"{bad}\"")),
            ("session", "[main, alt]", format!("[main, \"{bad}\"]")),
        ] {
            let text = toy().replace(from, &to);
            assert_ne!(text, toy());
            let e = refused(what, &text);
            assert!(!e.chars().any(char::is_control), "{e:?}");
        }
    }
}

#[test]
fn every_key_refuses_every_wrong_type() {
    // Tables and lists where a value belongs, values where tables belong, at every level of the demo's file.
    let demo = std::fs::read_to_string(
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config/so101_demo.yaml"),
    )
    .unwrap();
    for (number, line) in demo.lines().enumerate() {
        let Some((head, _)) = line
            .split_once(':')
            .filter(|(h, _)| !h.trim_start().starts_with('#'))
        else {
            continue;
        };
        for value in ["{unknown_key: 1}", "[[1]]", ".nan"] {
            let text: String = demo
                .lines()
                .enumerate()
                .map(|(i, l)| {
                    if i == number {
                        format!("{head}: {value}\n")
                    } else {
                        format!("{l}\n")
                    }
                })
                .collect();
            refused(&format!("{head}: {value}"), &text);
        }
    }
    assert!(KEYS.len() > 20);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn changed_bytes_never_panic(changes in prop::collection::vec((any::<prop::sample::Index>(), "[ -~\n]{0,6}"), 1..8)) {
        let mut text = toy();
        for (at, piece) in changes {
            let from = at.index(text.len());
            let to = (from + piece.len() / 2).min(text.len());
            text.replace_range(from..to, &piece);
        }
        if let Err(error) = Config::from_yaml(&text) {
            prop_assert!(!error.to_string().is_empty());
        }
    }

    #[test]
    fn any_text_never_panics(text in "\\PC{0,200}") {
        let _ = Config::from_yaml(&text);
    }
}
