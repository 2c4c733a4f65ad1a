//! A producer's verbs behind [`Verbs`].

use std::ffi::c_int;
use std::sync::Arc;

use super::object::Calls;
use super::{read, Anchor, Fault};
use crate::abi::frt_image_view;
use crate::{
    Context, Error, Graph, ImageView, InputData, Modality, PortDType, PortDecl, PortId, ShapeKey,
    Verbs,
};

/// `stream` of the verbs: the producer's default.
const ANY_STREAM: c_int = -1;
/// Views that an image payload has room for without an allocation.
const VIEWS: usize = 16;
const VIEW_BYTES: u64 = size_of::<frt_image_view>() as u64;

pub(super) struct ForeignVerbs {
    pub(super) calls: Calls,
    pub(super) model: String,
    pub(super) ports: Vec<PortDecl>,
    /// Graphs by index in the declaration; empty when none can be replayed.
    pub(super) graphs: Vec<Graph>,
    /// Positions of the graphs that the plan replays, with their default keys.
    pub(super) needed: Vec<(usize, ShapeKey)>,
    /// The symbol that is missing, when `step` stands in for a plan of graphs and is still to be tried.
    pub(super) probe: Option<String>,
    /// The foreign context, whose calls and the producer's own exclude each other; `None` when graphs are out of reach.
    pub(super) gate: Option<Context>,
    views: Views,
    last: String,
    // Last: the functions above lie in its library.
    _anchor: Arc<Anchor>,
}

/// Views of one payload, kept for the next.
struct Views(Vec<frt_image_view>);

// SAFETY: the pointers in it are written and read within one call of `set_input` only.
unsafe impl Send for Views {}

impl ForeignVerbs {
    pub(super) fn new(
        calls: Calls,
        model: &str,
        ports: Vec<PortDecl>,
        anchor: Arc<Anchor>,
    ) -> ForeignVerbs {
        ForeignVerbs {
            calls,
            model: model.to_owned(),
            ports,
            graphs: Vec::new(),
            needed: Vec::new(),
            probe: None,
            gate: None,
            views: Views(Vec::with_capacity(VIEWS)),
            last: String::new(),
            _anchor: anchor,
        }
    }

    /// Calls the producer, which may call its execution library itself.
    fn call<R>(&self, f: impl FnOnce() -> R) -> Result<R, Error> {
        match &self.gate {
            None => Ok(f()),
            Some(ctx) => ctx
                .exclusive(f)
                .map_err(|e| Error::exec("call of the producer", e)),
        }
    }

    /// The answer of a call as a result; the producer's text is copied.
    fn check(&mut self, call: &str, code: c_int) -> Result<(), Error> {
        if code == 0 {
            return Ok(());
        }
        self.last.clear();
        match self.calls.verbs.last_error {
            None => self.last.push_str("no text (no last_error)"),
            Some(f) => {
                let self_ = self.calls.self_;
                // SAFETY: the producer's function with its own pointer, on the thread that drives the set; its text is bounded.
                let text = self.call(|| unsafe { read::error_text(f(self_)) })?;
                self.last.push_str(&text);
            }
        }
        Err(Fault::status(call, code, &self.last).of(&self.model))
    }

    fn unsupported(&mut self, verb: &'static str) -> Error {
        self.last.clear();
        self.last.push_str("the model has no such verb");
        Error::Unsupported { verb }
    }

    fn call_set_input(
        &mut self,
        port: PortId,
        data: *const std::ffi::c_void,
        bytes: u64,
    ) -> Result<(), Error> {
        let Some(set_input) = self.calls.verbs.set_input else {
            return Err(self.unsupported("set_input"));
        };
        let (self_, index) = (self.calls.self_, port.0 as u32);
        // SAFETY: the producer's function with its own pointer; `data` has `bytes` readable bytes during the call.
        let code = self.call(|| unsafe { set_input(self_, index, data, bytes, ANY_STREAM) })?;
        if code == 0 {
            return Ok(());
        }
        let call = format!("set_input of port '{}'", self.ports[port.0].name);
        self.check(&call, code)
    }

    /// The port's payload as the bytes that the interface asks for.
    fn send(&mut self, port: PortId, bytes: &[u8]) -> Result<(), Error> {
        let p = &self.ports[port.0];
        if let Some(expected) = p.payload_bytes().filter(|n| *n != bytes.len() as u64) {
            return Err(Error::PortBytes {
                port: p.name.clone(),
                expected,
                got: bytes.len() as u64,
            });
        }
        self.call_set_input(port, bytes.as_ptr().cast(), bytes.len() as u64)
    }

    fn send_images(&mut self, port: PortId, views: &[ImageView<'_>]) -> Result<(), Error> {
        self.views.0.clear();
        for (i, v) in views.iter().enumerate() {
            let number = |what: &str, n: u32| {
                i32::try_from(n).map_err(|_| Error::PortFormat {
                    port: self.ports[port.0].name.clone(),
                    expected: format!("{what} of at most {}", i32::MAX),
                    got: format!("{n} in view {i}"),
                })
            };
            let view = frt_image_view {
                struct_size: VIEW_BYTES as u32,
                pixel_format: v.format.code(),
                data: v.data.as_ptr().cast(),
                bytes: v.data.len() as u64,
                width: number("a width", v.width)?,
                height: number("a height", v.height)?,
                stride_bytes: number("a row", v.stride_bytes)?,
                reserved: 0,
                timestamp_ns: v.timestamp_ns,
            };
            self.views.0.push(view);
        }
        let bytes = self.views.0.len() as u64 * VIEW_BYTES;
        let data = self.views.0.as_ptr().cast();
        let result = self.call_set_input(port, data, bytes);
        self.views.0.clear();
        result
    }
}

impl Verbs for ForeignVerbs {
    fn set_input(&mut self, port: PortId, data: InputData<'_>) -> Result<(), Error> {
        let p = self.ports.get(port.0).ok_or(Error::BadIndex {
            kind: "port",
            index: port.0,
            count: self.ports.len(),
        })?;
        let is_image = matches!(p.modality, Modality::Image | Modality::Depth);
        let is_text = p.modality == Modality::Text;
        match data {
            InputData::Images(views) if is_image => self.send_images(port, views),
            InputData::Text(text) if is_text => self.send(port, text.as_bytes()),
            InputData::Bytes(bytes) if !is_image => self.send(port, bytes),
            InputData::F32(values) if !is_image && !is_text && p.dtype == PortDType::F32 => {
                // SAFETY: f32 values are initialised bytes without padding; u8 has no alignment; the length is theirs.
                let bytes = unsafe {
                    std::slice::from_raw_parts(values.as_ptr().cast::<u8>(), size_of_val(values))
                };
                self.send(port, bytes)
            }
            other => Err(Error::PortFormat {
                port: p.name.clone(),
                expected: match (is_image, is_text) {
                    (true, _) => "images".to_owned(),
                    (_, true) => "text".to_owned(),
                    _ => format!("{} values", p.dtype),
                },
                got: other.kind().to_owned(),
            }),
        }
    }

    fn get_output(&mut self, port: PortId, out: &mut [u8]) -> Result<usize, Error> {
        let Some(get_output) = self.calls.verbs.get_output else {
            return Err(self.unsupported("get_output"));
        };
        let (self_, index, room) = (self.calls.self_, port.0 as u32, out.len() as u64);
        let (data, mut written) = (out.as_mut_ptr().cast(), 0);
        // SAFETY: the producer's function with its own pointer; `out` has as many writable bytes as it is told.
        let code = self
            .call(|| unsafe { get_output(self_, index, data, room, &mut written, ANY_STREAM) })?;
        if code == 0 && written <= room {
            return Ok(written as usize);
        }
        let name = self.ports.get(port.0).map_or("?", |p| p.name.as_str());
        if code == 0 {
            let text = format!(
                "get_output of port '{name}' says that it wrote {written} bytes into {room}"
            );
            return Err(Fault::object(text).of(&self.model));
        }
        if code == -5 && written > room {
            return Err(Error::OutputTooSmall {
                port: name.to_owned(),
                needed: written,
                got: room,
            });
        }
        let call = format!("get_output of port '{name}'");
        self.check(&call, code)?;
        Ok(0)
    }

    fn prepare(&mut self, graph: &str, key: ShapeKey) -> Result<(), Error> {
        let position = self.graphs.iter().position(|g| g.name() == graph);
        let position = position.ok_or_else(|| Error::NotFound {
            kind: "graph",
            name: graph.to_owned(),
        })?;
        let Some(prepare) = self.calls.verbs.prepare else {
            return Err(self.unsupported("prepare"));
        };
        let self_ = self.calls.self_;
        // SAFETY: the producer's function with its own pointer.
        let code = self.call(|| unsafe { prepare(self_, position as u32, key) })?;
        self.check(&format!("prepare of graph '{graph}', key {key}"), code)
    }

    /// The interface has no such verb: what a producer captured is its own.
    fn evict(&mut self, _: &str, _: ShapeKey) -> Result<(), Error> {
        Err(self.unsupported("evict"))
    }

    /// Makes the variants of the plan exist, and tries `step` once where it stands in for graphs. Nothing is run otherwise:
    /// what a native model does outside its declared regions could not be undone.
    fn warm(&mut self) -> Result<(), Error> {
        for i in 0..self.needed.len() {
            let (graph, key) = self.needed[i];
            if self.graphs[graph].has_variant(key) {
                continue;
            }
            let name = self.graphs[graph].name().to_owned();
            self.prepare(&name, key)?;
            if !self.graphs[graph].has_variant(key) {
                return Err(Error::NoVariant { graph: name, key });
            }
        }
        let Some(missing) = self.probe.take() else {
            return Ok(());
        };
        match self.step() {
            Err(Error::Foreign {
                fault: super::ForeignFault::Status(-3),
                ..
            }) => {
                let text = format!(
                    "its plan replays graphs, but the symbol {missing} is not in its scope, and its step verb is a stub (-3)"
                );
                self.probe = Some(missing);
                Err(Fault::unsupported(text).of(&self.model))
            }
            // Any other failure may come from inputs that are not there yet.
            _ => Ok(()),
        }
    }

    fn run_opaque(&mut self, executor_ref: u32) -> Result<(), Error> {
        let Some(run_opaque) = self.calls.run_opaque else {
            return Err(self.unsupported("run_opaque"));
        };
        let stage_self = self.calls.stage_self;
        // SAFETY: the producer's function with its own pointer, on the thread that drives the set.
        let code = self.call(|| unsafe { run_opaque(stage_self, executor_ref) })?;
        if code == 0 {
            return Ok(());
        }
        self.check(&format!("opaque stage {executor_ref}"), code)
    }

    fn step(&mut self) -> Result<(), Error> {
        let Some(step) = self.calls.verbs.step else {
            return Err(self.unsupported("step"));
        };
        let self_ = self.calls.self_;
        // SAFETY: the producer's function with its own pointer, on the thread that drives the set.
        let code = self.call(|| unsafe { step(self_) })?;
        self.check("step", code)
    }

    fn last_error(&self) -> &str {
        &self.last
    }
}
