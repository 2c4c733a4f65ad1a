//! The demo's weights against the same network in PyTorch (`make_reference.py`), float32 on both sides.

mod common;

use common::{drive, relative_error};
use flashrt_models::pi05::{NoiseSource, Pi05Options};
use flashrt_runtime::{ImageView, Producer};
use sha2::{Digest, Sha256};

/// Rounding differs in order only, but a trained flow can stretch it from step to step.
const TOLERANCE: f64 = 5e-5;

#[test]
fn demo_policy_equals_pytorch() {
    let path = common::repository().join("src/models/tests/data/demo_reference.safetensors");
    let g = common::load(&path);
    let weights = std::fs::read(common::demo_dir().join("model.safetensors")).unwrap();
    let digest: Vec<i32> = Sha256::digest(&weights)
        .iter()
        .map(|&b| i32::from(b))
        .collect();
    assert_eq!(
        digest,
        g["weights_sha256"].i32(),
        "the demo's weights changed: run `python src/models/tests/make_reference.py`"
    );

    let ctx = drive::context(0);
    let options = Pi05Options {
        noise: NoiseSource::External,
        ..Pi05Options::default()
    };
    let mut set = drive::demo(&ctx, options).build("demo").unwrap();
    let noise = set.port("noise").unwrap();
    for (case, text) in [
        "put the cube on the red pad",
        "put the cube on the blue pad",
    ]
    .into_iter()
    .enumerate()
    {
        let t = |name: &str| &g[&format!("{name}{case}")];
        let pixels: Vec<u8> = t("images").values.iter().map(|&x| x as u8).collect();
        let [_, side, _, _] = t("images").shape[..] else {
            panic!("{:?}", t("images").shape)
        };
        let views: Vec<ImageView<'_>> = pixels
            .chunks_exact(side * side * 3)
            .map(|d| drive::rgb(side as u32, d))
            .collect();
        drive::set_images(&mut set, &views).unwrap();
        drive::set_text(&mut set, text).unwrap();
        drive::set_state(&mut set, &t("state").f32()).unwrap();
        set.swap_in(noise, &common::f32_bytes(&t("noise").f32()))
            .unwrap();

        let want = t("tokens").i32();
        let tokens: Vec<i32> = drive::buffer(&set, "in_tokens")
            .chunks_exact(4)
            .map(|b| i32::from_ne_bytes(b.try_into().unwrap()))
            .collect();
        assert_eq!(tokens[..want.len()], want);

        for steps in [5, 10] {
            drive::run(&mut set, "full", steps);
            for (port, name) in [("actions_raw", "raw"), ("actions", "actions")] {
                let got = drive::output(&mut set, port);
                let error = relative_error(&got, &g[&format!("{name}{case}_steps{steps}")].values);
                println!("case {case}, {steps} steps, {name}: relative error {error:.2e}");
                assert!(
                    error <= TOLERANCE,
                    "case {case}, {steps} steps, {name}: {error:e}"
                );
            }
        }
    }
}
