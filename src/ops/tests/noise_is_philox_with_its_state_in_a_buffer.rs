//! The generator against the known answers of the Random123 distribution, its statistics, and its state.

mod common;
use common::*;
use flashrt_exec::Context;
use flashrt_ops::{philox4x32_10, philox_normal, DType, Tensor};

#[test]
fn philox_gives_the_known_answers_of_random123() {
    let cases = [
        (
            [0; 4],
            [0; 2],
            [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8],
        ),
        (
            [u32::MAX; 4],
            [u32::MAX; 2],
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd],
        ),
        (
            [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
            [0xa409_3822, 0x299f_31d0],
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
        ),
    ];
    for (counter, key, want) in cases {
        assert_eq!(philox4x32_10(counter, key), want);
    }
}

fn rng(ctx: &Context, key: u64, counter: u64) -> Tensor {
    let bytes: Vec<u8> = [key, counter]
        .iter()
        .flat_map(|v| v.to_ne_bytes())
        .collect();
    raw(ctx, DType::U64, &[2], &bytes)
}

fn state(ctx: &Context, t: &Tensor) -> [u64; 2] {
    let mut b = [0; 16];
    ctx.download(t.slice(), &mut b).unwrap();
    [0, 8].map(|i| u64::from_ne_bytes(b[i..i + 8].try_into().unwrap()))
}

fn draw(ctx: &Context, rng: &Tensor, n: usize) -> Vec<f32> {
    let out = poisoned(ctx, &[n]);
    run(ctx, |r| philox_normal(r, rng, &out));
    out.download_f32(ctx).unwrap()
}

#[test]
fn values_follow_the_documented_mapping() {
    let (key, counter) = (0x0123_4567_89ab_cdef, u64::MAX - 1);
    let got = everywhere(|ctx| draw(ctx, &rng(ctx, key, counter), 4 * 1000));
    let mut want = Vec::new();
    for b in 0..1000 {
        let c = counter.wrapping_add(b);
        let w = philox4x32_10(
            [c as u32, (c >> 32) as u32, 0, 0],
            [key as u32, (key >> 32) as u32],
        );
        for p in 0..2 {
            let u = (f64::from(w[2 * p] >> 8) + 1.0) / 16_777_216.0;
            let theta = f64::from(w[2 * p + 1] >> 8) / 16_777_216.0 * std::f64::consts::TAU;
            let radius = (-2.0 * u.ln()).sqrt();
            want.extend([radius * theta.cos(), radius * theta.sin()]);
        }
    }
    close(&got, &want, 1e-6, 5e-7);
}

#[test]
fn a_draw_advances_the_counter_by_its_blocks_and_leaves_the_key() {
    let ctx = context(2);
    let r = rng(&ctx, 5, 7);
    let first = draw(&ctx, &r, 96);
    assert_eq!(state(&ctx, &r), [5, 7 + 24]);
    let second = draw(&ctx, &r, 5);
    assert_eq!(state(&ctx, &r), [5, 7 + 24 + 2]);
    assert_ne!(first[..5], second[..]);
    // The same state gives the same draw, whatever was drawn meanwhile; a longer draw starts alike.
    let again = draw(&ctx, &rng(&ctx, 5, 31), 9);
    assert_eq!(again[..5], second[..]);
    assert_ne!(draw(&ctx, &rng(&ctx, 6, 7), 96), first);
    // The counter wraps and carries into its upper word.
    let r = rng(&ctx, 1, u64::MAX);
    draw(&ctx, &r, 8);
    assert_eq!(state(&ctx, &r), [1, 1]);
    let r = rng(&ctx, 1, u64::from(u32::MAX));
    draw(&ctx, &r, 1);
    assert_eq!(state(&ctx, &r), [1, 1 << 32]);
}

#[test]
fn the_draw_is_standard_normal() {
    let ctx = context(2);
    let x = draw(&ctx, &rng(&ctx, 42, 0), 400_000);
    assert!(x.iter().all(|v| v.is_finite()));
    let moment = |p: i32| x.iter().map(|v| f64::from(*v).powi(p)).sum::<f64>() / x.len() as f64;
    // Five standard errors of each moment.
    assert!(moment(1).abs() < 0.008);
    assert!((moment(2) - 1.0).abs() < 0.012);
    assert!(moment(3).abs() < 0.03);
    assert!((moment(4) - 3.0).abs() < 0.08);
    let tail = x.iter().filter(|v| v.abs() > 2.575_829_3).count() as f64 / x.len() as f64;
    assert!((tail - 0.01).abs() < 0.001);
    // Pairs and neighbours are not correlated.
    for lag in 1..5 {
        let c = x
            .windows(lag + 1)
            .map(|w| f64::from(w[0]) * f64::from(w[lag]))
            .sum::<f64>()
            / x.len() as f64;
        assert!(c.abs() < 0.008, "lag {lag}: {c}");
    }
}
