//! Every tensor that LeRobot's code gave for random weights, over the rows that are valid.

mod common;

use std::collections::{BTreeMap, BTreeSet};

use common::{drive, relative_error, Reference};
use flashrt_models::pi05::{NoiseSource, Pi05Options};
use flashrt_runtime::LiveSet;

const TOLERANCE: f64 = 1e-5;
const VALID: usize = 32 + 16;

struct Golden {
    g: BTreeMap<String, Reference>,
    checked: BTreeSet<String>,
}

impl Golden {
    /// Compares `got` with the start of the reference.
    fn check(&mut self, name: &str, got: &[f32]) {
        let error = relative_error(got, &self.g[name].values[..got.len()]);
        println!(
            "{name:>16} {:>6} values, relative error {error:.2e}",
            got.len()
        );
        assert!(error <= TOLERANCE, "{name}: {error:e}");
        self.checked.insert(name.into());
    }
}

/// NCHW of one view to NHWC.
fn nhwc(t: &Reference) -> Vec<f32> {
    let [_, c, h, w] = t.shape[..] else {
        panic!("{:?}", t.shape)
    };
    (0..h * w * c)
        .map(|i| t.values[(i % c) * h * w + i / c] as f32)
        .collect()
}

fn floats(set: &LiveSet, buffer: &str) -> Vec<f32> {
    drive::floats(&drive::buffer(set, buffer))
}

#[test]
fn every_golden_tensor_is_reproduced() {
    let mut t = Golden {
        g: common::load(&common::golden_dir().join("golden.safetensors")),
        checked: BTreeSet::new(),
    };
    let ctx = drive::context(0);
    let options = Pi05Options {
        flow_steps: vec![10, 4, 1],
        noise: NoiseSource::External,
        taps: true,
        ..Pi05Options::default()
    };
    let mut producer = drive::golden(&ctx, options);
    let mut set = flashrt_runtime::Producer::build(&mut producer, "golden").unwrap();

    // The images are random numbers, not pixels: they go where the pixel transform would put them.
    let images = [nhwc(&t.g["image0"]), nhwc(&t.g["image1"])].concat();
    set.buffer("in_images")
        .unwrap()
        .host_write(0, &common::f32_bytes(&images))
        .unwrap();
    let state: Vec<f32> = (0..6)
        .map(|i| (-0.9 + 1.8 * f64::from(i) / 5.0) as f32)
        .collect();
    drive::set_state(&mut set, &state).unwrap();
    drive::set_text(&mut set, "put the cube on the red pad").unwrap();
    let noise = set.port("noise").unwrap();
    set.swap_in(noise, &common::f32_bytes(&t.g["noise"].f32()))
        .unwrap();

    let tokens: Vec<i32> = drive::buffer(&set, "in_tokens")
        .chunks_exact(4)
        .map(|b| i32::from_ne_bytes(b.try_into().unwrap()))
        .collect();
    assert_eq!(tokens, t.g["tokens"].i32());
    let mask: Vec<i32> = drive::buffer(&set, "in_mask")[32..]
        .iter()
        .map(|&b| i32::from(b))
        .collect();
    assert_eq!(mask, t.g["token_mask"].i32());
    assert_eq!(mask.iter().sum::<i32>() as usize, VALID - 32);

    for (steps, names) in [(1, vec!["actions_steps1"]), (4, vec!["actions_steps4"])] {
        drive::run(&mut set, "full", steps);
        for name in names {
            t.check(name, &drive::output(&mut set, "actions_raw"));
        }
    }
    drive::run(&mut set, "full", 10);
    let raw = drive::output(&mut set, "actions_raw");
    for name in ["actions", "actions_steps10", "x10"] {
        t.check(name, &raw);
    }
    assert_eq!(
        drive::bits(&drive::output(&mut set, "actions")),
        drive::bits(&raw),
        "identity statistics"
    );

    let siglip = floats(&set, "tap.siglip");
    t.check("siglip0", &siglip[..16 * 32]);
    let embs = floats(&set, "tap.prefix_embs");
    t.check("proj0", &embs[..16 * 48]);
    t.check("prefix_embs", &embs[..VALID * 48]);
    t.check("prefix_out", &floats(&set, "tap.prefix_out")[..VALID * 48]);
    let kv = floats(&set, "kv");
    let part = 50 * 8;
    for layer in 0..2 {
        for (i, name) in ["k", "v"].into_iter().enumerate() {
            let at = (2 * layer + i) * part;
            t.check(&format!("prefix_{name}{layer}"), &kv[at..at + VALID * 8]);
        }
    }
    let (cond, v, x) = (
        floats(&set, "tap.cond"),
        floats(&set, "tap.velocity"),
        floats(&set, "tap.x"),
    );
    for k in [0, 5] {
        t.check(&format!("adarms_cond{k}"), &cond[32 * k..32 * (k + 1)]);
    }
    for k in 0..10 {
        t.check(&format!("v{k}"), &v[48 * k..48 * (k + 1)]);
        t.check(&format!("x{}", k + 1), &x[48 * k..48 * (k + 1)]);
    }

    let inputs = ["image0", "image1", "tokens", "token_mask", "noise"].map(String::from);
    let left: Vec<_> =
        t.g.keys()
            .filter(|n| !t.checked.contains(*n) && !inputs.contains(n))
            .collect();
    assert!(left.is_empty(), "not compared: {left:?}");

    // The same in two stages, and without taps: same bytes.
    drive::run(&mut set, "context_action", 10);
    assert_eq!(
        drive::bits(&drive::output(&mut set, "actions_raw")),
        drive::bits(&raw)
    );
}
