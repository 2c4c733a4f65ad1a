//! Any sequence of capsule verbs, over a backend that fails, lies and calls back.
//!
//! What the caller owes is kept: arrays are as long as they say, and work has run before what it reads is dropped.

use crate::capsule_support::*;
use crate::input::Input;
use flashrt_capi::*;
use std::ffi::c_int;
use std::ptr::{null, null_mut, without_provenance_mut};

const FUNCTIONS: [&str; 14] = [
    "buffer_alloc",
    "buffer_ptr",
    "buffer_bytes",
    "buffer_copy",
    "buffer_upload",
    "buffer_download",
    "graph_replay",
    "graph_has",
    "event",
    "event_record",
    "event_query",
    "stream_wait",
    "sync",
    "fingerprint",
];

/// Bytes of the live buffers.
const SIZES: [usize; 4] = [0, 1, 16, 300];

struct Machine<'a> {
    input: Input<'a>,
    fake: Fake,
    contexts: Vec<cap_ctx>,
    capsules: Vec<cap_capsule>,
    buffers: Vec<cap_buffer>,
    graphs: Vec<cap_graph>,
    blobs: Vec<Vec<u8>>,
}

pub fn run(bytes: &[u8]) {
    let input = Input::new(bytes);
    let fake = Fake::default();
    fake.with(|state| state.is_eager = input.one_in(2));
    let buffers = [0, 1, 16, 300]
        .map(|n| fake.buffer(&vec![n as u8; n]))
        .into();
    let graphs = vec![fake.graph(0x10, &[0, 1]), fake.graph(0x20, &[1])];
    let mut machine = Machine {
        input,
        fake,
        contexts: Vec::new(),
        capsules: Vec::new(),
        buffers,
        graphs,
        blobs: Vec::new(),
    };
    machine.create(false);
    for _ in 0..200 {
        if machine.input.is_empty() {
            break;
        }
        machine.step();
    }
    machine.finish();
}

impl Machine<'_> {
    fn pick<T>(&self, pool: &[*mut T]) -> *mut T {
        match self.input.below(20) {
            0 => null_mut(),
            1 => without_provenance_mut(self.input.number() as usize),
            _ => pool
                .get(self.input.below(pool.len()))
                .copied()
                .unwrap_or(null_mut()),
        }
    }

    fn context(&self) -> cap_ctx {
        self.pick(&self.contexts)
    }

    fn capsule(&self) -> cap_capsule {
        self.pick(&self.capsules)
    }

    fn region(&self) -> cap_region {
        let input = &self.input;
        if input.is_odd(8) {
            return region(self.pick(&self.buffers), input.size(20), input.size(300));
        }
        let at = input.below(SIZES.len());
        let off = input.below(SIZES[at] + 1);
        region(self.buffers[at], off, input.below(SIZES[at] - off + 1))
    }

    fn regions(&self) -> Vec<cap_region> {
        (0..self.input.below(5)).map(|_| self.region()).collect()
    }

    fn tier(&self) -> c_int {
        self.input.code(3) as c_int
    }

    fn stream(&self) -> c_int {
        self.input.below(3) as c_int
    }

    /// A number of entries: what there is, or what must be refused.
    fn count(&self, real: usize) -> c_int {
        match self.input.is_odd(10) {
            true => [-1, c_int::MIN][self.input.below(2)],
            false => real as c_int,
        }
    }

    fn stage(&self) -> cap_stage {
        let input = &self.input;
        cap_stage {
            graph: self.pick(&self.graphs),
            key: input.below(3) as u64,
            stream: self.stream(),
            priority: 0,
            cadence_num: input.below(4) as c_int - 1,
            cadence_den: input.below(4) as c_int - 1,
            trigger: if input.one_in(3) {
                input.code(3) as c_int
            } else {
                0
            },
        }
    }

    fn create(&mut self, is_broken: bool) {
        let mut table = self.fake.table();
        if is_broken {
            match self.input.below(4) {
                0 => table.abi_version = self.input.code(2),
                1 => table.struct_size = self.input.code(200),
                2 => table.sync = None,
                _ => table.graph_bind = None,
            }
        }
        // SAFETY: the table's functions are those of the fake, or null.
        let ctx = unsafe { cap_ctx_create(&table) };
        if !ctx.is_null() {
            self.contexts.push(ctx);
        }
    }

    /// All work has run: from here on things may be freed.
    fn settle(&self) {
        (0..3).for_each(|stream| self.fake.run(stream));
    }

    /// One function fails, at some call or always.
    fn broken(&self) {
        let input = &self.input;
        let break_it = match (input.is_odd(3), input.one_in(2)) {
            (true, true) => Some(Break::Function(FUNCTIONS[input.below(FUNCTIONS.len())])),
            (true, false) => Some(Break::Call(input.below(24))),
            _ => None,
        };
        let code = [-7, -1, 1, 77][input.below(4)];
        self.fake.with(|state| {
            state.log.clear();
            state.broken = break_it;
            state.code = code;
            if input.is_odd(24) {
                state.fingerprint ^= 1;
            }
        });
    }

    /// Some function of the backend drops a capsule or destroys a context, if work runs at once.
    fn hooked(&self) {
        if !self.fake.with(|state| state.is_eager) || !self.input.is_odd(6) {
            return;
        }
        let name = FUNCTIONS[self.input.below(FUNCTIONS.len())];
        let (ctx, capsule) = (self.context(), self.capsule());
        let is_whole_context = self.input.one_in(4);
        let mut is_done = false;
        let hook = move |function: &'static str| {
            if function == name && !is_done {
                is_done = true;
                // SAFETY: the same thread; handles may be anything.
                unsafe {
                    match is_whole_context {
                        true => cap_ctx_destroy(ctx),
                        false => cap_capsule_drop(ctx, capsule),
                    }
                }
            }
        };
        self.fake.with(|state| state.hook = Some(Box::new(hook)));
    }

    fn step(&mut self) {
        let choice = self.input.below(20);
        if matches!(choice, 1 | 10 | 11 | 14) {
            self.settle();
        }
        self.broken();
        self.hooked();
        self.call(choice);
        self.fake.with(|state| {
            state.broken = None;
            state.hook = None;
        });
    }

    fn call(&mut self, choice: usize) {
        let status = |code: c_int| assert!((CAP_ERR_FORMAT as c_int..=1).contains(&code), "{code}");
        let (ctx, stream) = (self.context(), self.stream());
        let capsule = self.capsule();
        // SAFETY: arrays are as long as they say, the fake outlives the contexts, and handles may be anything.
        unsafe {
            match choice {
                0 => {
                    if self.contexts.len() < 6 {
                        self.create(self.input.one_in(3));
                    }
                }
                1 if self.input.one_in(6) => cap_ctx_destroy(ctx),
                1..=4 => {
                    let regions = self.regions();
                    let meta = self.input.bytes(self.input.below(20));
                    let boundary = cap_boundary {
                        regions: match self.input.is_odd(16) {
                            true => null(),
                            false => regions.as_ptr(),
                        },
                        n_regions: self.count(regions.len()),
                        meta: meta.as_ptr().cast(),
                        meta_len: meta.len(),
                    };
                    let capsule = cap_snapshot(ctx, &boundary, self.tier(), stream);
                    if !capsule.is_null() {
                        self.capsules.push(capsule);
                    }
                }
                5 => assert!(cap_capsule_ready(ctx, capsule) <= 1),
                6 => {
                    status(cap_restore(ctx, capsule, stream));
                    self.settle();
                }
                7 | 8 => {
                    // Often as many as the capsule has.
                    let mut regions = self.regions();
                    let mut n = 0;
                    if cap_regions(ctx, capsule, null_mut(), &mut n) == OK && !self.input.one_in(4)
                    {
                        regions.resize_with(n as usize, || region(self.buffers[3], 0, 300));
                    }
                    let n = self.count(regions.len());
                    status(cap_restore_into(ctx, capsule, regions.as_ptr(), n, stream));
                    self.settle();
                }
                9 => {
                    let unset = cap_region_view {
                        ptr: null_mut(),
                        bytes: 0,
                    };
                    let mut views = vec![unset; self.input.below(6)];
                    let mut n = self.count(views.len());
                    status(cap_regions(ctx, capsule, views.as_mut_ptr(), &mut n));
                    let (mut meta, mut len) = (null(), 0);
                    if cap_capsule_meta(ctx, capsule, &mut meta, &mut len) == OK && len > 0 {
                        std::hint::black_box(
                            std::slice::from_raw_parts(meta.cast::<u8>(), len).to_vec(),
                        );
                    }
                }
                10 => status(cap_tier_move(ctx, capsule, self.tier(), stream)),
                11..=13 => {
                    let mut len = 0;
                    if cap_serialize(ctx, capsule, null_mut(), &mut len) == OK {
                        let mut blob = vec![0; len];
                        if self.input.one_in(6) {
                            blob.pop();
                        }
                        len = blob.len();
                        let code = cap_serialize(ctx, capsule, blob.as_mut_ptr().cast(), &mut len);
                        status(code);
                        self.settle();
                        if code == OK {
                            self.blobs.push(blob);
                        }
                    }
                }
                14 => {
                    if let Some(mut blob) =
                        self.blobs.get(self.input.below(self.blobs.len())).cloned()
                    {
                        if self.input.one_in(3) {
                            let at = self.input.below(blob.len());
                            blob[at] ^= 1 << self.input.below(8);
                        }
                        let capsule = cap_load(ctx, blob.as_ptr().cast(), blob.len());
                        assert_eq!(capsule.is_null(), cap_load_status() != OK);
                        if !capsule.is_null() {
                            self.capsules.push(capsule);
                        }
                        self.settle();
                    }
                }
                15 => {
                    self.settle();
                    cap_capsule_drop(ctx, capsule);
                }
                16 => status(cap_fire(ctx, &self.stage())),
                17 => {
                    let stages: Vec<_> = (0..self.input.below(5)).map(|_| self.stage()).collect();
                    let index = || self.input.below(stages.len() + 2) as c_int - 1;
                    let deps: Vec<_> = (0..self.input.below(5))
                        .map(|_| [index(), index()])
                        .collect();
                    let schedule = cap_schedule {
                        stages: stages.as_ptr(),
                        n_stages: self.count(stages.len()),
                        deps: deps.as_ptr(),
                        n_deps: self.count(deps.len()),
                    };
                    let mut failed = 77;
                    let code = cap_drive_tick(ctx, &schedule, self.input.number(), &mut failed);
                    status(code);
                    assert!((-1..stages.len() as c_int).contains(&failed));
                    assert!(code == OK || failed >= -1);
                }
                18 => {
                    let src = [9; 400];
                    let n = self.input.size(400);
                    let dst = self.pick(&self.buffers);
                    status(cap_swap(ctx, dst, src.as_ptr().cast(), n, stream));
                    self.settle();
                }
                _ => status(cap_sync(ctx, stream)),
            }
        }
    }

    /// Nothing is left of the contexts.
    fn finish(&self) {
        self.settle();
        for &ctx in &self.contexts {
            // SAFETY: the fake is still there.
            unsafe { cap_ctx_destroy(ctx) };
        }
        self.settle();
        assert_eq!(self.fake.allocations(), []);
        assert_eq!(self.fake.events(), 0);
        for &capsule in &self.capsules {
            for &ctx in &self.contexts {
                // SAFETY: handles may be anything.
                assert_eq!(unsafe { cap_capsule_ready(ctx, capsule) }, ARG);
            }
        }
    }
}
