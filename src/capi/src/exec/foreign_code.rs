//! Which foreign code this thread is inside: record callbacks and host functions.

use super::{frt_ctx, frt_graph};
use crate::status::{Failure, FRT_ERR_BACKEND};
use flashrt_exec::Recorder;
use std::cell::Cell;
use std::ptr::null;

/// One piece of foreign code that has not returned yet.
pub(super) struct Frame {
    context: frt_ctx,
    inside: Inside,
    below: *const Frame,
}

#[derive(Clone, Copy)]
pub(super) enum Inside {
    HostFunction,
    Record {
        graph: frt_graph,
        recorder: *mut Recorder<'static>,
    },
}

thread_local! {
    static TOP: Cell<*const Frame> = const { Cell::new(null()) };
}

/// Takes the frame off again, also when the code unwinds.
struct Leave(*const Frame);

impl Drop for Leave {
    fn drop(&mut self) {
        TOP.set(self.0);
    }
}

/// Runs `f`, which calls foreign code on behalf of `context`.
pub(super) fn run<R>(context: frt_ctx, inside: Inside, f: impl FnOnce() -> R) -> R {
    let frame = Frame {
        context,
        inside,
        below: TOP.get(),
    };
    // Taken off before `frame` goes.
    let _leave = Leave(frame.below);
    TOP.set(&raw const frame);
    f()
}

/// What this thread is inside of, innermost first, as long as it is about `context`.
fn frames(context: frt_ctx) -> impl Iterator<Item = Inside> {
    let mut next = TOP.get();
    std::iter::from_fn(move || {
        // SAFETY: null, or a frame of a `run` further up this thread's stack, which is still there.
        let frame = unsafe { next.as_ref() }?;
        next = frame.below;
        Some((frame.context, frame.inside))
    })
    .filter(move |(of, _)| *of == context)
    .map(|(_, inside)| inside)
}

/// The recorder of the capture that this thread makes on `context`.
pub(super) fn recorder(context: frt_ctx) -> Option<*mut Recorder<'static>> {
    frames(context).find_map(|inside| match inside {
        Inside::Record { recorder, .. } => Some(recorder),
        Inside::HostFunction => None,
    })
}

/// Refuses `call` inside a host function of `context`.
pub(super) fn refuse_in_host_function(call: &str, context: frt_ctx) -> Result<(), Failure> {
    if frames(context).any(|inside| matches!(inside, Inside::HostFunction)) {
        return Err(Failure::new(
            FRT_ERR_BACKEND,
            format!("{call}: refused inside a host function of its context"),
        ));
    }
    Ok(())
}

/// Refuses `call` inside any callback of `context`.
pub(super) fn refuse_in_callback(call: &str, context: frt_ctx) -> Result<(), Failure> {
    refuse_in_host_function(call, context)?;
    if recorder(context).is_some() {
        return Err(Failure::new(
            FRT_ERR_BACKEND,
            format!("{call}: refused while the context records"),
        ));
    }
    Ok(())
}

/// Refuses `call` while `graph` of `context` is being recorded by this thread.
pub(super) fn refuse_while_recorded(
    call: &str,
    context: frt_ctx,
    graph: frt_graph,
) -> Result<(), Failure> {
    let is_it = |inside| matches!(inside, Inside::Record { graph: g, .. } if g == graph);
    if frames(context).any(is_it) {
        return Err(Failure::new(
            FRT_ERR_BACKEND,
            format!("{call}: refused while the graph is being recorded"),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::without_provenance_mut;

    #[test]
    fn a_callback_that_unwinds_is_left_and_others_stay() {
        let (a, b) = (without_provenance_mut(16), without_provenance_mut(32));
        run(a, Inside::HostFunction, || {
            let unwound = std::panic::catch_unwind(|| {
                run(b, Inside::HostFunction, || {
                    assert!(refuse_in_callback("f", b).is_err());
                    panic!("out");
                })
            });
            assert!(unwound.is_err());
            assert!(refuse_in_callback("f", b).is_ok());
            assert!(refuse_in_callback("f", a).is_err());
        });
        assert!(refuse_in_callback("f", a).is_ok());
    }
}
