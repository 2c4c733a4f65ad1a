//! Frames to f32 NHWC: an independent scalar reading of the rule, bit for bit.

mod common;
use common::Seed;
use flashrt_ops::preprocess::{resize_normalize, Frame, PixelFormat, MAX_SIDE};
use PixelFormat::*;

const FORMATS: [PixelFormat; 5] = [Rgb8, Bgr8, Rgba8, Bgra8, Gray8];

fn bytes(seed: u64, n: usize) -> Vec<u8> {
    let mut s = Seed(seed);
    (0..n).map(|_| s.next() as u8).collect()
}

fn channel(f: PixelFormat, c: usize) -> usize {
    match f {
        Rgb8 | Rgba8 => c,
        Bgr8 | Bgra8 => 2 - c,
        Gray8 => 0,
    }
}

/// Indices and weight of one output index.
fn tap(i: usize, d: usize, s: usize) -> (usize, usize, f32) {
    let f = ((i as f32 + 0.5f32) * s as f32) / d as f32 - 0.5f32;
    let i0 = (f.floor() as i64).clamp(0, s as i64 - 1);
    let i1 = (i0 + 1).clamp(0, s as i64 - 1);
    (i0 as usize, i1 as usize, (f - i0 as f32).clamp(0.0, 1.0))
}

fn reference(frame: &Frame<'_>, w: usize, h: usize) -> Vec<f32> {
    let mut out = Vec::new();
    for y in 0..h {
        let (y0, y1, wy) = tap(y, h, frame.height);
        for x in 0..w {
            let (x0, x1, wx) = tap(x, w, frame.width);
            for c in 0..3 {
                let p = |y: usize, x: usize| {
                    let at = y * frame.stride_bytes
                        + x * frame.format.bytes()
                        + channel(frame.format, c);
                    f32::from(frame.data[at])
                };
                let top = p(y0, x0) * (1.0 - wx) + p(y0, x1) * wx;
                let bottom = p(y1, x0) * (1.0 - wx) + p(y1, x1) * wx;
                let raw = top * (1.0 - wy) + bottom * wy;
                out.push(raw / 127.5 - 1.0);
            }
        }
    }
    out
}

#[test]
fn every_format_stride_and_size_gives_the_bits_of_the_rule() {
    for format in FORMATS {
        for (sw, sh, w, h) in [
            (640, 480, 64, 64),
            (64, 64, 224, 224),
            (3, 5, 7, 2),
            (1, 1, 4, 3),
            (129, 40, 130, 41),
            (31, 17, 31, 18),
        ] {
            for padding in [0, 5] {
                let stride = sw * format.bytes() + padding;
                // The last row comes without its padding.
                let data = bytes(7, stride * (sh - 1) + sw * format.bytes());
                let frame = Frame {
                    format,
                    width: sw,
                    height: sh,
                    stride_bytes: stride,
                    data: &data,
                };
                let mut out = vec![f32::NAN; w * h * 3];
                resize_normalize(&frame, w, h, &mut out).unwrap();
                let want = reference(&frame, w, h);
                for (i, (g, w)) in out.iter().zip(&want).enumerate() {
                    assert_eq!(g.to_bits(), w.to_bits(), "{format:?} {sw}x{sh}, {i}");
                }
            }
        }
    }
}

#[test]
fn a_frame_of_the_target_size_keeps_its_pixels() {
    for format in FORMATS {
        let (w, h) = (33, 9);
        let stride = w * format.bytes() + 3;
        let data = bytes(3, stride * h);
        let frame = Frame {
            format,
            width: w,
            height: h,
            stride_bytes: stride,
            data: &data,
        };
        let mut out = vec![f32::NAN; w * h * 3];
        resize_normalize(&frame, w, h, &mut out).unwrap();
        for (i, g) in out.iter().enumerate() {
            let (y, x, c) = (i / 3 / w, i / 3 % w, i % 3);
            let p = data[y * stride + x * format.bytes() + channel(format, c)];
            assert_eq!(*g, f32::from(p) / 127.5 - 1.0);
        }
        assert_eq!(out, reference(&frame, w, h));
    }
}

#[test]
fn the_same_picture_in_every_colour_order_gives_the_same_values() {
    let rgb = bytes(1, 20 * 10 * 3);
    let mut first = None;
    for format in [Rgb8, Bgr8, Rgba8, Bgra8] {
        let mut data = Vec::new();
        for p in rgb.chunks(3) {
            match format {
                Rgb8 => data.extend([p[0], p[1], p[2]]),
                Bgr8 => data.extend([p[2], p[1], p[0]]),
                Rgba8 => data.extend([p[0], p[1], p[2], 9]),
                _ => data.extend([p[2], p[1], p[0], 200]),
            }
        }
        let frame = Frame {
            format,
            width: 20,
            height: 10,
            stride_bytes: 20 * format.bytes(),
            data: &data,
        };
        let mut out = vec![f32::NAN; 8 * 8 * 3];
        resize_normalize(&frame, 8, 8, &mut out).unwrap();
        assert_eq!(first.get_or_insert_with(|| out.clone()), &out);
    }
}

#[test]
fn black_and_white_are_exactly_minus_one_and_one() {
    for (value, want) in [(0u8, -1.0), (255, 1.0)] {
        for side in [8, 13] {
            let data = vec![value; 8 * 8 * 3];
            let frame = Frame {
                format: Rgb8,
                width: 8,
                height: 8,
                stride_bytes: 24,
                data: &data,
            };
            let mut out = vec![f32::NAN; side * side * 3];
            resize_normalize(&frame, side, side, &mut out).unwrap();
            assert!(out.iter().all(|v| (v - want).abs() < 1e-6));
        }
    }
}

#[test]
fn case_2_a_short_buffer_is_refused_with_both_numbers_and_nothing_is_written() {
    let data = vec![0; 100];
    let frame = Frame {
        format: Rgb8,
        width: 640,
        height: 480,
        stride_bytes: 1920,
        data: &data,
    };
    let mut out = vec![7.0; 64 * 64 * 3];
    let message = resize_normalize(&frame, 64, 64, &mut out)
        .unwrap_err()
        .to_string();
    assert!(
        message.contains("921600") && message.contains("100"),
        "{message}"
    );
    assert!(out.iter().all(|v| *v == 7.0));
}

#[test]
fn bad_geometry_is_refused_without_overflow() {
    let data = [0u8; 64];
    let good = Frame {
        format: Rgb8,
        width: 4,
        height: 4,
        stride_bytes: 12,
        data: &data,
    };
    let mut out = [0f32; 48];
    assert!(resize_normalize(&good, 4, 4, &mut out).is_ok());
    let bad = [
        Frame { width: 0, ..good },
        Frame { height: 0, ..good },
        Frame {
            width: usize::MAX,
            ..good
        },
        Frame {
            height: MAX_SIDE + 1,
            ..good
        },
        Frame {
            stride_bytes: 11,
            ..good
        },
        Frame {
            stride_bytes: usize::MAX,
            ..good
        },
        Frame {
            stride_bytes: usize::MAX / 3 + 1,
            ..good
        },
        Frame {
            data: &data[..47],
            ..good
        },
        Frame { data: &[], ..good },
    ];
    for frame in bad {
        assert!(
            resize_normalize(&frame, 4, 4, &mut out).is_err(),
            "{}x{}, stride {}, {} bytes",
            frame.width,
            frame.height,
            frame.stride_bytes,
            frame.data.len()
        );
    }
    assert!(resize_normalize(&good, 0, 4, &mut out).is_err());
    assert!(resize_normalize(&good, 5, 4, &mut out).is_err());
    assert!(resize_normalize(&good, usize::MAX, usize::MAX, &mut out).is_err());
}
