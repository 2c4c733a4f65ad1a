//! Normalisation formulas, and what a broken statistics file says.

mod common;

use std::path::Path;

use flashrt_models::stats::Stats;

fn parse(json: &str) -> Result<Stats, String> {
    Stats::parse(json.as_bytes(), Path::new("stats.json")).map_err(|e| e.to_string())
}

#[test]
fn the_demo_range_maps_to_minus_one_and_one() {
    let json: serde_json::Value =
        serde_json::from_slice(&std::fs::read(common::demo_dir().join("stats.json")).unwrap())
            .unwrap();
    let stats = Stats::read(&common::demo_dir().join("stats.json")).unwrap();
    let list = |key: &str| -> Vec<f64> {
        json[key]
            .as_array()
            .unwrap()
            .iter()
            .map(|x| x.as_f64().unwrap())
            .collect()
    };
    let (low, high) = (list("slo"), list("shi"));
    assert_eq!(stats.state.len(), low.len());
    for i in 0..low.len() {
        assert_eq!(stats.state.normalize(i, low[i] as f32), -1.0);
        assert_eq!(stats.state.normalize(i, high[i] as f32), 1.0);
        let x = (0.3 * low[i] + 0.7 * high[i]) as f32;
        let want = (f64::from(x) - low[i]) / (high[i] - low[i]) * 2.0 - 1.0;
        assert_eq!(stats.state.normalize(i, x), want);
        assert!((want - 0.4).abs() < 1e-6);
    }
}

#[test]
fn quantiles_carry_the_small_term() {
    let stats = parse(
        r#"{"state_q01":[1.0],"state_q99":[3.0],"action_q01":[-0.5,2.0],"action_q99":[0.5,8.0]}"#,
    )
    .unwrap();
    let want = 2.0 * (2.0f64 - 1.0) / (3.0 - 1.0 + 1e-6) - 1.0;
    assert_eq!(stats.state.normalize(0, 2.0), want);
    assert!(want < 0.0, "the small term moves the middle below zero");
    let a = &stats.action;
    assert!(a.clip && a.rows == 1 && a.width == 2);
    for (i, (low, high)) in [(-0.5f64, 0.5f64), (2.0, 8.0)].into_iter().enumerate() {
        for raw in [-1.0f64, 0.0, 1.0] {
            let want = (raw + 1.0) / 2.0 * (high - low + 1e-6) + low;
            let got = raw * f64::from(a.std[i]) + f64::from(a.mean[i]);
            assert!((got - want).abs() < 1e-6, "{got} {want}");
        }
    }
}

#[test]
fn broken_files_name_the_key() {
    let good = r#""slo":[0.0],"shi":[1.0],"am":[[0.0]],"asd":[[1.0]]"#;
    assert!(parse(&format!("{{{good}}}")).is_ok());
    let error = |json: &str| parse(json).unwrap_err();
    assert!(error("{").contains("stats.json"));
    assert!(error(&format!("{{{good},\"extra\":1}}")).contains("unknown field `extra`"));
    assert!(error(r#"{"slo":[0.0],"am":[[0.0]],"asd":[[1.0]]}"#).contains("`slo` and `shi`"));
    assert!(
        error(r#"{"slo":[0.0],"shi":[0.0],"am":[[0.0]],"asd":[[1.0]]}"#).contains("shi = 0.0 at 0")
    );
    assert!(
        error(r#"{"slo":[0.0],"shi":[1.0,2.0],"am":[[0.0]],"asd":[[1.0]]}"#)
            .contains("shi = 2 elements")
    );
    assert!(
        error(r#"{"slo":[0.0],"shi":[1.0],"am":[[0.0],[0.0]],"asd":[[1.0]]}"#)
            .contains("asd = 1 x 1")
    );
    assert!(error(r#"{"slo":[0.0],"shi":[1.0],"am":[[0.0]],"asd":[[0.0]]}"#).contains("asd = 0"));
    assert!(error(r#"{"slo":[0.0],"shi":[1.0]}"#).contains("`am` and `asd`"));
}

#[test]
fn the_digest_sees_every_number() {
    let text = r#"{"slo":[0.0],"shi":[1.0],"am":[[0.25]],"asd":[[1.0]]}"#;
    let a = parse(text).unwrap().digest();
    for (from, to) in [
        ("0.25", "0.5"),
        ("[[1.0]]", "[[1.5]]"),
        ("\"shi\":[1.0]", "\"shi\":[1.5]"),
    ] {
        assert_ne!(
            a,
            parse(&text.replace(from, to)).unwrap().digest(),
            "{from}"
        );
    }
    assert_eq!(a, parse(text).unwrap().digest());
}
