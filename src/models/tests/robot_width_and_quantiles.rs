//! Policies whose action space is wider than the robot, and statistics in quantiles.

mod common;

use std::path::Path;

use common::drive::{self, output};
use flashrt_models::pi05::{open_weights, NoiseSource, Pi05, Pi05Config, Pi05Options};
use flashrt_models::stats::Stats;
use flashrt_runtime::Producer;

#[test]
fn case_50_the_padded_tail_of_an_action_is_ignored() {
    let ctx = drive::context(1);
    let options = Pi05Options {
        noise: NoiseSource::External,
        ..Pi05Options::default()
    };
    let make = |tail: f32| {
        let mut p = drive::golden_with(
            &ctx,
            options.clone(),
            |c| {
                c.robot_dim = Some(4);
                c.anchor_dims = 3;
            },
            |_| (),
        );
        let mut set = p.build("a").unwrap();
        assert_eq!(set.ports()[set.port("actions").unwrap().0].shape, [8, 4]);
        assert_eq!(
            set.ports()[set.port("actions_raw").unwrap().0].shape,
            [8, 6]
        );
        drive::set_text(&mut set, "cube").unwrap();
        drive::set_state(&mut set, &[0.25, 0.5, -0.25, 0.75]).unwrap();
        drive::set_pictures(&mut set, 32, 1);
        let mut noise: Vec<f32> = (0..48).map(|i| (i as f32 * 0.7).sin()).collect();
        noise.iter_mut().skip(5).step_by(6).for_each(|x| *x = tail);
        set.swap_in(set.port("noise").unwrap(), &common::f32_bytes(&noise))
            .unwrap();
        let actions = drive::tick(&mut set);
        (actions, output(&mut set, "actions_raw"))
    };
    let (actions, raw) = make(2.0);
    assert!(
        raw.chunks(6).all(|row| row[4] != 0.0 && row[5] != 0.0),
        "the tail is not zero"
    );
    let anchor = [0.25, 0.5, -0.25, 0.0];
    for (h, row) in actions.chunks(4).enumerate() {
        for (d, a) in row.iter().enumerate() {
            assert_eq!(*a, raw[h * 6 + d] + anchor[d], "row {h}, column {d}");
        }
    }
}

#[test]
fn quantile_statistics_clip_the_raw_action() {
    let ctx = drive::context(1);
    let c = common::golden_config();
    let weights = open_weights(&c, &common::golden_dir().join("model.safetensors")).unwrap();
    let json = r#"{"state_q01":[-1,-1,-1,-1,-1,-1],"state_q99":[1,1,1,1,1,1],
                   "action_q01":[0,-1,-2,-3,-4,5],"action_q99":[1,2,3,4,5,6]}"#;
    let stats = Stats::parse(json.as_bytes(), Path::new("stats.json")).unwrap();
    let tokenizer = flashrt_models::WordList::new(&common::demo_words(), 64, 18).unwrap();
    let options = Pi05Options {
        tokenizer: Some(std::sync::Arc::new(tokenizer)),
        ..Pi05Options::default()
    };
    let mut set = Pi05::from_parts(&ctx, c, stats, &weights, options)
        .unwrap()
        .build("a")
        .unwrap();
    drive::set_text(&mut set, "cube").unwrap();
    drive::set_pictures(&mut set, 32, 1);
    let actions = drive::tick(&mut set);
    let raw = output(&mut set, "actions_raw");
    assert!(
        raw.iter().any(|x| x.abs() > 1.0) && raw.iter().any(|x| x.abs() < 1.0),
        "both sides of the clip"
    );
    let (low, high) = (
        [0.0, -1.0, -2.0, -3.0, -4.0, 5.0],
        [1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
    );
    for (i, a) in actions.iter().enumerate() {
        let x = f64::from(raw[i]).clamp(-1.0, 1.0);
        let want = (x + 1.0) / 2.0 * (high[i % 6] - low[i % 6] + 1e-6) + low[i % 6];
        assert!((f64::from(*a) - want).abs() < 2e-6, "{i}: {a} {want}");
    }
}

#[test]
fn parts_that_do_not_fit_each_other_are_refused() {
    let ctx = drive::context(1);
    let c = common::golden_config();
    let weights = open_weights(&c, &common::golden_dir().join("model.safetensors")).unwrap();
    let tokenizer = flashrt_models::WordList::new(&common::demo_words(), 64, 18).unwrap();
    let options = Pi05Options {
        tokenizer: Some(std::sync::Arc::new(tokenizer)),
        ..Pi05Options::default()
    };
    let load = |c: &Pi05Config, stats: Stats, o: &Pi05Options| {
        Pi05::from_parts(&ctx, c.clone(), stats, &weights, o.clone())
            .err()
            .unwrap()
            .to_string()
    };
    assert!(load(&c, Stats::identity(5, 6), &options)
        .contains("slo = 5: expected as many elements as robot_dim = 6"));
    assert!(load(&c, Stats::identity(6, 7), &options).contains("am = 7"));
    let mut rows = Stats::identity(6, 6);
    (rows.action.rows, rows.action.mean, rows.action.std) = (2, vec![0.0; 12], vec![1.0; 12]);
    assert!(load(&c, rows, &options).contains("am = 2: expected 1 row or chunk = 8 rows"));
    let none = Pi05Options {
        tokenizer: None,
        ..Pi05Options::default()
    };
    assert!(load(&c, Stats::identity(6, 6), &none).contains("words = absent"));
    let wide = flashrt_models::WordList::new(&common::demo_words(), 65, 18).unwrap();
    let wide = Pi05Options {
        tokenizer: Some(std::sync::Arc::new(wide)),
        ..Pi05Options::default()
    };
    assert!(load(&c, Stats::identity(6, 6), &wide)
        .contains("vocab = 320: expected at least the tokenizer's 321 ids"));
    let mut short = c.clone();
    short.max_prompt_tokens = 17;
    assert!(load(&short, Stats::identity(6, 6), &options).contains("max_prompt_tokens = 17"));

    let folder = common::temp_dir("empty-folder");
    let error = Pi05::load(&ctx, &folder, Pi05Options::default())
        .err()
        .unwrap()
        .to_string();
    assert!(error.contains("config.json"), "{error}");
    for (present, absent) in [
        ("config.json", "stats.json"),
        ("stats.json", "model.safetensors"),
    ] {
        std::fs::copy(common::demo_dir().join(present), folder.join(present)).unwrap();
        let error = Pi05::load(&ctx, &folder, Pi05Options::default())
            .err()
            .unwrap()
            .to_string();
        assert!(error.contains(absent), "{error}");
    }
}
