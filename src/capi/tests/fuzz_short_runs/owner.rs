//! An owner that counts its references, and verbs that count their calls.

use flashrt_capi::abi::*;
use std::cell::Cell;
use std::ffi::{c_char, c_int, c_void};

#[derive(Default)]
pub struct Owner {
    pub retained: Cell<u64>,
    pub released: Cell<u64>,
    pub verbs: Cell<u64>,
}

fn owner<'a>(this: *mut c_void) -> &'a Owner {
    // SAFETY: an `Owner` of the run, which outlives every object.
    unsafe { &*this.cast::<Owner>() }
}

impl Owner {
    pub fn pointer(&self) -> *mut c_void {
        (&raw const *self).cast_mut().cast()
    }

    fn called(&self) -> c_int {
        self.verbs.set(self.verbs.get() + 1);
        (self.verbs.get() % 3) as c_int - 1
    }
}

pub unsafe extern "C" fn retain(this: *mut c_void) {
    owner(this).retained.set(owner(this).retained.get() + 1);
}

pub unsafe extern "C" fn release(this: *mut c_void) {
    owner(this).released.set(owner(this).released.get() + 1);
}

unsafe extern "C" fn set_input(
    this: *mut c_void,
    _: u32,
    _: *const c_void,
    _: u64,
    _: c_int,
) -> c_int {
    owner(this).called()
}
unsafe extern "C" fn get_output(
    this: *mut c_void,
    _: u32,
    _: *mut c_void,
    _: u64,
    _: *mut u64,
    _: c_int,
) -> c_int {
    owner(this).called()
}
unsafe extern "C" fn prepare(this: *mut c_void, _: u32, _: u64) -> c_int {
    owner(this).called()
}
unsafe extern "C" fn step(this: *mut c_void) -> c_int {
    owner(this).called()
}
unsafe extern "C" fn last_error(this: *mut c_void) -> *const c_char {
    owner(this).called();
    c"verb failed".as_ptr()
}

/// Runner of opaque stages.
pub unsafe extern "C" fn run_opaque(this: *mut c_void, _: u32) -> c_int {
    owner(this).called()
}

/// A table with those verbs whose bit is set.
pub fn verbs(bits: u8) -> frt_model_runtime_verbs {
    let has = |bit: u8| bits >> bit & 1 == 1;
    frt_model_runtime_verbs {
        struct_size: 48,
        reserved: 0,
        set_input: has(0).then_some(set_input as _),
        get_output: has(1).then_some(get_output as _),
        prepare: has(2).then_some(prepare as _),
        step: has(3).then_some(step as _),
        last_error: has(4).then_some(last_error as _),
    }
}

/// Calls every verb of a model, looks through all that it points to, and asks for extensions. All of it must be there.
///
/// # Safety
/// `model` is live and of 136 bytes.
pub unsafe fn use_model(model: *const frt_model_runtime_v1) {
    // SAFETY: the caller's promise; whatever the object points to is as long as it says.
    unsafe {
        let m = &*model;
        let this = m.self_;
        let mut written = 0;
        let mut room = [0u8; 8];
        for port in 0..2 {
            m.verbs.set_input.unwrap()(this, port, room.as_ptr().cast(), 8, 0);
            m.verbs.get_output.unwrap()(this, port, room.as_mut_ptr().cast(), 8, &mut written, 0);
        }
        m.verbs.prepare.unwrap()(this, 0, 0);
        m.verbs.step.unwrap()(this);
        let text = m.verbs.last_error.unwrap()(this);
        assert!(text.is_null() || std::ffi::CStr::from_ptr(text).count_bytes() < 4096);
        for i in 0..m.n_ports as usize {
            let port = &*m.ports.add(i);
            assert!(!std::ffi::CStr::from_ptr(port.name).is_empty());
            let shape = (0..port.rank as usize).map(|d| *port.shape.add(d));
            std::hint::black_box(shape.fold(0, i64::wrapping_add));
        }
        for i in 0..m.n_stages as usize {
            let stage = &*m.stages.add(i);
            for k in 0..stage.n_after as usize {
                assert!((*stage.after.add(k) as usize) < i);
            }
        }
        let query = m.query_extension.unwrap();
        for (id, version) in [(1, 1), (1, 0), (1, 2), (0, 1), (u64::MAX, 1)] {
            let mut out = (&raw const room).cast();
            let code = query(model, id, version, &mut out);
            assert!((-3..=0).contains(&code) || !out.is_null());
            if code != 0 || id != 1 {
                continue;
            }
            let plan = &*out.cast::<frt_generic_stage_plan_ext_v1>();
            for i in 0..plan.n_stages as usize {
                let stage = &*plan.stages.add(i);
                assert!(!std::ffi::CStr::from_ptr(stage.name).is_empty());
                for k in 0..stage.n_after as usize {
                    assert!((*stage.after.add(k) as usize) < i);
                }
                plan.run_opaque.unwrap()(plan.stage_self, stage.executor_ref);
            }
        }
    }
}
