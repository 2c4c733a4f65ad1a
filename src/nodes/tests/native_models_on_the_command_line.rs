//! `flashrt` with a deployment whose model comes out of a native library.

#[path = "../../../test/support/producers.rs"]
mod producers;

use std::path::PathBuf;
use std::process::{Command, Output};

use producers::*;

struct Deployment {
    library: Library,
    file: PathBuf,
}

fn deployment(which: Which, config: &str) -> Deployment {
    let library = Library::of(which);
    let file = library.path.with_extension("yaml");
    let joints: String = (0..DIM)
        .map(|i| format!("      - {{name: j{i}}}\n"))
        .collect();
    let name = library.path.file_name().unwrap().to_str().unwrap();
    std::fs::write(
        &file,
        format!(
            "model:\n  library: {name}\n  config: {config}\n\
             ports:\n  images:\n    - {{view: front, topic: camera/image}}\n\
             \x20 state:\n    topic: joint_states\n    joints:\n{joints}\
             \x20 prompt: {{text: lift the lid}}\n\
             tick: {{mode: trigger}}\nchunk: {{control_rate_hz: 10}}\n\
             command: {{topic: c, limits: 'off', max_step: 'off'}}\n"
        ),
    )
    .unwrap();
    Deployment { library, file }
}

fn flashrt(arguments: &[&str], d: &Deployment, more: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_flashrt"))
        .args(arguments)
        .arg(&d.file)
        .args(more)
        .output()
        .expect("the command runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn describe_shows_the_library_and_what_it_declares() {
    for which in BOTH {
        let d = deployment(which, "{plan: mixed}");
        let out = flashrt(&["describe"], &d, &["--identity"]);
        let shown = text(&out.stdout);
        assert!(out.status.success(), "{}", text(&out.stderr));
        let library = d.library.path.to_str().unwrap().to_owned();
        for word in [
            "toy_policy",
            &library,
            "execution",
            "declared regions",
            "rollout",
            "opaque 7",
            "gstage-v1:1:5:weigh:1:7:1:0",
        ] {
            assert!(shown.contains(word), "no {word} in\n{shown}");
        }
    }
}

#[test]
fn describe_shows_the_declaration_of_a_model_that_the_node_cannot_run() {
    let d = deployment(Which::C, "{views: 2}");
    let out = flashrt(&["describe"], &d, &[]);
    assert_eq!(out.status.code(), Some(1));
    let shown = text(&out.stdout);
    assert!(
        shown.contains("toy_policy_c") && shown.contains("[2, 8, 8, 3]"),
        "{shown}"
    );
    assert!(
        text(&out.stderr).contains("the node cannot run it"),
        "{}",
        text(&out.stderr)
    );
}

#[test]
fn describe_shows_an_export_and_refuses_to_run_it() {
    let d = deployment(Which::Export, "{}");
    let out = flashrt(&["describe"], &d, &[]);
    assert_eq!(out.status.code(), Some(1));
    let shown = text(&out.stdout);
    for word in ["export without ports", "toy_policy_c", "rollout", "context"] {
        assert!(shown.contains(word), "no {word} in\n{shown}");
    }
    assert!(text(&out.stderr).contains("the node cannot run it"));
}

#[test]
fn verify_says_why_it_has_nothing_to_verify() {
    let d = deployment(Which::C, "{}");
    let out = flashrt(&["verify"], &d, &[]);
    assert_eq!(out.status.code(), Some(1));
    assert!(
        text(&out.stderr).contains("is a native model: verify"),
        "{}",
        text(&out.stderr)
    );
}

#[test]
fn bench_times_ticks_and_capsules() {
    let d = deployment(Which::Rust, "{plan: graph}");
    let out = flashrt(&["bench", "tick", "--count", "3", "--config"], &d, &[]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    assert!(text(&out.stdout).contains("tick, plan default, default keys"));
    for what in ["capsule", "pipeline", "memory"] {
        let out = flashrt(&["bench", what, "--count", "3", "--config"], &d, &[]);
        assert!(out.status.success(), "{what}: {}", text(&out.stderr));
    }
    let d = deployment(Which::C, "{regions: 0}");
    let out = flashrt(&["bench", "capsule", "--count", "3", "--config"], &d, &[]);
    assert_eq!(out.status.code(), Some(1));
    assert!(
        text(&out.stderr).contains("no regions"),
        "{}",
        text(&out.stderr)
    );
}
