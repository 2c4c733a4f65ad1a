//! Any sequence of calls of the runtime functions: builders live, finished and made up; names of any bytes; arrays with any count.
//!
//! What the caller owes is kept: strings end in a NUL, arrays are as long as they say (or say more than is ever read), references are
//! given back once.

use crate::input::Input;
use crate::owner::{self, release, retain, run_opaque, use_model, Owner};
use flashrt_capi::abi::*;
use flashrt_capi::*;
use std::ffi::{c_char, c_int, c_void, CStr, CString};
use std::ptr::{null, null_mut, without_provenance_mut};

struct Machine<'a> {
    input: Input<'a>,
    owner: Owner,
    builders: Vec<frt_runtime_builder>,
    exports: Vec<*mut frt_runtime_export_v1>,
    models: Vec<*mut frt_model_runtime_v1>,
    /// Calls of `retain` and `release` that the owner must see in the end.
    retains: u64,
    releases: u64,
    /// Keeps every string for the length of the run.
    strings: Vec<CString>,
}

pub fn run(bytes: &[u8]) {
    let mut machine = Machine {
        input: Input::new(bytes),
        owner: Owner::default(),
        builders: Vec::new(),
        exports: Vec::new(),
        models: Vec::new(),
        retains: 0,
        releases: 0,
        strings: Vec::new(),
    };
    machine
        .builders
        .push(frt_runtime_builder_create(without_provenance_mut(8)));
    for _ in 0..150 {
        if machine.input.is_empty() {
            break;
        }
        machine.step();
    }
    machine.finish();
}

/// An array and a count that agree, or that must be refused before the array is read.
fn counted<T>(input: &Input<'_>, array: &[T]) -> (*const T, u64) {
    let n = array.len() as u64;
    let odd = array.as_ptr().cast::<u8>().wrapping_add(1).cast();
    if !input.is_odd(5) {
        return (array.as_ptr(), n);
    }
    match input.below(4) {
        0 => (null(), n),
        1 => (array.as_ptr(), (1 << 20) + 1 + (input.number() >> 1)),
        2 => (odd, n.max(1)),
        _ => (null(), u64::MAX),
    }
}

impl Machine<'_> {
    fn builder(&self) -> frt_runtime_builder {
        if self.input.is_odd(12) {
            return without_provenance_mut(self.input.number() as usize);
        }
        // Mostly the newest.
        let newest = self.builders.len() - 1;
        match self.input.one_in(3) {
            true => self.builders[self.input.below(newest + 1)],
            false => self.builders[newest],
        }
    }

    fn handle<T>(&self) -> *mut T {
        match self.input.is_odd(8) {
            true => null_mut(),
            false => without_provenance_mut(8 + self.input.below(9) * 8),
        }
    }

    fn string(&mut self) -> *const c_char {
        let input = &self.input;
        if input.is_odd(12) {
            return null();
        }
        let bytes = match input.below(20) {
            1 => vec![input.byte().max(1); 250 + input.below(400)],
            2..=4 => input.bytes(input.below(40)).to_vec(),
            n => vec![b'a' + n as u8],
        };
        let bytes: Vec<u8> = bytes.into_iter().filter(|&b| b != 0).collect();
        self.strings.push(CString::new(bytes).unwrap_or_default());
        self.strings.last().map_or(null(), |s| s.as_ptr())
    }

    fn afters(&self) -> Vec<u32> {
        (0..self.input.below(4))
            .map(|_| self.input.code(3))
            .collect()
    }

    fn numbers(&self) -> (u64, u64) {
        (self.input.size(100) as u64, self.input.size(100) as u64)
    }

    /// Owner, retain and release of a new object; either function may be missing.
    #[allow(clippy::type_complexity)]
    fn owned(
        &self,
    ) -> (
        *mut c_void,
        Option<unsafe extern "C" fn(*mut c_void)>,
        Option<unsafe extern "C" fn(*mut c_void)>,
    ) {
        let retain = (!self.input.is_odd(6)).then_some(retain as _);
        let release = (!self.input.is_odd(6)).then_some(release as _);
        (self.owner.pointer(), retain, release)
    }

    fn verbs(&self) -> frt_model_runtime_verbs {
        let all = 31;
        let bits = match self.input.is_odd(2) {
            true => self.input.byte(),
            false => all,
        };
        let mut table = owner::verbs(bits);
        if self.input.is_odd(12) {
            table.struct_size = [0, 47, 49, 4096][self.input.below(4)];
        }
        table
    }

    fn took(&mut self, retain: bool, release: bool) {
        self.retains += u64::from(retain);
        self.releases += u64::from(release);
    }

    fn step(&mut self) {
        let status = |code: c_int| assert!(code >= -6, "{code}");
        let b = self.builder();
        // SAFETY: see the module.
        unsafe {
            match self.input.below(24) {
                0 if self.builders.len() < 8 => {
                    let b = match self.input.one_in(3) {
                        true => frt_model_runtime_builder_create_metadata(),
                        false => frt_runtime_builder_create(self.handle()),
                    };
                    self.builders.push(b);
                }
                1 => {
                    if self.input.one_in(4) {
                        frt_runtime_builder_destroy(b);
                    }
                }
                0 | 2 => {
                    let name = self.string();
                    let (id, priority) = (self.input.code(3) as c_int, self.input.code(3) as c_int);
                    status(frt_runtime_builder_add_stream(
                        b,
                        name,
                        id,
                        priority,
                        self.handle(),
                    ));
                }
                3 | 4 => {
                    let name = self.string();
                    let keys: Vec<u64> = (0..self.input.below(4))
                        .map(|_| self.input.number())
                        .collect();
                    let (keys, n) = counted(&self.input, &keys);
                    let default = self.input.number();
                    let stream = self.input.code(3) as c_int;
                    status(frt_runtime_builder_add_graph(
                        b,
                        name,
                        self.handle(),
                        default,
                        keys,
                        n,
                        stream,
                    ));
                }
                5 | 6 => {
                    let name = self.string();
                    let (bytes, _) = self.numbers();
                    let role = self.input.code(20);
                    status(frt_runtime_builder_add_buffer(
                        b,
                        name,
                        self.handle(),
                        bytes,
                        role,
                    ));
                }
                7 => {
                    let name = self.string();
                    let (offset, bytes) = self.numbers();
                    let flags = self.input.code(4);
                    let buffer = self.handle();
                    status(frt_runtime_builder_add_region(
                        b, name, buffer, offset, bytes, flags,
                    ));
                }
                8 => {
                    let (key, value) = (self.string(), self.string());
                    status(frt_runtime_builder_add_identity(b, key, value));
                }
                9 => {
                    let json = self.string();
                    status(frt_runtime_builder_set_manifest(b, json));
                }
                10..=12 => {
                    let name = self.string();
                    let codes = [8, 6, 5, 2, 3].map(|end| self.input.code(end));
                    let required = self.input.code(2);
                    let shape: Vec<i64> = (0..self.input.below(5))
                        .map(|_| self.input.below(9) as i64 - 2)
                        .collect();
                    let (shape, rank) = counted(&self.input, &shape);
                    // A count of 32 bits.
                    let rank = u32::try_from(rank).unwrap_or(u32::MAX);
                    let (offset, bytes) = self.numbers();
                    let cadence = self.input.code(50);
                    let buffer = self.handle();
                    status(frt_runtime_builder_add_port(
                        b, name, codes[0], codes[1], codes[2], codes[3], codes[4], required, shape,
                        rank, cadence, buffer, offset, bytes,
                    ));
                }
                13 | 14 => {
                    let after = self.afters();
                    let (after, n) = counted(&self.input, &after);
                    let n = u32::try_from(n).unwrap_or(u32::MAX);
                    status(frt_runtime_builder_add_stage(
                        b,
                        self.input.code(2),
                        after,
                        n,
                    ));
                }
                15 | 16 => {
                    let name = self.string();
                    let after = self.afters();
                    let (after, n) = counted(&self.input, &after);
                    let n = u32::try_from(n).unwrap_or(u32::MAX);
                    let (kind, index) = (1 - self.input.below(8) as u32 / 7, self.input.code(3));
                    status(frt_runtime_builder_add_generic_stage(
                        b, name, kind, index, after, n,
                    ));
                }
                17 => {
                    let function = (!self.input.is_odd(6)).then_some(run_opaque as _);
                    let this = self.owner.pointer();
                    status(frt_runtime_builder_set_generic_stage_runner(
                        b, this, function,
                    ));
                }
                18 => {
                    let (owner, retain, release) = self.owned();
                    let export = frt_runtime_builder_finish(b, owner, retain, release);
                    if !export.is_null() {
                        self.took(retain.is_some(), release.is_some());
                        self.exports.push(export);
                        check_export(export);
                    }
                }
                19 | 20 => {
                    let (owner, retain, release) = self.owned();
                    let table = self.verbs();
                    let verbs = match self.input.is_odd(8) {
                        true => null(),
                        false => &raw const table,
                    };
                    let this = self.owner.pointer();
                    let model =
                        frt_runtime_builder_finish_model(b, verbs, this, owner, retain, release);
                    self.keep_model(model, retain.is_some(), release.is_some());
                }
                21 => {
                    let table = self.verbs();
                    let (owner, retain, release) = self.owned();
                    let base = self.model();
                    let this = self.owner.pointer();
                    let model = frt_model_runtime_override_verbs(
                        base, &table, this, owner, retain, release,
                    );
                    self.keep_model(model, retain.is_some(), release.is_some());
                }
                22 => self.wrap(),
                _ => {
                    // References come and go in pairs, on live objects.
                    if let Some(&export) = self.exports.get(self.input.below(self.exports.len())) {
                        (*export).retain.unwrap()((*export).owner);
                        (*export).release.unwrap()((*export).owner);
                    }
                    if !self.models.is_empty() && self.input.one_in(3) {
                        let model = self.models.swap_remove(self.input.below(self.models.len()));
                        (*model).release.unwrap()((*model).owner);
                    }
                }
            }
            assert!(CStr::from_ptr(frt_last_error()).count_bytes() < 1 << 20);
        }
    }

    fn model(&self) -> *const frt_model_runtime_v1 {
        match self.models.get(self.input.below(self.models.len() + 1)) {
            Some(&model) => model,
            None => null(),
        }
    }

    fn keep_model(&mut self, model: *mut frt_model_runtime_v1, retain: bool, release: bool) {
        if model.is_null() {
            return;
        }
        self.took(retain, release);
        self.models.push(model);
        // SAFETY: the model was just made.
        unsafe {
            check_export((*model).exp);
            use_model(model);
        }
    }

    fn wrap(&mut self) {
        let name = self.string();
        let shape = [1i64, -1];
        let input = &self.input;
        let port = frt_runtime_port_desc {
            name,
            modality: input.code(8),
            dtype: input.code(6),
            layout: input.code(5),
            direction: input.code(2),
            update: input.code(3),
            required: 0,
            shape: shape.as_ptr(),
            rank: input.below(3) as u32,
            cadence_hint_hz: 0,
            buffer: self.handle(),
            offset: 0,
            bytes: 8,
        };
        let after = self.afters();
        let stage = frt_runtime_stage_desc {
            graph: input.code(1),
            n_after: after.len() as u32,
            after: after.as_ptr(),
        };
        let (ports, stages) = (vec![port; input.below(3)], vec![stage; input.below(4)]);
        let (ports, n_ports) = counted(input, &ports);
        let (stages, n_stages) = counted(input, &stages);
        let table = self.verbs();
        let release = (!input.is_odd(6)).then_some(release as _);
        let export = match self.exports.get(input.below(self.exports.len() + 1)) {
            Some(&export) => export,
            None => null_mut(),
        };
        let this = self.owner.pointer();
        // SAFETY: see the module.
        let model = unsafe {
            frt_model_runtime_wrap(
                export, ports, n_ports, stages, n_stages, &table, this, this, release,
            )
        };
        self.keep_model(model, false, release.is_some());
    }

    /// All references go; then the owner was released as often as it was told of.
    fn finish(&self) {
        for &b in &self.builders {
            frt_runtime_builder_destroy(b);
        }
        // In this order, so that what stands on others outlives our reference to them.
        for &export in &self.exports {
            // SAFETY: our one reference.
            unsafe { (*export).release.unwrap()((*export).owner) };
        }
        for &model in &self.models {
            // SAFETY: our one reference.
            unsafe { (*model).release.unwrap()((*model).owner) };
        }
        assert_eq!(self.owner.retained.get(), self.retains);
        assert_eq!(self.owner.released.get(), self.releases);
    }
}

/// The fingerprint is that of the identity, and everything is there.
unsafe fn check_export(export: *const frt_runtime_export_v1) {
    // SAFETY: a live export; whatever it points to is as long as it says.
    unsafe {
        let e = &*export;
        let identity = CStr::from_ptr(e.identity);
        let fingerprint = frt_runtime_fingerprint(identity.as_ptr().cast(), identity.count_bytes());
        assert_eq!(e.fingerprint, fingerprint);
        let name = |name: *const c_char| assert!(!CStr::from_ptr(name).to_bytes().contains(&0));
        (0..e.n_streams as usize).for_each(|i| name((*e.streams.add(i)).name));
        (0..e.n_buffers as usize).for_each(|i| name((*e.buffers.add(i)).name));
        (0..e.n_capsule_regions as usize).for_each(|i| name((*e.capsule_regions.add(i)).name));
        for i in 0..e.n_graphs as usize {
            let graph = &*e.graphs.add(i);
            name(graph.name);
            let keys = (0..graph.n_keys as usize).map(|k| *graph.keys.add(k));
            std::hint::black_box(keys.fold(0, u64::wrapping_add));
        }
        if !e.manifest_json.is_null() {
            name(e.manifest_json);
        }
    }
}
