//! Builds a [`Declaration`] under the construction rules of the model runtime.

use crate::{
    BufferDecl, Declaration, Direction, Error, ExecutorKind, GenericStageDecl, GraphDecl, Layout,
    Modality, NameBytes, PortDType, PortDecl, RegionDecl, RegionFlags, Role, ShapeKey, StageDecl,
    StateClass, StreamDecl, StreamId, Update,
};

const GENERIC: &str = "generic stage";

/// Which verbs a producer really supplies; decides what it may declare.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VerbTable {
    /// `set_input` is there.
    pub set_input: bool,
    /// `get_output` is there.
    pub get_output: bool,
    /// `step` is there.
    pub step: bool,
    /// `last_error` is there.
    pub last_error: bool,
}

/// Collects declarations, in any order of kinds, and checks each as it comes.
///
/// Handles are opaque non-zero numbers; 0 stands for "null". Names may repeat: the rules here are those of the binary
/// interface, [`crate::LiveSetBuilder`] is stricter. A failed `add_*` changes nothing. A failed `finish*` leaves the
/// builder usable; a successful one uses it up.
///
/// `N` holds the names: `String`, or `CString` behind the binary interface, where a name need not be UTF-8.
#[derive(Debug)]
pub struct DeclarationBuilder<N = String> {
    decl: Declaration<N>,
    is_metadata: bool,
    has_runner: bool,
    is_consumed: bool,
}

impl DeclarationBuilder {
    /// A builder for a provider with streams, graphs and buffers.
    pub fn new() -> DeclarationBuilder {
        DeclarationBuilder::default()
    }

    /// A builder for a provider that owns none: it takes identity pairs, a manifest, unbound STAGED and SETUP ports and
    /// opaque stages only.
    pub fn metadata() -> DeclarationBuilder {
        DeclarationBuilder::named_as(true)
    }
}

impl<N> Default for DeclarationBuilder<N> {
    fn default() -> DeclarationBuilder<N> {
        DeclarationBuilder::named_as(false)
    }
}

impl<N> DeclarationBuilder<N> {
    /// A builder whose names are held as `N`; see [`DeclarationBuilder::metadata`] for `is_metadata`.
    pub fn named_as(is_metadata: bool) -> DeclarationBuilder<N> {
        DeclarationBuilder {
            decl: Declaration::default(),
            is_metadata,
            has_runner: false,
            is_consumed: false,
        }
    }
}

impl<N: NameBytes> DeclarationBuilder<N> {
    /// What has been declared so far.
    pub fn declared(&self) -> &Declaration<N> {
        &self.decl
    }

    fn usable(&self) -> Result<(), Error> {
        if self.is_consumed {
            return Err(Error::BuilderConsumed);
        }
        Ok(())
    }

    fn not_metadata(&self, what: &'static str, name: &[u8]) -> Result<(), Error> {
        if self.is_metadata {
            return refuse(what, name, "a metadata builder takes no such declaration");
        }
        Ok(())
    }

    /// Declares a stream. Refused when `stream_id` is negative.
    pub fn add_stream(
        &mut self,
        name: impl Into<N>,
        stream_id: i32,
        priority: i32,
    ) -> Result<(), Error> {
        self.usable()?;
        let name = name.into();
        if stream_id < 0 {
            let reason = format!("stream id {stream_id} is negative");
            return refuse("stream", name.name_bytes(), reason);
        }
        self.not_metadata("stream", name.name_bytes())?;
        self.decl.streams.push(StreamDecl {
            name,
            stream_id: StreamId(stream_id),
            priority,
        });
        Ok(())
    }

    /// Declares a graph. The stream may be undeclared and the default key need not be among `keys`.
    pub fn add_graph(
        &mut self,
        name: impl Into<N>,
        handle: u64,
        default_key: ShapeKey,
        keys: &[ShapeKey],
        stream_id: i32,
    ) -> Result<(), Error> {
        self.usable()?;
        let name = name.into();
        not_null("graph", name.name_bytes(), handle)?;
        self.not_metadata("graph", name.name_bytes())?;
        self.decl.graphs.push(GraphDecl {
            name,
            handle,
            default_key,
            keys: keys.to_vec(),
            stream_id,
        });
        Ok(())
    }

    /// Declares a buffer.
    pub fn add_buffer(
        &mut self,
        name: impl Into<N>,
        handle: u64,
        bytes: u64,
        role: Role,
    ) -> Result<(), Error> {
        self.usable()?;
        let name = name.into();
        not_null("buffer", name.name_bytes(), handle)?;
        self.not_metadata("buffer", name.name_bytes())?;
        self.decl.buffers.push(BufferDecl {
            name,
            handle,
            bytes,
            role,
        });
        Ok(())
    }

    /// Declares a region. The buffer need not be declared and the window is not checked against it.
    pub fn add_region(
        &mut self,
        name: impl Into<N>,
        buffer: u64,
        offset: u64,
        bytes: u64,
        flags: RegionFlags,
    ) -> Result<(), Error> {
        self.usable()?;
        let name = name.into();
        not_null("region", name.name_bytes(), buffer)?;
        if bytes == 0 {
            return refuse("region", name.name_bytes(), "0 bytes");
        }
        self.not_metadata("region", name.name_bytes())?;
        self.decl.regions.push(RegionDecl {
            name,
            buffer,
            offset,
            bytes,
            flags,
            class: StateClass::Continuation,
        });
        Ok(())
    }

    /// Adds an identity pair. Nothing is escaped.
    pub fn add_identity(&mut self, key: impl Into<N>, value: impl Into<N>) -> Result<(), Error> {
        self.usable()?;
        self.decl.pairs.push((key.into(), value.into()));
        Ok(())
    }

    /// Sets the manifest; the last call wins.
    pub fn set_manifest(&mut self, json: impl Into<N>) -> Result<(), Error> {
        self.usable()?;
        self.decl.manifest = Some(json.into());
        Ok(())
    }

    /// Declares a port. Refused: an empty name; in a metadata builder a SWAP port or a window.
    pub fn add_port(&mut self, port: PortDecl<N>) -> Result<(), Error> {
        self.usable()?;
        let name = port.name.name_bytes();
        if name.is_empty() {
            return refuse("port", name, "its name is empty");
        }
        if self.is_metadata {
            if port.update == Update::Swap {
                return refuse("port", name, "a metadata builder takes no SWAP port");
            }
            if port.buffer != 0 || port.offset != 0 || port.bytes != 0 {
                let reason = "a metadata builder takes no port with a window";
                return refuse("port", name, reason);
            }
        }
        self.decl.ports.push(port);
        Ok(())
    }

    /// The checks of [`DeclarationBuilder::add_stage`] that come before a look at the dependencies.
    pub fn check_stage(&self) -> Result<(), Error> {
        self.usable()?;
        let name = self.decl.stages.len().to_string();
        self.not_metadata("stage", name.as_bytes())?;
        if self.has_generic_plan() {
            return refuse("stage", name.as_bytes(), "a generic plan is present");
        }
        Ok(())
    }

    /// Declares a stage that replays graph `graph` after the earlier stages `after`.
    pub fn add_stage(&mut self, graph: u32, after: &[u32]) -> Result<(), Error> {
        self.check_stage()?;
        let own = self.decl.stages.len();
        check_graph_stage(own, graph, self.decl.graphs.len() as u64, after)?;
        self.decl.stages.push(StageDecl {
            graph,
            after: after.to_vec(),
        });
        Ok(())
    }

    /// The checks of [`DeclarationBuilder::add_generic_stage`] that come before a look at kind and dependencies.
    pub fn check_generic_stage(&self, name: &[u8]) -> Result<(), Error> {
        self.usable()?;
        if !self.decl.stages.is_empty() {
            return refuse(GENERIC, name, "graph stages are present");
        }
        check_stage_name(name)
    }

    /// Declares a stage of a generic plan.
    pub fn add_generic_stage(
        &mut self,
        name: impl Into<N>,
        kind: ExecutorKind,
        executor_ref: u32,
        after: &[u32],
    ) -> Result<(), Error> {
        let stored = name.into();
        let name = stored.name_bytes();
        self.check_generic_stage(name)?;
        if kind == ExecutorKind::Graph {
            self.not_metadata(GENERIC, name)?;
            check_graph_index(GENERIC, name, executor_ref, self.decl.graphs.len() as u64)?;
        }
        let stages = &self.decl.generic_stages;
        if stages.iter().any(|s| s.name.name_bytes() == name) {
            return refuse(GENERIC, name, "the name is taken");
        }
        check_generic_after(name, stages.len(), after)?;
        self.decl.generic_stages.push(GenericStageDecl {
            name: stored,
            executor_kind: kind,
            executor_ref,
            after: after.to_vec(),
        });
        Ok(())
    }

    /// Says that the producer has a runner for opaque stages. Marks a generic plan as present, even without stages.
    pub fn set_generic_stage_runner(&mut self) -> Result<(), Error> {
        self.usable()?;
        if !self.decl.stages.is_empty() {
            return refuse(GENERIC, b"runner", "graph stages are present");
        }
        if self.has_runner {
            return refuse(GENERIC, b"runner", "it was set already");
        }
        self.has_runner = true;
        Ok(())
    }

    fn has_generic_plan(&self) -> bool {
        self.has_runner || !self.decl.generic_stages.is_empty()
    }

    /// Ends a plain export (no ports, no stages).
    ///
    /// With ports or stages it is refused and the builder stays usable for [`DeclarationBuilder::finish_model`].
    /// A metadata builder is refused too and used up.
    pub fn finish(&mut self) -> Result<Declaration<N>, Error> {
        self.usable()?;
        if self.is_metadata {
            self.is_consumed = true;
            self.decl = Declaration::default();
            return refuse("export", b"", "a metadata builder has no export to finish");
        }
        if !self.decl.ports.is_empty() || !self.decl.stages.is_empty() || self.has_generic_plan() {
            return refuse(
                "export",
                b"",
                "ports or stages are declared: finish it as a model",
            );
        }
        Ok(self.take())
    }

    /// Ends a model whose producer supplies `verbs`.
    ///
    /// Checked in this order: STAGED ports have their verb; one plan, not two; a generic plan is whole; there is a plan or
    /// a `step`. On failure the builder stays usable.
    pub fn finish_model(&mut self, verbs: VerbTable) -> Result<Declaration<N>, Error> {
        self.usable()?;
        for p in &self.decl.ports {
            check_staged(p.name.name_bytes(), p.direction, p.update, verbs)?;
        }
        if !self.decl.stages.is_empty() && self.has_generic_plan() {
            return refuse("model", b"", "both graph stages and a generic plan");
        }
        if self.has_generic_plan() {
            let stages = &self.decl.generic_stages;
            if stages.is_empty() {
                return refuse("generic plan", b"", "it has 0 stages");
            }
            if stages
                .iter()
                .all(|s| s.executor_kind != ExecutorKind::Opaque)
            {
                return refuse("generic plan", b"", "it has no OPAQUE stage");
            }
            if !self.has_runner {
                return refuse("generic plan", b"", "it has no runner");
            }
            if !verbs.last_error {
                return refuse("generic plan", b"", "there is no last_error");
            }
        } else if self.decl.stages.is_empty() && !verbs.step {
            return refuse("model", b"", "neither a stage nor a step verb");
        }
        Ok(self.take())
    }

    fn take(&mut self) -> Declaration<N> {
        self.is_consumed = true;
        std::mem::take(&mut self.decl)
    }
}

impl PortDecl {
    /// An unbound port; set the window fields afterwards where there is one.
    pub fn new(
        name: &str,
        modality: Modality,
        dtype: PortDType,
        layout: Layout,
        direction: Direction,
        update: Update,
        shape: &[i64],
    ) -> PortDecl {
        PortDecl {
            name: name.to_owned(),
            modality,
            dtype,
            layout,
            direction,
            update,
            required: 0,
            shape: shape.to_vec(),
            cadence_hint_hz: 0,
            buffer: 0,
            offset: 0,
            bytes: 0,
        }
    }
}

/// A STAGED port needs the verb of its direction.
pub fn check_staged(
    port: &[u8],
    direction: Direction,
    update: Update,
    verbs: VerbTable,
) -> Result<(), Error> {
    let (has, verb) = match direction {
        Direction::In => (verbs.set_input, "set_input"),
        Direction::Out => (verbs.get_output, "get_output"),
    };
    if update == Update::Staged && !has {
        let reason = format!("it is STAGED, but there is no {verb}");
        return refuse("port", port, reason);
    }
    Ok(())
}

/// The rule for names of generic stages: 1 to 255 bytes of well-formed UTF-8 without ASCII control characters.
pub fn check_stage_name(name: &[u8]) -> Result<(), Error> {
    if name.is_empty() || name.len() > 255 {
        let reason = format!("a name of {} bytes where 1 to 255 are allowed", name.len());
        return refuse(GENERIC, name, reason);
    }
    if let Err(e) = std::str::from_utf8(name) {
        let reason = format!("the name is not UTF-8 from byte {} on", e.valid_up_to());
        return refuse(GENERIC, name, reason);
    }
    if let Some(i) = name.iter().position(|b| *b < 0x20 || *b == 0x7f) {
        let reason = format!("control character {:#04x} at byte {i} of the name", name[i]);
        return refuse(GENERIC, name, reason);
    }
    Ok(())
}

/// The rule for dependencies of generic stage `own`: strictly increasing, each on an earlier stage.
pub fn check_generic_after(name: &[u8], own: usize, after: &[u32]) -> Result<(), Error> {
    for (i, dep) in after.iter().enumerate() {
        if *dep as usize >= own {
            let reason = format!("it depends on stage {dep}, which is not earlier");
            return refuse(GENERIC, name, reason);
        }
        if i > 0 && after[i - 1] >= *dep {
            let before = after[i - 1];
            let reason = format!("dependencies {before} then {dep} are not strictly increasing");
            return refuse(GENERIC, name, reason);
        }
    }
    Ok(())
}

/// The rule for a stage that replays a graph: the graph exists, and every dependency is on an earlier stage.
pub fn check_graph_stage(own: usize, graph: u32, graphs: u64, after: &[u32]) -> Result<(), Error> {
    let name = own.to_string();
    check_graph_index("stage", name.as_bytes(), graph, graphs)?;
    check_earlier(own, after)
}

/// The rule for dependencies of stage `own`: each is on an earlier stage.
pub fn check_earlier(own: usize, after: &[u32]) -> Result<(), Error> {
    match after.iter().find(|d| **d as usize >= own) {
        None => Ok(()),
        Some(dep) => refuse(
            "stage",
            own.to_string().as_bytes(),
            format!("it depends on stage {dep}, which is not earlier"),
        ),
    }
}

/// The rule for a reference to a graph of the export.
pub fn check_graph_index(
    what: &'static str,
    name: &[u8],
    graph: u32,
    graphs: u64,
) -> Result<(), Error> {
    if u64::from(graph) >= graphs {
        let reason = format!("graph {graph} of {graphs} does not exist");
        return refuse(what, name, reason);
    }
    Ok(())
}

fn refuse<T>(what: &'static str, name: &[u8], reason: impl Into<String>) -> Result<T, Error> {
    Err(Error::Declaration {
        what,
        name: String::from_utf8_lossy(name).into_owned(),
        reason: reason.into(),
    })
}

fn not_null(what: &'static str, name: &[u8], handle: u64) -> Result<(), Error> {
    if handle == 0 {
        return refuse(what, name, "its handle is null");
    }
    Ok(())
}
