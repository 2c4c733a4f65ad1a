//! Reference counts: the owner is retained at the finish and released at zero, on whatever thread that is.

mod runtime_support;

use flashrt_capi::abi::*;
use flashrt_capi::*;
use runtime_support::*;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Mutex;
use std::thread;

const THREADS: usize = 8;
const ROUNDS: usize = if cfg!(miri) { 20 } else { 20_000 };

/// What a thread needs to hold references.
#[derive(Clone, Copy)]
struct Refs {
    owner: *mut c_void,
    retain: unsafe extern "C" fn(*mut c_void),
    release: unsafe extern "C" fn(*mut c_void),
}
// SAFETY: the two functions may be called on any thread.
unsafe impl Send for Refs {}

impl Refs {
    fn of_export(exp: *const frt_runtime_export_v1) -> Refs {
        // SAFETY: the test holds a reference.
        let exp = unsafe { &*exp };
        Refs {
            owner: exp.owner,
            retain: exp.retain.unwrap(),
            release: exp.release.unwrap(),
        }
    }
    fn of_model(model: *const frt_model_runtime_v1) -> Refs {
        // SAFETY: the test holds a reference.
        let model = unsafe { &*model };
        Refs {
            owner: model.owner,
            retain: model.retain.unwrap(),
            release: model.release.unwrap(),
        }
    }
    fn retain(self) {
        // SAFETY: a reference is held.
        unsafe { (self.retain)(self.owner) }
    }
    fn release(self) {
        // SAFETY: a reference is held, and given back.
        unsafe { (self.release)(self.owner) }
    }
}

/// Eight threads take and give references at random points; each ends with its own.
fn storm(refs: Refs) {
    let threads: Vec<_> = (0..THREADS)
        .map(|i| {
            refs.retain();
            thread::spawn(move || {
                let refs = refs;
                let mut held = 1;
                for n in 0..ROUNDS {
                    if (n * 7 + i) % 3 == 0 && held > 1 {
                        refs.release();
                        held -= 1;
                    } else {
                        refs.retain();
                        held += 1;
                    }
                }
                for _ in 0..held {
                    refs.release();
                }
            })
        })
        .collect();
    refs.release();
    for t in threads {
        t.join().unwrap();
    }
}

#[test]
fn eight_threads_share_an_export_and_the_last_one_releases_its_owner() {
    let owner = Counted::default();
    let b = Build::new();
    b.pair("k", "v");
    storm(Refs::of_export(b.finish_for(&owner)));
    assert_eq!(owner.counts(), (1, 1));
}

#[test]
fn eight_threads_share_a_model_through_both_of_its_faces() {
    let owner = Counted::default();
    let model = graph_model(&owner);
    // SAFETY: one reference is held.
    let exp = unsafe { (*model).exp };
    let through_export = Refs::of_export(exp);
    through_export.retain();
    storm(Refs::of_model(model));
    assert_eq!(owner.counts(), (1, 0));
    storm(through_export);
    assert_eq!(owner.counts(), (1, 1));
}

#[test]
fn eight_threads_share_an_override_and_a_wrapper() {
    let (base_owner, over_owner) = (Counted::default(), Counted::default());
    let base = opaque_model(&base_owner);
    let (pointer, retain, release) = (
        over_owner.pointer(),
        Some(count_retain as _),
        Some(count_release as _),
    );
    // SAFETY: a live base, live verbs, a counting owner.
    let over = unsafe {
        frt_model_runtime_override_verbs(base, &all_verbs(), null_mut(), pointer, retain, release)
    };
    assert!(!over.is_null(), "{}", last_error());
    release_model(base);
    storm(Refs::of_model(over));
    assert_eq!((base_owner.counts(), over_owner.counts()), ((1, 1), (1, 1)));

    let (exp_owner, wrap_owner) = (Counted::default(), Counted::default());
    let b = Build::new();
    b.graph("g", 1, &[], 0);
    let exp = b.finish_for(&exp_owner);
    let stage = frt_runtime_stage_desc {
        graph: 0,
        n_after: 0,
        after: std::ptr::null(),
    };
    let (no_ports, pointer, release) = (
        std::ptr::null(),
        wrap_owner.pointer(),
        Some(count_release as _),
    );
    // SAFETY: a live export, live arrays, a counting owner.
    let wrapped = unsafe {
        frt_model_runtime_wrap(
            exp,
            no_ports,
            0,
            &stage,
            1,
            &NO_VERBS,
            null_mut(),
            pointer,
            release,
        )
    };
    assert!(!wrapped.is_null(), "{}", last_error());
    release_export(exp);
    storm(Refs::of_model(wrapped));
    assert_eq!((exp_owner.counts(), wrap_owner.counts()), ((1, 1), (0, 1)));
}

#[test]
fn retain_and_release_ignore_null() {
    let owner = Counted::default();
    let model = graph_model(&owner);
    let refs = Refs {
        owner: null_mut(),
        ..Refs::of_model(model)
    };
    refs.retain();
    refs.release();
    release_model(model);
    assert_eq!(owner.counts(), (1, 1));
}

#[test]
fn callbacks_may_be_null_one_by_one() {
    for (with_retain, with_release) in [(false, false), (true, false), (false, true)] {
        let owner = Counted::default();
        let retain = with_retain.then_some(count_retain as unsafe extern "C" fn(*mut c_void));
        let release = with_release.then_some(count_release as unsafe extern "C" fn(*mut c_void));
        // SAFETY: the callbacks count on the owner.
        let exp =
            unsafe { frt_runtime_builder_finish(Build::new().0, owner.pointer(), retain, release) };
        release_export(exp);
        assert_eq!(
            owner.counts(),
            (u32::from(with_retain), u32::from(with_release))
        );
    }
}

#[test]
fn callbacks_run_even_for_a_null_owner() {
    static SEEN: Mutex<Vec<&str>> = Mutex::new(Vec::new());
    unsafe extern "C" fn retain(owner: *mut c_void) {
        assert!(owner.is_null());
        SEEN.lock().unwrap().push("retain");
    }
    unsafe extern "C" fn release(owner: *mut c_void) {
        assert!(owner.is_null());
        SEEN.lock().unwrap().push("release");
    }
    // SAFETY: the callbacks take null.
    let exp = unsafe {
        frt_runtime_builder_finish(Build::new().0, null_mut(), Some(retain), Some(release))
    };
    assert_eq!(*SEEN.lock().unwrap(), ["retain"]);
    release_export(exp);
    assert_eq!(*SEEN.lock().unwrap(), ["retain", "release"]);
}

/// A producer whose release still reads the object: names and identity are there until it returns.
#[test]
fn the_object_is_whole_while_its_owner_is_released() {
    struct Reader {
        exp: *const frt_runtime_export_v1,
        seen: Option<(String, String)>,
    }
    unsafe extern "C" fn read(owner: *mut c_void) {
        // SAFETY: the owner is a `Reader` that outlives the export, which is not freed before this returns.
        unsafe {
            let reader = &mut *owner.cast::<Reader>();
            let exp = &*reader.exp;
            let name = text_at(slice(exp.graphs, exp.n_graphs)[0].name);
            reader.seen = Some((text_at(exp.identity), name));
        }
    }
    let mut reader = Reader {
        exp: std::ptr::null(),
        seen: None,
    };
    let owner: *mut Reader = &raw mut reader;
    let b = Build::new();
    b.graph("kept", 1, &[], 0);
    // SAFETY: the owner is live through the test.
    unsafe {
        let exp = frt_runtime_builder_finish(b.0, owner.cast(), None, Some(read));
        (*owner).exp = exp;
        release_export(exp);
        let seen = (*owner).seen.take().unwrap();
        assert_eq!(
            seen,
            (
                "frt-runtime-identity-v1\ngraph:kept:0\n".to_owned(),
                "kept".to_owned()
            )
        );
    }
}
