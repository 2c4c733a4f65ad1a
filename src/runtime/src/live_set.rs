//! One independent set of mutable buffers with the graphs captured over it.

use std::cell::Cell;

use flashrt_exec::{Buffer, Context, Event, Graph, ShapeKey, Slice, Space, StreamId, KEY_INHERIT};

use crate::live_set_builder::StageKey;
use crate::{
    Declaration, Direction, Error, HostState, InputData, PlanId, PortDecl, PortId, StageId,
    StateClass, Update, Verbs,
};

/// A window of a buffer of the set, with its state class.
#[derive(Clone)]
pub struct Region {
    /// Name.
    pub name: String,
    /// State class.
    pub class: StateClass,
    /// The window.
    pub slice: Slice,
}

/// A registered plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanInfo {
    /// Name.
    pub name: String,
    /// Its stages in the order in which they are enqueued.
    pub stages: Vec<StageId>,
}

/// Who executes a stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StageExecutor {
    /// A replay of this graph: enqueued on the graph's stream.
    Graph {
        /// Name of the graph.
        name: String,
    },
    /// The producer's own runner ([`Verbs::run_opaque`]): complete on return.
    Opaque {
        /// Number with a meaning for the producer only.
        executor_ref: u32,
    },
    /// The producer's [`Verbs::step`], which fires the whole model.
    Step,
}

impl StageExecutor {
    /// The graph that it replays, if it replays one.
    pub fn graph(&self) -> Option<&str> {
        match self {
            StageExecutor::Graph { name } => Some(name),
            _ => None,
        }
    }
}

impl std::fmt::Display for StageExecutor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StageExecutor::Graph { name } => write!(f, "graph {name}"),
            StageExecutor::Opaque { executor_ref } => write!(f, "opaque {executor_ref}"),
            StageExecutor::Step => f.write_str("step"),
        }
    }
}

/// A stage of a registered plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageInfo {
    /// The plan that it belongs to.
    pub plan: PlanId,
    /// Name; of a stage that replays a graph often the graph's.
    pub name: String,
    /// Who executes it.
    pub executor: StageExecutor,
    /// Which variant. Without a meaning for stages that replay no graph.
    pub key: StageKey,
    /// Stages that must be complete before.
    pub after: Vec<StageId>,
    /// Stream that it runs on; `StreamId(0)` for stages that replay no graph.
    pub stream: StreamId,
}

pub(crate) struct GraphEntry {
    pub(crate) graph: Graph,
    pub(crate) default_key: ShapeKey,
    pub(crate) keys: Vec<ShapeKey>,
    pub(crate) stream: StreamId,
}

pub(crate) struct StageEntry {
    pub(crate) info: StageInfo,
    /// Position of the graph; `None` for a stage that is complete when it returns.
    pub(crate) graph: Option<usize>,
    pub(crate) done: Event,
    pub(crate) has_fired: bool,
}

pub(crate) struct PlanEntry {
    pub(crate) info: PlanInfo,
}

/// Everything that makes up a live set.
pub(crate) struct Assembly {
    pub(crate) verbs: Box<dyn Verbs>,
    pub(crate) ctx: Context,
    pub(crate) name: String,
    pub(crate) declaration: Declaration,
    pub(crate) identity: Vec<u8>,
    pub(crate) fingerprint: u64,
    pub(crate) buffers: Vec<Buffer>,
    /// The host state block is the last.
    pub(crate) regions: Vec<Region>,
    pub(crate) graphs: Vec<GraphEntry>,
    /// One entry a port.
    pub(crate) windows: Vec<Option<Slice>>,
    pub(crate) swap_staging: Option<Buffer>,
    pub(crate) plans: Vec<PlanEntry>,
    pub(crate) default_plan: usize,
    pub(crate) stages: Vec<StageEntry>,
    /// Every stream that work of the set is enqueued on.
    pub(crate) tails: Vec<(StreamId, Event)>,
    pub(crate) host_state: HostState,
}

/// What must not change while a set is hot: where its buffers are and how many variants each graph has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HotContract {
    /// `(name, address, bytes)` of every buffer.
    pub addresses: Vec<(String, usize, usize)>,
    /// `(name, variants)` of every graph.
    pub variants: Vec<(String, usize)>,
}

impl HotContract {
    /// The changes from `self` to `later`, one line each; empty when the contract held.
    pub fn changes(&self, later: &HotContract) -> Vec<String> {
        let mut out = Vec::new();
        if self.addresses.len() != later.addresses.len() {
            out.push(format!(
                "{} buffers became {}",
                self.addresses.len(),
                later.addresses.len()
            ));
        }
        for (a, b) in self.addresses.iter().zip(&later.addresses) {
            if a != b {
                out.push(format!(
                    "buffer '{}' at {:#x} ({} bytes) became '{}' at {:#x} ({} bytes)",
                    a.0, a.1, a.2, b.0, b.1, b.2
                ));
            }
        }
        for (a, b) in self.variants.iter().zip(&later.variants) {
            if a != b {
                out.push(format!("graph '{}' had {} variants, now {}", a.0, a.1, b.1));
            }
        }
        out
    }
}

/// One deployed, tickable copy of a model: buffers, graphs, ports and plans.
///
/// Driven by one thread. `run` enqueues; everything that touches the set's memory from outside (`set_input`, `get_output`,
/// `swap_in`, `swap_out`) first waits until nothing of the set is in flight. A set that failed midway is poisoned and refuses
/// everything until it is rebuilt.
pub struct LiveSet {
    // Field order is drop order: verbs and graphs hold buffers, buffers hold the context's memory.
    verbs: Box<dyn Verbs>,
    stages: Vec<StageEntry>,
    graphs: Vec<GraphEntry>,
    tails: Vec<(StreamId, Event)>,
    windows: Vec<Option<Slice>>,
    swap_staging: Option<Buffer>,
    regions: Vec<Region>,
    buffers: Vec<Buffer>,
    host_state: HostState,
    plans: Vec<PlanEntry>,
    default_plan: usize,
    plan_infos: Vec<PlanInfo>,
    name: String,
    declaration: Declaration,
    identity: Vec<u8>,
    fingerprint: u64,
    is_hot: bool,
    poison: Option<String>,
    is_in_flight: Cell<bool>,
    runs: u64,
    ctx: Context,
}

impl LiveSet {
    pub(crate) fn assemble(parts: Assembly) -> LiveSet {
        LiveSet {
            verbs: parts.verbs,
            stages: parts.stages,
            graphs: parts.graphs,
            tails: parts.tails,
            windows: parts.windows,
            swap_staging: parts.swap_staging,
            regions: parts.regions,
            buffers: parts.buffers,
            host_state: parts.host_state,
            plan_infos: parts.plans.iter().map(|p| p.info.clone()).collect(),
            plans: parts.plans,
            default_plan: parts.default_plan,
            name: parts.name,
            declaration: parts.declaration,
            identity: parts.identity,
            fingerprint: parts.fingerprint,
            is_hot: false,
            poison: None,
            is_in_flight: Cell::new(false),
            runs: 0,
            ctx: parts.ctx,
        }
    }

    /// Name of the set.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The context that it stands on.
    pub fn context(&self) -> &Context {
        &self.ctx
    }

    /// What the model declares.
    pub fn declaration(&self) -> &Declaration {
        &self.declaration
    }

    /// Short form of the identity.
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// The canonical identity text.
    pub fn identity(&self) -> &[u8] {
        &self.identity
    }

    /// All buffers of the set, device and host: its arenas.
    pub fn buffers(&self) -> &[Buffer] {
        &self.buffers
    }

    /// The buffer called `name`.
    pub fn buffer(&self, name: &str) -> Option<&Buffer> {
        self.buffers.iter().find(|b| b.name() == name)
    }

    /// The declared regions in declaration order; the host state block is the last.
    pub fn regions(&self) -> &[Region] {
        &self.regions
    }

    /// The declared ports.
    pub fn ports(&self) -> &[PortDecl] {
        &self.declaration.ports
    }

    /// The port called `name`.
    pub fn port(&self, name: &str) -> Option<PortId> {
        self.declaration
            .ports
            .iter()
            .position(|p| p.name == name)
            .map(PortId)
    }

    /// The registered plans.
    pub fn plans(&self) -> &[PlanInfo] {
        &self.plan_infos
    }

    /// The plan called `name`.
    pub fn plan(&self, name: &str) -> Option<PlanId> {
        self.plan_infos
            .iter()
            .position(|p| p.name == name)
            .map(PlanId)
    }

    /// The plan whose stages stand in the declaration, when there is a plan.
    pub fn default_plan(&self) -> Option<PlanId> {
        (!self.plans.is_empty()).then_some(PlanId(self.default_plan))
    }

    /// All stages of all plans; a [`StageId`] is an index here.
    pub fn stages(&self) -> impl ExactSizeIterator<Item = &StageInfo> {
        self.stages.iter().map(|s| &s.info)
    }

    /// The continuation state of the host.
    pub fn host_state(&self) -> &HostState {
        &self.host_state
    }

    /// The window of a port, when it has one.
    pub fn window(&self, port: PortId) -> Option<&Slice> {
        self.windows.get(port.0).and_then(Option::as_ref)
    }

    /// Writes a STAGED input through the model's transform. SETUP inputs are taken too while the set is not hot.
    ///
    /// On error the port's buffers are as they were.
    pub fn set_input(&mut self, port: PortId, data: InputData<'_>) -> Result<(), Error> {
        let is_setup = {
            let p = self.port_decl(port)?;
            if p.direction != Direction::In || p.update == Update::Swap {
                return Err(wrong_class(
                    p,
                    "set_input",
                    "an input that is STAGED or SETUP",
                ));
            }
            p.update == Update::Setup
        };
        if is_setup && self.is_hot {
            return Err(self.hot(format!(
                "set_input of SETUP port '{}'",
                self.declaration.ports[port.0].name
            )));
        }
        self.settle()?;
        self.verbs.set_input(port, data)
    }

    /// Reads a STAGED (or SETUP) output through the model's transform; returns the bytes written to `out`.
    pub fn get_output(&mut self, port: PortId, out: &mut [u8]) -> Result<usize, Error> {
        let p = self.port_decl(port)?;
        if p.direction != Direction::Out || p.update == Update::Swap {
            return Err(wrong_class(
                p,
                "get_output",
                "an output that is STAGED or SETUP",
            ));
        }
        self.settle()?;
        self.verbs.get_output(port, out)
    }

    /// Copies `bytes` to the start of the window of a SWAP input. At most the window's size; allocates nothing.
    pub fn swap_in(&mut self, port: PortId, bytes: &[u8]) -> Result<(), Error> {
        let target = self.swap_window(port, Direction::In, bytes.len(), "swap_in")?;
        self.settle()?;
        if bytes.is_empty() {
            return Ok(());
        }
        if target.buffer().space() == Space::Host {
            return target
                .buffer()
                .host_write(target.offset(), bytes)
                .map_err(|e| Error::exec("swap_in", e));
        }
        let Some(staging) = self.staging(bytes.len())? else {
            return self
                .ctx
                .upload(&target, bytes)
                .map_err(|e| Error::exec("swap_in", e));
        };
        staging
            .buffer()
            .host_write(0, bytes)
            .and_then(|()| self.ctx.copy(&target, &staging, StreamId(0)))
            .and_then(|()| self.ctx.synchronize(StreamId(0)))
            .map_err(|e| Error::exec("swap_in", e))
    }

    /// Copies the first `out.len()` bytes of the window of a SWAP output. At most the window's size; allocates nothing.
    pub fn swap_out(&mut self, port: PortId, out: &mut [u8]) -> Result<(), Error> {
        let source = self.swap_window(port, Direction::Out, out.len(), "swap_out")?;
        self.settle()?;
        if out.is_empty() {
            return Ok(());
        }
        if source.buffer().space() == Space::Host {
            return source
                .buffer()
                .host_read(source.offset(), out)
                .map_err(|e| Error::exec("swap_out", e));
        }
        let Some(staging) = self.staging(out.len())? else {
            return self
                .ctx
                .download(&source, out)
                .map_err(|e| Error::exec("swap_out", e));
        };
        self.ctx
            .copy(&staging, &source, StreamId(0))
            .and_then(|()| self.ctx.synchronize(StreamId(0)))
            .and_then(|()| staging.buffer().host_read(0, out))
            .map_err(|e| Error::exec("swap_out", e))
    }

    /// Enqueues the stages of `plan` in order, each on its graph's stream, after the stages that it names. Returns without
    /// waiting; see [`LiveSet::sync`]. Allocates nothing.
    ///
    /// A stage that the producer executes itself (OPAQUE, step) is called here, when the streams of the graphs that it depends
    /// on are through; a plan with such a stage first waits for the run before. Its time is spent in this call.
    ///
    /// `key` picks the variant of the stages that inherit; `KEY_INHERIT` means each graph's default. All variants are looked
    /// up before anything is enqueued. A failure after that poisons the set.
    pub fn run(&mut self, plan: PlanId, key: ShapeKey) -> Result<(), Error> {
        self.usable()?;
        let count = self.plans.len();
        let entry = self.plans.get(plan.0).ok_or(Error::BadIndex {
            kind: "plan",
            index: plan.0,
            count,
        })?;
        let (first, n) = (entry.info.stages[0].0, entry.info.stages.len());
        for s in &self.stages[first..first + n] {
            self.variant(s, key)?;
        }
        // What the producer executes by itself looks at no event.
        if self.stages[first..first + n]
            .iter()
            .any(|s| s.graph.is_none())
        {
            self.settle()?;
        }
        // Earlier work of the set on other streams must not be overtaken.
        let mut result = Ok(());
        for (stream, _) in &self.tails {
            for (other, tail) in &self.tails {
                if stream != other {
                    result = result.and_then(|()| self.ctx.wait(*stream, tail));
                }
            }
        }
        let mut result = result.map_err(|e| Error::exec("order a run after the previous one", e));
        for i in first..first + n {
            result = result.and_then(|()| self.fire(i, key));
        }
        for (stream, tail) in &self.tails {
            result = result.and_then(|()| {
                self.ctx
                    .record(tail, *stream)
                    .map_err(|e| Error::exec("mark the end of a run", e))
            });
        }
        self.is_in_flight.set(true);
        self.runs += 1;
        if let Err(e) = &result {
            self.poison(&format!("run failed midway: {e}"));
        }
        result
    }

    /// Enqueues one stage. Each stage that it names must have run before, in any earlier call (an action stage may reuse an
    /// old context stage).
    pub fn run_stage(&mut self, stage: StageId, key: ShapeKey) -> Result<(), Error> {
        self.usable()?;
        let entry = self.stages.get(stage.0).ok_or(Error::BadIndex {
            kind: "stage",
            index: stage.0,
            count: self.stages.len(),
        })?;
        for dep in &entry.info.after {
            if !self.stages[dep.0].has_fired {
                return Err(Error::StageNotReady {
                    plan: self.plan_infos[entry.info.plan.0].name.clone(),
                    stage: stage.0,
                    dep: dep.0,
                });
            }
        }
        self.variant(entry, key)?;
        let (stream, is_enqueued) = (entry.info.stream, entry.graph.is_some());
        if !is_enqueued {
            self.settle()?;
        }
        let result = self.fire(stage.0, key).and_then(|()| {
            self.tails
                .iter()
                .find(|(s, _)| is_enqueued && *s == stream)
                .map_or(Ok(()), |(s, tail)| self.ctx.record(tail, *s))
                .map_err(|e| Error::exec("mark the end of a stage", e))
        });
        self.is_in_flight.set(true);
        self.runs += 1;
        if let Err(e) = &result {
            self.poison(&format!("stage failed: {e}"));
        }
        result
    }

    /// Waits until nothing of the set is in flight. Allocates nothing.
    ///
    /// After an error (a kernel failed) the state is that of a run broken off midway: restore a whole capsule before the
    /// next tick, or [`LiveSet::poison`] the set.
    pub fn sync(&self) -> Result<(), Error> {
        for (stream, _) in &self.tails {
            self.ctx
                .synchronize(*stream)
                .map_err(|e| Error::exec(format!("wait for stream {}", stream.0), e))?;
        }
        self.is_in_flight.set(false);
        Ok(())
    }

    /// True between a `run` and the next wait.
    pub fn is_in_flight(&self) -> bool {
        self.is_in_flight.get()
    }

    /// Runs enqueued since the set was made. A counter of the world: no capsule holds it.
    pub fn runs(&self) -> u64 {
        self.runs
    }

    /// Makes a variant exist. Refused while hot.
    pub fn prepare(&mut self, graph: &str, key: ShapeKey) -> Result<(), Error> {
        self.usable()?;
        self.graph_entry(graph)?;
        if self.is_hot {
            return Err(self.hot(format!("prepare of graph '{graph}', key {key}")));
        }
        self.settle()?;
        self.verbs.prepare(graph, key)
    }

    /// Drops a variant. Refused while hot.
    pub fn evict(&mut self, graph: &str, key: ShapeKey) -> Result<(), Error> {
        self.usable()?;
        if !self.has_variant(graph, key)? {
            return Err(Error::NoVariant {
                graph: graph.to_owned(),
                key,
            });
        }
        if self.is_hot {
            return Err(self.hot(format!("evict of graph '{graph}', key {key}")));
        }
        self.settle()?;
        self.verbs.evict(graph, key)
    }

    /// Lets the model run everything once. Refused while hot.
    pub fn warm(&mut self) -> Result<(), Error> {
        self.usable()?;
        if self.is_hot {
            return Err(self.hot("warm".to_owned()));
        }
        self.settle()?;
        self.verbs.warm()?;
        self.sync()
    }

    /// True when `graph` has the variant `key`.
    pub fn has_variant(&self, graph: &str, key: ShapeKey) -> Result<bool, Error> {
        Ok(self.graph_entry(graph)?.graph.has_variant(key))
    }

    /// Variants over all graphs.
    pub fn variant_count(&self) -> usize {
        self.graphs.iter().map(|g| g.graph.variant_count()).sum()
    }

    /// Sets the hot contract on or off.
    pub fn set_hot(&mut self, hot: bool) {
        self.is_hot = hot;
    }

    /// True while nothing may be captured, evicted or set up.
    pub fn is_hot(&self) -> bool {
        self.is_hot
    }

    /// What a test of the hot contract compares before and after.
    pub fn hot_contract(&self) -> HotContract {
        HotContract {
            addresses: self
                .buffers
                .iter()
                .map(|b| (b.name().to_owned(), b.addr(), b.bytes()))
                .collect(),
            variants: self
                .graphs
                .iter()
                .map(|g| (g.graph.name().to_owned(), g.graph.variant_count()))
                .collect(),
        }
    }

    /// Marks the set as failed midway: it refuses everything until it is rebuilt. The first reason is kept.
    pub fn poison(&mut self, reason: &str) {
        self.poison.get_or_insert_with(|| reason.to_owned());
    }

    /// True after [`LiveSet::poison`].
    pub fn is_poisoned(&self) -> bool {
        self.poison.is_some()
    }

    /// `Ok`, or the error of a poisoned set.
    pub fn usable(&self) -> Result<(), Error> {
        match &self.poison {
            None => Ok(()),
            Some(reason) => Err(Error::Poisoned {
                set: self.name.clone(),
                reason: reason.clone(),
            }),
        }
    }

    /// Text of the last error of a verb.
    pub fn last_error(&self) -> &str {
        self.verbs.last_error()
    }

    fn settle(&mut self) -> Result<(), Error> {
        if self.is_in_flight.get() {
            self.sync()?;
        }
        Ok(())
    }

    fn hot(&self, what: String) -> Error {
        Error::Hot {
            set: self.name.clone(),
            what,
        }
    }

    fn port_decl(&self, port: PortId) -> Result<&PortDecl, Error> {
        self.usable()?;
        self.declaration.ports.get(port.0).ok_or(Error::BadIndex {
            kind: "port",
            index: port.0,
            count: self.declaration.ports.len(),
        })
    }

    fn graph_entry(&self, name: &str) -> Result<&GraphEntry, Error> {
        self.graphs
            .iter()
            .find(|g| g.graph.name() == name)
            .ok_or_else(|| Error::NotFound {
                kind: "graph",
                name: name.to_owned(),
            })
    }

    fn swap_window(
        &self,
        port: PortId,
        way: Direction,
        bytes: usize,
        verb: &'static str,
    ) -> Result<Slice, Error> {
        let p = self.port_decl(port)?;
        let window = match self.windows.get(port.0) {
            Some(Some(w)) if p.update == Update::Swap && p.direction == way => w,
            _ => {
                let needs = match way {
                    Direction::In => "an input that is SWAP",
                    Direction::Out => "an output that is SWAP",
                };
                return Err(wrong_class(p, verb, needs));
            }
        };
        if bytes > window.bytes() {
            return Err(Error::OutOfBounds {
                what: "window of port",
                name: p.name.clone(),
                offset: 0,
                bytes: bytes as u64,
                available: window.bytes() as u64,
            });
        }
        window
            .buffer()
            .slice(window.offset(), bytes)
            .map_err(|e| Error::exec(verb, e))
    }

    /// Host memory to copy through; `None` when the context takes the caller's bytes without an allocation.
    fn staging(&self, bytes: usize) -> Result<Option<Slice>, Error> {
        let slice = self.swap_staging.as_ref().map(|s| s.slice(0, bytes));
        slice
            .transpose()
            .map_err(|e| Error::exec("swap staging", e))
    }

    fn variant(&self, stage: &StageEntry, key: ShapeKey) -> Result<(), Error> {
        let Some(entry) = stage.graph.map(|g| &self.graphs[g]) else {
            return Ok(());
        };
        let key = resolve(stage, entry, key);
        if entry.graph.has_variant(key) {
            return Ok(());
        }
        Err(Error::NoVariant {
            graph: entry.graph.name().to_owned(),
            key,
        })
    }

    fn fire(&mut self, stage: usize, key: ShapeKey) -> Result<(), Error> {
        let s = &self.stages[stage];
        let stream = s.info.stream;
        // A dependency that is no graph is complete already.
        let deps = s.info.after.iter().map(|d| &self.stages[d.0]);
        let deps = deps.filter(|d| d.graph.is_some());
        if let Some(entry) = s.graph.map(|g| &self.graphs[g]) {
            let key = resolve(s, entry, key);
            for dep in deps.filter(|d| d.info.stream != stream) {
                self.ctx
                    .wait(stream, &dep.done)
                    .map_err(|e| Error::exec(format!("wait of stage {stage}"), e))?;
            }
            entry
                .graph
                .replay(key, stream)
                .and_then(|()| self.ctx.record(&s.done, stream))
                .map_err(|e| {
                    Error::exec(
                        format!("replay of graph '{}', key {key}", entry.graph.name()),
                        e,
                    )
                })?;
        } else {
            for dep in deps {
                self.ctx
                    .synchronize(dep.info.stream)
                    .map_err(|e| Error::exec(format!("wait of stage {stage}"), e))?;
            }
            match s.info.executor {
                StageExecutor::Opaque { executor_ref } => self.verbs.run_opaque(executor_ref)?,
                StageExecutor::Step | StageExecutor::Graph { .. } => self.verbs.step()?,
            }
        }
        self.stages[stage].has_fired = true;
        Ok(())
    }
}

fn resolve(stage: &StageEntry, entry: &GraphEntry, key: ShapeKey) -> ShapeKey {
    match stage.info.key {
        StageKey::Fixed(k) => k,
        StageKey::Inherit if key == KEY_INHERIT => entry.default_key,
        StageKey::Inherit => key,
    }
}

fn wrong_class(p: &PortDecl, verb: &'static str, needs: &'static str) -> Error {
    Error::PortClass {
        port: p.name.clone(),
        is: format!("{} {}", p.direction, p.update),
        verb,
        needs,
    }
}
