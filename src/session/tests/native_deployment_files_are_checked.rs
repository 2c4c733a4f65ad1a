//! The keys of a native model in the deployment file: one of two, a free-form map, and nothing that would be ignored.

mod common;
use common::*;
use flashrt_session::Config;

fn native(model: &str, more: &str) -> String {
    toy_yaml(
        "{mode: trigger}",
        "{control_rate_hz: 10}",
        "{topic: c, limits: 'off', max_step: 'off'}",
    )
    .replace("model: {builtin: pi05, weights: nowhere}", model)
    .replace("sessions: [main, alt]\n", more)
}

fn error(model: &str, more: &str) -> String {
    Config::from_yaml(&native(model, more))
        .expect_err("must be refused")
        .to_string()
}

#[test]
fn a_library_and_its_configuration_are_read() {
    let model = "model:\n  library: lib/libm.so\n  config:\n    plan: graph\n    nested: {a: [1, 2.5, true, null], b: '1'}";
    let config = config(&native(model, ""));
    let native = config.model.native.clone().unwrap();
    assert_eq!(native.library.to_str(), Some("lib/libm.so"));
    assert_eq!(
        native.config,
        r#"{"plan":"graph","nested":{"a":[1,2.5,true,null],"b":"1"}}"#
    );
    assert!(config.model.builtin.is_empty() && config.model.flow_steps.is_empty());
    assert_eq!(config.model.default_key(), u64::MAX);
    assert_eq!(config.sessions, ["main"]);
}

#[test]
fn a_library_without_a_configuration_gets_an_empty_object() {
    let config = config(&native(
        "model: {library: /opt/libm.so}",
        "sessions: [solo]\n",
    ));
    assert_eq!(config.model.native.unwrap().config, "{}");
    assert_eq!(config.sessions, ["solo"]);
}

#[test]
fn the_library_resolves_like_the_weights() {
    let mut relative = config(&native("model: {library: libm.so}", ""));
    relative.resolve_paths("/etc/robot".as_ref(), None).unwrap();
    let path = |c: &Config| {
        c.model
            .native
            .as_ref()
            .unwrap()
            .library
            .display()
            .to_string()
    };
    assert_eq!(path(&relative), "/etc/robot/libm.so");
    let mut shared = config(&native("model: {library: $share/lib/libm.so}", ""));
    let e = shared
        .clone()
        .resolve_paths("/x".as_ref(), None)
        .unwrap_err();
    assert!(e.to_string().contains("model.library"), "{e}");
    shared
        .resolve_paths("/x".as_ref(), Some("/opt/share".as_ref()))
        .unwrap();
    assert_eq!(path(&shared), "/opt/share/lib/libm.so");
    let mut absolute = config(&native("model: {library: /lib/libm.so}", ""));
    absolute.resolve_paths("/x".as_ref(), None).unwrap();
    assert_eq!(path(&absolute), "/lib/libm.so");
}

#[test]
fn exactly_one_kind_of_model_is_given() {
    let e = error("model: {builtin: pi05, library: x.so, weights: w}", "");
    assert!(
        e.contains(
            "model.library: expected exactly one of model.builtin and model.library, got both"
        ),
        "{e}"
    );
    let e = error("model: {weights: w}", "");
    assert!(
        e.contains("model.builtin: required key is missing") && e.contains("library"),
        "{e}"
    );
    let e = error("model: {builtin: pi05}", "");
    assert!(e.contains("model.weights: required key is missing"), "{e}");
    let e = error("model: {builtin: pi05, weights: w, config: {a: 1}}", "");
    assert!(
        e.contains("model.config: it goes to a native library"),
        "{e}"
    );
    let e = error("model: {library: ''}", "");
    assert!(e.contains("model.library: expected text, not empty"), "{e}");
    let e = error("model: {libary: x.so}", "");
    assert!(e.contains("nearest valid key is model.library"), "{e}");
}

#[test]
fn keys_that_a_library_would_ignore_are_refused_with_their_line() {
    for (key, value) in [
        ("flow_steps", "[5]"),
        ("default_flow_steps", "5"),
        ("seed", "1"),
        ("weights", "w"),
    ] {
        let e = error(&format!("model: {{library: x.so, {key}: {value}}}"), "");
        assert!(
            e.contains(&format!("model.{key}: not with a native library")),
            "{e}"
        );
    }
    for (key, value) in [("backend", "cpu"), ("device", "0"), ("threads", "2")] {
        let e = error("model: {library: x.so}", &format!("{key}: {value}\n"));
        assert!(
            e.starts_with(&format!("line 2: {key}: not with a native library")),
            "{e}"
        );
    }
}

#[test]
fn a_native_model_has_one_session() {
    let e = error("model: {library: x.so}", "sessions: [main, alt]\n");
    assert!(
        e.starts_with("line 2: sessions: expected one name") && e.contains("main, alt"),
        "{e}"
    );
}

#[test]
fn a_configuration_that_json_cannot_hold_is_refused() {
    for bad in [
        "[1]",
        "text",
        "{1: a}",
        "{a: .nan}",
        "{a: [.inf]}",
        "{a: !tag x}",
        "{a: {2: b}}",
    ] {
        let e = error(&format!("model: {{library: x.so, config: {bad}}}"), "");
        assert!(
            e.contains("model.config: expected map with text keys"),
            "{bad}: {e}"
        );
    }
}
