//! The deployment file: defaults, and errors that name key, line, expected and got.

mod common;
use common::*;
use flashrt_session::config::table::{Preset, KEYS};
use flashrt_session::config::{CommandType, LimitReaction, TickMode, Unit};
use flashrt_session::Config;
use proptest::prelude::*;

fn toy(from: &str, to: &str) -> String {
    let text = toy_yaml(
        "{mode: trigger}",
        "{control_rate_hz: 10}",
        "{topic: c, limits: 'off', max_step: 'off'}",
    );
    assert!(text.contains(from), "{from}");
    text.replace(from, to)
}

fn error(yaml: &str) -> String {
    Config::from_yaml(yaml)
        .expect_err("must be refused")
        .to_string()
}

#[test]
fn the_shipped_demo_file_is_valid() {
    let config = demo_config();
    assert_eq!(config.sessions, ["main", "alt"]);
    assert_eq!(
        config
            .images
            .iter()
            .map(|v| v.view.as_str())
            .collect::<Vec<_>>(),
        ["workspace", "wrist"]
    );
    assert_eq!(
        config.joint_names(),
        [
            "shoulder_pan",
            "shoulder_lift",
            "elbow_flex",
            "wrist_flex",
            "wrist_roll",
            "gripper"
        ]
    );
    assert!(
        config.model.weights.join("model.safetensors").is_file(),
        "{}",
        config.model.weights.display()
    );
    assert_eq!(config.tick.mode, TickMode::Chunk);
    assert_eq!(config.command.kind, CommandType::JointTrajectory);
    assert_eq!(config.command.limits.unwrap().len(), 6);
    assert_eq!(config.max_skew_ms, Some(200.0));
}

#[test]
fn defaults_come_from_the_table() {
    let config = config(&toy("{mode: trigger}", "{}"));
    assert_eq!(config.model.flow_steps, [5, 10]);
    assert_eq!(config.model.default_flow_steps, 5);
    assert_eq!(config.tick.mode, TickMode::Chunk);
    assert_eq!(config.tick.deadline_ms, Some(100.0));
    assert_eq!(config.chunk.max_hold_ms, 500.0);
    assert_eq!(config.command.limit_reaction, LimitReaction::Clamp);
    assert_eq!(config.max_skew_ms, None);
    assert_eq!(config.state.joints[0].unit, Unit::Rad);
    assert!(config.tick_log);
}

#[test]
fn every_preset_fits_its_own_key() {
    // A file without optional keys goes through every preset.
    config(&toy("{mode: trigger}", "{}"));
    assert!(
        KEYS.iter()
            .filter(|k| matches!(k.preset, Preset::Value(_)))
            .count()
            > 20
    );
}

#[test]
fn case_110_an_unknown_key_is_named_with_the_nearest_valid_one() {
    let e = error(&toy("max_age_ms: 100}", "max_age: 100}"));
    assert_eq!(
        e,
        "line 5: ports.images[0].max_age: unknown key; the nearest valid key is ports.images[].max_age_ms"
    );
    let e =
        error("model: {builtin: pi05, weights: w}\nports: {front: {topic: a, max_age_ms: 1}}\n");
    assert!(
        e.starts_with("line 2: ports.front: unknown key; the nearest valid key is ports."),
        "{e}"
    );
    let e = error(&toy("sessions:", "sesions:"));
    assert_eq!(
        e,
        "line 2: sesions: unknown key; the nearest valid key is sessions"
    );
    let e = error(&toy("tick:", "tick_lgo: true\ntick:"));
    assert!(
        e.contains("tick_lgo: unknown key; the nearest valid key is tick_log"),
        "{e}"
    );
}

#[test]
fn wrong_types_and_ranges_say_expected_and_got() {
    let e = error(&toy("max_age_ms: 100}", "max_age_ms: fast}"));
    assert_eq!(
        e,
        "line 5: ports.images[0].max_age_ms: expected number 1..60000 (ms), got text \"fast\""
    );
    let e = error(&toy("{control_rate_hz: 10}", "{control_rate_hz: 0}"));
    assert!(
        e.ends_with("chunk.control_rate_hz: expected number 0.1..1000 (Hz), got 0"),
        "{e}"
    );
    let e = error(&toy("mode: trigger", "mode: triger"));
    assert!(
        e.ends_with("tick.mode: expected chunk | rate | trigger, got text \"triger\""),
        "{e}"
    );
    let e = error(&toy("{control_rate_hz: 10}", "{control_rate_hz: .nan}"));
    assert!(e.contains("chunk.control_rate_hz"), "{e}");
    let e = error(&toy("sessions: [main, alt]", "sessions: [main, main]"));
    assert!(
        e.contains("sessions: expected list of different names"),
        "{e}"
    );
    let e = error(&toy("sessions: [main, alt]", "sessions: ['a/b']"));
    assert!(e.contains("sessions: expected names of letters"), "{e}");
    let e = error(&toy("{name: elbow}", "{name: shoulder}"));
    assert!(
        e.contains("ports.state.joints[1].name: expected different names, got \"shoulder\" twice"),
        "{e}"
    );
    let e = error(&toy("{name: elbow}", "{name: elbow, scale: 0}"));
    assert!(
        e.contains(
            "ports.state.joints[1].scale: expected a number at least 0.000001 away from 0, got 0"
        ),
        "{e}"
    );
    let e = error(&toy(
        "weights: nowhere",
        "weights: nowhere, flow_steps: [5], default_flow_steps: 7",
    ));
    assert!(
        e.contains("model.default_flow_steps: expected one of model.flow_steps [5], got 7"),
        "{e}"
    );
}

#[test]
fn case_108_empty_lists_are_errors() {
    let e = error(&toy(
        "images:\n    - {view: front, topic: camera/image, max_age_ms: 100}",
        "images: []",
    ));
    assert!(
        e.contains("ports.images: expected at least one entry, got an empty list"),
        "{e}"
    );
    let e = error(&toy("sessions: [main, alt]", "sessions: []"));
    assert!(
        e.contains("sessions: expected list of different names, at most 32, got a list []"),
        "{e}"
    );
}

#[test]
fn required_keys_are_named() {
    let e = error(&toy("topic: camera/image, ", ""));
    assert!(
        e.contains("ports.images[0].topic: required key is missing"),
        "{e}"
    );
    let e = error("{}");
    assert!(e.contains("model.builtin: required key is missing"), "{e}");
    let e = error("[1, 2]");
    assert!(e.contains("expected a map of keys, got a list"), "{e}");
    let e = error("a: [");
    assert!(e.contains("not valid YAML"), "{e}");
}

#[test]
fn case_54_limits_must_be_set_or_declared_off() {
    for key in ["limits", "max_step"] {
        let e = error(&toy(&format!(", {key}: 'off'"), ""));
        assert!(
            e.contains(&format!("command.{key}: required key is missing")),
            "{e}"
        );
    }
    let e = error(&toy("limits: 'off'", "limits: {shoulder: [-1, 1]}"));
    assert!(
        e.contains("command.limits: expected a value for every joint, got none for elbow"),
        "{e}"
    );
    let e = error(&toy(
        "limits: 'off'",
        "limits: {sholder: [-1, 1], elbow: [-1, 1]}",
    ));
    assert!(
        e.contains("command.limits.sholder: no joint of that name") && e.contains("shoulder"),
        "{e}"
    );
    let e = error(&toy(
        "limits: 'off'",
        "limits: {shoulder: [1, -1], elbow: [-1, 1]}",
    ));
    assert!(
        e.contains("[lo, hi] with") || e.contains("map joint: [lo, hi]"),
        "{e}"
    );
    let config = config(&toy("max_step: 'off'", "max_step: 0.2"));
    assert_eq!(config.command.max_step, Some(vec![0.2, 0.2]));
}

#[test]
fn the_documentation_table_has_every_key_once() {
    let docs = flashrt_session::config::docs_table();
    for key in KEYS {
        assert_eq!(
            docs.lines()
                .filter(|l| l.starts_with(&format!("| `{}` |", key.path)))
                .count(),
            1,
            "{}",
            key.path
        );
    }
    assert_eq!(docs.lines().count(), KEYS.len() + 2);
}

#[test]
fn paths_resolve_against_the_file_or_the_share_folder() {
    let mut config = toy_config();
    config.resolve_paths("/etc/robot".as_ref(), None).unwrap();
    assert_eq!(config.model.weights.to_str(), Some("/etc/robot/nowhere"));
    let mut config = common::config(&toy("weights: nowhere", "weights: $share/config/p"));
    let e = config
        .clone()
        .resolve_paths("/x".as_ref(), None)
        .unwrap_err()
        .to_string();
    assert!(e.contains("model.weights"), "{e}");
    config
        .resolve_paths("/x".as_ref(), Some("/opt/share/flashrt_ros".as_ref()))
        .unwrap();
    assert_eq!(
        config.model.weights.to_str(),
        Some("/opt/share/flashrt_ros/config/p")
    );
}

proptest! {
    #[test]
    fn no_text_makes_the_parser_panic(text in "\\PC{0,200}") {
        let _ = Config::from_yaml(&text);
    }

    #[test]
    fn no_edit_of_a_valid_file_makes_the_parser_panic(at in 0usize..2000, insert in "[-\\[\\]{}:,#'\"a0 \n]{0,4}", cut in 0usize..8) {
        let text = include_str!("../../../config/so101_demo.yaml");
        let at = at.min(text.len() - 8);
        if text.is_char_boundary(at) && text.is_char_boundary(at + cut) {
            let _ = Config::from_yaml(&format!("{}{insert}{}", &text[..at], &text[at + cut..]));
        }
    }
}
