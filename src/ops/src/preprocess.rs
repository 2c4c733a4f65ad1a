//! Camera frames to model input, on the host, in exact arithmetic.
//!
//! Bilinear, stretched to the target, no letterbox. For output index i along an axis of length D from
//! source length S, in f32: `f = ((i + 0.5)·S)/D - 0.5`, `i0 = clamp(floor f, 0, S-1)`,
//! `i1 = clamp(i0 + 1, 0, S-1)`, `w = clamp(f - i0, 0, 1)`; along x first, then y, `a·(1-w) + b·w` without
//! rounding to integers and without fused steps; value = raw/127.5 - 1. A frame that has the target's
//! size is not resampled.

use crate::Error;

/// Order and number of the bytes of a pixel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PixelFormat {
    /// Red, green, blue.
    Rgb8,
    /// Blue, green, red.
    Bgr8,
    /// Red, green, blue, alpha; alpha is dropped.
    Rgba8,
    /// Blue, green, red, alpha; alpha is dropped.
    Bgra8,
    /// One grey byte, replicated into three channels.
    Gray8,
}

impl PixelFormat {
    /// Bytes of a pixel.
    pub const fn bytes(self) -> usize {
        match self {
            PixelFormat::Gray8 => 1,
            PixelFormat::Rgb8 | PixelFormat::Bgr8 => 3,
            PixelFormat::Rgba8 | PixelFormat::Bgra8 => 4,
        }
    }

    /// Byte of red, green and blue inside a pixel.
    const fn channels(self) -> [usize; 3] {
        match self {
            PixelFormat::Rgb8 | PixelFormat::Rgba8 => [0, 1, 2],
            PixelFormat::Bgr8 | PixelFormat::Bgra8 => [2, 1, 0],
            PixelFormat::Gray8 => [0, 0, 0],
        }
    }
}

/// A borrowed frame: `height` rows of `width` pixels, each row `stride_bytes` after the one before.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// Pixel layout.
    pub format: PixelFormat,
    /// Pixels in a row, ≥ 1.
    pub width: usize,
    /// Rows, ≥ 1.
    pub height: usize,
    /// Bytes from one row to the next, at least `width` pixels. The last row needs no padding.
    pub stride_bytes: usize,
    /// The bytes; what lies beyond the last pixel is not read.
    pub data: &'a [u8],
}

/// Largest width or height of a frame or a target: keeps index arithmetic exact in f32.
pub const MAX_SIDE: usize = 1 << 15;

impl Frame<'_> {
    /// Checks the geometry against the bytes.
    ///
    /// # Errors
    /// [`Error::Argument`] for an empty or over-large side or a stride shorter than a row, [`Error::Length`]
    /// when `data` is shorter than the last pixel's end.
    pub fn check(&self) -> Result<(), Error> {
        side("width", self.width)?;
        side("height", self.height)?;
        let row = self.width * self.format.bytes();
        if self.stride_bytes < row {
            return Err(bad(
                "stride_bytes",
                format!("at least {row}"),
                self.stride_bytes,
            ));
        }
        let need = (self.height - 1)
            .checked_mul(self.stride_bytes)
            .and_then(|n| n.checked_add(row))
            .unwrap_or(usize::MAX);
        if self.data.len() < need {
            return Err(Error::Length {
                what: "frame bytes",
                expected: need,
                got: self.data.len(),
            });
        }
        Ok(())
    }
}

/// Writes `frame` as `[height, width, 3]` f32 RGB (NHWC), values in [-1, 1], stretched to the target size.
///
/// `out` has exactly `height·width·3` elements. Allocates nothing. See the module page for the arithmetic.
///
/// # Errors
/// As [`Frame::check`], and [`Error::Length`] for `out`; then nothing was written.
pub fn resize_normalize(
    frame: &Frame<'_>,
    width: usize,
    height: usize,
    out: &mut [f32],
) -> Result<(), Error> {
    frame.check()?;
    side("target width", width)?;
    side("target height", height)?;
    let need = height * width * 3;
    if out.len() != need {
        return Err(Error::Length {
            what: "output f32 elements",
            expected: need,
            got: out.len(),
        });
    }
    let (size, channels) = (frame.format.bytes(), frame.format.channels());
    if (frame.width, frame.height) == (width, height) {
        for (y, row) in out.chunks_exact_mut(width * 3).enumerate() {
            let line = &frame.data[y * frame.stride_bytes..][..width * size];
            for (pixel, o) in line.chunks_exact(size).zip(row.chunks_exact_mut(3)) {
                for (o, ch) in o.iter_mut().zip(channels) {
                    *o = NORMAL[usize::from(pixel[ch])];
                }
            }
        }
        return Ok(());
    }
    // Taps of some columns at a time, so that the table fits the stack whatever the width.
    let mut taps = [Tap::default(); 64];
    for first in (0..width).step_by(taps.len()) {
        let taps = &mut taps[..(width - first).min(64)];
        for (i, t) in taps.iter_mut().enumerate() {
            *t = Tap::new(first + i, width, frame.width);
        }
        for (y, row) in out.chunks_exact_mut(width * 3).enumerate() {
            let v = Tap::new(y, height, frame.height);
            let line = |i: usize| &frame.data[i * frame.stride_bytes..][..frame.width * size];
            let (top, bottom) = (line(v.i0), line(v.i1));
            for (t, o) in taps.iter().zip(row[first * 3..].chunks_exact_mut(3)) {
                for (o, ch) in o.iter_mut().zip(channels) {
                    let p = |row: &[u8], i: usize| f32::from(row[i * size + ch]);
                    let top = t.mix(p(top, t.i0), p(top, t.i1));
                    let bottom = t.mix(p(bottom, t.i0), p(bottom, t.i1));
                    *o = normalize(v.mix(top, bottom));
                }
            }
        }
    }
    Ok(())
}

/// Two neighbours and the weight of the second.
#[derive(Clone, Copy, Default)]
struct Tap {
    i0: usize,
    i1: usize,
    w: f32,
}

impl Tap {
    fn new(i: usize, target: usize, source: usize) -> Tap {
        let f = ((i as f32 + 0.5) * source as f32) / target as f32 - 0.5;
        // A negative or too large cast saturates, which is half of the clamp.
        let i0 = (f.floor() as usize).min(source - 1);
        Tap {
            i0,
            i1: (i0 + 1).min(source - 1),
            w: (f - i0 as f32).clamp(0.0, 1.0),
        }
    }

    #[inline(always)]
    fn mix(&self, a: f32, b: f32) -> f32 {
        a * (1.0 - self.w) + b * self.w
    }
}

#[inline(always)]
const fn normalize(raw: f32) -> f32 {
    raw / 127.5 - 1.0
}

/// The normalised value of every byte.
const NORMAL: [f32; 256] = {
    let mut t = [0.0; 256];
    let mut i = 0;
    while i < 256 {
        t[i] = normalize(i as f32);
        i += 1;
    }
    t
};

fn side(argument: &'static str, n: usize) -> Result<(), Error> {
    if (1..=MAX_SIDE).contains(&n) {
        return Ok(());
    }
    Err(bad(argument, format!("1..={MAX_SIDE}"), n))
}

fn bad(argument: &'static str, expected: String, got: usize) -> Error {
    Error::Argument {
        op: "resize_normalize",
        argument,
        expected,
        got: got.to_string(),
    }
}
