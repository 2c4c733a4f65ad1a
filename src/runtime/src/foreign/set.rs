//! Makes the live set of a native model.

use std::ffi::c_void;

use flashrt_exec::{
    Buffer, Context, CpuOptions, ForeignExec, ForeignTable, Graph, Slice, Space, StreamId,
    StreamOrder,
};

use super::calls::ForeignVerbs;
use super::library::REPLAY;
use super::{Fault, ForeignModel};
use crate::live_set::{Assembly, GraphEntry, LiveSet, PlanEntry, PlanInfo, StageEntry, StageInfo};
use crate::live_set_builder::StageKey;
use crate::{
    Declaration, ExecutorKind, HostState, PlanId, Region, RegionFlags, StageExecutor, StageId,
    StateClass, HOST_STATE_BYTES, HOST_STATE_NAME,
};

/// Name of the one plan of a native model.
const PLAN: &str = "default";

/// A stage of the declared plan, whichever kind of plan it is.
struct Stage {
    name: String,
    executor: Executor,
    after: Vec<usize>,
}

#[derive(Clone, Copy, PartialEq)]
enum Executor {
    Graph(usize),
    Opaque(u32),
    Step,
}

pub(super) fn build(model: ForeignModel, set_name: &str) -> Result<LiveSet, Fault> {
    crate::names::check_name("live set", set_name)?;
    let d = &model.declared.declaration;
    let mut stages = declared_stages(d, model.declared.is_export);
    let needs_replay = stages
        .iter()
        .any(|s| matches!(s.executor, Executor::Graph(_)));
    // Symbols of the producer's own scope only: handles mean nothing to another library.
    let missing = missing_symbols(&model);
    let mut probe = None;
    if needs_replay {
        let absent = missing
            .clone()
            .or_else(|| model.declared.ctx.is_null().then(|| "a context".to_owned()));
        if let Some(missing) = absent {
            if model.declared.calls.verbs.step.is_none() {
                return Err(Fault::unsupported(format!(
                    "its plan replays graphs, but its scope lacks {missing}, and it has no step verb"
                )));
            }
            stages = vec![whole()];
            probe = Some(missing);
        }
    }
    let is_ours = missing.is_some() || model.declared.ctx.is_null();
    let ctx = match is_ours {
        // Nothing is run here: it holds the host state.
        true => Context::cpu(CpuOptions {
            threads: 1,
            order: StreamOrder::Submission,
        })
        .map_err(|e| exec("a context for the host state", e))?,
        false => foreign_context(&model)?,
    };

    let mut parts = Parts::default();
    if !is_ours {
        parts.adopt(&ctx, d, &stages)?;
    }
    let block = ctx
        .alloc(HOST_STATE_NAME, Space::Host, HOST_STATE_BYTES)
        .map_err(|e| exec("memory for the host state", e))?;
    let host_state = HostState::new(block.clone())?;
    parts.regions.push(Region {
        name: HOST_STATE_NAME.to_owned(),
        class: StateClass::Continuation,
        slice: block.all(),
    });
    parts.buffers.push(block);
    if parts.windows.is_empty() {
        parts.windows = d.ports.iter().map(|_| None).collect();
    }

    let mut verbs = ForeignVerbs::new(
        model.declared.calls,
        &model.name,
        d.ports.clone(),
        model.anchor.clone(),
    );
    verbs.graphs = parts.graphs.iter().map(|g| g.graph.clone()).collect();
    verbs.probe = probe;
    verbs.gate = (!is_ours).then(|| ctx.clone());
    verbs.needed = stages
        .iter()
        .filter_map(|s| match s.executor {
            Executor::Graph(g) => Some((g, d.graphs[g].default_key)),
            _ => None,
        })
        .collect();

    let entries = stages
        .iter()
        .map(|s| {
            let graph = match s.executor {
                Executor::Graph(g) => Some(g),
                _ => None,
            };
            Ok(StageEntry {
                info: StageInfo {
                    plan: PlanId(0),
                    name: s.name.clone(),
                    executor: match s.executor {
                        Executor::Graph(g) => StageExecutor::Graph {
                            name: d.graphs[g].name.clone(),
                        },
                        Executor::Opaque(executor_ref) => StageExecutor::Opaque { executor_ref },
                        Executor::Step => StageExecutor::Step,
                    },
                    key: StageKey::Inherit,
                    after: s.after.iter().map(|i| StageId(*i)).collect(),
                    stream: graph.map_or(StreamId(0), |g| parts.graphs[g].stream),
                },
                graph,
                done: ctx.event().map_err(|e| exec("a stage event", e))?,
                has_fired: false,
            })
        })
        .collect::<Result<Vec<_>, Fault>>()?;
    let plan = PlanEntry {
        info: PlanInfo {
            name: PLAN.to_owned(),
            stages: (0..entries.len()).map(StageId).collect(),
        },
    };
    // Also where `step` may leave work behind.
    let mut streams = vec![StreamId(0)];
    for g in &parts.graphs {
        if !streams.contains(&g.stream) {
            streams.push(g.stream);
        }
    }
    let tails = streams
        .iter()
        .map(|s| Ok((*s, ctx.event().map_err(|e| exec("a stream event", e))?)))
        .collect::<Result<Vec<_>, Fault>>()?;
    Ok(LiveSet::assemble(Assembly {
        verbs: Box::new(verbs),
        plans: match entries.is_empty() {
            true => Vec::new(),
            false => vec![plan],
        },
        default_plan: 0,
        stages: entries,
        graphs: parts.graphs,
        tails,
        windows: parts.windows,
        // Windows are written and read through the other library, not by copies.
        swap_staging: None,
        regions: parts.regions,
        buffers: parts.buffers,
        host_state,
        name: set_name.to_owned(),
        identity: model.declared.identity.clone(),
        fingerprint: model.declared.fingerprint,
        declaration: d.clone(),
        ctx,
    }))
}

fn whole() -> Stage {
    Stage {
        name: "step".to_owned(),
        executor: Executor::Step,
        after: Vec::new(),
    }
}

fn declared_stages(d: &Declaration, is_export: bool) -> Vec<Stage> {
    let deps = |after: &[u32]| after.iter().map(|i| *i as usize).collect();
    let generic = d.generic_stages.iter().map(|s| Stage {
        name: s.name.clone(),
        executor: match s.executor_kind {
            ExecutorKind::Graph => Executor::Graph(s.executor_ref as usize),
            ExecutorKind::Opaque => Executor::Opaque(s.executor_ref),
        },
        after: deps(&s.after),
    });
    let graphs = d.stages.iter().map(|s| Stage {
        name: d.graphs[s.graph as usize].name.clone(),
        executor: Executor::Graph(s.graph as usize),
        after: deps(&s.after),
    });
    let mut stages: Vec<Stage> = generic.chain(graphs).collect();
    if stages.is_empty() && !is_export {
        stages.push(whole());
    }
    stages
}

/// The required execution symbols that the model's scope lacks, in words; `None` when all are there.
fn missing_symbols(model: &ForeignModel) -> Option<String> {
    let table = table(model);
    let missing = table.missing();
    match (missing.contains(&REPLAY), missing.len()) {
        (_, 0) => None,
        (true, _) => Some(format!("the symbol {REPLAY}")),
        _ => Some(format!("the symbols {}", missing.join(", "))),
    }
}

fn table(model: &ForeignModel) -> ForeignTable {
    let scope = &model.anchor.scope;
    let find = |symbol: &'static str| {
        scope
            .find(symbol)
            .map_or(std::ptr::null_mut(), |p| p.cast_mut())
    };
    // SAFETY: the names of the symbols fix their types; they are valid while the library is loaded, which the anchor of the
    // context sees to.
    unsafe { ForeignTable::from_symbols(find) }
}

fn foreign_context(model: &ForeignModel) -> Result<Context, Fault> {
    let exec_table = table(model);
    // SAFETY: the context is that of the live export that the anchor holds, and the functions come from the library's own scope.
    unsafe {
        Context::foreign(ForeignExec {
            table: exec_table,
            ctx: model.declared.ctx,
            anchor: Box::new(model.anchor.clone()),
        })
    }
    .map_err(|e| exec("its execution context", e))
}

fn exec(what: &str, e: flashrt_exec::Error) -> Fault {
    crate::Error::exec(what, e).into()
}

/// What the live set holds of the producer's tables.
#[derive(Default)]
struct Parts {
    buffers: Vec<Buffer>,
    /// Handle of each entry of `buffers`.
    handles: Vec<u64>,
    graphs: Vec<GraphEntry>,
    windows: Vec<Option<Slice>>,
    regions: Vec<Region>,
}

impl Parts {
    fn adopt(&mut self, ctx: &Context, d: &Declaration, stages: &[Stage]) -> Result<(), Fault> {
        let declared = d.streams.iter().map(|s| s.stream_id.0);
        let used = d.graphs.iter().map(|g| g.stream_id);
        let last = declared.chain(used).max().unwrap_or(0).max(0);
        ctx.adopt_streams(last as usize + 1)
            .map_err(|e| exec("its streams", e))?;
        for (i, g) in d.graphs.iter().enumerate() {
            let is_fired = stages.iter().any(|s| s.executor == Executor::Graph(i));
            if is_fired && g.stream_id < 0 {
                return Err(Fault::object(format!(
                    "graph '{}' of the plan is on stream {}, which no replay can use",
                    g.name, g.stream_id
                )));
            }
            self.graphs.push(GraphEntry {
                graph: adopt_graph(ctx, g.handle, &g.name)?,
                default_key: g.default_key,
                keys: g.keys.clone(),
                stream: StreamId(g.stream_id.max(0)),
            });
        }
        for b in &d.buffers {
            self.buffer(ctx, b.handle, &b.name, b.bytes)?;
        }
        for p in &d.ports {
            let window = match p.buffer {
                0 => None,
                handle => {
                    let buffer = self.buffer_of(ctx, handle, &p.name, p.offset, p.bytes)?;
                    Some(slice(&buffer, "port", &p.name, p.offset, p.bytes)?)
                }
            };
            self.windows.push(window);
        }
        for r in &d.regions {
            if r.name == HOST_STATE_NAME {
                return Err(Fault::object(format!(
                    "a region is named '{HOST_STATE_NAME}', which is the host's own"
                )));
            }
            let buffer = self.buffer_of(ctx, r.buffer, &r.name, r.offset, r.bytes)?;
            let both = RegionFlags::SNAPSHOT | RegionFlags::RESTORE;
            self.regions.push(Region {
                name: r.name.clone(),
                class: match r.flags.contains(both) {
                    true => StateClass::Continuation,
                    false => StateClass::Scratch,
                },
                slice: slice(&buffer, "region", &r.name, r.offset, r.bytes)?,
            });
        }
        Ok(())
    }

    fn buffer(
        &mut self,
        ctx: &Context,
        handle: u64,
        name: &str,
        bytes: u64,
    ) -> Result<Buffer, Fault> {
        let known = self.handles.iter().position(|h| *h == handle);
        if let Some(at) = known {
            return Ok(self.buffers[at].clone());
        }
        let size = usize::try_from(bytes)
            .map_err(|_| Fault::object(format!("buffer '{name}' has {bytes} bytes")))?;
        // SAFETY: the handle comes from the live export that the context's anchor holds.
        let buffer = unsafe { ctx.adopt_buffer(pointer(handle), name, size) }
            .map_err(|e| exec(&format!("buffer '{name}'"), e))?;
        self.buffers.push(buffer.clone());
        self.handles.push(handle);
        Ok(buffer)
    }

    /// The buffer of a window; one that is not in the buffer table is taken as long as the window reaches.
    fn buffer_of(
        &mut self,
        ctx: &Context,
        handle: u64,
        name: &str,
        offset: u64,
        bytes: u64,
    ) -> Result<Buffer, Fault> {
        let end = offset.checked_add(bytes).ok_or_else(|| {
            Fault::object(format!(
                "the window of '{name}' is {bytes} bytes at {offset}"
            ))
        })?;
        self.buffer(ctx, handle, name, end)
    }
}

fn adopt_graph(ctx: &Context, handle: u64, name: &str) -> Result<Graph, Fault> {
    // SAFETY: the handle comes from the live export that the context's anchor holds.
    unsafe { ctx.adopt_graph(pointer(handle), name) }
        .map_err(|e| exec(&format!("graph '{name}'"), e))
}

/// A handle as the other library gave it. Never read here.
fn pointer(handle: u64) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(handle as usize)
}

fn slice(buffer: &Buffer, what: &str, name: &str, offset: u64, bytes: u64) -> Result<Slice, Fault> {
    let window = usize::try_from(offset)
        .ok()
        .zip(usize::try_from(bytes).ok())
        .and_then(|(offset, bytes)| buffer.slice(offset, bytes).ok());
    window.ok_or_else(|| {
        Fault::object(format!(
            "the window of {what} '{name}' is {bytes} bytes at {offset} of buffer '{}', which has {}",
            buffer.name(),
            buffer.bytes()
        ))
    })
}
