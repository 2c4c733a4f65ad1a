//! What a model declares, as plain data, and its canonical identity.

use std::ffi::CString;

use crate::{
    fnv1a64, Direction, ExecutorKind, Layout, Modality, PortDType, RegionFlags, Role, ShapeKey,
    StateClass, StreamId, Update,
};

/// First line of every identity.
const HEADER: &str = "frt-runtime-identity-v1\n";
/// Region records and port prefixes are cut to this many bytes (upstream formats them into 192 bytes with the
/// closing NUL).
const CUT: usize = 191;

/// A name or text of a declaration. The identity is over bytes, so that a name need not be UTF-8.
pub trait NameBytes: Clone {
    /// Its bytes, without a closing NUL.
    fn name_bytes(&self) -> &[u8];
}

impl NameBytes for String {
    fn name_bytes(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl NameBytes for CString {
    fn name_bytes(&self) -> &[u8] {
        self.as_bytes()
    }
}

/// A stream of the export. Not part of the identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamDecl<N = String> {
    /// Name.
    pub name: N,
    /// Stream of the context.
    pub stream_id: StreamId,
    /// Priority, more negative is more urgent.
    pub priority: i32,
}

/// A captured graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GraphDecl<N = String> {
    /// Name.
    pub name: N,
    /// Opaque handle, not 0.
    pub handle: u64,
    /// Variant fired when no key is given.
    pub default_key: ShapeKey,
    /// Variants that exist at export.
    pub keys: Vec<ShapeKey>,
    /// Stream that it is replayed on; foreign exports may declare any number, negative too.
    pub stream_id: i32,
}

/// A named buffer. Not part of the identity, except for its position (see [`PortDecl::buffer`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BufferDecl<N = String> {
    /// Name.
    pub name: N,
    /// Opaque handle, not 0.
    pub handle: u64,
    /// Size in bytes.
    pub bytes: u64,
    /// What it is for.
    pub role: Role,
}

/// A window of a buffer that makes up the state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionDecl<N = String> {
    /// Name.
    pub name: N,
    /// Handle of the buffer that it lies in.
    pub buffer: u64,
    /// First byte.
    pub offset: u64,
    /// Bytes, not 0.
    pub bytes: u64,
    /// What may be done with it.
    pub flags: RegionFlags,
    /// State class. Not a field of the region record; a live set adds it to its identity as a pair.
    pub class: StateClass,
}

/// A port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortDecl<N = String> {
    /// Name.
    pub name: N,
    /// Meaning of the payload.
    pub modality: Modality,
    /// Element type on the device.
    pub dtype: PortDType,
    /// Order of the dimensions.
    pub layout: Layout,
    /// Input or output.
    pub direction: Direction,
    /// How it may be updated.
    pub update: Update,
    /// 1 when a tick needs it, 0 when not; printed as it is.
    pub required: u32,
    /// Dimensions; -1 is variable. Empty for a scalar.
    pub shape: Vec<i64>,
    /// Expected rate in Hz, 0 when unknown. Not part of the identity.
    pub cadence_hint_hz: u32,
    /// Handle of the buffer of its window, 0 when there is none.
    pub buffer: u64,
    /// First byte of the window.
    pub offset: u64,
    /// Bytes of the window; may be non-zero without a buffer (size of a STAGED payload).
    pub bytes: u64,
}

impl<N> PortDecl<N> {
    /// True when a tick needs this port.
    pub fn is_required(&self) -> bool {
        self.required != 0
    }

    /// Elements of the shape; `None` when a dimension is variable or the product overflows.
    pub fn elements(&self) -> Option<u64> {
        self.shape
            .iter()
            .try_fold(1u64, |n, d| n.checked_mul(u64::try_from(*d).ok()?))
    }

    /// Bytes of the whole payload by shape and element type; `None` when variable or of unknown type.
    pub fn payload_bytes(&self) -> Option<u64> {
        match self.dtype.bytes() {
            0 => None,
            size => self.elements()?.checked_mul(size as u64),
        }
    }
}

/// A stage that replays a graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageDecl {
    /// Index of the graph.
    pub graph: u32,
    /// Stages that come before, by index.
    pub after: Vec<u32>,
}

/// A stage of a generic plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GenericStageDecl<N = String> {
    /// Name, 1 to 255 bytes.
    pub name: N,
    /// Who executes it.
    pub executor_kind: ExecutorKind,
    /// Graph index, or a number with a meaning for the producer.
    pub executor_ref: u32,
    /// Stages that come before, strictly increasing.
    pub after: Vec<u32>,
}

/// Everything that a model declares. Pure data: handles are never dereferenced.
///
/// `N` holds the names: `String`, or `CString` behind the binary interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declaration<N = String> {
    /// Streams, in declaration order.
    pub streams: Vec<StreamDecl<N>>,
    /// Graphs, in declaration order.
    pub graphs: Vec<GraphDecl<N>>,
    /// Buffers, in declaration order.
    pub buffers: Vec<BufferDecl<N>>,
    /// Regions, in declaration order.
    pub regions: Vec<RegionDecl<N>>,
    /// Identity pairs `(key, value)`, in declaration order.
    pub pairs: Vec<(N, N)>,
    /// Ports, in declaration order.
    pub ports: Vec<PortDecl<N>>,
    /// Stages of the declared plan.
    pub stages: Vec<StageDecl>,
    /// Stages of the generic plan; never together with `stages`.
    pub generic_stages: Vec<GenericStageDecl<N>>,
    /// Manifest text, when set. Not part of the identity.
    pub manifest: Option<N>,
}

impl<N: NameBytes> Declaration<N> {
    /// The canonical identity: header, pairs, graphs, regions, ports, stages, generic stages, one record a line.
    ///
    /// Every line ends in `\n`, except that a region record or port prefix longer than 191 bytes is cut there (bytes, even
    /// inside a UTF-8 sequence), as upstream does; [`crate::LiveSetBuilder`] refuses names that long.
    pub fn identity_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(256);
        for r in self.record_bytes() {
            out.extend_from_slice(&r);
        }
        out
    }

    /// FNV-1a of [`Declaration::identity_bytes`].
    pub fn fingerprint(&self) -> u64 {
        fnv1a64(&self.identity_bytes())
    }

    /// The records one by one, without line ends, for people and messages.
    pub fn records(&self) -> Vec<String> {
        self.record_bytes()
            .iter()
            .map(|r| String::from_utf8_lossy(r.strip_suffix(b"\n").unwrap_or(r)).into_owned())
            .collect()
    }

    /// Position of the first declared buffer with this handle, or -1.
    pub fn buffer_index(&self, handle: u64) -> i64 {
        if handle == 0 {
            return -1;
        }
        self.buffers
            .iter()
            .position(|b| b.handle == handle)
            .map_or(-1, |i| i as i64)
    }

    fn record_bytes(&self) -> Vec<Vec<u8>> {
        let mut out = vec![HEADER.as_bytes().to_vec()];
        for (k, v) in &self.pairs {
            out.push([k.name_bytes(), b"=", v.name_bytes(), b"\n"].concat());
        }
        for g in &self.graphs {
            out.push(record("graph:", &g.name, format!(":{}\n", g.stream_id)));
        }
        for (i, r) in self.regions.iter().enumerate() {
            let fields = format!(":{}:{}:{}\n", r.offset, r.bytes, r.flags.0);
            let mut text = record(&format!("region:{i}:"), &r.name, fields);
            text.truncate(CUT);
            out.push(text);
        }
        for (i, p) in self.ports.iter().enumerate() {
            let schema = format!(
                ":{}:{}:{}:{}:{}:{}:",
                p.modality.code(),
                p.dtype.code(),
                p.layout.code(),
                p.direction.code(),
                p.update.code(),
                p.required
            );
            let mut text = record(&format!("port:{i}:"), &p.name, schema);
            text.truncate(CUT);
            let window = format!(
                "{}:{}:{}:{}\n",
                join(&p.shape),
                self.buffer_index(p.buffer),
                p.offset,
                p.bytes
            );
            text.extend_from_slice(window.as_bytes());
            out.push(text);
        }
        for (i, s) in self.stages.iter().enumerate() {
            out.push(format!("stage:{i}:{}:{}\n", s.graph, join(&s.after)).into_bytes());
        }
        for (i, s) in self.generic_stages.iter().enumerate() {
            let length = s.name.name_bytes().len();
            let fields = format!(
                ":{}:{}:{}:{}\n",
                s.executor_kind.code(),
                s.executor_ref,
                s.after.len(),
                join(&s.after)
            );
            out.push(record(&format!("gstage-v1:{i}:{length}:"), &s.name, fields));
        }
        out
    }
}

impl<N> Default for Declaration<N> {
    fn default() -> Declaration<N> {
        Declaration {
            streams: Vec::new(),
            graphs: Vec::new(),
            buffers: Vec::new(),
            regions: Vec::new(),
            pairs: Vec::new(),
            ports: Vec::new(),
            stages: Vec::new(),
            generic_stages: Vec::new(),
            manifest: None,
        }
    }
}

fn record(before: &str, name: &impl NameBytes, after: String) -> Vec<u8> {
    [before.as_bytes(), name.name_bytes(), after.as_bytes()].concat()
}

fn join<T: ToString>(values: &[T]) -> String {
    values
        .iter()
        .map(T::to_string)
        .collect::<Vec<_>>()
        .join(",")
}

/// The first line where two identities differ: `(line of a, line of b)`, or `None` when they are equal.
///
/// A side that has ended, or an empty line, gives `<end>`. Bytes that are no UTF-8 are shown with replacement characters.
pub fn first_difference(a: &[u8], b: &[u8]) -> Option<(String, String)> {
    if a == b {
        return None;
    }
    let show = |line: Option<&[u8]>| match line {
        None | Some([]) => "<end>".to_owned(),
        Some(l) => String::from_utf8_lossy(l).into_owned(),
    };
    // `split` (not `split_terminator`): a missing last line end is a difference too.
    let (mut left, mut right) = (a.split(|c| *c == b'\n'), b.split(|c| *c == b'\n'));
    loop {
        match (left.next(), right.next()) {
            (None, None) => return None,
            (x, y) if x != y => return Some((show(x), show(y))),
            _ => {}
        }
    }
}
