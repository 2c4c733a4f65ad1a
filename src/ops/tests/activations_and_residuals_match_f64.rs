//! One-element operations against f64. Tolerance 4 ulp of the result for activations, exact for sums.

mod common;
use common::*;
use flashrt_ops::{add_position, axpy, gated_residual, geglu, gelu_tanh, residual_add, silu};

/// All magnitudes and both signs, with zero and the saturated ends.
fn sweep() -> Vec<f32> {
    let mut x: Vec<f32> = (-4000..4000).map(|i| i as f32 * 0.0051).collect();
    for e in -30..=6 {
        x.extend([2f32.powi(e), -(2f32.powi(e)) * 1.37]);
    }
    x.extend([0.0, 300.0, -300.0, 88.5, -88.5]);
    x
}

#[test]
fn gelu_tanh_over_the_whole_range() {
    let x = sweep();
    let got = everywhere(|ctx| {
        let t = tensor(ctx, &[x.len()], &x);
        let out = poisoned(ctx, &[x.len()]);
        run(ctx, |r| gelu_tanh(r, &t, &out));
        out.download_f32(ctx).unwrap()
    });
    for (x, g) in x.iter().zip(&got) {
        let x = f64::from(*x);
        let u = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
        // The reference without cancellation.
        let want = x / (1.0 + (-2.0 * u).exp());
        // The exponent's argument carries |2u| roundings.
        let relative = 2.5e-7 * (1.0 + (2.0 * u).abs().min(90.0));
        assert!(
            (f64::from(*g) - want).abs() <= relative * want.abs() + 1e-36,
            "gelu({x}) = {g:e}, expected {want:e}"
        );
    }
}

#[test]
fn silu_over_the_whole_range() {
    let x = sweep();
    let got = everywhere(|ctx| {
        let t = tensor(ctx, &[x.len()], &x);
        run(ctx, |r| silu(r, &t, &t));
        t.download_f32(ctx).unwrap()
    });
    for (x, g) in x.iter().zip(&got) {
        let want = common::silu(f64::from(*x));
        assert!(
            (f64::from(*g) - want).abs() <= 4.0 * 6e-8 * want.abs() + 1e-35,
            "silu({x}) = {g:e}, expected {want:e}"
        );
    }
}

#[test]
fn not_a_number_goes_through_and_infinities_do_not_trap() {
    let x = [f32::NAN, f32::INFINITY, 1.0];
    let got = everywhere(|ctx| {
        let t = tensor(ctx, &[3], &x);
        run(ctx, |r| silu(r, &t, &t));
        t.download_f32(ctx).unwrap()
    });
    assert!(got[0].is_nan());
    assert_eq!(got[1], f32::INFINITY);
}

#[test]
fn products_and_sums_of_two_operands() {
    let (rows, d) = (23, 37);
    let mut s = Seed(9);
    let (x, y, gate) = (s.values(rows * d), s.values(rows * d), s.values(d));
    let f = f64::from;
    type Op = fn(
        &mut flashrt_exec::Recorder<'_>,
        [&flashrt_ops::Tensor; 4],
    ) -> Result<(), flashrt_ops::Error>;
    type Want<'a> = Box<dyn Fn(usize) -> f64 + 'a>;
    let cases: [(Op, Want<'_>); 4] = [
        (
            |r, [x, y, _, out]| geglu(r, x, y, out),
            Box::new(|i| gelu(f(x[i])) * f(y[i])),
        ),
        (
            |r, [x, y, _, out]| residual_add(r, x, y, out),
            Box::new(|i| f(x[i] + y[i])),
        ),
        (
            |r, [x, y, gate, out]| gated_residual(r, x, y, gate, out),
            Box::new(|i| f(y[i].mul_add(gate[i % d], x[i]))),
        ),
        (
            |r, [x, y, _, out]| {
                flashrt_ops::latch(r, x, out)?;
                axpy(r, out, -0.1, y)
            },
            Box::new(|i| f(y[i].mul_add(-0.1, x[i]))),
        ),
    ];
    for (n, (op, want)) in cases.iter().enumerate() {
        let got = everywhere(|ctx| {
            let t = [
                tensor(ctx, &[rows, d], &x),
                tensor(ctx, &[rows, d], &y),
                tensor(ctx, &[d], &gate),
                poisoned(ctx, &[rows, d]),
            ];
            run(ctx, |r| op(r, [&t[0], &t[1], &t[2], &t[3]]));
            t[3].download_f32(ctx).unwrap()
        });
        let want: Vec<f64> = (0..rows * d).map(want).collect();
        let tolerance = if n == 0 { 1e-6 } else { 0.0 };
        close(&got, &want, 0.0, tolerance);
    }
}

#[test]
fn the_position_table_repeats_for_every_view() {
    let (views, p, d) = (3, 7, 19);
    let mut s = Seed(4);
    let (x, position) = (s.values(views * p * d), s.values(p * d));
    let got = everywhere(|ctx| {
        let x = tensor(ctx, &[views * p, d], &x);
        let position = tensor(ctx, &[p, d], &position);
        run(ctx, |r| add_position(r, &x, &position, &x));
        x.download_f32(ctx).unwrap()
    });
    for (i, g) in got.iter().enumerate() {
        assert_eq!(*g, x[i] + position[i % (p * d)]);
    }
}

#[test]
fn many_rows_are_all_written() {
    // Several tasks, the last one short.
    let n = 16_384 * 3 + 5;
    let x = Seed(1).values(n);
    let got = everywhere(|ctx| {
        let t = tensor(ctx, &[n, 1], &x);
        let out = poisoned(ctx, &[n, 1]);
        run(ctx, |r| residual_add(r, &t, &t, &out));
        out.download_f32(ctx).unwrap()
    });
    assert!(got.iter().zip(&x).all(|(g, x)| *g == x + x));
}
