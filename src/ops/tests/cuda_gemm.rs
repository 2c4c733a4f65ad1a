//! Products by cuBLASLt against float64, their plans as text, and what is refused.

mod common;

use common::{context, cuda, Seed};
use flashrt_exec::{Context, Space, StreamId};
use flashrt_ops::{DType, Error, GemmPlan, GemmShape, Tensor};
use half::{bf16, f16};

fn encode(dtype: DType, v: f32) -> Vec<u8> {
    match dtype {
        DType::F16 => f16::from_f32(v).to_ne_bytes().to_vec(),
        DType::BF16 => bf16::from_f32(v).to_ne_bytes().to_vec(),
        _ => v.to_ne_bytes().to_vec(),
    }
}

fn decode(dtype: DType, b: &[u8]) -> f64 {
    match dtype {
        DType::F16 => f16::from_ne_bytes([b[0], b[1]]).to_f64(),
        DType::BF16 => bf16::from_ne_bytes([b[0], b[1]]).to_f64(),
        _ => f64::from(f32::from_ne_bytes([b[0], b[1], b[2], b[3]])),
    }
}

fn random(ctx: &Context, seed: &mut Seed, dtype: DType, shape: &[usize]) -> (Tensor, Vec<f64>) {
    let bytes: Vec<u8> = seed
        .values(shape.iter().product())
        .iter()
        .flat_map(|&v| encode(dtype, v))
        .collect();
    let t = Tensor::alloc(ctx, "gemm", Space::Device, dtype, shape).unwrap();
    ctx.upload(t.slice(), &bytes).unwrap();
    (
        t,
        bytes
            .chunks(dtype.bytes())
            .map(|b| decode(dtype, b))
            .collect(),
    )
}

fn read(ctx: &Context, t: &Tensor) -> Vec<u8> {
    let mut bytes = vec![0; t.slice().bytes()];
    ctx.download(t.slice(), &mut bytes).unwrap();
    bytes
}

#[test]
fn products_of_all_types_and_odd_sizes_alone_and_added() {
    let Some(ctx) = cuda() else { return };
    let mut seed = Seed(21);
    // One rounding of the type, and f32 sums.
    for (dtype, relative) in [
        (DType::BF16, 4.0e-3),
        (DType::F16, 5.0e-4),
        (DType::F32, 2.0e-6),
    ] {
        for (m, n, k) in [(64, 128, 256), (17, 40, 72), (1, 256, 512), (130, 24, 8)] {
            let plan = GemmPlan::tune(&ctx, GemmShape { m, n, k, dtype }).unwrap();
            let (x, xs) = random(&ctx, &mut seed, dtype, &[m, k]);
            let (w, ws) = random(&ctx, &mut seed, dtype, &[n, k]);
            let (out, before) = random(&ctx, &mut seed, dtype, &[m, n]);
            let original = read(&ctx, &out);
            let slack = 2e-6 * (k as f64).sqrt();
            for adds in [false, true] {
                ctx.upload(out.slice(), &original).unwrap();
                let graph = ctx.graph("gemm", 0).unwrap();
                graph
                    .capture::<Error>(0, |r| plan.record(r, &x, &w, adds, &out))
                    .unwrap();
                graph.replay(0, StreamId(0)).unwrap();
                ctx.synchronize(StreamId(0)).unwrap();
                let got = read(&ctx, &out);
                for (i, b) in got.chunks(dtype.bytes()).enumerate() {
                    let dot: f64 = (0..k).map(|p| xs[i / n * k + p] * ws[i % n * k + p]).sum();
                    let want = dot + if adds { before[i] } else { 0.0 };
                    let off = (decode(dtype, b) - want).abs();
                    assert!(
                        off <= slack + relative * want.abs(),
                        "{dtype} {m}x{n}x{k} [{i}]: off by {off} of {want}"
                    );
                }
                // Again, and by the plan's text: the same bytes.
                for plan in [
                    None,
                    Some(GemmPlan::from_text(&ctx, &plan.describe()).unwrap()),
                ] {
                    ctx.upload(out.slice(), &original).unwrap();
                    match &plan {
                        None => graph.replay(0, StreamId(0)).unwrap(),
                        Some(plan) => common::run(&ctx, |r| plan.record(r, &x, &w, adds, &out)),
                    }
                    ctx.synchronize(StreamId(0)).unwrap();
                    assert!(read(&ctx, &out) == got, "{dtype} {m}x{n}x{k}: other bytes");
                }
            }
        }
    }
}

#[test]
fn bad_plans_and_operands_are_refused_by_name() {
    let cpu = context(1);
    let shape = |m, n, k, dtype| GemmShape { m, n, k, dtype };
    let bf16 = shape(4, 8, 16, DType::BF16);
    let text = |e: Result<GemmPlan, Error>| e.err().expect("accepted").to_string();
    assert!(text(GemmPlan::tune(&cpu, bf16)).contains("gemm plans are for cuda"));
    assert!(text(GemmPlan::tune(&cpu, shape(0, 8, 16, DType::BF16)))
        .contains("three sizes in 1..=2^24"));
    assert!(text(GemmPlan::tune(&cpu, shape(4, 8, 16, DType::I32)))
        .contains("x is i32, expected f16, bf16 or f32"));
    let words = ["0000000000000001"; 8].join(" ");
    for bad in [
        "",
        "gemm",
        "gemm 4 8 16 bf16",
        "gemm 4 8 16 i32: 1",
        &format!("gemm 4 8 bf16: {words}"),
        &format!("gemm 4 8 16 bf16: {words} 00"),
    ] {
        assert!(
            text(GemmPlan::from_text(&cpu, bad)).contains("eight hexadecimal words"),
            "{bad}"
        );
    }
    assert!(text(GemmPlan::from_text(
        &cpu,
        &format!("gemm 4 8 16 bf16: {words}")
    ))
    .contains("plans are for cuda"));

    let Some(ctx) = cuda() else { return };
    let plan = GemmPlan::tune(&ctx, bf16).unwrap();
    assert_eq!(
        GemmPlan::from_text(&ctx, &plan.describe())
            .unwrap()
            .describe(),
        plan.describe()
    );
    let tensor =
        |shape: &[usize], dtype| Tensor::alloc(&ctx, "t", Space::Device, dtype, shape).unwrap();
    let (x, w, out) = (
        tensor(&[4, 16], DType::BF16),
        tensor(&[8, 16], DType::BF16),
        tensor(&[4, 8], DType::BF16),
    );
    let other = tensor(&[4, 16], DType::F16);
    let refused = |x: &Tensor, w: &Tensor, out: &Tensor| {
        common::refused(&ctx, |r| plan.record(r, x, w, false, out))
    };
    assert!(refused(&other, &w, &out).contains("x is f16, expected the plan's type"));
    assert!(refused(&x, &out, &out).contains("w has shape [4, 8], expected [8, 16]"));
    // A choice that the library never made is refused before it sees it.
    let made_up = format!("gemm 4 8 16 bf16: {}", ["ffffffffffffffff"; 8].join(" "));
    assert!(text(GemmPlan::from_text(&ctx, &made_up)).contains("algorithms that cuBLASLt proposes"));
    common::run(&ctx, |r| plan.record(r, &x, &w, false, &out));
}
