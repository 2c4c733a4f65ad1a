//! Gathering and patching move values without changing them; exact.

mod common;
use common::*;
use flashrt_ops::{
    concat_rows, copy_rows, embed_gather, im2col, latch, patch_embed, DType, PackedWeight,
};
use half::bf16;

#[test]
fn ids_pick_scaled_rows_and_a_bad_id_gives_not_a_number() {
    let (vocab, d) = (11, 21);
    let table = Seed(1).values(vocab * d);
    let ids = [0, 10, 3, 3, -1, 11, i32::MAX, i32::MIN, 5];
    for half in [false, true] {
        let wide: Vec<f32> = table
            .iter()
            .map(|v| {
                if half {
                    bf16::from_f32(*v).to_f32()
                } else {
                    *v
                }
            })
            .collect();
        let got = everywhere(|ctx| {
            let t = if half {
                let bytes: Vec<u8> = table
                    .iter()
                    .flat_map(|v| bf16::from_f32(*v).to_ne_bytes())
                    .collect();
                raw(ctx, DType::BF16, &[vocab, d], &bytes)
            } else {
                tensor(ctx, &[vocab, d], &table)
            };
            let ids = ints(ctx, &ids);
            let out = tensor(ctx, &[9, d], &[7.0; 9 * 21]);
            run(ctx, |r| embed_gather(r, &t, &ids, 3.5, &out));
            out.download_f32(ctx).unwrap()
        });
        for (id, row) in ids.iter().zip(got.chunks(d)) {
            if (0..vocab as i32).contains(id) {
                let want: Vec<f32> = wide[*id as usize * d..][..d]
                    .iter()
                    .map(|v| v * 3.5)
                    .collect();
                assert_eq!(row, want);
            } else {
                assert!(row.iter().all(|v| v.is_nan()), "id {id}");
            }
        }
    }
}

#[test]
fn patches_come_in_the_order_of_a_convolution_weight() {
    let (v, h, w, c, p) = (2, 6, 9, 3, 3);
    let images = Seed(2).values(v * h * w * c);
    let patches = v * (h / p) * (w / p);
    let cols = c * p * p;
    let got = everywhere(|ctx| {
        let images = tensor(ctx, &[v, h, w, c], &images);
        let out = poisoned(ctx, &[patches, cols]);
        run(ctx, |r| im2col(r, &images, p, &out));
        out.download_f32(ctx).unwrap()
    });
    for (i, g) in got.iter().enumerate() {
        let (patch, col) = (i / cols, i % cols);
        let (view, at) = (patch / 6, patch % 6);
        let (ch, y, x) = (col / 9, col % 9 / 3, col % 3);
        let (y, x) = (at / 3 * p + y, at % 3 * p + x);
        assert_eq!(*g, images[((view * h + y) * w + x) * c + ch]);
    }
}

#[test]
fn patch_embedding_is_a_convolution_with_stride_equal_to_its_kernel() {
    let (v, h, w, c, p, o) = (2, 8, 8, 3, 4, 10);
    let mut s = Seed(3);
    let (images, weight, bias) = (
        s.values(v * h * w * c),
        s.values(o * c * p * p),
        s.values(o),
    );
    let got = everywhere(|ctx| {
        let images = tensor(ctx, &[v, h, w, c], &images);
        let bias = tensor(ctx, &[o], &bias);
        let weight =
            PackedWeight::from_bytes(ctx, "conv", DType::F32, o, c * p * p, &f32_bytes(&weight))
                .unwrap();
        let scratch = poisoned(ctx, &[8, c * p * p]);
        let out = poisoned(ctx, &[8, o]);
        run(ctx, |r| {
            patch_embed(r, &images, p, &weight, Some(&bias), &scratch, &out)
        });
        out.download_f32(ctx).unwrap()
    });
    let mut want = Vec::new();
    for view in 0..v {
        for py in 0..2 {
            for px in 0..2 {
                for f in 0..o {
                    let mut sum = f64::from(bias[f]);
                    for ch in 0..c {
                        for y in 0..p {
                            for x in 0..p {
                                let pixel = ((view * h + py * p + y) * w + px * p + x) * c + ch;
                                sum += f64::from(images[pixel])
                                    * f64::from(weight[((f * c + ch) * p + y) * p + x]);
                            }
                        }
                    }
                    want.push(sum);
                }
            }
        }
    }
    close(&got, &want, 5e-6, 1e-6);
}

#[test]
fn rows_are_joined_and_latched() {
    let ctx = context(2);
    let (a, b) = (
        tensor(&ctx, &[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]),
        tensor(&ctx, &[1, 3], &[7.0, 8.0, 9.0]),
    );
    let out = poisoned(&ctx, &[3, 3]);
    let copy = poisoned(&ctx, &[9]);
    run(&ctx, |r| {
        concat_rows(r, &[&b, &a], &out)?;
        latch(r, &out, &copy)?;
        copy_rows(r, &b, &out, 2)
    });
    assert_eq!(
        copy.download_f32(&ctx).unwrap(),
        [7.0, 8.0, 9.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    );
    assert_eq!(
        out.download_f32(&ctx).unwrap(),
        [7.0, 8.0, 9.0, 1.0, 2.0, 3.0, 7.0, 8.0, 9.0]
    );
}
