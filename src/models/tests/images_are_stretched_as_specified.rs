//! Image views into the port, against the specified arithmetic in f64.

mod common;

use common::drive::{self, picture, rgb};
use flashrt_models::pi05::Pi05Options;
use flashrt_runtime::{ImageView, LiveSet, PixelFormat, Producer};

const SIDE: usize = 32;

fn set() -> LiveSet {
    drive::golden(&drive::context(1), Pi05Options::default())
        .build("a")
        .unwrap()
}

/// The staged pixels of one view.
fn staged(set: &LiveSet, view: usize) -> Vec<f32> {
    let n = SIDE * SIDE * 3;
    drive::floats(&drive::buffer(set, "in_images"))[view * n..(view + 1) * n].to_vec()
}

/// `[height][width][3]` RGB to `[SIDE, SIDE, 3]` in [-1, 1], in f64.
fn reference(width: usize, height: usize, pixel: impl Fn(usize, usize, usize) -> u8) -> Vec<f64> {
    let tap = |i: usize, source: usize| {
        let f = (i as f64 + 0.5) * source as f64 / SIDE as f64 - 0.5;
        let i0 = f.floor().clamp(0.0, source as f64 - 1.0);
        (
            i0 as usize,
            (i0 as usize + 1).min(source - 1),
            (f - i0).clamp(0.0, 1.0),
        )
    };
    let mut out = Vec::new();
    for y in 0..SIDE {
        let (y0, y1, wy) = tap(y, height);
        for x in 0..SIDE {
            let (x0, x1, wx) = tap(x, width);
            for c in 0..3 {
                let p = |y, x| f64::from(pixel(y, x, c));
                let row = |y| p(y, x0) * (1.0 - wx) + p(y, x1) * wx;
                out.push((row(y0) * (1.0 - wy) + row(y1) * wy) / 127.5 - 1.0);
            }
        }
    }
    out
}

fn close(got: &[f32], want: &[f64]) {
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        assert!((f64::from(*g) - w).abs() < 3e-6, "element {i}: {g} {w}");
    }
}

#[test]
fn case_24_an_image_of_three_rows_is_read_as_rows_of_pixels() {
    let mut set = set();
    let data = picture(3, 3 * 5 * 3);
    let view = ImageView {
        width: 5,
        height: 3,
        ..rgb(0, &data)
    };
    drive::set_images(&mut set, &[view, view]).unwrap();
    close(
        &staged(&set, 1),
        &reference(5, 3, |y, x, c| data[(y * 5 + x) * 3 + c]),
    );
}

#[test]
fn views_of_any_size_stride_and_channel_order_are_taken_by_position() {
    let mut set = set();
    let (w, h, stride) = (47, 60, 47 * 4 + 9);
    let rgba = picture(4, stride * h);
    let bgr = picture(5, 64 * 20 * 3);
    drive::set_images(
        &mut set,
        &[
            ImageView {
                format: PixelFormat::Rgba8,
                width: w as u32,
                height: h as u32,
                stride_bytes: stride as u32,
                // The padding of the last row may be missing.
                data: &rgba[..stride * h - 9],
                timestamp_ns: 0,
            },
            ImageView {
                format: PixelFormat::Bgr8,
                width: 64,
                height: 20,
                ..rgb(0, &bgr)
            },
        ],
    )
    .unwrap();
    close(
        &staged(&set, 0),
        &reference(w, h, |y, x, c| rgba[y * stride + x * 4 + c]),
    );
    close(
        &staged(&set, 1),
        &reference(64, 20, |y, x, c| bgr[(y * 64 + x) * 3 + 2 - c]),
    );
}

#[test]
fn a_frame_of_the_models_size_is_only_normalised() {
    let mut set = set();
    let data = picture(6, SIDE * SIDE * 3);
    drive::set_images(
        &mut set,
        &[rgb(SIDE as u32, &data), rgb(SIDE as u32, &data)],
    )
    .unwrap();
    let want: Vec<f32> = data.iter().map(|&b| f32::from(b) / 127.5 - 1.0).collect();
    assert_eq!(drive::bits(&staged(&set, 0)), drive::bits(&want));
    assert_eq!(drive::bits(&staged(&set, 1)), drive::bits(&want));
}
