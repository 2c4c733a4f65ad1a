//! Bags without ROS: rosbag2's MCAP files.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::io::{Seek, Write};
use std::path::Path;

use mcap::records::op;
use mcap::sans_io::{LinearReadEvent, LinearReader, LinearReaderOptions};

use crate::code::{ResultCode, SessionError};

/// One message of a bag.
#[derive(Clone, Debug)]
pub struct BagMessage<'a> {
    /// Full topic name.
    pub topic: &'a str,
    /// For instance `sensor_msgs/msg/Image`.
    pub type_name: &'a str,
    /// When it was recorded, nanoseconds.
    pub log_time_ns: u64,
    /// CDR with its encapsulation header.
    pub data: &'a [u8],
}

/// Visits one message.
pub type Visit<'v> = dyn FnMut(&BagMessage<'_>) -> Result<(), SessionError> + 'v;

/// Where messages are read from. May be read several times.
pub trait BagSource {
    /// Visits every message in the order in which it was recorded, until `visit` fails.
    ///
    /// # Errors
    /// Of the bag or of `visit`.
    fn for_each(&mut self, visit: &mut Visit<'_>) -> Result<(), SessionError>;
}

/// Where messages are written to.
pub trait BagSink {
    /// Appends a message. `definition` is the text of the type and its dependencies (`ros2msg`).
    ///
    /// # Errors
    /// IO, and always after a first failure.
    fn write(&mut self, message: &BagMessage<'_>, definition: &str) -> Result<(), SessionError>;
    /// Ends the bag. Without it the file is not complete.
    ///
    /// # Errors
    /// IO.
    fn finish(&mut self) -> Result<(), SessionError>;
}

fn corrupt(e: mcap::McapError) -> SessionError {
    SessionError::new(ResultCode::Corrupt, format!("mcap: {e}"))
}

/// An MCAP file in memory.
pub struct McapSource<'a> {
    bytes: Cow<'a, [u8]>,
}

impl<'a> McapSource<'a> {
    /// Over bytes.
    pub fn new(bytes: impl Into<Cow<'a, [u8]>>) -> McapSource<'a> {
        McapSource {
            bytes: bytes.into(),
        }
    }

    /// Reads a file, or the one `.mcap` file of a bag folder.
    ///
    /// # Errors
    /// IO, or NOT_FOUND unless the folder holds exactly one.
    pub fn open(path: &Path) -> Result<McapSource<'static>, SessionError> {
        let io = |e: std::io::Error| {
            SessionError::new(ResultCode::Io, format!("{}: {e}", path.display()))
        };
        let mut file = path.to_path_buf();
        if path.is_dir() {
            let mut found = Vec::new();
            for entry in std::fs::read_dir(path).map_err(io)? {
                let entry = entry.map_err(io)?.path();
                if entry.extension().is_some_and(|e| e == "mcap") {
                    found.push(entry);
                }
            }
            match found.as_slice() {
                [one] => file.clone_from(one),
                _ => {
                    return Err(SessionError::new(
                        ResultCode::NotFound,
                        format!(
                            "{}: expected one .mcap file, found {}",
                            path.display(),
                            found.len()
                        ),
                    ))
                }
            }
        }
        let bytes = std::fs::read(&file).map_err(io)?;
        Ok(McapSource {
            bytes: Cow::Owned(bytes),
        })
    }
}

/// Longest record, also inside a compressed chunk: an image of 80 million pixels still fits. Without a limit some bytes
/// that claim or unpack to more take all memory.
pub const MAX_RECORD_BYTES: usize = 256 << 20;

/// Opcode and body of the first record of `bytes`, and what follows it; `None` when it does not fit.
fn split_record(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (opcode, rest) = bytes.split_first()?;
    let (length, rest) = rest.split_first_chunk()?;
    let (body, rest) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(*length)).ok()?)?;
    Some((*opcode, body, rest))
}

/// Records of a chunk that is not compressed; `None` for any other chunk, and for a header that the reader will refuse.
fn plain_records(chunk: &[u8]) -> Option<&[u8]> {
    // Two times, the uncompressed size and its CRC, then the name of the compression: empty.
    let rest = chunk.get(28..)?.strip_prefix(&[0; 4])?;
    let (size, rest) = rest.split_first_chunk()?;
    rest.get(..usize::try_from(u64::from_le_bytes(*size)).ok()?)
}

/// The reader counts the records of such a chunk without a look at its end (mcap 0.26): they must tile it.
fn check_plain_chunks(mcap: &[u8]) -> Result<(), SessionError> {
    let mut left = mcap.get(mcap::MAGIC.len()..).unwrap_or_default();
    // Behind the footer stands the end magic, shorter than any record.
    while left.len() > mcap::MAGIC.len() {
        let Some((opcode, body, rest)) = split_record(left) else {
            return Err(record_error(format!(
                "the record at byte {} goes beyond the end of the file",
                mcap.len() - left.len()
            )));
        };
        if opcode == op::FOOTER {
            break;
        }
        if opcode == op::CHUNK {
            let mut records = plain_records(body).unwrap_or_default();
            while !records.is_empty() {
                let Some((_, _, next)) = split_record(records) else {
                    return Err(record_error(format!(
                            "a record in the chunk at byte {} goes beyond the chunk, of which {} bytes are left",
                            mcap.len() - left.len(),
                            records.len()
                        )));
                };
                records = next;
            }
        }
        left = rest;
    }
    Ok(())
}

impl BagSource for McapSource<'_> {
    fn for_each(&mut self, visit: &mut Visit<'_>) -> Result<(), SessionError> {
        check_plain_chunks(&self.bytes)?;
        let options = LinearReaderOptions::default()
            .with_record_length_limit(MAX_RECORD_BYTES)
            .with_validate_chunk_crcs(true);
        let mut reader = LinearReader::new_with_options(options);
        let mut left: &[u8] = &self.bytes;
        let mut tables = Tables::default();
        while let Some(event) = reader.next_event() {
            match event.map_err(corrupt)? {
                LinearReadEvent::ReadRequest(wanted) => {
                    let (now, later) = left.split_at(wanted.min(left.len()));
                    reader.insert(now.len()).copy_from_slice(now);
                    reader.notify_read(now.len());
                    left = later;
                }
                LinearReadEvent::Record { opcode, data } => tables.record(opcode, data, visit)?,
            }
        }
        Ok(())
    }
}

/// A channel as far as it is needed.
#[derive(PartialEq, Eq)]
struct Channel {
    schema: u16,
    topic: String,
    is_cdr: bool,
}

/// Schemas and channels so far. Their records are parsed here, because the library makes room for a text of any claimed
/// length before it reads it.
#[derive(Default)]
struct Tables {
    schemas: HashMap<u16, String>,
    channels: HashMap<u16, Channel>,
}

impl Tables {
    fn record(
        &mut self,
        opcode: u8,
        data: &[u8],
        visit: &mut Visit<'_>,
    ) -> Result<(), SessionError> {
        let mut fields = Fields { opcode, data };
        match opcode {
            op::SCHEMA => {
                let (id, name) = (fields.u16()?, fields.text()?);
                if self.schemas.get(&id).is_some_and(|known| known != name) {
                    return Err(record_error(format!(
                        "schema {id} is defined twice, as {name:.80?}"
                    )));
                }
                self.schemas.insert(id, name.to_string());
            }
            op::CHANNEL => {
                let (id, schema) = (fields.u16()?, fields.u16()?);
                let topic = fields.text()?.to_string();
                let is_cdr = fields.text()? == "cdr";
                if schema != 0 && !self.schemas.contains_key(&schema) {
                    return Err(record_error(format!(
                        "channel {id} has schema {schema}, which is not there"
                    )));
                }
                let channel = Channel {
                    schema,
                    topic,
                    is_cdr,
                };
                if self
                    .channels
                    .get(&id)
                    .is_some_and(|known| *known != channel)
                {
                    return Err(record_error(format!("channel {id} is defined twice")));
                }
                self.channels.insert(id, channel);
            }
            op::MESSAGE => {
                let id = fields.u16()?;
                // Sequence; then the time of publication behind the one of recording.
                fields.take(4)?;
                let log_time_ns = fields.u64()?;
                fields.take(8)?;
                let channel = self.channels.get(&id).ok_or_else(|| {
                    record_error(format!("a message has channel {id}, which is not there"))
                })?;
                if channel.is_cdr {
                    visit(&BagMessage {
                        topic: &channel.topic,
                        type_name: self.schemas.get(&channel.schema).map_or("", String::as_str),
                        log_time_ns,
                        data: fields.data,
                    })?;
                }
            }
            _ => {}
        }
        Ok(())
    }
}

fn record_error(message: String) -> SessionError {
    SessionError::new(ResultCode::Corrupt, format!("mcap: {message}"))
}

/// What is left of a record.
struct Fields<'a> {
    opcode: u8,
    data: &'a [u8],
}

impl<'a> Fields<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], SessionError> {
        let Some((field, rest)) = self.data.split_at_checked(count) else {
            return Err(record_error(format!(
                "record {:#04x}: a field of {count} bytes, but {} are left",
                self.opcode,
                self.data.len()
            )));
        };
        self.data = rest;
        Ok(field)
    }
    fn array<const N: usize>(&mut self) -> Result<[u8; N], SessionError> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N)?);
        Ok(out)
    }
    fn u16(&mut self) -> Result<u16, SessionError> {
        self.array().map(u16::from_le_bytes)
    }
    fn u64(&mut self) -> Result<u64, SessionError> {
        self.array().map(u64::from_le_bytes)
    }
    fn text(&mut self) -> Result<&'a str, SessionError> {
        let length = u32::from_le_bytes(self.array()?) as usize;
        std::str::from_utf8(self.take(length)?).map_err(|e| {
            record_error(format!(
                "record {:#04x}: a text is not UTF-8: {e}",
                self.opcode
            ))
        })
    }
}

/// Writes an MCAP file with rosbag2's profile. The same messages give the same bytes.
pub struct McapSink<W: Write + Seek> {
    writer: mcap::Writer<W>,
    channels: BTreeMap<String, u16>,
    sequence: u32,
    has_failed: bool,
}

impl<W: Write + Seek> McapSink<W> {
    /// Starts a bag.
    ///
    /// # Errors
    /// IO.
    pub fn new(writer: W) -> Result<McapSink<W>, SessionError> {
        let options = mcap::WriteOptions::new()
            .profile("ros2")
            .library("flashrt_ros")
            .compression(None);
        let writer = options.create(writer).map_err(write_error)?;
        Ok(McapSink {
            writer,
            channels: BTreeMap::new(),
            sequence: 0,
            has_failed: false,
        })
    }

    fn put(&mut self, message: &BagMessage<'_>, definition: &str) -> mcap::McapResult<()> {
        let channel_id = match self.channels.get(message.topic) {
            Some(id) => *id,
            None => {
                let schema =
                    self.writer
                        .add_schema(message.type_name, "ros2msg", definition.as_bytes())?;
                let id = self
                    .writer
                    .add_channel(schema, message.topic, "cdr", &BTreeMap::new())?;
                self.channels.insert(message.topic.to_string(), id);
                id
            }
        };
        let header = mcap::records::MessageHeader {
            channel_id,
            sequence: self.sequence,
            log_time: message.log_time_ns,
            publish_time: message.log_time_ns,
        };
        self.sequence = self.sequence.wrapping_add(1);
        self.writer.write_to_known_channel(&header, message.data)
    }

    /// The writer below, after [`BagSink::finish`].
    pub fn into_inner(self) -> W {
        self.writer.into_inner()
    }
}

fn write_error(e: mcap::McapError) -> SessionError {
    SessionError::new(ResultCode::Io, format!("mcap: {e}"))
}

impl<W: Write + Seek> BagSink for McapSink<W> {
    fn write(&mut self, message: &BagMessage<'_>, definition: &str) -> Result<(), SessionError> {
        if self.has_failed {
            return Err(SessionError::new(
                ResultCode::Io,
                "mcap: an earlier write failed, the file is not complete",
            ));
        }
        self.put(message, definition).map_err(|e| {
            self.has_failed = true;
            write_error(e)
        })
    }

    fn finish(&mut self) -> Result<(), SessionError> {
        self.writer.finish().map(drop).map_err(write_error)
    }
}
