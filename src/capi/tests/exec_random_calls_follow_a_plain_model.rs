//! Random calls over a few contexts, with live, destroyed and mismatched objects, against the contract said plainly.
//!
//! The model runs each command at once. That is what the CPU backend's order of submission amounts to, since contents are
//! only looked at through downloads.

mod exec_support;
use exec_support::*;

use flashrt_capi::*;
use proptest::prelude::*;
use std::collections::VecDeque;
use std::ptr::null;

/// A recorded operation; buffers by index.
#[derive(Clone, Debug)]
enum Op {
    Fill {
        dst: usize,
        offset: usize,
        bytes: usize,
        value: u8,
    },
    Copy {
        dst: usize,
        dst_offset: usize,
        src: usize,
        src_offset: usize,
        bytes: usize,
    },
}

/// One call. Objects are numbers, taken modulo how many there are, destroyed ones included.
#[derive(Clone, Debug)]
enum Step {
    Context,
    DestroyContext {
        ctx: usize,
    },
    Stream {
        ctx: usize,
    },
    Alloc {
        ctx: usize,
        bytes: usize,
    },
    Free {
        buffer: usize,
    },
    Write {
        ctx: usize,
        buffer: usize,
        byte: u8,
        stream: i32,
    },
    Read {
        ctx: usize,
        buffer: usize,
        stream: i32,
    },
    Run {
        ctx: usize,
        op: Op,
        stream: i32,
    },
    Graph {
        ctx: usize,
        max: usize,
    },
    DestroyGraph {
        graph: usize,
    },
    Capture {
        graph: usize,
        key: u64,
        ops: Vec<Op>,
    },
    Adopt {
        graph: usize,
        key: u64,
        donor: usize,
        donor_key: u64,
    },
    Replay {
        graph: usize,
        key: u64,
        stream: i32,
    },
    Has {
        graph: usize,
        key: u64,
    },
    Evict {
        graph: usize,
        key: u64,
    },
    EvictLru {
        graph: usize,
    },
    Event {
        ctx: usize,
    },
    DestroyEvent {
        event: usize,
    },
    Record {
        event: usize,
        stream: i32,
    },
    Wait {
        ctx: usize,
        stream: i32,
        event: usize,
    },
    SyncEvent {
        event: usize,
    },
    SyncStream {
        ctx: usize,
        stream: i32,
    },
    Plan {
        ctx: usize,
    },
    DestroyPlan {
        plan: usize,
    },
    Add {
        plan: usize,
        graph: usize,
        key: u64,
        stream: i32,
    },
    After {
        plan: usize,
        node: i32,
        dep: i32,
    },
    Validate {
        plan: usize,
    },
    Execute {
        plan: usize,
        key: u64,
    },
    SyncPlan {
        plan: usize,
    },
}

fn number() -> impl Strategy<Value = usize> {
    0..64usize
}

fn key() -> impl Strategy<Value = u64> {
    prop_oneof![8 => 0..4u64, 1 => Just(FRT_KEY_INHERIT)]
}

fn stream() -> impl Strategy<Value = i32> {
    prop_oneof![8 => Just(0), 3 => 1..3i32, 1 => Just(-1)]
}

fn op() -> impl Strategy<Value = Op> {
    let part = || 0..7usize;
    prop_oneof![
        (number(), part(), part(), any::<u8>()).prop_map(|(dst, offset, bytes, value)| Op::Fill {
            dst,
            offset,
            bytes,
            value
        }),
        (number(), part(), number(), part(), part()).prop_map(
            |(dst, dst_offset, src, src_offset, bytes)| {
                Op::Copy {
                    dst,
                    dst_offset,
                    src,
                    src_offset,
                    bytes,
                }
            }
        ),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let (n, k, s) = (number, key, stream);
    let memory = prop_oneof![
        3 => (n(), 0..9usize).prop_map(|(ctx, bytes)| Step::Alloc { ctx, bytes }),
        1 => n().prop_map(|buffer| Step::Free { buffer }),
        4 => (n(), n(), any::<u8>(), s()).prop_map(|(ctx, buffer, byte, stream)| Step::Write { ctx, buffer, byte, stream }),
        6 => (n(), n(), s()).prop_map(|(ctx, buffer, stream)| Step::Read { ctx, buffer, stream }),
        6 => (n(), op(), s()).prop_map(|(ctx, op, stream)| Step::Run { ctx, op, stream }),
    ];
    let graphs = prop_oneof![
        3 => (n(), 0..4usize).prop_map(|(ctx, max)| Step::Graph { ctx, max }),
        1 => n().prop_map(|graph| Step::DestroyGraph { graph }),
        8 => (n(), k(), prop::collection::vec(op(), 0..4)).prop_map(|(graph, key, ops)| Step::Capture { graph, key, ops }),
        4 => (n(), k(), n(), k())
            .prop_map(|(graph, key, donor, donor_key)| Step::Adopt { graph, key, donor, donor_key }),
        10 => (n(), k(), s()).prop_map(|(graph, key, stream)| Step::Replay { graph, key, stream }),
        2 => (n(), k()).prop_map(|(graph, key)| Step::Has { graph, key }),
        2 => (n(), k()).prop_map(|(graph, key)| Step::Evict { graph, key }),
        2 => n().prop_map(|graph| Step::EvictLru { graph }),
    ];
    let order = prop_oneof![
        2 => n().prop_map(|ctx| Step::Stream { ctx }),
        2 => n().prop_map(|ctx| Step::Event { ctx }),
        1 => n().prop_map(|event| Step::DestroyEvent { event }),
        2 => (n(), s()).prop_map(|(event, stream)| Step::Record { event, stream }),
        2 => (n(), s(), n()).prop_map(|(ctx, stream, event)| Step::Wait { ctx, stream, event }),
        1 => n().prop_map(|event| Step::SyncEvent { event }),
        1 => (n(), s()).prop_map(|(ctx, stream)| Step::SyncStream { ctx, stream }),
    ];
    let plans = prop_oneof![
        2 => n().prop_map(|ctx| Step::Plan { ctx }),
        1 => n().prop_map(|plan| Step::DestroyPlan { plan }),
        5 => (n(), n(), k(), s()).prop_map(|(plan, graph, key, stream)| Step::Add { plan, graph, key, stream }),
        3 => (n(), -1..4i32, -1..4i32).prop_map(|(plan, node, dep)| Step::After { plan, node, dep }),
        1 => n().prop_map(|plan| Step::Validate { plan }),
        5 => (n(), k()).prop_map(|(plan, key)| Step::Execute { plan, key }),
        1 => n().prop_map(|plan| Step::SyncPlan { plan }),
    ];
    prop_oneof![
        1 => Just(Step::Context),
        1 => n().prop_map(|ctx| Step::DestroyContext { ctx }),
        28 => memory,
        28 => graphs,
        10 => order,
        18 => plans,
    ]
}

// ---- the model ----

struct MContext {
    handle: frt_ctx,
    is_live: bool,
    streams: i32,
}

struct MBuffer {
    handle: frt_buffer,
    is_live: bool,
    ctx: usize,
    /// What captured work still sees after the buffer was freed.
    bytes: Vec<u8>,
}

struct MGraph {
    handle: frt_graph,
    is_live: bool,
    ctx: usize,
    max: usize,
    /// From the least to the most recent.
    table: VecDeque<(u64, Vec<Op>)>,
}

struct MEvent {
    handle: frt_event,
    is_live: bool,
    ctx: usize,
}

struct MPlan {
    handle: frt_plan,
    is_live: bool,
    ctx: usize,
    nodes: Vec<(usize, u64, i32)>,
    edges: Vec<(i32, i32)>,
}

impl MGraph {
    fn position(&self, key: u64) -> Option<usize> {
        self.table.iter().position(|(k, _)| *k == key)
    }

    fn store(&mut self, key: u64, ops: Vec<Op>) {
        if let Some(at) = self.position(key) {
            self.table.remove(at);
        }
        self.table.push_back((key, ops));
        if self.max > 0 && self.table.len() > self.max {
            self.table.pop_front();
        }
    }
}

#[derive(Default)]
struct Model {
    contexts: Vec<MContext>,
    buffers: Vec<MBuffer>,
    graphs: Vec<MGraph>,
    events: Vec<MEvent>,
    plans: Vec<MPlan>,
}

/// A handle, null while there is no object of the kind.
macro_rules! pick {
    ($list:expr, $n:expr) => {
        $n % $list.len().max(1)
    };
}

impl Model {
    fn ctx(&self, n: usize) -> (usize, frt_ctx) {
        let n = pick!(self.contexts, n);
        (n, self.contexts.get(n).map_or(NO_CTX, |c| c.handle))
    }

    fn live_ctx(&self, n: usize) -> Option<&MContext> {
        self.contexts.get(n).filter(|c| c.is_live)
    }

    fn has_stream(&self, ctx: usize, stream: i32) -> bool {
        self.live_ctx(ctx)
            .is_some_and(|c| (0..c.streams).contains(&stream))
    }

    fn window(&self, ctx: usize, n: usize, offset: usize, bytes: usize) -> bool {
        let buffer = self.buffers.get(n);
        buffer.is_some_and(|b| b.is_live && b.ctx == ctx && offset + bytes <= b.bytes.len())
    }

    /// With the buffers' numbers taken modulo how many there are.
    fn resolve(&self, op: &Op) -> Op {
        match *op {
            Op::Fill {
                dst,
                offset,
                bytes,
                value,
            } => Op::Fill {
                dst: pick!(self.buffers, dst),
                offset,
                bytes,
                value,
            },
            Op::Copy {
                dst,
                dst_offset,
                src,
                src_offset,
                bytes,
            } => Op::Copy {
                dst: pick!(self.buffers, dst),
                dst_offset,
                src: pick!(self.buffers, src),
                src_offset,
                bytes,
            },
        }
    }

    /// The status of a command, on a context or while it records.
    fn status(&self, ctx: usize, op: &Op, stream: i32) -> i32 {
        let is_legal = self.live_ctx(ctx).is_some()
            && self.has_stream(ctx, stream)
            && match *op {
                Op::Fill {
                    dst, offset, bytes, ..
                } => self.window(ctx, dst, offset, bytes),
                Op::Copy {
                    dst,
                    dst_offset,
                    src,
                    src_offset,
                    bytes,
                } => {
                    self.window(ctx, dst, dst_offset, bytes)
                        && self.window(ctx, src, src_offset, bytes)
                        && (dst != src || dst_offset.abs_diff(src_offset) >= bytes)
                }
            };
        if is_legal {
            FRT_OK
        } else {
            FRT_ERR_INVALID
        }
    }

    fn call(&self, ctx: frt_ctx, op: &Op, stream: i32) -> i32 {
        let handle = |n: usize| self.buffers.get(n).map_or(NO_BUFFER, |b| b.handle);
        // SAFETY: as for C.
        unsafe {
            match *op {
                Op::Fill {
                    dst,
                    offset,
                    bytes,
                    value,
                } => frt_buffer_fill(ctx, handle(dst), offset, value.into(), bytes, stream),
                Op::Copy {
                    dst,
                    dst_offset,
                    src,
                    src_offset,
                    bytes,
                } => frt_buffer_copy(
                    ctx,
                    handle(dst),
                    dst_offset,
                    handle(src),
                    src_offset,
                    bytes,
                    stream,
                ),
            }
        }
    }

    fn run(&mut self, op: &Op) {
        match *op {
            Op::Fill {
                dst,
                offset,
                bytes,
                value,
            } => self.buffers[dst].bytes[offset..offset + bytes].fill(value),
            Op::Copy {
                dst,
                dst_offset,
                src,
                src_offset,
                bytes,
            } => {
                let from = self.buffers[src].bytes[src_offset..src_offset + bytes].to_vec();
                self.buffers[dst].bytes[dst_offset..dst_offset + bytes].copy_from_slice(&from);
            }
        }
    }

    fn replay(&mut self, n: usize, key: u64, stream: i32) -> i32 {
        let Some(g) = self.graphs.get(n).filter(|g| g.is_live) else {
            return FRT_ERR_INVALID;
        };
        let Some(at) = g.position(key) else {
            return FRT_ERR_NO_VARIANT;
        };
        if !self.has_stream(g.ctx, stream) {
            return FRT_ERR_INVALID;
        }
        let g = &mut self.graphs[n];
        let variant = g.table.remove(at).unwrap();
        g.table.push_back(variant.clone());
        for op in &variant.1 {
            self.run(op);
        }
        FRT_OK
    }

    /// Makes the call, compares what it answers, and follows it.
    fn step(&mut self, step: &Step) -> Result<(), TestCaseError> {
        let code = |is_legal: bool| if is_legal { FRT_OK } else { FRT_ERR_INVALID };
        // SAFETY: as for C.
        unsafe {
            match *step {
                Step::Context => {
                    if self.contexts.iter().filter(|c| c.is_live).count() < 3 {
                        self.contexts.push(MContext {
                            handle: cpu(),
                            is_live: true,
                            streams: 1,
                        });
                    }
                }
                Step::DestroyContext { ctx } => {
                    let (n, handle) = self.ctx(ctx);
                    frt_ctx_destroy(handle);
                    if let Some(c) = self.contexts.get_mut(n) {
                        c.is_live = false;
                    }
                    self.buffers
                        .iter_mut()
                        .filter(|b| b.ctx == n)
                        .for_each(|b| b.is_live = false);
                    self.graphs
                        .iter_mut()
                        .filter(|g| g.ctx == n)
                        .for_each(|g| g.is_live = false);
                    self.events
                        .iter_mut()
                        .filter(|e| e.ctx == n)
                        .for_each(|e| e.is_live = false);
                    self.plans
                        .iter_mut()
                        .filter(|p| p.ctx == n)
                        .for_each(|p| p.is_live = false);
                }
                Step::Stream { ctx } => {
                    let (n, handle) = self.ctx(ctx);
                    let expected = self.live_ctx(n).map_or(FRT_ERR_INVALID, |c| c.streams);
                    prop_assert_eq!(frt_ctx_stream(handle, 0), expected);
                    if expected > 0 {
                        self.contexts[n].streams += 1;
                    }
                }
                Step::Alloc { ctx, bytes } => {
                    let (ctx, owner) = self.ctx(ctx);
                    let handle = frt_buffer_alloc(owner, null(), bytes);
                    let is_legal = self.live_ctx(ctx).is_some() && bytes > 0;
                    prop_assert_eq!(!handle.is_null(), is_legal);
                    if is_legal {
                        self.buffers.push(MBuffer {
                            handle,
                            is_live: true,
                            ctx,
                            bytes: vec![0; bytes],
                        });
                    }
                }
                Step::Free { buffer } => {
                    let n = pick!(self.buffers, buffer);
                    let handle = self.buffers.get(n).map_or(NO_BUFFER, |b| b.handle);
                    let is_live = self.buffers.get(n).is_some_and(|b| b.is_live);
                    prop_assert_eq!(frt_buffer_free(handle), code(is_live));
                    if is_live {
                        self.buffers[n].is_live = false;
                    }
                }
                Step::Write {
                    ctx,
                    buffer,
                    byte,
                    stream,
                } => {
                    let (ctx, owner) = self.ctx(ctx);
                    let n = pick!(self.buffers, buffer);
                    let handle = self.buffers.get(n).map_or(NO_BUFFER, |b| b.handle);
                    let is_legal = self.window(ctx, n, 0, 1) && self.has_stream(ctx, stream);
                    let data = (&raw const byte).cast();
                    prop_assert_eq!(
                        frt_buffer_upload(owner, handle, 0, data, 1, stream),
                        code(is_legal)
                    );
                    if is_legal {
                        self.buffers[n].bytes[0] = byte;
                    }
                }
                Step::Read {
                    ctx,
                    buffer,
                    stream,
                } => {
                    let (ctx, owner) = self.ctx(ctx);
                    let n = pick!(self.buffers, buffer);
                    let handle = self.buffers.get(n).map_or(NO_BUFFER, |b| b.handle);
                    let len = self.buffers.get(n).map_or(4, |b| b.bytes.len());
                    let is_live = self.buffers.get(n).is_some_and(|b| b.is_live);
                    prop_assert_eq!(frt_buffer_bytes(handle), if is_live { len } else { 0 });
                    let is_legal = self.window(ctx, n, 0, len) && self.has_stream(ctx, stream);
                    let mut out = vec![0xaa; len];
                    let status =
                        frt_buffer_download(owner, handle, 0, out.as_mut_ptr().cast(), len, stream);
                    prop_assert_eq!(status, code(is_legal));
                    if is_legal {
                        prop_assert_eq!(&out, &self.buffers[n].bytes);
                    } else {
                        prop_assert_eq!(out, vec![0xaa; len]);
                    }
                }
                Step::Run {
                    ctx,
                    ref op,
                    stream,
                } => {
                    let (ctx, owner) = self.ctx(ctx);
                    let op = self.resolve(op);
                    let expected = self.status(ctx, &op, stream);
                    prop_assert_eq!(self.call(owner, &op, stream), expected);
                    if expected == FRT_OK {
                        self.run(&op);
                    }
                }
                Step::Graph { ctx, max } => {
                    let (ctx, owner) = self.ctx(ctx);
                    let handle = frt_graph_create(owner, null(), max);
                    let is_legal = self.live_ctx(ctx).is_some();
                    prop_assert_eq!(!handle.is_null(), is_legal);
                    if is_legal {
                        let table = VecDeque::new();
                        self.graphs.push(MGraph {
                            handle,
                            is_live: true,
                            ctx,
                            max,
                            table,
                        });
                    }
                }
                Step::DestroyGraph { graph } => {
                    let n = pick!(self.graphs, graph);
                    if let Some(g) = self.graphs.get_mut(n) {
                        frt_graph_destroy(g.handle);
                        g.is_live = false;
                    }
                }
                Step::Capture {
                    graph,
                    key,
                    ref ops,
                } => {
                    let n = pick!(self.graphs, graph);
                    let Some(g) = self.graphs.get(n) else {
                        return Ok(());
                    };
                    let ops: Vec<Op> = ops.iter().map(|op| self.resolve(op)).collect();
                    let (ctx, owner) = (g.ctx, self.contexts[g.ctx].handle);
                    let (mut recorded, mut differs) = (Vec::new(), None);
                    let status = capture(g.handle, key, |_| {
                        for op in &ops {
                            let (got, expected) =
                                (self.call(owner, op, 0), self.status(ctx, op, 0));
                            if got != expected {
                                differs = Some((op.clone(), got, expected));
                            }
                            if expected == FRT_OK {
                                recorded.push(op.clone());
                            }
                        }
                    });
                    prop_assert!(differs.is_none(), "{:?}", differs);
                    prop_assert_eq!(status, code(g.is_live));
                    if g.is_live {
                        self.graphs[n].store(key, recorded);
                    } else {
                        prop_assert!(recorded.is_empty());
                    }
                }
                Step::Adopt {
                    graph,
                    key,
                    donor,
                    donor_key,
                } => {
                    let (n, d) = (pick!(self.graphs, graph), pick!(self.graphs, donor));
                    let (Some(g), Some(donor)) = (self.graphs.get(n), self.graphs.get(d)) else {
                        return Ok(());
                    };
                    let variant = donor
                        .position(donor_key)
                        .filter(|_| donor.is_live)
                        .map(|at| &donor.table[at].1);
                    let exec = frt_graph_executable(donor.handle, donor_key);
                    prop_assert_eq!(!exec.is_null(), variant.is_some());
                    let is_legal = g.is_live && variant.is_some() && g.ctx == donor.ctx;
                    prop_assert_eq!(frt_graph_adopt(g.handle, key, exec), code(is_legal));
                    if is_legal {
                        let ops = variant.unwrap().clone();
                        self.graphs[n].store(key, ops);
                    }
                }
                Step::Replay { graph, key, stream } => {
                    let n = pick!(self.graphs, graph);
                    let handle = self.graphs.get(n).map_or(NO_GRAPH, |g| g.handle);
                    let got = frt_graph_replay(handle, key, stream);
                    prop_assert_eq!(got, self.replay(n, key, stream));
                }
                Step::Has { graph, key } => {
                    let n = pick!(self.graphs, graph);
                    let g = self.graphs.get(n);
                    let handle = g.map_or(NO_GRAPH, |g| g.handle);
                    let g = g.filter(|g| g.is_live);
                    let has = g.is_some_and(|g| g.position(key).is_some());
                    prop_assert_eq!(frt_graph_has_variant(handle, key), has.into());
                    prop_assert_eq!(
                        frt_graph_variant_count(handle),
                        g.map_or(0, |g| g.table.len())
                    );
                }
                Step::Evict { graph, key } => {
                    let n = pick!(self.graphs, graph);
                    let handle = self.graphs.get(n).map_or(NO_GRAPH, |g| g.handle);
                    let expected = match self.graphs.get_mut(n).filter(|g| g.is_live) {
                        None => FRT_ERR_INVALID,
                        Some(g) => match g.position(key) {
                            None => FRT_ERR_NO_VARIANT,
                            Some(at) => {
                                g.table.remove(at);
                                FRT_OK
                            }
                        },
                    };
                    prop_assert_eq!(frt_graph_evict(handle, key), expected);
                }
                Step::EvictLru { graph } => {
                    let n = pick!(self.graphs, graph);
                    let handle = self.graphs.get(n).map_or(NO_GRAPH, |g| g.handle);
                    let expected = match self.graphs.get_mut(n).filter(|g| g.is_live) {
                        None => FRT_ERR_INVALID,
                        Some(g) => g.table.pop_front().map_or(FRT_ERR_NO_VARIANT, |_| FRT_OK),
                    };
                    prop_assert_eq!(frt_graph_evict_lru(handle), expected);
                }
                Step::Event { ctx } => {
                    let (ctx, owner) = self.ctx(ctx);
                    let handle = frt_ctx_event(owner);
                    prop_assert_eq!(!handle.is_null(), self.live_ctx(ctx).is_some());
                    if !handle.is_null() {
                        self.events.push(MEvent {
                            handle,
                            is_live: true,
                            ctx,
                        });
                    }
                }
                Step::DestroyEvent { event } => {
                    let n = pick!(self.events, event);
                    if let Some(e) = self.events.get_mut(n) {
                        frt_event_destroy(e.handle);
                        e.is_live = false;
                    }
                }
                Step::Record { event, stream } => {
                    let n = pick!(self.events, event);
                    let handle = self.events.get(n).map_or(NO_EVENT, |e| e.handle);
                    let e = self.events.get(n).filter(|e| e.is_live);
                    let is_legal = e.is_some_and(|e| self.has_stream(e.ctx, stream));
                    prop_assert_eq!(frt_event_record(handle, stream), code(is_legal));
                }
                Step::Wait { ctx, stream, event } => {
                    let (ctx, owner) = self.ctx(ctx);
                    let n = pick!(self.events, event);
                    let handle = self.events.get(n).map_or(NO_EVENT, |e| e.handle);
                    let e = self.events.get(n).filter(|e| e.is_live && e.ctx == ctx);
                    let is_legal = e.is_some() && self.has_stream(ctx, stream);
                    prop_assert_eq!(frt_stream_wait(owner, stream, handle), code(is_legal));
                }
                Step::SyncEvent { event } => {
                    let n = pick!(self.events, event);
                    let handle = self.events.get(n).map_or(NO_EVENT, |e| e.handle);
                    let is_live = self.events.get(n).is_some_and(|e| e.is_live);
                    prop_assert_eq!(frt_event_sync(handle), code(is_live));
                    prop_assert_eq!(frt_event_query(handle), code(is_live));
                }
                Step::SyncStream { ctx, stream } => {
                    let (ctx, owner) = self.ctx(ctx);
                    prop_assert_eq!(
                        frt_stream_sync(owner, stream),
                        code(self.has_stream(ctx, stream))
                    );
                }
                Step::Plan { ctx } => {
                    let (ctx, owner) = self.ctx(ctx);
                    let handle = frt_plan_create(owner);
                    prop_assert_eq!(!handle.is_null(), self.live_ctx(ctx).is_some());
                    if !handle.is_null() {
                        let (nodes, edges) = (Vec::new(), Vec::new());
                        self.plans.push(MPlan {
                            handle,
                            is_live: true,
                            ctx,
                            nodes,
                            edges,
                        });
                    }
                }
                Step::DestroyPlan { plan } => {
                    let n = pick!(self.plans, plan);
                    if let Some(p) = self.plans.get_mut(n) {
                        frt_plan_destroy(p.handle);
                        p.is_live = false;
                    }
                }
                Step::Add {
                    plan,
                    graph,
                    key,
                    stream,
                } => {
                    let (n, g) = (pick!(self.plans, plan), pick!(self.graphs, graph));
                    let handle = self.plans.get(n).map_or(NO_PLAN, |p| p.handle);
                    let node = self.graphs.get(g).map_or(NO_GRAPH, |g| g.handle);
                    let p = self.plans.get(n).filter(|p| p.is_live);
                    let is_graph = self.graphs.get(g).is_some_and(|g| g.is_live);
                    let is_legal = is_graph && p.is_some_and(|p| self.has_stream(p.ctx, stream));
                    let expected = if is_legal {
                        self.plans[n].nodes.len() as i32
                    } else {
                        FRT_ERR_INVALID
                    };
                    prop_assert_eq!(frt_plan_add(handle, node, key, stream), expected);
                    if is_legal {
                        self.plans[n].nodes.push((g, key, stream));
                    }
                }
                Step::After { plan, node, dep } => {
                    let n = pick!(self.plans, plan);
                    let handle = self.plans.get(n).map_or(NO_PLAN, |p| p.handle);
                    let p = self.plans.get_mut(n).filter(|p| p.is_live);
                    let is_legal = p.as_ref().is_some_and(|p| {
                        let nodes = 0..p.nodes.len() as i32;
                        nodes.contains(&node) && nodes.contains(&dep) && node != dep
                    });
                    prop_assert_eq!(frt_plan_after(handle, node, dep), code(is_legal));
                    if is_legal {
                        self.plans[n].edges.push((node, dep));
                    }
                }
                Step::Validate { plan } => {
                    let n = pick!(self.plans, plan);
                    let handle = self.plans.get(n).map_or(NO_PLAN, |p| p.handle);
                    let p = self.plans.get(n).filter(|p| p.is_live);
                    let is_legal = p.is_some_and(|p| p.edges.iter().all(|(node, dep)| dep < node));
                    prop_assert_eq!(frt_plan_validate(handle), code(is_legal));
                }
                Step::Execute { plan, key } => {
                    let n = pick!(self.plans, plan);
                    let handle = self.plans.get(n).map_or(NO_PLAN, |p| p.handle);
                    let got = frt_plan_execute(handle, key);
                    let expected = match self.plans.get(n).filter(|p| p.is_live) {
                        None => FRT_ERR_INVALID,
                        Some(p) => {
                            let nodes = p.nodes.clone();
                            let mut results = nodes.into_iter().map(|(g, own, stream)| {
                                self.replay(
                                    g,
                                    if own == FRT_KEY_INHERIT { key } else { own },
                                    stream,
                                )
                            });
                            results.find(|&status| status != FRT_OK).unwrap_or(FRT_OK)
                        }
                    };
                    prop_assert_eq!(got, expected);
                }
                Step::SyncPlan { plan } => {
                    let n = pick!(self.plans, plan);
                    let handle = self.plans.get(n).map_or(NO_PLAN, |p| p.handle);
                    let is_live = self.plans.get(n).is_some_and(|p| p.is_live);
                    prop_assert_eq!(frt_plan_sync(handle), code(is_live));
                }
            }
        }
        Ok(())
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        for context in &self.contexts {
            // SAFETY: as for C; destroyed ones do nothing.
            unsafe { frt_ctx_destroy(context.handle) };
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn every_call_answers_as_the_model(steps in prop::collection::vec(step(), 1..250)) {
        // No pool of threads for each of many contexts.
        std::env::set_var("FLASHRT_THREADS", "1");
        let mut model = Model::default();
        // Something to work with.
        for step in [
            Step::Context, Step::Context, Step::Stream { ctx: 0 }, Step::Stream { ctx: 1 },
            Step::Alloc { ctx: 0, bytes: 8 }, Step::Alloc { ctx: 0, bytes: 6 }, Step::Alloc { ctx: 1, bytes: 8 },
            Step::Graph { ctx: 0, max: 2 }, Step::Graph { ctx: 0, max: 0 }, Step::Graph { ctx: 1, max: 1 },
            Step::Event { ctx: 0 }, Step::Plan { ctx: 0 }, Step::Plan { ctx: 1 },
        ] {
            model.step(&step)?;
        }
        for step in &steps {
            model.step(step)?;
        }
        // Whatever is left has the contents that the model has.
        for buffer in 0..model.buffers.len() {
            let ctx = model.buffers[buffer].ctx;
            model.step(&Step::Read { ctx, buffer, stream: 0 })?;
        }
    }
}
