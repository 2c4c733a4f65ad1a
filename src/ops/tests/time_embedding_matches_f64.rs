//! The flow-time embedding against the library's f64, within one rounding to f32.

mod common;
use common::*;
use flashrt_ops::time_embedding;

#[test]
fn sines_then_cosines_of_geometric_periods() {
    for w in [4, 32, 96, 1024] {
        for t in [1.0, 0.9, 0.5, 0.1, 1.0 / 3.0, 0.0] {
            let got = everywhere(|ctx| {
                let out = poisoned(ctx, &[1, w]);
                run(ctx, |r| time_embedding(r, t, 4e-3, 4.0, &out));
                out.download_f32(ctx).unwrap()
            });
            let h = w / 2;
            let mut want = vec![0.0; w];
            for i in 0..h {
                let period = 4e-3 * 1000f64.powf(i as f64 / (h - 1) as f64);
                let (sin, cos) = (std::f64::consts::TAU * t / period).sin_cos();
                (want[i], want[h + i]) = (sin, cos);
            }
            // f64 angles of up to 1600 rad carry 1e-12.
            close(&got, &want, 1e-11, 6e-8);
        }
    }
}
