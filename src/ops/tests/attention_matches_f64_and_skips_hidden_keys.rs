//! Attention against f64. Tolerance 3e-6 absolute on values in [-1, 1].

mod common;
use common::*;
use flashrt_ops::{attention, KvPart};

struct Part {
    n: usize,
    k: Vec<f32>,
    v: Vec<f32>,
    mask: Option<Vec<u8>>,
}

fn part(s: &mut Seed, n: usize, hkv: usize, d: usize, masked: bool) -> Part {
    let mask: Option<Vec<u8>> =
        masked.then(|| (0..n).map(|_| u8::from(s.next() % 3 != 0) * 7).collect());
    let (mut k, mut v) = (s.scaled(n * hkv * d, 2.0), s.values(n * hkv * d));
    // What is hidden must never be read into the result.
    for (row, m) in mask.iter().flatten().enumerate() {
        if *m == 0 {
            k[row * hkv * d..(row + 1) * hkv * d].fill(f32::NAN);
            v[row * hkv * d..(row + 1) * hkv * d].fill(f32::INFINITY);
        }
    }
    Part { n, k, v, mask }
}

fn reference(q: &[f32], m: usize, hq: usize, hkv: usize, d: usize, parts: &[Part]) -> Vec<f64> {
    let scale = 1.0 / (d as f64).sqrt();
    let mut out = vec![0.0; m * hq * d];
    for row in 0..m {
        for h in 0..hq {
            let q = &q[(row * hq + h) * d..][..d];
            let head = h / (hq / hkv);
            let mut seen = Vec::new();
            for p in parts {
                for n in 0..p.n {
                    if p.mask.as_ref().is_none_or(|m| m[n] != 0) {
                        let at = (n * hkv + head) * d;
                        let dot: f64 = (0..d)
                            .map(|i| f64::from(q[i]) * f64::from(p.k[at + i]))
                            .sum();
                        seen.push((dot * scale, &p.v[at..at + d]));
                    }
                }
            }
            let top = seen.iter().map(|s| s.0).fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = seen.iter().map(|s| (s.0 - top).exp()).sum();
            for (s, v) in seen {
                for i in 0..d {
                    out[(row * hq + h) * d + i] += (s - top).exp() / sum * f64::from(v[i]);
                }
            }
        }
    }
    out
}

fn check(m: usize, hq: usize, hkv: usize, d: usize, sizes: &[(usize, bool)]) {
    let mut s = Seed((m * 31 + hq * 7 + d) as u64);
    let q = s.scaled(m * hq * d, 3.0);
    let parts: Vec<Part> = sizes
        .iter()
        .map(|&(n, masked)| part(&mut s, n, hkv, d, masked))
        .collect();
    let got = everywhere(|ctx| {
        let q = tensor(ctx, &[m, hq, d], &q);
        let out = poisoned(ctx, &[m, hq, d]);
        let tensors: Vec<_> = parts
            .iter()
            .map(|p| {
                (
                    tensor(ctx, &[p.n, hkv, d], &p.k),
                    tensor(ctx, &[p.n, hkv, d], &p.v),
                    p.mask.as_ref().map(|m| mask(ctx, m)),
                )
            })
            .collect();
        let parts: Vec<KvPart<'_>> = tensors
            .iter()
            .map(|(k, v, m)| KvPart {
                k,
                v,
                mask: m.as_ref(),
            })
            .collect();
        run(ctx, |r| {
            attention(r, &q, &parts, 1.0 / (d as f32).sqrt(), &out)
        });
        out.download_f32(ctx).unwrap()
    });
    close(&got, &reference(&q, m, hq, hkv, d, &parts), 3e-6, 3e-6);
}

#[test]
fn one_key_head_for_all_queries_over_prefix_and_own_part() {
    check(16, 8, 1, 16, &[(90, true), (16, false)]);
    check(5, 8, 1, 8, &[(37, true), (5, false)]);
}

#[test]
fn as_many_key_heads_as_query_heads() {
    check(17, 4, 4, 24, &[(17, false)]);
    check(3, 3, 3, 9, &[(11, true)]);
}

#[test]
fn grouped_heads_and_large_and_odd_head_dimensions() {
    check(2, 6, 2, 256, &[(33, true), (2, false)]);
    check(4, 4, 2, 72, &[(19, false), (4, true)]);
    check(1, 1, 1, 1, &[(3, false)]);
}

#[test]
fn more_visible_keys_than_one_block_are_rescaled() {
    check(3, 2, 1, 16, &[(1300, true), (3, false)]);
    check(2, 1, 1, 8, &[(512, false), (513, false)]);
}

#[test]
fn a_query_that_sees_no_key_gets_zeros() {
    let got = everywhere(|ctx| {
        let q = tensor(ctx, &[2, 1, 8], &[1.0; 16]);
        let nan = tensor(ctx, &[5, 1, 8], &[f32::NAN; 40]);
        let hidden = mask(ctx, &[0; 5]);
        let out = poisoned(ctx, &[2, 1, 8]);
        let part = KvPart {
            k: &nan,
            v: &nan,
            mask: Some(&hidden),
        };
        run(ctx, |r| attention(r, &q, &[part], 1.0, &out));
        out.download_f32(ctx).unwrap()
    });
    assert_eq!(got, [0.0; 16]);
}

#[test]
fn scores_far_apart_do_not_overflow() {
    let got = everywhere(|ctx| {
        let q = tensor(ctx, &[1, 1, 1], &[1.0]);
        let k = tensor(ctx, &[3, 1, 1], &[1e4, -3e38, 1e4 - 1.0]);
        let v = tensor(ctx, &[3, 1, 1], &[1.0, 100.0, 3.0]);
        let out = poisoned(ctx, &[1, 1, 1]);
        let part = KvPart {
            k: &k,
            v: &v,
            mask: None,
        };
        run(ctx, |r| attention(r, &q, &[part], 1.0, &out));
        out.download_f32(ctx).unwrap()
    });
    let p = 1.0 / (1.0 + (-1f64).exp());
    close(&got, &[p + 3.0 * (1.0 - p)], 0.0, 1e-6);
}
