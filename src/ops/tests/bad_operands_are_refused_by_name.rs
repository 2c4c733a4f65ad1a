//! Every message names the operation and the operand, what was expected and what came.
//!
//! A context does not allocate while it records, so operands that are made on the spot come from a
//! second one; the checks refuse before memory matters.

mod common;
use common::*;
use flashrt_exec::Space;
use flashrt_ops::*;

#[track_caller]
fn says(message: &str, parts: &[&str]) {
    for p in parts {
        assert!(message.contains(p), "'{message}' does not say '{p}'");
    }
}

#[test]
fn views_must_fit_their_memory() {
    let ctx = context(1);
    let b = ctx.alloc("kv", Space::Device, 100).unwrap();
    let e = Tensor::new(b.all(), DType::F32, &[5, 6]).unwrap_err();
    says(&e.to_string(), &["kv", "120", "100", "[5, 6]"]);
    let e = Tensor::new(b.all(), DType::F32, &[usize::MAX, 2]).unwrap_err();
    says(&e.to_string(), &["kv"]);
    let e = Tensor::new(b.slice(2, 40).unwrap(), DType::F32, &[10]).unwrap_err();
    says(&e.to_string(), &["kv", "2", "f32", "4"]);
    let e = Tensor::new(b.all(), DType::F32, &[1, 1, 1, 5, 5]).unwrap_err();
    says(&e.to_string(), &["rank", "4", "5"]);
    let t = Tensor::new(b.all(), DType::F32, &[5, 5]).unwrap();
    says(&t.rows(3..6).unwrap_err().to_string(), &["3..6", "5"]);
    assert!(t.rows(usize::MAX..usize::MAX).is_err());
    says(
        &t.view(&[24]).unwrap_err().to_string(),
        &["kv", "96", "100"],
    );
    assert_eq!(t.rows(1..3).unwrap().slice().offset(), 20);
    assert!(Tensor::alloc(&ctx, "big", Space::Device, DType::F32, &[usize::MAX, 9]).is_err());
    says(
        &t.upload_f32(&ctx, &[0.0]).unwrap_err().to_string(),
        &["25", "1"],
    );
}

#[test]
fn weights_and_products() {
    let (ctx, memory) = (context(1), context(1));
    let e = PackedWeight::from_bytes(&ctx, "w", DType::F32, 4, 3, &[0; 47]).unwrap_err();
    says(&e.to_string(), &["48", "47"]);
    assert!(PackedWeight::from_bytes(&ctx, "w", DType::F32, 0, 3, &[]).is_err());
    assert!(PackedWeight::from_bytes(&ctx, "w", DType::F32, usize::MAX, usize::MAX, &[]).is_err());
    let e = PackedWeight::from_bytes(&ctx, "w", DType::I32, 1, 1, &[0; 4]).unwrap_err();
    says(&e.to_string(), &["i32", "bf16"]);
    let w = PackedWeight::from_bytes(&ctx, "w", DType::F32, 4, 3, &[0; 48]).unwrap();
    let f = |shape: &[usize]| poisoned(&memory, shape);
    let (a, out) = (f(&[2, 3]), f(&[2, 4]));
    let e = refused(&ctx, |r| {
        matmul(r, &f(&[2, 5]), &w, None, Epilogue::None, &out)
    });
    says(&e, &["matmul", "a ", "[2, 5]", "[4, 3]"]);
    let e = refused(&ctx, |r| {
        matmul(r, &a, &w, None, Epilogue::None, &f(&[3, 4]))
    });
    says(&e, &["matmul", "out", "[3, 4]", "2 rows of 4"]);
    let e = refused(&ctx, |r| {
        matmul(r, &a, &w, Some(&f(&[3])), Epilogue::None, &out)
    });
    says(&e, &["matmul", "bias", "[3]", "[4]"]);
    let e = refused(&ctx, |r| {
        matmul(r, &a, &w, None, Epilogue::Residual(&f(&[2, 3])), &out)
    });
    says(&e, &["matmul", "residual", "[2, 3]"]);
    let gate = f(&[5]);
    let e = refused(&ctx, |r| {
        let e = Epilogue::ResidualGate {
            residual: &out,
            gate: &gate,
        };
        matmul(r, &a, &w, None, e, &out)
    });
    says(&e, &["matmul", "gate", "[5]", "[4]"]);
    let e = refused(&ctx, |r| {
        matmul(
            r,
            &raw(&memory, DType::I32, &[2, 3], &[0; 24]),
            &w,
            None,
            Epilogue::None,
            &out,
        )
    });
    says(&e, &["matmul", "a is i32", "f32"]);
}

#[test]
fn outputs_may_not_overlap_what_is_still_read() {
    let ctx = context(1);
    let b = ctx.alloc("arena", Space::Device, 64 * 4).unwrap();
    let at = |off: usize, shape: &[usize]| {
        let bytes = shape.iter().product::<usize>() * 4;
        Tensor::new(b.slice(off * 4, bytes).unwrap(), DType::F32, shape).unwrap()
    };
    let w = PackedWeight::from_bytes(&ctx, "w", DType::F32, 4, 4, &[0; 64]).unwrap();
    let e = refused(&ctx, |r| {
        matmul(
            r,
            &at(0, &[2, 4]),
            &w,
            None,
            Epilogue::None,
            &at(4, &[2, 4]),
        )
    });
    says(&e, &["matmul", "out", "a ", "arena"]);
    let e = refused(&ctx, |r| gelu_tanh(r, &at(0, &[8]), &at(4, &[8])));
    says(&e, &["gelu_tanh", "out", "arena"]);
    let e = refused(&ctx, |r| latch(r, &at(0, &[8]), &at(0, &[8])));
    says(&e, &["latch", "dst", "arena"]);
    // Shifted residual: neither the same view nor apart.
    let e = refused(&ctx, |r| {
        let (x, out) = (at(9, &[2, 4]), at(8, &[2, 4]));
        matmul(r, &at(32, &[2, 4]), &w, None, Epilogue::Residual(&x), &out)
    });
    says(&e, &["matmul", "residual"]);
    // Neighbours do not overlap.
    run(&ctx, |r| gelu_tanh(r, &at(0, &[8]), &at(8, &[8])));
}

#[test]
fn each_operation_names_its_operand() {
    let (ctx, memory) = (context(1), context(1));
    let f = |shape: &[usize]| poisoned(&memory, shape);
    let u8s = |n: usize| mask(&memory, &vec![1; n]);
    let i = |n: usize| ints(&memory, &vec![0; n]);
    let x = f(&[4, 6]);
    let cases: Vec<(String, &[&str])> = vec![
        (
            refused(&ctx, |r| layer_norm(r, &x, &f(&[5]), &f(&[6]), 1e-6, &x)),
            &["layer_norm", "weight", "[5]", "6"],
        ),
        (
            refused(&ctx, |r| rms_norm(r, &x, &f(&[6]), f32::NAN, &x)),
            &["rms_norm", "eps", "NaN"],
        ),
        (
            refused(&ctx, |r| ada_rms_norm(r, &x, &f(&[12]), 1e-6, &x)),
            &["ada_rms_norm", "style", "[12]", "18"],
        ),
        (
            refused(&ctx, |r| geglu(r, &x, &f(&[4, 5]), &f(&[4, 6]))),
            &["geglu", "up", "[4, 5]", "[4, 6]"],
        ),
        (
            refused(&ctx, |r| gated_residual(r, &x, &x, &f(&[4]), &x)),
            &["gated_residual", "gate", "[4]", "[6]"],
        ),
        (
            refused(&ctx, |r| axpy(r, &x, f32::INFINITY, &f(&[4, 6]))),
            &["axpy", "a is inf"],
        ),
        (
            refused(&ctx, |r| add_position(r, &x, &f(&[3, 6]), &x)),
            &["add_position", "position", "[3, 6]"],
        ),
        (
            refused(&ctx, |r| positions_from_mask(r, &u8s(4), &i(5))),
            &["positions_from_mask", "positions", "[5]", "[4]"],
        ),
        (
            refused(&ctx, |r| suffix_positions(r, &i(4), &i(5))),
            &["suffix_positions", "mask", "i32", "u8"],
        ),
        (
            refused(&ctx, |r| rope_table(r, &i(4), 1e4, &f(&[4, 7]))),
            &["rope_table", "table", "[4, 7]"],
        ),
        (
            refused(&ctx, |r| rope_table(r, &i(4), 1.0, &f(&[4, 8]))),
            &["rope_table", "base", "1"],
        ),
        (
            refused(&ctx, |r| {
                rope(r, &f(&[4, 2, 8]), &f(&[4, 7]), &f(&[4, 2, 8]))
            }),
            &["rope", "table", "[4, 7]", "[4, D] with D even, at most 8"],
        ),
        (
            refused(&ctx, |r| {
                rope(r, &f(&[4, 2, 8]), &f(&[4, 6]), &f(&[4, 2, 8]))
            }),
            &["rope", "out", "another tensor", "x itself"],
        ),
        (
            refused(&ctx, |r| im2col(r, &f(&[1, 8, 9, 3]), 4, &f(&[4, 48]))),
            &["im2col", "images", "[1, 8, 9, 3]", "4"],
        ),
        (
            refused(&ctx, |r| im2col(r, &f(&[1, 8, 8, 3]), 0, &f(&[4, 48]))),
            &["im2col", "patch", "0"],
        ),
        (
            refused(&ctx, |r| embed_gather(r, &x, &i(3), 1.0, &f(&[3, 5]))),
            &["embed_gather", "out", "[3, 5]", "[3, 6]"],
        ),
        (
            refused(&ctx, |r| philox_normal(r, &i(4), &x)),
            &["philox_normal", "rng", "i32", "u64"],
        ),
        (
            refused(&ctx, |r| time_embedding(r, 1.0, 4e-3, 4.0, &f(&[7]))),
            &["time_embedding", "out", "[7]"],
        ),
        (
            refused(&ctx, |r| time_embedding(r, 1.0, 0.0, 4.0, &f(&[8]))),
            &["time_embedding", "periods", "0"],
        ),
        (
            refused(&ctx, |r| {
                action_unnormalize(r, &x, &f(&[7]), &f(&[6]), None, &f(&[4, 6]))
            }),
            &["action_unnormalize", "std", "[7]", "[6]"],
        ),
        (
            refused(&ctx, |r| {
                let (state, mask) = (f(&[7]), u8s(6));
                let anchor = Anchor {
                    state: &state,
                    mask: &mask,
                };
                action_unnormalize(r, &x, &f(&[6]), &f(&[6]), Some(anchor), &f(&[4, 6]))
            }),
            &["action_unnormalize", "state", "[7]"],
        ),
        (
            refused(&ctx, |r| copy_rows(r, &f(&[2, 6]), &x, 3)),
            &["3..5", "4"],
        ),
        (
            refused(&ctx, |r| concat_rows(r, &[&x, &x], &f(&[7, 6]))),
            &["concat_rows", "out", "[8"],
        ),
    ];
    for (message, parts) in &cases {
        says(message, parts);
    }
    says(
        &style_gate(&f(&[4])).unwrap_err().to_string(),
        &["style_gate", "[4]"],
    );
}

#[test]
fn attention_checks_heads_parts_and_masks() {
    let (ctx, memory) = (context(1), context(1));
    let f = |shape: &[usize]| poisoned(&memory, shape);
    let (q, out) = (f(&[3, 8, 4]), f(&[3, 8, 4]));
    let (k, k3, k5, v) = (f(&[5, 1, 4]), f(&[5, 3, 4]), f(&[5, 1, 5]), f(&[6, 1, 4]));
    let (short, wide) = (mask(&ctx, &[1; 4]), f(&[1, 1, 257]));
    let part = |k, v, mask| KvPart { k, v, mask };
    let try_parts = |parts: &[KvPart<'_>]| refused(&ctx, |r| attention(r, &q, parts, 1.0, &out));
    says(&try_parts(&[]), &["attention", "parts", "0"]);
    says(&try_parts(&[part(&k, &k, None); 3]), &["parts", "3"]);
    says(
        &try_parts(&[part(&k3, &k3, None)]),
        &["k has", "[5, 3, 4]", "divisor of 8"],
    );
    says(&try_parts(&[part(&k5, &k5, None)]), &["k has", "[5, 1, 5]"]);
    says(
        &try_parts(&[part(&k, &v, None)]),
        &["v has", "[6, 1, 4]", "[5, 1, 4]"],
    );
    says(
        &try_parts(&[part(&k, &k, Some(&short))]),
        &["mask", "[4]", "[5]"],
    );
    let e = refused(&ctx, |r| {
        attention(r, &wide, &[part(&wide, &wide, None)], 1.0, &f(&[1, 1, 257]))
    });
    says(&e, &["attention", "q has", "257", "256"]);
    let e = refused(&ctx, |r| attention(r, &q, &[part(&k, &k, None)], 1.0, &q));
    says(&e, &["out overlaps q"]);
}

#[test]
fn a_refused_operation_leaves_the_stream_usable() {
    let ctx = context(1);
    let x = tensor(&ctx, &[2], &[1.0, 2.0]);
    let (three, ones) = (poisoned(&ctx, &[3]), tensor(&ctx, &[2], &[1.0, 1.0]));
    refused(&ctx, |r| gelu_tanh(r, &x, &three));
    run(&ctx, |r| axpy(r, &x, 1.0, &ones));
    assert_eq!(x.download_f32(&ctx).unwrap(), [2.0, 3.0]);
}
