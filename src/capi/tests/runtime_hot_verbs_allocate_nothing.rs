//! Hot verbs through the objects of the library, and references to them, take nothing from the heap. One test, alone in its binary.

#[path = "../../../test/support/heap.rs"]
mod heap;
mod runtime_support;

use flashrt_capi::*;
use runtime_support::*;
use std::ptr::{null, null_mut};

#[test]
fn verbs_queries_and_references_allocate_nothing() {
    let owner = Counted::default();
    let base = opaque_model(&owner);
    // SAFETY: a live base and live verbs.
    let over = unsafe {
        frt_model_runtime_override_verbs(base, &all_verbs(), fake(0x99), null_mut(), None, None)
    };
    assert!(!over.is_null(), "{}", last_error());
    heap::count_this_thread();
    let before = (heap::taken(), heap::freed());
    for model in [base, over] {
        // SAFETY: one reference is held; the verbs follow no argument but `written`.
        unsafe {
            let m = &*model;
            for _ in 0..1000 {
                (m.retain.unwrap())(m.owner);
                let mut written = 0;
                assert!(m.verbs.set_input.unwrap()(m.self_, 0, null(), 4, -1) > 0);
                assert!(
                    m.verbs.get_output.unwrap()(m.self_, 0, null_mut(), 4, &mut written, -1) > 0
                );
                assert!(m.verbs.step.unwrap()(m.self_) > 0);
                assert!(!m.verbs.last_error.unwrap()(m.self_).is_null());
                let p = plan(model);
                assert_eq!(p.run_opaque.unwrap()(p.stage_self, 7), 107);
                (m.release.unwrap())(m.owner);
            }
        }
    }
    assert_eq!((heap::taken(), heap::freed()), before);
    // The counter sees what is taken.
    drop(std::hint::black_box(Box::new(5u64)));
    assert_eq!(heap::taken(), before.0 + 1);
    release_model(over);
    release_model(base);
    assert_eq!(owner.counts(), (1, 1));
}
