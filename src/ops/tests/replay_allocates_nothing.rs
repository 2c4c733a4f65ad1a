//! A captured layer replays without a heap allocation and gives the bits of the eager run.

mod common;
#[path = "../../../test/support/heap.rs"]
mod heap;
use common::*;
use flashrt_exec::StreamId;
use flashrt_ops::*;

#[test]
fn a_transformer_layer_replays_without_allocation_and_equals_the_eager_run() {
    heap::count_this_thread();
    let ctx = context(2);
    let (m, d, heads, hd, ff) = (60, 48, 4, 12, 96);
    let mut s = Seed(11);
    let mut weight = |n: usize, k: usize| {
        let bytes = f32_bytes(&s.scaled(n * k, 0.2));
        PackedWeight::from_bytes(&ctx, "w", DType::F32, n, k, &bytes).unwrap()
    };
    let (wq, wk, wv, wo) = (
        weight(heads * hd, d),
        weight(hd, d),
        weight(hd, d),
        weight(d, heads * hd),
    );
    let (gate, up, down) = (weight(ff, d), weight(ff, d), weight(d, ff));
    let style = tensor(&ctx, &[3 * d], &Seed(2).values(3 * d));
    let g = style_gate(&style).unwrap();
    let rng = raw(&ctx, DType::U64, &[2], &[3; 16]);
    let visible = mask(&ctx, &[1; 60]);
    let positions = ints(&ctx, &[0; 60]);
    let f = |shape: &[usize]| poisoned(&ctx, shape);
    let (x, h, table) = (f(&[m, d]), f(&[m, d]), f(&[m, hd]));
    let (q, k, v, o) = (
        f(&[m, heads, hd]),
        f(&[m, 1, hd]),
        f(&[m, 1, hd]),
        f(&[m, heads, hd]),
    );
    let (a, e) = (f(&[m, ff]), f(&[1, d]));
    let flat = |t: &Tensor| t.view(&[m, t.numel() / m]).unwrap();
    let (qf, kf, vf, of) = (flat(&q), flat(&k), flat(&v), flat(&o));
    let layer = |r: &mut flashrt_exec::Recorder<'_>| -> Result<(), Error> {
        philox_normal(r, &rng, &x)?;
        time_embedding(r, 0.7, 4e-3, 4.0, &e)?;
        positions_from_mask(r, &visible, &positions)?;
        rope_table(r, &positions, 1e4, &table)?;
        ada_rms_norm(r, &x, &style, 1e-6, &h)?;
        matmul(r, &h, &wq, None, Epilogue::None, &qf)?;
        matmul(r, &h, &wk, None, Epilogue::None, &kf)?;
        matmul(r, &h, &wv, None, Epilogue::None, &vf)?;
        rope(r, &q, &table, &q)?;
        rope(r, &k, &table, &k)?;
        let part = KvPart {
            k: &k,
            v: &v,
            mask: Some(&visible),
        };
        attention(r, &q, &[part], 0.3, &o)?;
        let epilogue = Epilogue::ResidualGate {
            residual: &x,
            gate: &g,
        };
        matmul(r, &of, &wo, None, epilogue, &x)?;
        rms_norm(r, &x, &g, 1e-6, &h)?;
        matmul(r, &h, &gate, None, Epilogue::None, &a)?;
        matmul(r, &h, &up, None, Epilogue::GegluUp { gate: &a }, &a)?;
        matmul(r, &a, &down, None, Epilogue::Residual(&x), &x)
    };
    run(&ctx, layer);
    let eager = x.download_f32(&ctx).unwrap();
    assert!(eager.iter().all(|v| v.is_finite()));

    let graph = ctx.graph("layer", 2).unwrap();
    graph.capture(0, layer).unwrap();
    let replay = || {
        graph.replay(0, StreamId(0)).unwrap();
        ctx.synchronize(StreamId(0)).unwrap();
    };
    ctx.upload(rng.slice(), &[3; 16]).unwrap();
    replay();
    let replayed = x.download_f32(&ctx).unwrap();
    assert_eq!(eager, replayed);
    let data = vec![9u8; 640 * 480 * 3];
    let frame = preprocess::Frame {
        format: preprocess::PixelFormat::Rgb8,
        width: 640,
        height: 480,
        stride_bytes: 1920,
        data: &data,
    };
    let mut pixels = vec![0f32; 64 * 64 * 3];
    // The count is of the whole process: this binary has this one test.
    let before = heap::taken();
    for _ in 0..20 {
        preprocess::resize_normalize(&frame, 64, 64, &mut pixels).unwrap();
        replay();
    }
    assert_eq!(heap::taken(), before);
    // The noise moved on, so the result did.
    assert_ne!(x.download_f32(&ctx).unwrap(), replayed);
}
