//! CDR, little-endian, as ROS 2 puts messages into bags: a bounds-checked decoder for untrusted bytes and an encoder.
//! Alignment is counted from the byte after the four-byte encapsulation header. Only what the few message types of
//! [`crate::messages`] need.

use crate::code::{ResultCode, SessionError};

/// `CDR_LE` and no options.
const HEADER: [u8; 4] = [0, 1, 0, 0];

fn format(message: String) -> SessionError {
    SessionError::new(ResultCode::Format, message)
}

/// Reads one message.
#[derive(Debug)]
pub struct Decoder<'a> {
    body: &'a [u8],
    at: usize,
}

impl<'a> Decoder<'a> {
    /// Checks the encapsulation header.
    ///
    /// # Errors
    /// FORMAT for anything but plain little-endian CDR.
    pub fn new(message: &'a [u8]) -> Result<Decoder<'a>, SessionError> {
        match message.split_at_checked(4) {
            Some((header, body)) if header[..2] == HEADER[..2] => Ok(Decoder { body, at: 0 }),
            Some((header, _)) => Err(format(format!(
                "CDR header {header:02x?}: expected {HEADER:02x?}"
            ))),
            None => Err(format(format!(
                "CDR header: expected 4 bytes, got {}",
                message.len()
            ))),
        }
    }

    fn take(&mut self, count: usize, align: usize) -> Result<&'a [u8], SessionError> {
        let start = self.at.next_multiple_of(align);
        let end = start.checked_add(count);
        match end.and_then(|end| self.body.get(start..end)) {
            Some(bytes) => {
                self.at = start + count;
                Ok(bytes)
            }
            None => Err(format(format!(
                "CDR: {count} bytes at {start} leave the message's {} bytes",
                self.body.len()
            ))),
        }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], SessionError> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N, N)?);
        Ok(out)
    }

    /// One byte.
    pub fn u8(&mut self) -> Result<u8, SessionError> {
        Ok(self.array::<1>()?[0])
    }
    /// 16 bits.
    pub fn u16(&mut self) -> Result<u16, SessionError> {
        self.array().map(u16::from_le_bytes)
    }
    /// 32 bits.
    pub fn u32(&mut self) -> Result<u32, SessionError> {
        self.array().map(u32::from_le_bytes)
    }
    /// 32 bits, signed.
    pub fn i32(&mut self) -> Result<i32, SessionError> {
        self.array().map(i32::from_le_bytes)
    }
    /// 64 bits.
    pub fn u64(&mut self) -> Result<u64, SessionError> {
        self.array().map(u64::from_le_bytes)
    }
    /// IEEE double.
    pub fn f64(&mut self) -> Result<f64, SessionError> {
        self.array().map(f64::from_le_bytes)
    }

    /// Length of a sequence whose elements take at least `least` bytes each: a length that cannot fit is refused before
    /// anything is allocated for it.
    pub fn length(&mut self, least: usize) -> Result<usize, SessionError> {
        let count = self.u32()? as usize;
        let left = self.body.len() - self.at;
        if count.checked_mul(least).is_none_or(|bytes| bytes > left) {
            return Err(format(format!(
                "CDR: sequence of {count} elements, but {left} bytes are left"
            )));
        }
        Ok(count)
    }

    /// UTF-8 text (a length with the final NUL, then the bytes).
    pub fn text(&mut self) -> Result<&'a str, SessionError> {
        let count = self.length(1)?;
        let bytes = self.take(count, 1)?;
        // Some writers leave the NUL of an empty text out.
        let bytes = match bytes.split_last() {
            Some((0, text)) => text,
            Some(_) => return Err(format("CDR: text without its final NUL".into())),
            None => bytes,
        };
        std::str::from_utf8(bytes).map_err(|e| {
            format(format!(
                "CDR: text is not UTF-8 from byte {} on",
                e.valid_up_to()
            ))
        })
    }

    /// A sequence of bytes, borrowed.
    pub fn bytes(&mut self) -> Result<&'a [u8], SessionError> {
        let count = self.length(1)?;
        self.take(count, 1)
    }

    /// A sequence of texts.
    pub fn texts(&mut self) -> Result<Vec<String>, SessionError> {
        let count = self.length(4)?;
        (0..count)
            .map(|_| self.text().map(str::to_string))
            .collect()
    }

    /// A sequence of doubles.
    pub fn f64s(&mut self) -> Result<Vec<f64>, SessionError> {
        let count = self.length(8)?;
        (0..count).map(|_| self.f64()).collect()
    }

    /// A sequence of floats.
    pub fn f32s(&mut self) -> Result<Vec<f32>, SessionError> {
        let count = self.length(4)?;
        (0..count)
            .map(|_| self.array().map(f32::from_le_bytes))
            .collect()
    }

    /// `builtin_interfaces/Time` or `Duration` in nanoseconds.
    pub fn time(&mut self) -> Result<i64, SessionError> {
        let seconds = i64::from(self.i32()?);
        let nanoseconds = i64::from(self.u32()?);
        Ok(seconds * 1_000_000_000 + nanoseconds)
    }
}

/// Writes one message.
#[derive(Debug)]
pub struct Encoder {
    out: Vec<u8>,
}

impl Default for Encoder {
    fn default() -> Self {
        Encoder {
            out: HEADER.to_vec(),
        }
    }
}

impl Encoder {
    fn put(&mut self, bytes: &[u8], align: usize) -> &mut Encoder {
        let body = self.out.len() - HEADER.len();
        self.out
            .resize(HEADER.len() + body.next_multiple_of(align), 0);
        self.out.extend_from_slice(bytes);
        self
    }
    /// One byte.
    pub fn u8(&mut self, v: u8) -> &mut Encoder {
        self.put(&[v], 1)
    }
    /// 16 bits.
    pub fn u16(&mut self, v: u16) -> &mut Encoder {
        self.put(&v.to_le_bytes(), 2)
    }
    /// 32 bits.
    pub fn u32(&mut self, v: u32) -> &mut Encoder {
        self.put(&v.to_le_bytes(), 4)
    }
    /// 32 bits, signed.
    pub fn i32(&mut self, v: i32) -> &mut Encoder {
        self.put(&v.to_le_bytes(), 4)
    }
    /// 64 bits.
    pub fn u64(&mut self, v: u64) -> &mut Encoder {
        self.put(&v.to_le_bytes(), 8)
    }
    /// IEEE double.
    pub fn f64(&mut self, v: f64) -> &mut Encoder {
        self.put(&v.to_le_bytes(), 8)
    }
    /// Text with its final NUL.
    pub fn text(&mut self, v: &str) -> &mut Encoder {
        self.u32(v.len() as u32 + 1)
            .put(v.as_bytes(), 1)
            .put(&[0], 1)
    }
    /// A sequence of bytes.
    pub fn bytes(&mut self, v: &[u8]) -> &mut Encoder {
        self.u32(v.len() as u32).put(v, 1)
    }
    /// A sequence of texts.
    pub fn texts(&mut self, v: &[String]) -> &mut Encoder {
        self.u32(v.len() as u32);
        for t in v {
            self.text(t);
        }
        self
    }
    /// A sequence of floats.
    pub fn f32s(&mut self, v: &[f32]) -> &mut Encoder {
        self.u32(v.len() as u32);
        for x in v {
            self.put(&x.to_le_bytes(), 4);
        }
        self
    }
    /// A sequence of doubles.
    pub fn f64s(&mut self, v: &[f64]) -> &mut Encoder {
        self.u32(v.len() as u32);
        for x in v {
            self.f64(*x);
        }
        self
    }
    /// `builtin_interfaces/Time` or `Duration` from nanoseconds; saturates at the type's range.
    pub fn time(&mut self, ns: i64) -> &mut Encoder {
        let seconds = ns.div_euclid(1_000_000_000);
        let nanoseconds = ns.rem_euclid(1_000_000_000) as u32;
        self.i32(seconds.clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as i32)
            .u32(nanoseconds)
    }
    /// The message.
    pub fn finish(self) -> Vec<u8> {
        self.out
    }
}
