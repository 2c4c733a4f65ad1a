//! The demo policy on a GPU: every byte of its actions and of its state is the CPU's.

mod common;

use common::drive::{self, bits, output, run};
use flashrt_exec::{Context, KEY_INHERIT};
use flashrt_models::pi05::Pi05Options;
use flashrt_runtime::{LiveSet, Producer};

fn set(ctx: &Context) -> LiveSet {
    let options = Pi05Options {
        seed: 3,
        ..Pi05Options::default()
    };
    let mut set = drive::demo(ctx, options).build("main").unwrap();
    drive::set_text(&mut set, "put the cube on the green pad").unwrap();
    drive::set_state(&mut set, &[0.1, -0.3, 0.5, 0.7, 0.9, 1.1]).unwrap();
    set
}

/// Both outputs of some ticks of each plan, then what the regions hold.
fn ticks(set: &mut LiveSet) -> Vec<Vec<u32>> {
    let mut all = Vec::new();
    for (seed, plan, key) in [
        (0, "full", KEY_INHERIT),
        (1, "context_action", 5),
        (2, "action", 10),
        (3, "full", 10),
    ] {
        drive::set_pictures(set, 96, seed);
        run(set, plan, key);
        all.push(bits(&output(set, "actions")));
        all.push(bits(&output(set, "actions_raw")));
    }
    for region in set.regions() {
        let mut bytes = vec![0; region.slice.bytes()];
        set.context().download(&region.slice, &mut bytes).unwrap();
        all.push(bytes.into_iter().map(u32::from).collect());
    }
    all
}

#[test]
fn outputs_and_regions_have_the_cpus_bytes() {
    let Some(gpu) = common::cuda() else { return };
    let want = ticks(&mut set(&drive::context(2)));
    let got = ticks(&mut set(&gpu));
    assert_eq!(got.len(), want.len());
    for (i, (g, w)) in got.iter().zip(&want).enumerate() {
        assert_eq!(g, w, "part {i}");
    }
}

#[test]
fn a_set_of_the_gpu_is_identified_by_its_kernels_and_is_no_set_of_the_cpu() {
    let Some(gpu) = common::cuda() else { return };
    let (on_gpu, on_cpu) = (set(&gpu), set(&drive::context(1)));
    let text = String::from_utf8_lossy(on_gpu.identity()).into_owned();
    assert!(text.contains("\nbackend=cuda\n"), "{text}");
    assert!(
        text.contains(&format!("\nkernels={} NVRTC-", gpu.isa())),
        "{text}"
    );
    assert_ne!(on_gpu.fingerprint(), on_cpu.fingerprint());
}
