//! The ROS messages that a bag is read from and written to, by their wire form: no ROS type is involved.

use std::sync::Arc;

use crate::cdr::{Decoder, Encoder};
use crate::code::{ResultCode, SessionError};
use crate::core::Plan;
use crate::io::{ChunkRef, TickPortRecord, TickRecord};

/// Type name of images in a bag.
pub const IMAGE: &str = "sensor_msgs/msg/Image";
/// Type name of joint states.
pub const JOINT_STATE: &str = "sensor_msgs/msg/JointState";
/// Type name of the tick log.
pub const TICK_LOG: &str = "flashrt_ros/msg/TickLog";
/// Type name of chunks.
pub const ACTION_CHUNK: &str = "flashrt_ros/msg/ActionChunk";

const OPERATIONS: [&str; 8] = [
    "activate",
    "snapshot",
    "restore",
    "rollback",
    "fork",
    "reset",
    "drop",
    "time_jump",
];

/// `sensor_msgs/Image`, borrowed from its bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct ImageMessage<'a> {
    /// Header stamp.
    pub stamp_ns: i64,
    /// Pixels per row.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// Encoding.
    pub encoding: &'a str,
    /// Byte order flag.
    pub is_bigendian: bool,
    /// Bytes per row.
    pub step: u32,
    /// Pixels.
    pub data: &'a [u8],
}

impl<'a> ImageMessage<'a> {
    /// From CDR.
    ///
    /// # Errors
    /// FORMAT.
    pub fn decode(bytes: &'a [u8]) -> Result<ImageMessage<'a>, SessionError> {
        let mut d = Decoder::new(bytes)?;
        let stamp_ns = d.time()?;
        d.text()?;
        let height = d.u32()?;
        let width = d.u32()?;
        Ok(ImageMessage {
            stamp_ns,
            width,
            height,
            encoding: d.text()?,
            is_bigendian: d.u8()? != 0,
            step: d.u32()?,
            data: d.bytes()?,
        })
    }

    /// To CDR, with an empty frame id.
    pub fn encode(&self) -> Vec<u8> {
        let mut e = Encoder::default();
        e.time(self.stamp_ns)
            .text("")
            .u32(self.height)
            .u32(self.width)
            .text(self.encoding);
        e.u8(self.is_bigendian.into())
            .u32(self.step)
            .bytes(self.data);
        e.finish()
    }
}

/// The part of `sensor_msgs/JointState` that is used.
#[derive(Clone, Debug, PartialEq)]
pub struct JointsMessage {
    /// Header stamp.
    pub stamp_ns: i64,
    /// Names.
    pub names: Vec<String>,
    /// Positions.
    pub positions: Vec<f64>,
}

impl JointsMessage {
    /// From CDR.
    ///
    /// # Errors
    /// FORMAT.
    pub fn decode(bytes: &[u8]) -> Result<JointsMessage, SessionError> {
        let mut d = Decoder::new(bytes)?;
        let stamp_ns = d.time()?;
        d.text()?;
        Ok(JointsMessage {
            stamp_ns,
            names: d.texts()?,
            positions: d.f64s()?,
        })
    }

    /// To CDR, with an empty frame id, velocity and effort.
    pub fn encode(&self) -> Vec<u8> {
        let mut e = Encoder::default();
        e.time(self.stamp_ns)
            .text("")
            .texts(&self.names)
            .f64s(&self.positions)
            .f64s(&[])
            .f64s(&[]);
        e.finish()
    }
}

/// A tick log entry from CDR.
///
/// # Errors
/// FORMAT, also for a plan, operation or code that this build does not know.
pub fn decode_tick_log(bytes: &[u8]) -> Result<TickRecord, SessionError> {
    let bad = |message: String| SessionError::new(ResultCode::Format, message);
    let mut d = Decoder::new(bytes)?;
    let stamp_ns = d.time()?;
    d.text()?;
    let session = Arc::from(d.text()?);
    let epoch = d.u64()?;
    let tick = d.u64()?;
    let number = d.u16()?;
    let code = ResultCode::from_number(number)
        .ok_or_else(|| bad(format!("tick log: unknown code {number}")))?;
    let plan = match d.text()? {
        "" => "",
        name => Plan::from_name(name)
            .ok_or_else(|| bad(format!("tick log: unknown plan {name:?}")))?
            .name(),
    };
    let key = d.u64()?;
    // A port takes at least a text length, a time, a hash and a flag.
    let count = d.length(21)?;
    let mut ports = Vec::with_capacity(count);
    for _ in 0..count {
        let name = Arc::from(d.text()?);
        let stamp_ns = d.time()?;
        ports.push(TickPortRecord {
            name,
            stamp_ns,
            hash: d.u64()?,
            is_new: d.u8()? != 0,
        });
    }
    let prompt = Arc::from(d.text()?);
    let actions_hash = d.u64()?;
    let chunk_id = d.u64()?;
    let latency_ms = d.f64()?;
    let operation = match d.text()? {
        "" => "",
        name => OPERATIONS
            .into_iter()
            .find(|o| *o == name)
            .ok_or_else(|| bad(format!("tick log: unknown operation {name:?}")))?,
    };
    Ok(TickRecord {
        stamp_ns,
        session,
        epoch,
        tick,
        code,
        plan,
        key,
        ports,
        prompt,
        actions_hash,
        chunk_id,
        latency_ms,
        operation,
        capsule: Arc::from(d.text()?),
        target: Arc::from(d.text()?),
        options: Arc::from(d.text()?),
    })
}

/// A tick log entry to CDR, with an empty frame id.
pub fn encode_tick_log(r: &TickRecord) -> Vec<u8> {
    let mut e = Encoder::default();
    e.time(r.stamp_ns)
        .text("")
        .text(&r.session)
        .u64(r.epoch)
        .u64(r.tick)
        .u16(r.code.number())
        .text(r.plan)
        .u64(r.key);
    e.u32(r.ports.len() as u32);
    for port in &r.ports {
        e.text(&port.name)
            .time(port.stamp_ns)
            .u64(port.hash)
            .u8(port.is_new.into());
    }
    e.text(&r.prompt)
        .u64(r.actions_hash)
        .u64(r.chunk_id)
        .f64(r.latency_ms);
    e.text(r.operation)
        .text(&r.capsule)
        .text(&r.target)
        .text(&r.options);
    e.finish()
}

/// A chunk to CDR, with an empty frame id.
pub fn encode_chunk(c: &ChunkRef<'_>) -> Vec<u8> {
    let mut e = Encoder::default();
    e.time(c.stamp_ns)
        .text("")
        .text(c.session)
        .u64(c.epoch)
        .u64(c.tick)
        .u64(c.chunk_id);
    e.time(c.observation_age_ns)
        .time(c.context_stamp_ns)
        .u32(c.context_age_ticks)
        .time(c.dt_ns);
    e.texts(c.names)
        .texts(c.units)
        .text(c.representation)
        .u32(c.horizon)
        .u32(c.execute_rows)
        .f32s(c.data);
    e.finish()
}

/// What a test or a comparison wants of a chunk.
#[derive(Clone, Debug, PartialEq)]
pub struct ChunkMessage {
    /// Live set.
    pub session: String,
    /// Epoch.
    pub epoch: u64,
    /// Tick.
    pub tick: u64,
    /// Chunk.
    pub chunk_id: u64,
    /// `[horizon, names]` f32, row-major.
    pub data: Vec<f32>,
}

/// A chunk from CDR.
///
/// # Errors
/// FORMAT.
pub fn decode_chunk(bytes: &[u8]) -> Result<ChunkMessage, SessionError> {
    let mut d = Decoder::new(bytes)?;
    d.time()?;
    d.text()?;
    let session = d.text()?.to_string();
    let (epoch, tick, chunk_id) = (d.u64()?, d.u64()?, d.u64()?);
    d.time()?;
    d.time()?;
    d.u32()?;
    d.time()?;
    d.texts()?;
    d.texts()?;
    d.text()?;
    d.u32()?;
    d.u32()?;
    Ok(ChunkMessage {
        session,
        epoch,
        tick,
        chunk_id,
        data: d.f32s()?,
    })
}

/// Definition of `flashrt_ros/msg/ActionChunk` with what it depends on, for the schema record of a bag.
pub const ACTION_CHUNK_DEFINITION: &str = concat!(
    include_str!("../../../msg/ActionChunk.msg"),
    "================================================================================\n",
    "MSG: std_msgs/Header\n",
    "builtin_interfaces/Time stamp\n",
    "string frame_id\n",
    "================================================================================\n",
    "MSG: builtin_interfaces/Time\n",
    "int32 sec\n",
    "uint32 nanosec\n",
    "================================================================================\n",
    "MSG: builtin_interfaces/Duration\n",
    "int32 sec\n",
    "uint32 nanosec\n",
);
