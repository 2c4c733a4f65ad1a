//! A policy's folder from somebody who means harm: an error that names key and value, in bounded time and memory.

use std::path::Path;
use std::time::{Duration, Instant};

use flashrt_models::pi05::Pi05Config;
use flashrt_models::stats::Stats;
use flashrt_models::Error;
use serde_json::{json, Value};

fn shipped(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../config/so101_policy")
        .join(name);
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// Loads the shipped policy with one key of one file changed.
fn load(test: &str, file: &str, change: impl FnOnce(&mut Value)) -> Result<(), Error> {
    use flashrt_exec::{Context, CpuOptions, StreamOrder};
    use flashrt_runtime::Producer as _;
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config/so101_policy");
    let to = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("hostile-{test}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&to);
    std::fs::create_dir_all(&to).unwrap();
    let mut value = shipped(file);
    change(&mut value);
    std::fs::write(to.join("stats.json"), shipped("stats.json").to_string()).unwrap();
    std::fs::write(to.join("config.json"), shipped("config.json").to_string()).unwrap();
    std::fs::write(to.join(file), value.to_string()).unwrap();
    std::fs::copy(from.join("model.safetensors"), to.join("model.safetensors")).unwrap();
    let ctx = Context::cpu(CpuOptions {
        threads: 1,
        order: StreamOrder::Submission,
    })
    .unwrap();
    let start = Instant::now();
    let result = flashrt_models::pi05::Pi05::load(&ctx, &to, Default::default())
        .and_then(|mut p| p.build("main").map(drop).map_err(Error::from));
    let took = start.elapsed();
    std::fs::remove_dir_all(&to).unwrap();
    assert!(took < Duration::from_secs(20), "{test}: {took:?}");
    result
}

#[test]
fn dimensions_that_no_weights_show_are_bounded() {
    load("as-shipped", "config.json", |_| ()).unwrap();
    for (key, value) in [
        ("num_views", json!(1 << 20)),
        ("num_views", json!(17)),
        ("max_prompt_tokens", json!(1 << 20)),
        ("chunk", json!(1 << 20)),
        ("heads", json!(1 << 20)),
        ("depth", json!(1 << 20)),
        ("v_depth", json!(1 << 20)),
        ("head_dim", json!(1)),
        ("kv", json!(3)),
        ("v_heads", json!(1 << 20)),
        ("steps", json!(1 << 20)),
        ("vocab", json!(1)),
        ("image", json!(1 << 20)),
        ("patch", json!(1 << 20)),
        ("adim", json!(0)),
        ("width", json!(-1)),
        ("width", json!(1.5)),
        ("width", json!("64")),
        ("width", json!(1e300)),
        ("state_offset", json!(u64::MAX)),
        ("state_offset", json!(0)),
        ("words", json!([])),
        (
            "words",
            json!(["<pad>", "<bos>", "state", "action", "go", "go"]),
        ),
        ("words", json!(["<pad>", "<bos>", "state", "action", "a b"])),
        ("robot_dim", json!(1 << 19)),
        ("anchor_dims", json!(u64::MAX)),
        ("new_key", json!(1)),
    ] {
        let error = load("dims", "config.json", |c| c[key] = value.clone())
            .expect_err(&format!("{key} = {value}"));
        assert!(
            error.to_string().len() < 2000,
            "{key} = {value}: {} bytes of error",
            error.to_string().len()
        );
        println!("{key} = {value}: {error}");
    }
}

#[test]
fn statistics_must_give_finite_numbers() {
    let parse = |text: &str| Stats::parse(text.as_bytes(), Path::new("stats.json"));
    let file = |low: &str, high: &str, alow: &str, ahigh: &str| {
        format!(
            r#"{{"state_q01":[{low}],"state_q99":[{high}],"action_q01":[{alow}],"action_q99":[{ahigh}]}}"#
        )
    };
    parse(&file("0", "1", "-1", "1")).unwrap();
    for (what, text) in [
        (
            "a state range beyond f64",
            file("-1.7e308", "1.7e308", "-1", "1"),
        ),
        (
            "an action range beyond f64",
            file("0", "1", "-1.7e308", "1.7e308"),
        ),
        (
            "an action range beyond f32",
            file("0", "1", "-1e300", "1e300"),
        ),
        (
            "an action mean beyond f32",
            file("0", "1", "1e300", "2e300"),
        ),
        ("equal quantiles", file("1", "1", "-1", "1")),
        ("a number that is none", file("NaN", "1", "-1", "1")),
        ("a number beyond f64", file("0", "1e999", "-1", "1")),
        (
            "a mean beyond f32",
            r#"{"slo":[0],"shi":[1],"am":[[1e300]],"asd":[[1]]}"#.into(),
        ),
        (
            "a deviation below f32",
            r#"{"slo":[0],"shi":[1],"am":[[0]],"asd":[[1e-300]]}"#.into(),
        ),
        (
            "a range beyond f64",
            r#"{"slo":[-1.7e308],"shi":[1.7e308],"am":[[0]],"asd":[[1]]}"#.into(),
        ),
        (
            "a range of denormals",
            r#"{"slo":[0],"shi":[5e-324],"am":[[0]],"asd":[[1]]}"#.into(),
        ),
        (
            "a key twice",
            r#"{"slo":[0],"slo":[0],"shi":[1],"am":[[0]],"asd":[[1]]}"#.into(),
        ),
        (
            "a ragged table",
            r#"{"slo":[0],"shi":[1],"am":[[0,1],[0]],"asd":[[1,1],[1]]}"#.into(),
        ),
        (
            "deep nesting",
            format!("{}{}", r#"{"slo":"#, "[".repeat(100_000)),
        ),
    ] {
        match parse(&text) {
            Err(error) => assert!(error.to_string().len() < 500, "{what}: {error}"),
            Ok(stats) => panic!("{what} was accepted: {stats:?}"),
        }
    }
}

#[test]
fn files_without_an_end_are_not_read_to_it() {
    for error in [
        Pi05Config::read(Path::new("/dev/zero")).err().unwrap(),
        Stats::read(Path::new("/dev/zero")).err().unwrap(),
    ] {
        assert!(error.to_string().contains("/dev/zero"), "{error}");
    }
}
