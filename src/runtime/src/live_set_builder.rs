//! Builds a [`LiveSet`]: allocation, declaration, capture, all before the set is hot.

use flashrt_exec::{Buffer, Context, Event, Graph, ShapeKey, Slice, Space, StreamId};

use crate::live_set::{
    Assembly, GraphEntry, LiveSet, PlanEntry, PlanInfo, Region, StageEntry, StageExecutor,
    StageInfo,
};
use crate::names::check_name;
use crate::{
    DeclarationBuilder, Direction, Error, ExecutorKind, HostState, Layout, Modality, PlanId,
    PortDType, PortDecl, PortId, RegionFlags, Role, SetParts, StageId, StateClass, Update,
    VerbTable, Verbs, HOST_STATE_BYTES, HOST_STATE_LAYOUT, HOST_STATE_NAME,
};

/// A port to declare.
#[derive(Clone)]
pub struct PortSpec {
    /// Everything but the window.
    pub decl: PortDecl,
    /// The window that SWAP bytes go to, or that a STAGED transform fills.
    pub window: Option<Slice>,
}

impl PortSpec {
    /// A port without a window, not required. `shape` has -1 for a variable dimension.
    pub fn new(
        name: &str,
        modality: Modality,
        dtype: PortDType,
        layout: Layout,
        direction: Direction,
        update: Update,
        shape: &[i64],
    ) -> PortSpec {
        PortSpec {
            decl: PortDecl::new(name, modality, dtype, layout, direction, update, shape),
            window: None,
        }
    }

    /// A tick needs it.
    pub fn required(mut self) -> PortSpec {
        self.decl.required = 1;
        self
    }

    /// Gives it a window.
    pub fn window(mut self, window: Slice) -> PortSpec {
        self.window = Some(window);
        self
    }

    /// Declares the payload size of a port without a window.
    pub fn payload_bytes(mut self, bytes: u64) -> PortSpec {
        self.decl.bytes = bytes;
        self
    }

    /// Declares the expected rate.
    pub fn cadence_hz(mut self, hz: u32) -> PortSpec {
        self.decl.cadence_hint_hz = hz;
        self
    }
}

/// Which variant a stage replays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StageKey {
    /// The key given to [`LiveSet::run`]; the graph's default key when that is `KEY_INHERIT`.
    Inherit,
    /// Always this one.
    Fixed(ShapeKey),
}

/// A stage of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageSpec {
    /// Name; of a stage that replays a graph the graph's.
    pub name: String,
    /// Who executes it.
    pub executor: StageExecutor,
    /// Which variant. Without a meaning for stages that replay no graph.
    pub key: StageKey,
    /// Earlier stages of the same plan that must be complete before, by index.
    pub after: Vec<usize>,
}

impl StageSpec {
    fn with(name: &str, executor: StageExecutor) -> StageSpec {
        StageSpec {
            name: name.to_owned(),
            executor,
            key: StageKey::Inherit,
            after: Vec::new(),
        }
    }

    /// A stage that replays `graph` with the run's key and waits for nothing.
    pub fn new(graph: &str) -> StageSpec {
        let executor = StageExecutor::Graph {
            name: graph.to_owned(),
        };
        StageSpec::with(graph, executor)
    }

    /// A stage that [`Verbs::run_opaque`] executes with this number.
    pub fn opaque(name: &str, executor_ref: u32) -> StageSpec {
        StageSpec::with(name, StageExecutor::Opaque { executor_ref })
    }

    /// The only stage of a plan that [`Verbs::step`] executes.
    pub fn step() -> StageSpec {
        StageSpec::with("step", StageExecutor::Step)
    }

    /// Always replay this variant.
    pub fn key(mut self, key: ShapeKey) -> StageSpec {
        self.key = StageKey::Fixed(key);
        self
    }

    /// Wait for these earlier stages of the plan.
    pub fn after(mut self, stages: &[usize]) -> StageSpec {
        self.after = stages.to_vec();
        self
    }

    /// Its text in the identity. Names have no `:`, so that no two plans print the same.
    fn text(&self) -> String {
        let after: Vec<String> = self.after.iter().map(usize::to_string).collect();
        let after = after.join(",");
        match (&self.executor, self.key) {
            (StageExecutor::Graph { name }, StageKey::Inherit) => format!("{name}:{after}"),
            (StageExecutor::Graph { name }, StageKey::Fixed(k)) => format!("{name}@{k}:{after}"),
            (StageExecutor::Opaque { executor_ref }, _) => {
                format!(":opaque:{executor_ref}:{}:{after}", self.name)
            }
            (StageExecutor::Step, _) => ":step".to_owned(),
        }
    }
}

/// Collects the parts of a live set. Everything mutable that the set's graphs or verbs touch is allocated through
/// [`LiveSetBuilder::buffer`], so that the set's buffers are all of its arenas.
pub struct LiveSetBuilder {
    ctx: Context,
    name: String,
    pairs: Vec<(String, String)>,
    streams: Vec<(String, StreamId, i32)>,
    buffers: Vec<(Buffer, Role)>,
    regions: Vec<Region>,
    graphs: Vec<GraphEntry>,
    ports: Vec<PortSpec>,
    plans: Vec<(String, Vec<StageSpec>)>,
    default_plan: usize,
    manifest: Option<String>,
    host_state: HostState,
}

impl LiveSetBuilder {
    /// Starts a set called `name` on `ctx`. The stream `main` (id 0) and the host state block exist from the start.
    pub fn new(ctx: &Context, name: &str) -> Result<LiveSetBuilder, Error> {
        check_name("live set", name)?;
        let block = ctx
            .alloc(HOST_STATE_NAME, Space::Host, HOST_STATE_BYTES)
            .map_err(|e| {
                Error::exec(
                    format!("allocate '{HOST_STATE_NAME}' of live set '{name}'"),
                    e,
                )
            })?;
        let host_state = HostState::new(block.clone())?;
        Ok(LiveSetBuilder {
            ctx: ctx.clone(),
            name: name.to_owned(),
            pairs: Vec::new(),
            streams: vec![("main".to_owned(), StreamId(0), 0)],
            buffers: vec![(block, Role::STATE)],
            regions: Vec::new(),
            graphs: Vec::new(),
            ports: Vec::new(),
            plans: Vec::new(),
            default_plan: 0,
            manifest: None,
            host_state,
        })
    }

    /// The context.
    pub fn context(&self) -> &Context {
        &self.ctx
    }

    /// The host state block.
    pub fn host_state(&self) -> &HostState {
        &self.host_state
    }

    /// What the verbs may touch: the context and everything allocated so far.
    pub fn parts(&self) -> SetParts {
        SetParts {
            ctx: self.ctx.clone(),
            buffers: self.buffers.iter().map(|(b, _)| b.clone()).collect(),
            graphs: self.graphs.iter().map(|g| g.graph.clone()).collect(),
        }
    }

    /// Adds an identity pair. A key has no `=`, and neither part has a line end.
    pub fn identity(&mut self, key: &str, value: &str) -> Result<(), Error> {
        let reason = if key.is_empty() {
            "is empty"
        } else if key.contains('=') || key.contains('\n') {
            "has '=' or a line end"
        } else if value.contains('\n') {
            "has a value with a line end"
        } else if self.pairs.iter().any(|(k, _)| k == key) {
            return Err(Error::Duplicate {
                kind: "identity key",
                name: key.to_owned(),
            });
        } else {
            self.pairs.push((key.to_owned(), value.to_owned()));
            return Ok(());
        };
        Err(Error::BadName {
            kind: "identity key",
            name: key.to_owned(),
            reason,
        })
    }

    /// Sets the manifest text.
    pub fn manifest(&mut self, json: &str) {
        self.manifest = Some(json.to_owned());
    }

    /// Creates and declares a stream; more negative is more urgent.
    pub fn stream(&mut self, name: &str, priority: i32) -> Result<StreamId, Error> {
        check_name("stream", name)?;
        unique("stream", name, self.streams.iter().map(|s| s.0.as_str()))?;
        let id = self
            .ctx
            .stream(priority)
            .map_err(|e| Error::exec(format!("create stream '{name}'"), e))?;
        self.streams.push((name.to_owned(), id, priority));
        Ok(id)
    }

    /// Allocates and declares a zeroed buffer of the set.
    pub fn buffer(
        &mut self,
        name: &str,
        space: Space,
        bytes: usize,
        role: Role,
    ) -> Result<Buffer, Error> {
        check_name("buffer", name)?;
        unique("buffer", name, self.buffers.iter().map(|b| b.0.name()))?;
        let buffer = self
            .ctx
            .alloc(name, space, bytes)
            .map_err(|e| Error::exec(format!("allocate buffer '{name}' of {bytes} bytes"), e))?;
        self.buffers.push((buffer.clone(), role));
        Ok(buffer)
    }

    /// Declares a window of a buffer of this set as state of a class. Windows of saved regions do not overlap.
    pub fn region(
        &mut self,
        name: &str,
        buffer: &Buffer,
        offset: usize,
        bytes: usize,
        class: StateClass,
    ) -> Result<(), Error> {
        check_name("region", name)?;
        if name == HOST_STATE_NAME {
            return Err(Error::Duplicate {
                kind: "region",
                name: name.to_owned(),
            });
        }
        unique("region", name, self.regions.iter().map(|r| r.name.as_str()))?;
        self.own(buffer)?;
        let slice = window("region", name, buffer, offset, bytes)?;
        for other in self
            .regions
            .iter()
            .filter(|r| r.slice.buffer().id() == buffer.id())
        {
            let (a, b) = (
                other.slice.offset(),
                other.slice.offset() + other.slice.bytes(),
            );
            if offset < b && a < offset + bytes {
                return Err(Error::Declaration {
                    what: "region",
                    name: name.to_owned(),
                    reason: format!(
                        "bytes {offset}..{} overlap region '{}' at {a}..{b}",
                        offset + bytes,
                        other.name
                    ),
                });
            }
        }
        self.regions.push(Region::new(name, class, slice));
        Ok(())
    }

    /// Declares a whole buffer of this set as one region with the buffer's name.
    pub fn region_all(&mut self, buffer: &Buffer, class: StateClass) -> Result<(), Error> {
        self.region(buffer.name(), buffer, 0, buffer.bytes(), class)
    }

    /// Creates and declares a graph that is replayed on `stream`. The caller captures every key of `keys` before
    /// [`LiveSetBuilder::finish`]; `max_variants` 0 is unlimited.
    pub fn graph(
        &mut self,
        name: &str,
        max_variants: usize,
        default_key: ShapeKey,
        keys: &[ShapeKey],
        stream: StreamId,
    ) -> Result<Graph, Error> {
        check_name("graph", name)?;
        unique("graph", name, self.graphs.iter().map(|g| g.graph.name()))?;
        let refuse = |reason: String| {
            Err(Error::Declaration {
                what: "graph",
                name: name.to_owned(),
                reason,
            })
        };
        if !keys.contains(&default_key) {
            return refuse(format!(
                "default key {default_key} is not among its keys {keys:?}"
            ));
        }
        if max_variants != 0 && keys.len() > max_variants {
            return refuse(format!(
                "{} keys do not fit {max_variants} variants",
                keys.len()
            ));
        }
        if !self.streams.iter().any(|s| s.1 == stream) {
            return refuse(format!("stream {} is not one of this set", stream.0));
        }
        let graph = self
            .ctx
            .graph(name, max_variants)
            .map_err(|e| Error::exec(format!("create graph '{name}'"), e))?;
        self.graphs.push(GraphEntry {
            graph: graph.clone(),
            default_key,
            keys: keys.to_vec(),
            stream,
        });
        Ok(graph)
    }

    /// Declares a port.
    pub fn port(&mut self, mut spec: PortSpec) -> Result<PortId, Error> {
        let d = &mut spec.decl;
        check_name("port", &d.name)?;
        unique(
            "port",
            &d.name,
            self.ports.iter().map(|p| p.decl.name.as_str()),
        )?;
        let refuse = |name: &str, reason: String| {
            Err(Error::Declaration {
                what: "port",
                name: name.to_owned(),
                reason,
            })
        };
        if d.dtype.bytes() == 0 {
            return refuse(&d.name, format!("unknown element type {}", d.dtype));
        }
        if let Some(bad) = d.shape.iter().find(|n| **n < -1 || **n == 0) {
            return refuse(&d.name, format!("dimension {bad} in its shape"));
        }
        if let Some(w) = &spec.window {
            if !self.buffers.iter().any(|(b, _)| b.id() == w.buffer().id()) {
                return refuse(
                    &d.name,
                    format!("its buffer '{}' is not one of this set", w.buffer().name()),
                );
            }
            d.buffer = w.buffer().id();
            d.offset = w.offset() as u64;
            d.bytes = w.bytes() as u64;
        }
        if d.update == Update::Swap {
            match (&spec.window, d.payload_bytes()) {
                (None, _) => return refuse(&d.name, "it is SWAP, but has no window".to_owned()),
                (Some(w), Some(need)) if need != w.bytes() as u64 => {
                    let text =
                        format!("its shape needs {need} bytes, its window has {}", w.bytes());
                    return refuse(&d.name, text);
                }
                _ => {}
            }
        }
        self.ports.push(spec);
        Ok(PortId(self.ports.len() - 1))
    }

    /// Registers a named plan. The first one is the declared one, unless [`LiveSetBuilder::default_plan`] picks another.
    pub fn plan(&mut self, name: &str, stages: &[StageSpec]) -> Result<PlanId, Error> {
        check_name("plan", name)?;
        unique("plan", name, self.plans.iter().map(|p| p.0.as_str()))?;
        let refuse = |reason: String| {
            Err(Error::Declaration {
                what: "plan",
                name: name.to_owned(),
                reason,
            })
        };
        if stages.is_empty() {
            return refuse("it has 0 stages".to_owned());
        }
        let is_step = |s: &StageSpec| s.executor == StageExecutor::Step;
        if stages.len() > 1 && stages.iter().any(is_step) {
            return refuse(format!(
                "a step is the whole model, but it stands among {} stages",
                stages.len()
            ));
        }
        for (i, s) in stages.iter().enumerate() {
            check_name("stage", &s.name)?;
            if let StageExecutor::Graph { name } = &s.executor {
                let Some(g) = self.graphs.iter().find(|g| g.graph.name() == name) else {
                    return refuse(format!(
                        "stage {i} names graph '{name}', which is not declared"
                    ));
                };
                if let StageKey::Fixed(k) = s.key {
                    if !g.keys.contains(&k) {
                        return refuse(format!(
                            "stage {i} wants key {k} of graph '{name}', which has {:?}",
                            g.keys
                        ));
                    }
                }
            }
            if let Some(d) = s.after.iter().find(|d| **d >= i) {
                return refuse(format!(
                    "stage {i} depends on stage {d}, which is not earlier"
                ));
            }
        }
        self.plans.push((name.to_owned(), stages.to_vec()));
        Ok(PlanId(self.plans.len() - 1))
    }

    /// Picks the plan whose stages stand in the declaration.
    pub fn default_plan(&mut self, name: &str) -> Result<(), Error> {
        self.default_plan =
            self.plans
                .iter()
                .position(|p| p.0 == name)
                .ok_or_else(|| Error::NotFound {
                    kind: "plan",
                    name: name.to_owned(),
                })?;
        Ok(())
    }

    /// Checks that every declared variant is captured, writes the declaration and creates everything that `run` needs.
    ///
    /// Added to the identity pairs: `plan.<name>` (stages of every plan), `region.<name>` (class and buffer of every
    /// region) and `host_state_layout`.
    pub fn finish(mut self, verbs: Box<dyn Verbs>) -> Result<LiveSet, Error> {
        for g in &self.graphs {
            if let Some(key) = g.keys.iter().find(|k| !g.graph.has_variant(**k)) {
                return Err(Error::NoVariant {
                    graph: g.graph.name().to_owned(),
                    key: *key,
                });
            }
        }
        let block = self.host_state.buffer().all();
        self.regions.push(Region::new(
            HOST_STATE_NAME,
            StateClass::Continuation,
            block,
        ));

        // Last in the table, so that it moves no position that the identity prints.
        let largest = self
            .ports
            .iter()
            .filter(|p| p.decl.update == Update::Swap)
            .filter_map(|p| p.window.as_ref())
            .filter(|w| w.buffer().space() == Space::Device)
            .map(Slice::bytes)
            .max();
        let swap_staging = match largest {
            Some(bytes) => Some(self.buffer("swap_staging", Space::Host, bytes, Role::SCRATCH)?),
            None => None,
        };

        let declaration = self.declare()?;
        let (plans, stages) = self.plan_tables()?;
        let mut streams: Vec<StreamId> = vec![StreamId(0)];
        for g in &self.graphs {
            if !streams.contains(&g.stream) {
                streams.push(g.stream);
            }
        }
        let tails = streams
            .iter()
            .map(|s| Ok((*s, self.ctx.event()?)))
            .collect::<Result<Vec<(StreamId, Event)>, flashrt_exec::Error>>()
            .map_err(|e| Error::exec("create stream events", e))?;
        let identity = declaration.identity_bytes();
        Ok(LiveSet::assemble(Assembly {
            verbs,
            ctx: self.ctx,
            name: self.name,
            fingerprint: crate::fnv1a64(&identity),
            identity,
            declaration,
            buffers: self.buffers.into_iter().map(|(b, _)| b).collect(),
            regions: self.regions,
            graphs: self.graphs,
            windows: self.ports.into_iter().map(|p| p.window).collect(),
            swap_staging,
            plans,
            default_plan: self.default_plan,
            stages,
            tails,
            host_state: self.host_state,
        }))
    }

    fn declare(&self) -> Result<crate::Declaration, Error> {
        let mut b = DeclarationBuilder::new();
        for (k, v) in &self.pairs {
            b.add_identity(k, v)?;
        }
        for (name, stages) in &self.plans {
            let text: Vec<String> = stages.iter().map(StageSpec::text).collect();
            b.add_identity(format!("plan.{name}"), text.join(";"))?;
        }
        for r in &self.regions {
            let value = format!("{}:{}", r.class, r.slice.buffer().name());
            b.add_identity(format!("region.{}", r.name), value)?;
        }
        b.add_identity("host_state_layout", HOST_STATE_LAYOUT.to_string())?;
        if let Some(m) = &self.manifest {
            b.set_manifest(m)?;
        }
        for (name, id, priority) in &self.streams {
            b.add_stream(name, id.0, *priority)?;
        }
        for (i, g) in self.graphs.iter().enumerate() {
            b.add_graph(
                g.graph.name(),
                i as u64 + 1,
                g.default_key,
                &g.keys,
                self.stream_position(g.stream),
            )?;
        }
        for (buffer, role) in &self.buffers {
            b.add_buffer(buffer.name(), buffer.id(), buffer.bytes() as u64, *role)?;
        }
        for r in &self.regions {
            b.add_region(
                &r.name,
                r.slice.buffer().id(),
                r.slice.offset() as u64,
                r.slice.bytes() as u64,
                r.flags(),
            )?;
        }
        for p in &self.ports {
            b.add_port(p.decl.clone())?;
        }
        let stages = self
            .plans
            .get(self.default_plan)
            .map_or(&[][..], |(_, stages)| stages);
        let is_step = stages.iter().any(|s| s.executor == StageExecutor::Step);
        let is_generic = stages
            .iter()
            .any(|s| matches!(s.executor, StageExecutor::Opaque { .. }));
        for s in stages {
            let after: Vec<u32> = s.after.iter().map(|d| *d as u32).collect();
            let (kind, number) = match &s.executor {
                StageExecutor::Graph { name } => (ExecutorKind::Graph, self.graph_index(name)),
                StageExecutor::Opaque { executor_ref } => (ExecutorKind::Opaque, *executor_ref),
                StageExecutor::Step => continue,
            };
            match is_generic {
                true => b.add_generic_stage(&s.name, kind, number, &after)?,
                false => b.add_stage(number, &after)?,
            }
        }
        if is_generic {
            b.set_generic_stage_runner()?;
        }
        let mut decl = b.finish_model(VerbTable {
            set_input: true,
            get_output: true,
            step: is_step,
            last_error: true,
        })?;
        for (d, r) in decl.regions.iter_mut().zip(&self.regions) {
            d.class = r.class;
        }
        Ok(decl)
    }

    /// Position of a stream in this set's table. Context-wide ids differ from set to set; the declaration must not.
    fn stream_position(&self, id: StreamId) -> i32 {
        self.streams.iter().position(|s| s.1 == id).unwrap_or(0) as i32
    }

    fn plan_tables(&self) -> Result<(Vec<PlanEntry>, Vec<StageEntry>), Error> {
        let mut plans = Vec::new();
        let mut stages: Vec<StageEntry> = Vec::new();
        for (p, (name, specs)) in self.plans.iter().enumerate() {
            let first = stages.len();
            for s in specs {
                let graph = match &s.executor {
                    StageExecutor::Graph { name } => Some(self.graph_index(name) as usize),
                    _ => None,
                };
                let stream = graph.map_or(StreamId(0), |g| self.graphs[g].stream);
                stages.push(StageEntry {
                    info: StageInfo {
                        plan: PlanId(p),
                        name: s.name.clone(),
                        executor: s.executor.clone(),
                        key: s.key,
                        after: s.after.iter().map(|d| StageId(first + d)).collect(),
                        stream,
                    },
                    graph,
                    done: self
                        .ctx
                        .event()
                        .map_err(|e| Error::exec("create a stage event", e))?,
                    has_fired: false,
                });
            }
            plans.push(PlanEntry {
                info: PlanInfo {
                    name: name.clone(),
                    stages: (first..stages.len()).map(StageId).collect(),
                },
            });
        }
        Ok((plans, stages))
    }

    /// Position of a declared graph; [`LiveSetBuilder::plan`] checks that it is there.
    fn graph_index(&self, name: &str) -> u32 {
        let at = self.graphs.iter().position(|g| g.graph.name() == name);
        at.unwrap_or(0) as u32
    }

    fn own(&self, buffer: &Buffer) -> Result<(), Error> {
        if self.buffers.iter().any(|(b, _)| b.id() == buffer.id()) {
            return Ok(());
        }
        Err(Error::NotFound {
            kind: "buffer of this live set",
            name: buffer.name().to_owned(),
        })
    }
}

fn unique<'a>(
    kind: &'static str,
    name: &str,
    mut taken: impl Iterator<Item = &'a str>,
) -> Result<(), Error> {
    if taken.any(|t| t == name) {
        return Err(Error::Duplicate {
            kind,
            name: name.to_owned(),
        });
    }
    Ok(())
}

fn window(
    what: &'static str,
    name: &str,
    buffer: &Buffer,
    offset: usize,
    bytes: usize,
) -> Result<Slice, Error> {
    if bytes == 0
        || offset
            .checked_add(bytes)
            .is_none_or(|end| end > buffer.bytes())
    {
        return Err(Error::OutOfBounds {
            what,
            name: name.to_owned(),
            offset: offset as u64,
            bytes: bytes as u64,
            available: buffer.bytes() as u64,
        });
    }
    buffer
        .slice(offset, bytes)
        .map_err(|e| Error::exec(format!("{what} '{name}'"), e))
}

impl Region {
    fn new(name: &str, class: StateClass, slice: Slice) -> Region {
        Region {
            name: name.to_owned(),
            class,
            slice,
        }
    }

    /// Flags in the declaration: saved and restored when it is continuation state, none otherwise.
    pub fn flags(&self) -> RegionFlags {
        match self.class {
            StateClass::Continuation => RegionFlags::SNAPSHOT | RegionFlags::RESTORE,
            StateClass::Output | StateClass::Scratch => RegionFlags::NONE,
        }
    }
}
