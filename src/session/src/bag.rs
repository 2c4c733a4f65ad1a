//! Bags without ROS: rosbag2's MCAP files.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{Seek, Write};
use std::path::Path;

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

impl BagSource for McapSource<'_> {
    fn for_each(&mut self, visit: &mut Visit<'_>) -> Result<(), SessionError> {
        for message in mcap::MessageStream::new(&self.bytes).map_err(corrupt)? {
            let message = message.map_err(corrupt)?;
            let channel = &message.channel;
            let schema = channel.schema.as_ref();
            if channel.message_encoding != "cdr" {
                continue;
            }
            visit(&BagMessage {
                topic: &channel.topic,
                type_name: schema.map_or("", |s| s.name.as_str()),
                log_time_ns: message.log_time,
                data: &message.data,
            })?;
        }
        Ok(())
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
