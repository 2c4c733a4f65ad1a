//! Driving a live set in tests.
#![allow(dead_code)]

use std::sync::Arc;

use flashrt_exec::{Context, CpuOptions, StreamOrder, KEY_INHERIT};
use flashrt_models::pi05::{open_weights, Pi05, Pi05Config, Pi05Options};
use flashrt_models::stats::Stats;
use flashrt_models::WordList;
use flashrt_runtime::{ImageView, InputData, LiveSet, PixelFormat, ShapeKey};

pub fn context(threads: usize) -> Context {
    Context::cpu(CpuOptions {
        threads,
        order: StreamOrder::Submission,
    })
    .unwrap()
}

pub fn demo(ctx: &Context, options: Pi05Options) -> Pi05 {
    Pi05::load(ctx, &super::demo_dir(), options).unwrap()
}

/// The golden network with the demo's words and 18 prompt slots, no normalisation.
pub fn golden(ctx: &Context, options: Pi05Options) -> Pi05 {
    golden_with(ctx, options, |_| (), |_| ())
}

pub fn golden_with(
    ctx: &Context,
    mut options: Pi05Options,
    config: impl FnOnce(&mut Pi05Config),
    stats: impl FnOnce(&mut Stats),
) -> Pi05 {
    let mut c = super::golden_config();
    config(&mut c);
    let mut s = Stats::identity(c.robot_dim(), c.robot_dim());
    stats(&mut s);
    options
        .tokenizer
        .get_or_insert_with(|| Arc::new(WordList::new(&super::demo_words(), 64, 18).unwrap()));
    let weights = open_weights(&c, &super::golden_dir().join("model.safetensors")).unwrap();
    Pi05::from_parts(ctx, c, s, &weights, options).unwrap()
}

/// Pixels that differ from view to view and from seed to seed.
pub fn picture(seed: u32, bytes: usize) -> Vec<u8> {
    let mut x = seed.wrapping_mul(2_654_435_761) | 1;
    (0..bytes)
        .map(|_| {
            x ^= x << 13;
            x ^= x >> 17;
            x ^= x << 5;
            (x >> 24) as u8
        })
        .collect()
}

pub fn rgb(side: u32, data: &[u8]) -> ImageView<'_> {
    ImageView {
        format: PixelFormat::Rgb8,
        width: side,
        height: side,
        stride_bytes: 0,
        data,
        timestamp_ns: 0,
    }
}

pub fn set_text(set: &mut LiveSet, text: &str) -> Result<(), flashrt_runtime::Error> {
    set.set_input(set.port("prompt").unwrap(), InputData::Text(text))
}

pub fn set_state(set: &mut LiveSet, state: &[f32]) -> Result<(), flashrt_runtime::Error> {
    set.set_input(set.port("state").unwrap(), InputData::F32(state))
}

pub fn set_images(
    set: &mut LiveSet,
    views: &[ImageView<'_>],
) -> Result<(), flashrt_runtime::Error> {
    set.set_input(set.port("images").unwrap(), InputData::Images(views))
}

/// Square pictures of `side`, made from `seed`, into every view.
pub fn set_pictures(set: &mut LiveSet, side: u32, seed: u32) {
    let views = set.ports()[0].shape[0] as u32;
    let data: Vec<Vec<u8>> = (0..views)
        .map(|v| picture(seed * 16 + v, (side * side * 3) as usize))
        .collect();
    let views: Vec<ImageView<'_>> = data.iter().map(|d| rgb(side, d)).collect();
    set_images(set, &views).unwrap();
}

pub fn run(set: &mut LiveSet, plan: &str, key: ShapeKey) {
    let plan = set.plan(plan).unwrap();
    set.run(plan, key).unwrap();
    set.sync().unwrap();
}

pub fn output(set: &mut LiveSet, port: &str) -> Vec<f32> {
    let id = set.port(port).unwrap();
    let shape = &set.ports()[id.0].shape;
    let mut bytes = vec![0; 4 * shape.iter().product::<i64>() as usize];
    if port == "actions" {
        assert_eq!(set.get_output(id, &mut bytes).unwrap(), bytes.len());
    } else {
        set.swap_out(id, &mut bytes).unwrap();
    }
    floats(&bytes)
}

/// One full tick.
pub fn tick(set: &mut LiveSet) -> Vec<f32> {
    run(set, "full", KEY_INHERIT);
    output(set, "actions")
}

pub fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes
        .chunks_exact(4)
        .map(|b| f32::from_ne_bytes(b.try_into().unwrap()))
        .collect()
}

pub fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|x| x.to_bits()).collect()
}

/// Bytes of a buffer of the set.
pub fn buffer(set: &LiveSet, name: &str) -> Vec<u8> {
    let b = set
        .buffer(name)
        .unwrap_or_else(|| panic!("no buffer {name}"));
    let mut bytes = vec![0; b.bytes()];
    set.context().download(&b.all(), &mut bytes).unwrap();
    bytes
}

/// Bytes of all buffers of the set, by name.
pub fn all_buffers(set: &LiveSet) -> Vec<(String, Vec<u8>)> {
    set.buffers()
        .iter()
        .map(|b| (b.name().to_owned(), buffer(set, b.name())))
        .collect()
}
