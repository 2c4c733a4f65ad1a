//! Continuation state that the host keeps between ticks, as a fixed block of little-endian fields.

use flashrt_exec::{Buffer, Space};

use crate::Error;

/// Name of the buffer and of the region that hold it.
pub const HOST_STATE_NAME: &str = "host_state";
/// Version of the layout below; an identity pair of every live set.
pub const HOST_STATE_LAYOUT: u32 = 1;
/// Size of the block in bytes.
pub const HOST_STATE_BYTES: usize = 128;
/// Most observation stamps that the block holds.
pub const MAX_CONTEXT_STAMPS: usize = 8;

const MAGIC: [u8; 4] = *b"FRHS";

/// The fields. Byte offsets in the block: magic 0 (`FRHS`), layout u32 4, tick u64 8, ticks_since_context u32 16,
/// stamp count u32 20, stamps 8 × i64 24, zeros from 88 to 128. Little-endian; unused stamps are 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostFields {
    /// Ticks run since the set was made or reset.
    pub tick: u64,
    /// Ticks since the context stage last ran (stage cadence); 0 right after it.
    pub ticks_since_context: u32,
    /// Entries of `context_stamps_ns` in use, at most 8.
    pub context_stamp_count: u32,
    /// Stamps of the observation that the context stage saw, ROS time in nanoseconds, one per input port.
    pub context_stamps_ns: [i64; MAX_CONTEXT_STAMPS],
}

impl HostFields {
    /// The stamps in use.
    pub fn context_stamps(&self) -> &[i64] {
        let n = (self.context_stamp_count as usize).min(MAX_CONTEXT_STAMPS);
        &self.context_stamps_ns[..n]
    }

    /// Replaces the stamps; more than eight are refused.
    pub fn set_context_stamps(&mut self, stamps: &[i64]) -> Result<(), Error> {
        if stamps.len() > MAX_CONTEXT_STAMPS {
            return Err(wrong("stamp count", "at most 8", stamps.len()));
        }
        self.context_stamps_ns = [0; MAX_CONTEXT_STAMPS];
        self.context_stamps_ns[..stamps.len()].copy_from_slice(stamps);
        self.context_stamp_count = stamps.len() as u32;
        Ok(())
    }

    /// The block of these fields.
    pub fn encode(&self) -> [u8; HOST_STATE_BYTES] {
        let mut b = [0; HOST_STATE_BYTES];
        b[0..4].copy_from_slice(&MAGIC);
        b[4..8].copy_from_slice(&HOST_STATE_LAYOUT.to_le_bytes());
        b[8..16].copy_from_slice(&self.tick.to_le_bytes());
        b[16..20].copy_from_slice(&self.ticks_since_context.to_le_bytes());
        b[20..24].copy_from_slice(&self.context_stamp_count.to_le_bytes());
        for (i, s) in self.context_stamps_ns.iter().enumerate() {
            b[24 + 8 * i..32 + 8 * i].copy_from_slice(&s.to_le_bytes());
        }
        b
    }

    /// Reads a block, checking every byte of it.
    pub fn decode(block: &[u8]) -> Result<HostFields, Error> {
        if block.len() != HOST_STATE_BYTES {
            return Err(wrong("size", HOST_STATE_BYTES, block.len()));
        }
        if block[0..4] != MAGIC {
            return Err(wrong(
                "magic",
                "46 52 48 53",
                format!(
                    "{:02x} {:02x} {:02x} {:02x}",
                    block[0], block[1], block[2], block[3]
                ),
            ));
        }
        let u32_at =
            |o: usize| u32::from_le_bytes([block[o], block[o + 1], block[o + 2], block[o + 3]]);
        let u64_at = |o: usize| u64::from(u32_at(o)) | u64::from(u32_at(o + 4)) << 32;
        if u32_at(4) != HOST_STATE_LAYOUT {
            return Err(wrong("layout", HOST_STATE_LAYOUT, u32_at(4)));
        }
        let count = u32_at(20);
        if count as usize > MAX_CONTEXT_STAMPS {
            return Err(wrong("stamp count", "at most 8", count));
        }
        let mut stamps = [0i64; MAX_CONTEXT_STAMPS];
        for (i, s) in stamps.iter_mut().enumerate() {
            *s = u64_at(24 + 8 * i) as i64;
            if i >= count as usize && *s != 0 {
                return Err(wrong("unused stamp", 0, *s));
            }
        }
        if let Some(b) = block[88..].iter().find(|b| **b != 0) {
            return Err(wrong("reserved byte", 0, b));
        }
        Ok(HostFields {
            tick: u64_at(8),
            ticks_since_context: u32_at(16),
            context_stamp_count: count,
            context_stamps_ns: stamps,
        })
    }
}

fn wrong(field: &'static str, expected: impl ToString, got: impl ToString) -> Error {
    Error::HostState {
        field,
        expected: expected.to_string(),
        got: got.to_string(),
    }
}

/// The block inside its host buffer. Reading and writing are synchronous, allocate nothing and belong to the moments when
/// nothing of the set is in flight.
#[derive(Clone)]
pub struct HostState {
    buffer: Buffer,
}

impl HostState {
    pub(crate) fn new(buffer: Buffer) -> Result<HostState, Error> {
        debug_assert!(buffer.space() == Space::Host);
        let state = HostState { buffer };
        state.write(&HostFields::default())?;
        Ok(state)
    }

    /// The buffer of the block, `[128]` bytes of host memory.
    pub fn buffer(&self) -> &Buffer {
        &self.buffer
    }

    /// The fields, after a check of the whole block.
    pub fn read(&self) -> Result<HostFields, Error> {
        let mut block = [0; HOST_STATE_BYTES];
        self.buffer
            .host_read(0, &mut block)
            .map_err(|e| Error::exec("read host state", e))?;
        HostFields::decode(&block)
    }

    /// Writes the whole block.
    pub fn write(&self, fields: &HostFields) -> Result<(), Error> {
        if fields.context_stamp_count as usize > MAX_CONTEXT_STAMPS {
            return Err(wrong(
                "stamp count",
                "at most 8",
                fields.context_stamp_count,
            ));
        }
        self.buffer
            .host_write(0, &fields.encode())
            .map_err(|e| Error::exec("write host state", e))
    }

    /// Reads, changes and writes back.
    pub fn update(&self, change: impl FnOnce(&mut HostFields)) -> Result<HostFields, Error> {
        let mut fields = self.read()?;
        change(&mut fields);
        self.write(&fields)?;
        Ok(fields)
    }
}
