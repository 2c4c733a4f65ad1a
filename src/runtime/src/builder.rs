//! Builds a [`Declaration`] under the construction rules of the model runtime.

use crate::{
    BufferDecl, Declaration, Direction, Error, ExecutorKind, GenericStageDecl, GraphDecl, Layout,
    Modality, PortDType, PortDecl, RegionDecl, RegionFlags, Role, ShapeKey, StageDecl, StateClass,
    StreamDecl, StreamId, Update,
};

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
#[derive(Debug, Default)]
pub struct DeclarationBuilder {
    decl: Declaration,
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
        DeclarationBuilder {
            is_metadata: true,
            ..DeclarationBuilder::default()
        }
    }

    /// What has been declared so far.
    pub fn declared(&self) -> &Declaration {
        &self.decl
    }

    fn usable(&self) -> Result<(), Error> {
        if self.is_consumed {
            return Err(Error::BuilderConsumed);
        }
        Ok(())
    }

    fn not_metadata(&self, what: &'static str, name: &str) -> Result<(), Error> {
        if self.is_metadata {
            return refuse(what, name, "a metadata builder takes no such declaration");
        }
        Ok(())
    }

    /// Declares a stream. Refused when `stream_id` is negative.
    pub fn add_stream(&mut self, name: &str, stream_id: i32, priority: i32) -> Result<(), Error> {
        self.usable()?;
        if stream_id < 0 {
            return refuse("stream", name, format!("stream id {stream_id} is negative"));
        }
        self.not_metadata("stream", name)?;
        self.decl.streams.push(StreamDecl {
            name: name.to_owned(),
            stream_id: StreamId(stream_id),
            priority,
        });
        Ok(())
    }

    /// Declares a graph. The stream may be undeclared and the default key need not be among `keys`.
    pub fn add_graph(
        &mut self,
        name: &str,
        handle: u64,
        default_key: ShapeKey,
        keys: &[ShapeKey],
        stream_id: i32,
    ) -> Result<(), Error> {
        self.usable()?;
        not_null("graph", name, handle)?;
        self.not_metadata("graph", name)?;
        self.decl.graphs.push(GraphDecl {
            name: name.to_owned(),
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
        name: &str,
        handle: u64,
        bytes: u64,
        role: Role,
    ) -> Result<(), Error> {
        self.usable()?;
        not_null("buffer", name, handle)?;
        self.not_metadata("buffer", name)?;
        self.decl.buffers.push(BufferDecl {
            name: name.to_owned(),
            handle,
            bytes,
            role,
        });
        Ok(())
    }

    /// Declares a region. The buffer need not be declared and the window is not checked against it.
    pub fn add_region(
        &mut self,
        name: &str,
        buffer: u64,
        offset: u64,
        bytes: u64,
        flags: RegionFlags,
    ) -> Result<(), Error> {
        self.usable()?;
        not_null("region", name, buffer)?;
        if bytes == 0 {
            return refuse("region", name, "0 bytes");
        }
        self.not_metadata("region", name)?;
        self.decl.regions.push(RegionDecl {
            name: name.to_owned(),
            buffer,
            offset,
            bytes,
            flags,
            class: StateClass::Continuation,
        });
        Ok(())
    }

    /// Adds an identity pair. Nothing is escaped.
    pub fn add_identity(&mut self, key: &str, value: &str) -> Result<(), Error> {
        self.usable()?;
        self.decl.pairs.push((key.to_owned(), value.to_owned()));
        Ok(())
    }

    /// Sets the manifest; the last call wins.
    pub fn set_manifest(&mut self, json: &str) -> Result<(), Error> {
        self.usable()?;
        self.decl.manifest = Some(json.to_owned());
        Ok(())
    }

    /// Declares a port. Refused: an empty name; in a metadata builder a SWAP port or a window.
    pub fn add_port(&mut self, port: PortDecl) -> Result<(), Error> {
        self.usable()?;
        if port.name.is_empty() {
            return refuse("port", "", "its name is empty");
        }
        if self.is_metadata {
            if port.update == Update::Swap {
                return refuse("port", &port.name, "a metadata builder takes no SWAP port");
            }
            if port.buffer != 0 || port.offset != 0 || port.bytes != 0 {
                return refuse(
                    "port",
                    &port.name,
                    "a metadata builder takes no port with a window",
                );
            }
        }
        self.decl.ports.push(port);
        Ok(())
    }

    /// Declares a stage that replays graph `graph` after the earlier stages `after`.
    pub fn add_stage(&mut self, graph: u32, after: &[u32]) -> Result<(), Error> {
        self.usable()?;
        let name = self.decl.stages.len().to_string();
        self.not_metadata("stage", &name)?;
        if self.has_generic_plan() {
            return refuse("stage", &name, "a generic plan is present");
        }
        if graph as usize >= self.decl.graphs.len() {
            return refuse(
                "stage",
                &name,
                format!("graph {graph} of {} does not exist", self.decl.graphs.len()),
            );
        }
        if let Some(dep) = after
            .iter()
            .find(|d| **d as usize >= self.decl.stages.len())
        {
            return refuse(
                "stage",
                &name,
                format!("it depends on stage {dep}, which is not earlier"),
            );
        }
        self.decl.stages.push(StageDecl {
            graph,
            after: after.to_vec(),
        });
        Ok(())
    }

    /// Declares a stage of a generic plan.
    pub fn add_generic_stage(
        &mut self,
        name: &str,
        kind: ExecutorKind,
        executor_ref: u32,
        after: &[u32],
    ) -> Result<(), Error> {
        self.usable()?;
        const WHAT: &str = "generic stage";
        if !self.decl.stages.is_empty() {
            return refuse(WHAT, name, "graph stages are present");
        }
        if name.is_empty() || name.len() > 255 {
            return refuse(
                WHAT,
                name,
                format!("a name of {} bytes where 1 to 255 are allowed", name.len()),
            );
        }
        if name.bytes().any(|b| b < 0x20 || b == 0x7f) {
            return refuse(WHAT, name, "a control character in the name");
        }
        if kind == ExecutorKind::Graph {
            self.not_metadata(WHAT, name)?;
            if executor_ref as usize >= self.decl.graphs.len() {
                return refuse(
                    WHAT,
                    name,
                    format!(
                        "graph {executor_ref} of {} does not exist",
                        self.decl.graphs.len()
                    ),
                );
            }
        }
        if self.decl.generic_stages.iter().any(|s| s.name == name) {
            return refuse(WHAT, name, "the name is taken");
        }
        let own = self.decl.generic_stages.len();
        for (i, dep) in after.iter().enumerate() {
            if *dep as usize >= own {
                return refuse(
                    WHAT,
                    name,
                    format!("it depends on stage {dep}, which is not earlier"),
                );
            }
            if i > 0 && after[i - 1] >= *dep {
                return refuse(
                    WHAT,
                    name,
                    format!(
                        "dependencies {} then {dep} are not strictly increasing",
                        after[i - 1]
                    ),
                );
            }
        }
        self.decl.generic_stages.push(GenericStageDecl {
            name: name.to_owned(),
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
            return refuse("generic stage", "runner", "graph stages are present");
        }
        if self.has_runner {
            return refuse("generic stage", "runner", "it was set already");
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
    pub fn finish(&mut self) -> Result<Declaration, Error> {
        self.usable()?;
        if self.is_metadata {
            self.is_consumed = true;
            self.decl = Declaration::default();
            return refuse("export", "", "a metadata builder has no export to finish");
        }
        if !self.decl.ports.is_empty() || !self.decl.stages.is_empty() || self.has_generic_plan() {
            return refuse(
                "export",
                "",
                "ports or stages are declared: finish it as a model",
            );
        }
        Ok(self.take())
    }

    /// Ends a model whose producer supplies `verbs`.
    ///
    /// Checked in this order: STAGED ports have their verb; one plan, not two; a generic plan is whole; there is a plan or
    /// a `step`. On failure the builder stays usable.
    pub fn finish_model(&mut self, verbs: VerbTable) -> Result<Declaration, Error> {
        self.usable()?;
        for p in self
            .decl
            .ports
            .iter()
            .filter(|p| p.update == Update::Staged)
        {
            let (has, verb) = match p.direction {
                Direction::In => (verbs.set_input, "set_input"),
                Direction::Out => (verbs.get_output, "get_output"),
            };
            if !has {
                return refuse(
                    "port",
                    &p.name,
                    format!("it is STAGED, but there is no {verb}"),
                );
            }
        }
        if !self.decl.stages.is_empty() && self.has_generic_plan() {
            return refuse("model", "", "both graph stages and a generic plan");
        }
        if self.has_generic_plan() {
            let stages = &self.decl.generic_stages;
            if stages.is_empty() {
                return refuse("generic plan", "", "it has 0 stages");
            }
            if stages
                .iter()
                .all(|s| s.executor_kind != ExecutorKind::Opaque)
            {
                return refuse("generic plan", "", "it has no OPAQUE stage");
            }
            if !self.has_runner {
                return refuse("generic plan", "", "it has no runner");
            }
            if !verbs.last_error {
                return refuse("generic plan", "", "there is no last_error");
            }
        } else if self.decl.stages.is_empty() && !verbs.step {
            return refuse("model", "", "neither a stage nor a step verb");
        }
        Ok(self.take())
    }

    fn take(&mut self) -> Declaration {
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

fn refuse<T>(what: &'static str, name: &str, reason: impl Into<String>) -> Result<T, Error> {
    Err(Error::Declaration {
        what,
        name: name.to_owned(),
        reason: reason.into(),
    })
}

fn not_null(what: &'static str, name: &str, handle: u64) -> Result<(), Error> {
    if handle == 0 {
        return refuse(what, name, "its handle is null");
    }
    Ok(())
}
