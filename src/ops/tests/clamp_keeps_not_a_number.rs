//! Clamping to a range: ends, inside, infinities and NaN.

mod common;
use common::*;
use flashrt_ops::clamp;

#[test]
fn clamp_keeps_not_a_number() {
    let mut x: Vec<f32> = (-40..40).map(|i| i as f32 * 0.06).collect();
    x.extend([1.0, -1.0, f32::INFINITY, f32::NEG_INFINITY, -0.0, f32::NAN]);
    let got = everywhere(|ctx| {
        let (t, out) = (tensor(ctx, &[x.len()], &x), poisoned(ctx, &[x.len()]));
        run(ctx, |r| clamp(r, &t, -1.0, 1.0, &out));
        let apart = out.download_f32(ctx).unwrap();
        run(ctx, |r| clamp(r, &t, -1.0, 1.0, &t));
        let in_place = t.download_f32(ctx).unwrap();
        assert!(apart
            .iter()
            .zip(&in_place)
            .all(|(a, b)| a.to_bits() == b.to_bits()));
        apart
    });
    for (x, g) in x.iter().zip(&got) {
        let want = x.clamp(-1.0, 1.0);
        assert!(
            g.to_bits() == want.to_bits() || (g.is_nan() && x.is_nan()),
            "{x} {g}"
        );
    }
}

#[test]
fn an_empty_range_is_refused() {
    let ctx = context(1);
    let t = tensor(&ctx, &[1], &[0.0]);
    for (low, high) in [(1.0, -1.0), (f32::NAN, 1.0)] {
        let text = refused(&ctx, |r| clamp(r, &t, low, high, &t));
        assert!(text.contains("low <= high"), "{text}");
    }
}
