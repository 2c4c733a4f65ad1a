//! What a producer implements for one live set, and the payloads that cross it.

use crate::{Buffer, Context, Error, Graph, PixelFormat, ShapeKey};

/// Index of a port in [`crate::LiveSet::ports`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PortId(pub usize);

/// Index of a stage in [`crate::LiveSet::stages`], over all plans.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StageId(pub usize);

/// Index of a stage plan in [`crate::LiveSet::plans`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PlanId(pub usize);

/// One borrowed image: `height` rows of `width` pixels, row-major, `stride_bytes` from row to row.
#[derive(Clone, Copy, Debug)]
pub struct ImageView<'a> {
    /// Channel order, 8 bits a channel.
    pub format: PixelFormat,
    /// Pixels in a row.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// Bytes from the start of a row to the start of the next; 0 means tight rows.
    pub stride_bytes: u32,
    /// The pixels; must hold `(height - 1) * stride + width * channels` bytes.
    pub data: &'a [u8],
    /// Stamp of the image in nanoseconds, ROS time; 0 when unknown.
    pub timestamp_ns: u64,
}

/// Payload of one input port.
#[derive(Clone, Copy, Debug)]
pub enum InputData<'a> {
    /// Raw elements of the port's type and shape, little-endian.
    Bytes(&'a [u8]),
    /// `f32` elements.
    F32(&'a [f32]),
    /// UTF-8 text.
    Text(&'a str),
    /// One view per camera, matched by position.
    Images(&'a [ImageView<'a>]),
}

impl InputData<'_> {
    /// Name of the kind of payload, for messages.
    pub fn kind(&self) -> &'static str {
        match self {
            InputData::Bytes(_) => "bytes",
            InputData::F32(_) => "f32 values",
            InputData::Text(_) => "text",
            InputData::Images(_) => "images",
        }
    }
}

/// The parts of a live set that its verbs may touch; handed out by [`crate::LiveSetBuilder::parts`].
#[derive(Clone)]
pub struct SetParts {
    /// The context that the set stands on.
    pub ctx: Context,
    /// Every buffer of the set so far, in declaration order.
    pub buffers: Vec<Buffer>,
    /// Every graph of the set so far, in declaration order.
    pub graphs: Vec<Graph>,
}

impl SetParts {
    /// The buffer called `name`.
    pub fn buffer(&self, name: &str) -> Result<&Buffer, Error> {
        self.buffers
            .iter()
            .find(|b| b.name() == name)
            .ok_or_else(|| Error::NotFound {
                kind: "buffer",
                name: name.to_owned(),
            })
    }

    /// The graph called `name`.
    pub fn graph(&self, name: &str) -> Result<&Graph, Error> {
        self.graphs
            .iter()
            .find(|g| g.name() == name)
            .ok_or_else(|| Error::NotFound {
                kind: "graph",
                name: name.to_owned(),
            })
    }
}

/// The producer's side of one live set.
///
/// A verb keeps **no continuation state in Rust fields**: everything that the next tick depends on (prompt
/// tokens, masks, staged inputs, random-number counters, cadence) lies in named buffers of the set, or a capsule
/// cannot restore it. Caches of pure functions are allowed.
///
/// The live set calls a verb only while none of its work is in flight, from its driving thread (`run_opaque` may overlap with
/// graphs that its stage does not depend on). `set_input`, `get_output`, `run_opaque` and `step` are hot: they allocate nothing
/// after the first call of a size. `set_input` and `get_output` leave the buffers as they were on error.
pub trait Verbs: Send {
    /// Writes the STAGED (or, before the set is hot, SETUP) input `port`.
    fn set_input(&mut self, port: PortId, data: InputData<'_>) -> Result<(), Error>;
    /// Reads the STAGED output `port` into `out`; returns the bytes written.
    fn get_output(&mut self, port: PortId, out: &mut [u8]) -> Result<usize, Error>;
    /// Makes the variant `key` of `graph` exist (captures it if needed). Never called while hot.
    fn prepare(&mut self, graph: &str, key: ShapeKey) -> Result<(), Error>;
    /// Drops the variant `key` of `graph`. Never called while hot.
    fn evict(&mut self, graph: &str, key: ShapeKey) -> Result<(), Error>;
    /// Runs everything once so that the first hot tick meets no first-use cost. The set's buffers may change.
    fn warm(&mut self) -> Result<(), Error>;
    /// Executes an OPAQUE stage; complete on return. `executor_ref` is the number that the stage declares.
    fn run_opaque(&mut self, executor_ref: u32) -> Result<(), Error> {
        let _ = executor_ref;
        Err(Error::Unsupported { verb: "run_opaque" })
    }
    /// Fires the whole model once; what it enqueues on the set's streams may still run on return.
    fn step(&mut self) -> Result<(), Error> {
        Err(Error::Unsupported { verb: "step" })
    }
    /// Text of the last error of a verb, empty when there was none.
    fn last_error(&self) -> &str {
        ""
    }
}

/// Verbs of a set without STAGED ports: every verb answers "unsupported", except `warm`, which has nothing to do.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoVerbs;

impl Verbs for NoVerbs {
    fn set_input(&mut self, _: PortId, _: InputData<'_>) -> Result<(), Error> {
        Err(Error::Unsupported { verb: "set_input" })
    }
    fn get_output(&mut self, _: PortId, _: &mut [u8]) -> Result<usize, Error> {
        Err(Error::Unsupported { verb: "get_output" })
    }
    fn prepare(&mut self, _: &str, _: ShapeKey) -> Result<(), Error> {
        Err(Error::Unsupported { verb: "prepare" })
    }
    fn evict(&mut self, _: &str, _: ShapeKey) -> Result<(), Error> {
        Err(Error::Unsupported { verb: "evict" })
    }
    fn warm(&mut self) -> Result<(), Error> {
        Ok(())
    }
    fn last_error(&self) -> &str {
        "this set has no verbs"
    }
}
