//! A model that does not fit on the GPU.

mod common;

use common::drive;
use flashrt_exec::{Buffer, Context, Space};
use flashrt_models::pi05::{Pi05, Pi05Options};

/// Takes device memory until less than a block of `bytes` is left.
fn fill(ctx: &Context, bytes: usize) -> Vec<Buffer> {
    let mut taken = Vec::new();
    let mut block = 8usize << 30;
    while block >= bytes {
        match ctx.alloc("pressure", Space::Device, block) {
            Ok(buffer) => taken.push(buffer),
            Err(_) => block /= 2,
        }
    }
    taken
}

#[test]
fn case_188_a_model_without_room_fails_at_load_with_numbers_and_loads_when_there_is_room() {
    let Some(ctx) = common::cuda() else { return };
    // Kernels, so that what fails is a buffer.
    flashrt_ops::prepare(&ctx, flashrt_ops::KernelSet::F32).unwrap();
    let pressure = fill(&ctx, 64 << 10);
    let buffers = ctx.memory().buffers;
    let error = Pi05::load(&ctx, &common::demo_dir(), Pi05Options::default()).err();
    let text = error.expect("there was room").to_string();
    assert!(
        text.contains("MiB are needed") && text.contains("MiB are free"),
        "{text}"
    );
    assert_eq!(ctx.memory().buffers, buffers, "nothing of it stays");
    drop(pressure);
    drive::demo(&ctx, Pi05Options::default());
}
