//! Positions are exact; table and rotation within 1e-6 of f64 at the f32 angle.

mod common;
use common::*;
use flashrt_exec::Space;
use flashrt_ops::{positions_from_mask, rope, rope_table, suffix_positions, DType, Tensor};

fn i32s(ctx: &flashrt_exec::Context, t: &Tensor) -> Vec<i32> {
    let mut raw = vec![0; t.slice().bytes()];
    ctx.download(t.slice(), &mut raw).unwrap();
    raw.chunks_exact(4)
        .map(|b| i32::from_ne_bytes(b.try_into().unwrap()))
        .collect()
}

#[test]
fn positions_count_valid_tokens_and_go_on_after_the_prefix() {
    let ctx = context(2);
    let m = mask(&ctx, &[1, 1, 0, 0, 255, 0, 1]);
    let own = Tensor::alloc(&ctx, "own", Space::Device, DType::I32, &[7]).unwrap();
    let next = Tensor::alloc(&ctx, "next", Space::Device, DType::I32, &[3]).unwrap();
    ctx.upload(own.slice(), &[0xff; 28]).unwrap();
    ctx.upload(next.slice(), &[0xff; 12]).unwrap();
    run(&ctx, |r| {
        positions_from_mask(r, &m, &own)?;
        suffix_positions(r, &m, &next)
    });
    assert_eq!(i32s(&ctx, &own), [0, 1, 1, 1, 2, 2, 3]);
    assert_eq!(i32s(&ctx, &next), [4, 5, 6]);
    // The mask is read when the graph runs, not when it is recorded.
    ctx.upload(m.slice(), &[0, 0, 0, 0, 0, 0, 1]).unwrap();
    run(&ctx, |r| suffix_positions(r, &m, &next));
    assert_eq!(i32s(&ctx, &next), [1, 2, 3]);
}

#[test]
fn the_table_holds_cosine_then_sine_of_position_times_frequency() {
    for d in [2, 8, 16, 72, 256] {
        let positions = [0, 1, 2, 3, 7, 52, 305, 1017, -5, 4096, 99_999];
        let got = everywhere(|ctx| {
            let p = ints(ctx, &positions);
            let t = poisoned(ctx, &[positions.len(), d]);
            run(ctx, |r| rope_table(r, &p, 10_000.0, &t));
            t.download_f32(ctx).unwrap()
        });
        for (row, p) in got.chunks(d).zip(positions) {
            for j in 0..d / 2 {
                let power = 10_000f64.powf(2.0 * j as f64 / d as f64) as f32;
                let angle = f64::from(p as f32 * (1.0 / power));
                for (g, w) in [(row[j], angle.cos()), (row[d / 2 + j], angle.sin())] {
                    assert!(
                        (f64::from(g) - w).abs() < 1e-6,
                        "d {d}, position {p}, pair {j}: {g} is not {w}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_head_is_rotated_by_halves() {
    let (m, h, d) = (9, 3, 40);
    let mut s = Seed(5);
    let x = s.values(m * h * d);
    let angles: Vec<f64> = s
        .scaled(m * d / 2, 3.0)
        .iter()
        .map(|v| f64::from(*v))
        .collect();
    let mut table = vec![0f32; m * d];
    for row in 0..m {
        for j in 0..d / 2 {
            table[row * d + j] = angles[row * d / 2 + j].cos() as f32;
            table[row * d + d / 2 + j] = angles[row * d / 2 + j].sin() as f32;
        }
    }
    for in_place in [false, true] {
        let got = everywhere(|ctx| {
            let x = tensor(ctx, &[m, h, d], &x);
            let t = tensor(ctx, &[m, d], &table);
            let out = if in_place {
                x.clone()
            } else {
                poisoned(ctx, &[m, h, d])
            };
            run(ctx, |r| rope(r, &x, &t, &out));
            out.download_f32(ctx).unwrap()
        });
        for row in 0..m {
            for head in 0..h {
                for j in 0..d / 2 {
                    let at = (row * h + head) * d;
                    let (a, b) = (f64::from(x[at + j]), f64::from(x[at + d / 2 + j]));
                    let (sin, cos) = angles[row * d / 2 + j].sin_cos();
                    let want = [a * cos - b * sin, b * cos + a * sin];
                    close(&[got[at + j], got[at + d / 2 + j]], &want, 3e-7, 0.0);
                }
            }
        }
    }
}
