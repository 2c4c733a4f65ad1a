//! Any sequence of calls of `flashrt/exec.h` on a CPU context: with live, destroyed, mismatched and made-up handles, in record
//! callbacks and in host functions too.
//!
//! What the caller owes is kept: names end in a NUL, memory is there and outlives the contexts, one thread. For this every call
//! below is sound.

use crate::input::Input;
use flashrt_capi::*;
use std::cell::{Cell, RefCell, UnsafeCell};
use std::ffi::{c_char, c_int, c_void, CStr};
use std::ptr::{null, null_mut, without_provenance_mut};
use std::thread::ThreadId;

const ROOM: usize = 1 << 14;
const STEPS: usize = 600;
const CALLBACKS: usize = 4;

#[derive(Clone, Copy)]
enum Kind {
    Context,
    Event,
    Buffer,
    Graph,
    Plan,
    Stream,
    Executable,
}
const KINDS: usize = Kind::Executable as usize + 1;

struct Machine<'a> {
    input: Input<'a>,
    /// Everything that was ever handed out.
    pools: RefCell<[Vec<*mut c_void>; KINDS]>,
    contexts: Cell<usize>,
    steps: Cell<usize>,
    depth: Cell<usize>,
    thread: ThreadId,
    /// Memory to wrap.
    arena: Box<UnsafeCell<[u8; ROOM]>>,
    /// Memory to upload from and download to.
    scratch: Box<UnsafeCell<[u8; ROOM]>>,
}

pub fn run(bytes: &[u8]) {
    // One pool of one thread: foreign code stays on this one.
    std::env::set_var("FLASHRT_THREADS", "1");
    let machine = Machine {
        input: Input::new(bytes),
        pools: RefCell::default(),
        contexts: Cell::new(0),
        steps: Cell::new(0),
        depth: Cell::new(0),
        thread: std::thread::current().id(),
        arena: Box::new(UnsafeCell::new([0x5a; ROOM])),
        scratch: Box::new(UnsafeCell::new([0xa5; ROOM])),
    };
    machine.create();
    while machine.may_go_on() {
        machine.step();
    }
    machine.finish();
}

unsafe extern "C" fn record(user: *mut c_void, stream: *mut c_void) {
    // SAFETY: the machine of `run`, which outlives its contexts.
    let machine = unsafe { &*user.cast::<Machine<'static>>() };
    machine.keep(Kind::Stream, stream);
    machine.nested(8);
}

unsafe extern "C" fn host_function(user: *mut c_void) {
    // SAFETY: as above.
    let machine = unsafe { &*user.cast::<Machine<'static>>() };
    assert_eq!(std::thread::current().id(), machine.thread);
    machine.nested(3);
}

impl Machine<'_> {
    fn may_go_on(&self) -> bool {
        self.steps.get() < STEPS && !self.input.is_empty()
    }

    /// Some steps inside a callback.
    fn nested(&self, most: usize) {
        if self.depth.get() == CALLBACKS {
            return;
        }
        self.depth.set(self.depth.get() + 1);
        for _ in 0..self.input.below(most + 1) {
            if self.may_go_on() {
                self.step();
            }
        }
        self.depth.set(self.depth.get() - 1);
    }

    fn keep<T>(&self, kind: Kind, handle: *mut T) {
        if !handle.is_null() {
            self.pools.borrow_mut()[kind as usize].push(handle.cast());
        }
    }

    /// Mostly something that was once of this kind.
    fn pick<T>(&self, kind: Kind) -> *mut T {
        let pools = self.pools.borrow();
        let choice = match self.input.is_odd(6) {
            true => self.input.below(4),
            false => 9,
        };
        let pool = match choice {
            0 => return null_mut(),
            1 => return without_provenance_mut(self.input.number() as usize),
            2 => &pools[self.input.below(KINDS)],
            _ => &pools[kind as usize],
        };
        let Some(&handle) = pool.get(self.input.below(pool.len())) else {
            return null_mut();
        };
        match choice {
            3 => handle.map_addr(|n| n ^ 1 << self.input.below(64)).cast(),
            _ => handle.cast(),
        }
    }

    fn context(&self) -> frt_ctx {
        self.pick(Kind::Context)
    }

    fn buffer(&self) -> frt_buffer {
        self.pick(Kind::Buffer)
    }

    fn graph(&self) -> frt_graph {
        self.pick(Kind::Graph)
    }

    fn stream(&self) -> c_int {
        if self.input.is_odd(8) {
            return [-1, self.input.number() as c_int][self.input.below(2)];
        }
        [0, 0, 0, 1, 2][self.input.below(5)]
    }

    fn key(&self) -> u64 {
        match self.input.below(6) {
            0 => FRT_KEY_INHERIT,
            n => n as u64 % 4,
        }
    }

    fn name(&self) -> *const c_char {
        const NAMES: [Option<&CStr>; 5] = [
            None,
            Some(c""),
            Some(c"x"),
            Some(c"\xff\xfe no text"),
            Some(c"a name that is longer than the others are"),
        ];
        NAMES[self.input.below(NAMES.len())].map_or(null(), CStr::as_ptr)
    }

    fn user(&self) -> *mut c_void {
        (&raw const *self).cast_mut().cast()
    }

    fn create(&self) {
        if self.contexts.get() < 4 {
            self.contexts.set(self.contexts.get() + 1);
            let kind = if self.input.one_in(16) {
                9
            } else {
                FRT_BACKEND_CPU
            };
            // SAFETY: see the module.
            self.keep(Kind::Context, unsafe { frt_ctx_create_with(kind, 0) });
        }
    }

    fn step(&self) {
        self.steps.set(self.steps.get() + 1);
        let input = &self.input;
        let status = |code: c_int| assert!(code >= FRT_ERR_OOM, "{code}");
        // SAFETY: see the module.
        unsafe {
            match input.below(46) {
                0 => self.create(),
                1 if input.one_in(4) => frt_ctx_destroy(self.context()),
                1 => status(frt_ctx_backend(self.context())),
                2 => status(frt_ctx_stream(self.context(), input.number() as c_int)),
                3 => status(frt_ctx_wrap_stream(self.context(), self.pick(Kind::Stream))),
                4 | 5 => status(frt_stream_sync(self.context(), self.stream())),
                6 => {
                    let stream = frt_stream_handle(self.context(), self.stream());
                    self.keep(Kind::Stream, stream);
                }
                7 | 8 => {
                    let function = (!input.one_in(8)).then_some(host_function as _);
                    let stream = self.pick(Kind::Stream);
                    status(frt_stream_host_func(stream, function, self.user()));
                }
                9 => self.keep(Kind::Event, frt_ctx_event(self.context())),
                10 if input.one_in(2) => frt_event_destroy(self.pick(Kind::Event)),
                10 | 11 => status(frt_event_record(self.pick(Kind::Event), self.stream())),
                12 => {
                    let event = self.pick(Kind::Event);
                    status(frt_stream_wait(self.context(), self.stream(), event));
                }
                13 => status(frt_event_query(self.pick(Kind::Event))),
                14 => status(frt_event_sync(self.pick(Kind::Event))),
                15 | 16 => {
                    let bytes = self.alloc_size();
                    let buffer = frt_buffer_alloc(self.context(), self.name(), bytes);
                    self.keep(Kind::Buffer, buffer);
                }
                17 => {
                    let bytes = self.alloc_size();
                    let buffer = frt_buffer_alloc_host(self.context(), self.name(), bytes);
                    self.keep(Kind::Buffer, buffer);
                }
                18 => {
                    let at = input.below(ROOM);
                    let start = match input.one_in(8) {
                        true => null_mut(),
                        false => self.arena.get().cast::<u8>().add(at).cast(),
                    };
                    let bytes = input.below(ROOM - at + 1);
                    let buffer = frt_buffer_wrap(self.context(), self.name(), start, bytes);
                    self.keep(Kind::Buffer, buffer);
                }
                19 => status(frt_buffer_free(self.buffer())),
                20 => {
                    let buffer = self.buffer();
                    let bytes = frt_buffer_bytes(buffer);
                    assert!(bytes == 0 || !frt_buffer_dptr(buffer).is_null());
                    status(frt_buffer_space(buffer));
                    assert!(CStr::from_ptr(frt_buffer_name(buffer)).count_bytes() < 64);
                }
                21..=24 => {
                    let (dst, src) = (self.buffer(), self.buffer());
                    let (dst_at, src_at) = (input.size(64), input.size(64));
                    let bytes = input.size(64);
                    let context = self.context();
                    let stream = self.stream();
                    status(frt_buffer_copy(
                        context, dst, dst_at, src, src_at, bytes, stream,
                    ));
                }
                25 | 26 => {
                    let (at, bytes) = (input.size(64), input.size(256));
                    let value = input.number() as c_int;
                    let (context, stream) = (self.context(), self.stream());
                    status(frt_buffer_fill(
                        context,
                        self.buffer(),
                        at,
                        value,
                        bytes,
                        stream,
                    ));
                }
                27 | 28 => {
                    let (at, bytes) = (input.size(64), input.size(256));
                    let host = self.host();
                    let (context, stream) = (self.context(), self.stream());
                    let buffer = self.buffer();
                    status(match input.one_in(2) {
                        true => frt_buffer_upload(context, buffer, at, host, bytes, stream),
                        false => frt_buffer_download(context, buffer, at, host, bytes, stream),
                    });
                }
                29 => {
                    let max = input.size(3);
                    let graph = frt_graph_create(self.context(), self.name(), max);
                    self.keep(Kind::Graph, graph);
                }
                30 if input.one_in(3) => frt_graph_destroy(self.graph()),
                30..=32 => {
                    let function = (!input.one_in(8)).then_some(record as _);
                    let (graph, key) = (self.graph(), self.key());
                    status(frt_graph_capture(graph, key, function, self.user()));
                }
                33 => {
                    let raw = frt_graph_executable(self.graph(), self.key());
                    self.keep(Kind::Executable, raw);
                }
                34 => {
                    let raw = self.pick(Kind::Executable);
                    status(frt_graph_adopt(self.graph(), self.key(), raw));
                }
                35 => status(frt_graph_bind(self.graph(), self.name(), self.buffer())),
                36 | 37 => status(frt_graph_replay(self.graph(), self.key(), self.stream())),
                38 => {
                    let graph = self.graph();
                    let has = frt_graph_has_variant(graph, self.key());
                    assert!(has == 0 || frt_graph_variant_count(graph) > 0);
                }
                39 => status(frt_graph_evict(self.graph(), self.key())),
                40 => status(frt_graph_evict_lru(self.graph())),
                41 => self.keep(Kind::Plan, frt_plan_create(self.context())),
                42 if input.one_in(4) => frt_plan_destroy(self.pick(Kind::Plan)),
                42 => {
                    let plan = self.pick(Kind::Plan);
                    status(frt_plan_add(plan, self.graph(), self.key(), self.stream()));
                }
                43 => {
                    let (node, dep) = (self.stream(), self.stream());
                    status(frt_plan_after(self.pick(Kind::Plan), node, dep));
                }
                44 => status(frt_plan_execute(self.pick(Kind::Plan), self.key())),
                _ => {
                    let plan = self.pick(Kind::Plan);
                    status(frt_plan_validate(plan));
                    status(frt_plan_sync(plan));
                }
            }
            // Whatever happened, there is a text that ends.
            assert!(CStr::from_ptr(frt_last_error()).count_bytes() < 4096);
        }
    }

    /// What is asked of the heap is small, or refused before it is asked.
    fn alloc_size(&self) -> usize {
        match self.input.size(ROOM) {
            n if n > ROOM => n | 1 << 63,
            n => n,
        }
    }

    fn host(&self) -> *mut c_void {
        match self.input.one_in(10) {
            true => null_mut(),
            false => self.scratch.get().cast(),
        }
    }

    /// Everything goes with its context, and every handle is dead then.
    fn finish(&self) {
        let pools = self.pools.borrow().clone();
        let of = |kind: Kind| pools[kind as usize].iter().copied();
        // SAFETY: see the module.
        unsafe {
            for context in of(Kind::Context) {
                frt_ctx_destroy(context.cast());
                assert_eq!(frt_ctx_backend(context.cast()), FRT_ERR_INVALID);
            }
            for event in of(Kind::Event) {
                assert_eq!(frt_event_query(event.cast()), FRT_ERR_INVALID);
            }
            for buffer in of(Kind::Buffer) {
                assert_eq!(frt_buffer_space(buffer.cast()), FRT_ERR_INVALID);
            }
            for graph in of(Kind::Graph) {
                assert_eq!(frt_graph_evict_lru(graph.cast()), FRT_ERR_INVALID);
            }
            for plan in of(Kind::Plan) {
                assert_eq!(frt_plan_sync(plan.cast()), FRT_ERR_INVALID);
            }
        }
    }
}
