//! The image boundary: untrusted geometry and encoding in, a checked view out.

use flashrt_runtime::PixelFormat;

use crate::code::{ResultCode, SessionError};
use crate::io::ImageRef;

/// Most views of one image port: the context keeps eight stamps, one of them is the joint state's.
pub const MAX_VIEWS: usize = 7;

/// Longest side of an image. The model's resize takes no longer one, and would refuse every tick until another image comes.
pub const MAX_SIDE: u64 = 1 << 15;

/// A view whose bytes are known to be there.
#[derive(Clone, Copy, Debug)]
pub struct CheckedImage<'a> {
    /// Channel order.
    pub format: PixelFormat,
    /// Pixels per row.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// Bytes of pixels per row, without padding.
    pub row_bytes: usize,
    /// Bytes from row to row.
    pub step: usize,
    /// At least `(height - 1) * step + row_bytes` bytes.
    pub data: &'a [u8],
}

impl<'a> CheckedImage<'a> {
    /// Rows without padding, each `row_bytes` long.
    pub fn rows(&self) -> impl Iterator<Item = &'a [u8]> {
        let row_bytes = self.row_bytes;
        self.data
            .chunks(self.step)
            .take(self.height as usize)
            .map(move |row| &row[..row_bytes])
    }
}

/// Bytes per pixel of the encodings of `sensor_msgs/image_encodings` that have a fixed one.
fn bytes_per_pixel(encoding: &str) -> Option<u64> {
    let plain = match encoding {
        "rgb8" | "bgr8" => 3,
        "rgba8" | "bgra8" => 4,
        "mono8" => 1,
        "mono16" | "yuv422" | "yuv422_yuy2" | "uyvy" | "yuyv" => 2,
        "rgb16" | "bgr16" => 6,
        "rgba16" | "bgra16" => 8,
        _ if encoding.starts_with("bayer_") && encoding.ends_with("16") => 2,
        _ if encoding.starts_with("bayer_") => 1,
        _ => return channels(encoding),
    };
    Some(plain)
}

/// `8UC3`, `16UC1`, `32FC1`, ...: bits, type, C, channels.
fn channels(encoding: &str) -> Option<u64> {
    let (depth, count) = encoding.split_once('C')?;
    let bytes = match depth {
        "8U" | "8S" => 1,
        "16U" | "16S" => 2,
        "32S" | "32F" => 4,
        "64F" => 8,
        _ => return None,
    };
    let count: u64 = count.parse().ok()?;
    (1..=4).contains(&count).then_some(bytes * count)
}

/// Checks an image before any of its bytes is read. Arithmetic is in u64, where the products of three u32 sizes of this
/// kind cannot wrap; nothing is allocated unless it is refused.
///
/// # Errors
/// `SHAPE` with the numbers expected and got, or `BAD_ARGUMENT` for an encoding that the port does not accept.
pub fn check<'a>(
    image: &ImageRef<'a>,
    accepted: &[String],
) -> Result<CheckedImage<'a>, SessionError> {
    let refuse = |message: String| Err(SessionError::new(ResultCode::Shape, message));
    let (width, height, step) = (
        u64::from(image.width),
        u64::from(image.height),
        u64::from(image.step),
    );
    if width == 0 || height == 0 {
        return refuse(format!("size {width}x{height}: expected at least 1x1"));
    }
    if let Some(bpp) = bytes_per_pixel(image.encoding) {
        let row_bytes = width * bpp;
        if step < row_bytes {
            return refuse(format!(
                "step {step} < {row_bytes} ({} {width}x{height})",
                cut(image.encoding)
            ));
        }
        // The last row needs no padding, as some drivers leave it out.
        let needed = (height - 1)
            .checked_mul(step)
            .and_then(|n| n.checked_add(row_bytes));
        if needed.is_none_or(|n| n > image.data.len() as u64) {
            let expected = height
                .checked_mul(step)
                .map_or("more than 2^64".to_string(), |n| n.to_string());
            return refuse(format!(
                "data has {} bytes, expected {expected} ({} {width}x{height}, step {step})",
                image.data.len(),
                cut(image.encoding)
            ));
        }
    }
    if width > MAX_SIDE || height > MAX_SIDE {
        return refuse(format!(
            "size {width}x{height}: expected at most {MAX_SIDE}x{MAX_SIDE}"
        ));
    }
    let format = match image.encoding {
        "rgb8" => PixelFormat::Rgb8,
        "bgr8" => PixelFormat::Bgr8,
        _ => {
            return Err(SessionError::new(
                ResultCode::BadArgument,
                format!(
                    "encoding {:?} is not accepted: expected {}",
                    cut(image.encoding),
                    accepted.join(" or ")
                ),
            ))
        }
    };
    if !accepted.iter().any(|a| a == image.encoding) {
        return Err(SessionError::new(
            ResultCode::BadArgument,
            format!(
                "encoding {:?} is not accepted here: expected {}",
                image.encoding,
                accepted.join(" or ")
            ),
        ));
    }
    Ok(CheckedImage {
        format,
        width: image.width,
        height: image.height,
        row_bytes: (width * 3) as usize,
        step: image.step as usize,
        data: image.data,
    })
}

/// A message's text may be of any length: the reason stays short.
fn cut(text: &str) -> String {
    text.chars().take(40).collect()
}
