//! The `flashrt` command from outside: output, exit codes, errors that name the fault.

use std::process::{Command, Output};

const DEMO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../config/so101_demo.yaml");

fn flashrt(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_flashrt"))
        .args(arguments)
        .output()
        .expect("the command runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn codes_are_those_of_the_message_file() {
    let message = std::fs::read_to_string(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../msg/ResultCode.msg"
    ))
    .unwrap();
    let in_file: Vec<(String, String)> = message
        .lines()
        .filter_map(|line| {
            line.strip_prefix("uint16 ")?
                .split('#')
                .next()?
                .trim()
                .split_once('=')
        })
        .map(|(name, number)| (number.to_string(), name.to_string()))
        .collect();
    let out = flashrt(&["codes"]);
    let printed: Vec<(String, String)> = text(&out.stdout)
        .lines()
        .skip(1)
        .filter_map(|line| line.split_once(' '))
        .map(|(number, name)| (number.to_string(), name.trim().to_string()))
        .collect();
    assert!(in_file.len() > 20);
    assert_eq!(printed, in_file);
}

#[test]
fn tables_of_keys_and_parameters_are_markdown() {
    for (command, word) in [
        ("config-keys", "`tick.mode`"),
        ("parameters", "`autostart`"),
    ] {
        let out = flashrt(&[command]);
        assert!(out.status.success());
        let table = text(&out.stdout);
        assert!(table.contains(word), "{table}");
        // Header and rows have the same number of bars that are not escaped.
        let bars = |line: &str| line.replace("\\|", "").matches('|').count();
        let first = bars(table.lines().next().unwrap());
        assert!(table.lines().all(|line| bars(line) == first), "{table}");
    }
}

#[test]
fn describe_shows_ports_identity_and_budgets() {
    let out = flashrt(&["describe", DEMO, "--identity"]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    let shown = text(&out.stdout);
    for word in [
        "fingerprint",
        "images",
        "camera/wrist/image",
        "actions",
        "context_action",
        "budget of the device tier",
        "rng",
    ] {
        assert!(shown.contains(word), "no {word} in\n{shown}");
    }
}

#[test]
fn verify_finds_the_demo_policy_closed_also_in_a_fresh_process() {
    let out = flashrt(&["verify", DEMO]);
    let shown = text(&out.stdout);
    assert_eq!(out.status.code(), Some(0), "{shown}\n{}", text(&out.stderr));
    assert!(shown.contains("fresh process: same bytes"), "{shown}");
    assert!(shown.contains("\nclosed:"), "{shown}");
}

#[test]
fn bench_prints_json_with_counts() {
    for what in ["tick", "capsule", "pipeline"] {
        let out = flashrt(&["bench", what, "--config", DEMO, "--count", "3", "--json"]);
        assert!(out.status.success(), "{}", text(&out.stderr));
        let value: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
        let series = value["series"].as_array().unwrap();
        assert!(series.len() >= 5);
        assert!(series
            .iter()
            .all(|s| s["count"] == 3 && s["p50_us"].as_f64().unwrap() >= 0.0));
        // Capsules are held against a plain copy in the same run, itself being 1.
        for s in series {
            let ratio = s["p50_ratio"].as_f64();
            match (what, s["name"].as_str().unwrap()) {
                ("capsule", name) if name.starts_with("memcpy") => assert_eq!(ratio, Some(1.0)),
                ("capsule", name) => assert!(ratio.is_some_and(|r| r > 0.0), "{name}"),
                _ => assert_eq!(ratio, None),
            }
        }
    }
}

#[test]
fn bench_memory_counts_what_it_did() {
    let out = flashrt(&[
        "bench", "memory", "--config", DEMO, "--count", "100", "--json",
    ]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    let value: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    let memory = &value["memory"];
    assert_eq!(
        (&memory["ticks"], &memory["snapshots"], &memory["restores"]),
        (&100.into(), &1.into(), &1.into())
    );
    let growth = memory["growth"].as_i64().unwrap();
    assert_eq!(memory["is_flat"], growth <= 1 << 20);
    // The weights alone are 13 MiB.
    assert!(memory["resident_before"].as_u64().unwrap() > 13 << 20);
}

#[test]
fn a_missing_file_is_exit_code_1_and_named() {
    for arguments in [
        vec!["describe", "/nonexistent.yaml"],
        vec!["verify", "/nonexistent.yaml"],
    ] {
        let out = flashrt(&arguments);
        assert_eq!(out.status.code(), Some(1));
        assert!(text(&out.stderr).contains("/nonexistent.yaml"));
    }
}

#[test]
fn an_unknown_command_is_exit_code_2() {
    assert_eq!(flashrt(&["desribe"]).status.code(), Some(2));
}
