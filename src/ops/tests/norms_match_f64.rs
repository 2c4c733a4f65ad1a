//! Norms against f64, odd widths. Tolerance 2e-6 absolute plus 2e-6 relative on values of order one.

mod common;
use common::*;
use flashrt_ops::{ada_rms_norm, layer_norm, rms_norm, style_gate};

const SIZES: [(usize, usize); 7] = [
    (1, 1),
    (3, 5),
    (2, 16),
    (7, 17),
    (16, 96),
    (306, 128),
    (2, 1153),
];

fn rms(x: &[f32], eps: f64) -> f64 {
    let mean = x.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>() / x.len() as f64;
    (mean + eps).sqrt()
}

#[test]
fn layer_norm_subtracts_the_mean_and_divides_by_the_deviation() {
    for (rows, d) in SIZES {
        let mut s = Seed(d as u64);
        // A large offset makes a one-pass variance fail.
        let x: Vec<f32> = s.values(rows * d).iter().map(|v| v + 8.0).collect();
        let (w, b) = (s.values(d), s.values(d));
        let got = everywhere(|ctx| {
            let (x, w, b) = (
                tensor(ctx, &[rows, d], &x),
                tensor(ctx, &[d], &w),
                tensor(ctx, &[d], &b),
            );
            let out = poisoned(ctx, &[rows, d]);
            run(ctx, |r| layer_norm(r, &x, &w, &b, 1e-6, &out));
            out.download_f32(ctx).unwrap()
        });
        let mut want = Vec::new();
        for row in x.chunks(d) {
            let mean = row.iter().map(|v| f64::from(*v)).sum::<f64>() / d as f64;
            let var = row
                .iter()
                .map(|v| (f64::from(*v) - mean).powi(2))
                .sum::<f64>()
                / d as f64;
            for i in 0..d {
                let y = (f64::from(row[i]) - mean) / (var + 1e-6).sqrt();
                want.push(y * f64::from(w[i]) + f64::from(b[i]));
            }
        }
        // The mean itself carries an f32 rounding of a value near 8.
        close(&got, &want, 4e-6, 4e-6);
    }
}

#[test]
fn rms_norm_scales_by_one_plus_weight_also_in_place() {
    for (rows, d) in SIZES {
        let mut s = Seed(2 + d as u64);
        let (x, w) = (s.values(rows * d), s.values(d));
        let got = everywhere(|ctx| {
            let (x, w) = (tensor(ctx, &[rows, d], &x), tensor(ctx, &[d], &w));
            run(ctx, |r| rms_norm(r, &x, &w, 1e-6, &x));
            x.download_f32(ctx).unwrap()
        });
        let want: Vec<f64> = x
            .chunks(d)
            .flat_map(|row| {
                let n = rms(row, 1e-6);
                let w = &w;
                (0..d).map(move |i| f64::from(row[i]) / n * (1.0 + f64::from(w[i])))
            })
            .collect();
        close(&got, &want, 2e-6, 2e-6);
    }
}

#[test]
fn ada_rms_norm_takes_scale_and_shift_and_the_gate_is_the_third_part() {
    for (rows, d) in SIZES {
        let mut s = Seed(3 + d as u64);
        let (x, style) = (s.values(rows * d), s.values(3 * d));
        let got = everywhere(|ctx| {
            let (x, style) = (
                tensor(ctx, &[rows, d], &x),
                tensor(ctx, &[1, 3 * d], &style),
            );
            let out = poisoned(ctx, &[rows, d]);
            run(ctx, |r| ada_rms_norm(r, &x, &style, 1e-6, &out));
            out.download_f32(ctx).unwrap()
        });
        let want: Vec<f64> = x
            .chunks(d)
            .flat_map(|row| {
                let n = rms(row, 1e-6);
                let st = &style;
                (0..d).map(move |i| {
                    f64::from(row[i]) / n * (1.0 + f64::from(st[i])) + f64::from(st[d + i])
                })
            })
            .collect();
        close(&got, &want, 2e-6, 2e-6);
        let ctx = context(1);
        let t = tensor(&ctx, &[3, d], &style);
        let gate = style_gate(&t).unwrap();
        assert_eq!(gate.shape(), [d]);
        assert_eq!(gate.download_f32(&ctx).unwrap(), style[2 * d..]);
    }
}
