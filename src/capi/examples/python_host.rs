//! A host in Rust that ticks a model which Python code declared in the same process.
//!
//! `cargo build -p flashrt-capi --example python_host` gives `libpython_host.so`, which the test of the Python package loads and
//! calls. The host takes the model up as `policy_node` does, on a thread that Python did not make, and lets go of it there.
#![allow(clippy::missing_safety_doc)]

use std::ffi::{c_char, c_int};

use flashrt_runtime::abi::frt_model_runtime_v1;
use flashrt_runtime::{foreign, ForeignModel, ForeignProducer, InputData, Producer, KEY_INHERIT};

/// Rounds of inputs, one after the other, and room for the actions of each.
struct Rounds<'a> {
    states: std::slice::ChunksExact<'a, f32>,
    noise: std::slice::ChunksExact<'a, u8>,
    actions: std::slice::ChunksExactMut<'a, u8>,
}

/// Ticks `model` `rounds` times: `state` `[states]` f32 through its STAGED port, `noise` `[noise_bytes]` into its SWAP window (0:
/// the model has none), the plan, then the port `actions` `[action_bytes]`.
///
/// Takes a reference of its own and gives it back before it returns; with `last` not 0 the caller's as well, so that the model may
/// end on this thread. 0, or -1 with the reason in `text`: what failed, or what moved, was captured anew or evicted meanwhile.
///
/// # Safety
/// `model` is live, the arrays have `rounds` rows, and `text` has `text_bytes` bytes.
#[no_mangle]
#[allow(clippy::too_many_arguments)]
pub unsafe extern "C" fn python_host_run(
    model: *const frt_model_runtime_v1,
    rounds: usize,
    states: *const f32,
    state_len: usize,
    noise: *const u8,
    noise_bytes: usize,
    actions: *mut u8,
    action_bytes: usize,
    last: c_int,
    text: *mut c_char,
    text_bytes: usize,
) -> c_int {
    // SAFETY: the caller's promise, here and below.
    let rounds = unsafe {
        Rounds {
            states: std::slice::from_raw_parts(states, rounds * state_len).chunks_exact(state_len),
            noise: std::slice::from_raw_parts(noise, rounds * noise_bytes)
                .chunks_exact(noise_bytes.max(1)),
            actions: std::slice::from_raw_parts_mut(actions, rounds * action_bytes)
                .chunks_exact_mut(action_bytes),
        }
    };
    let model = Shared(model);
    let outcome = std::thread::scope(|scope| {
        let host = scope.spawn(move || {
            let model = model;
            // SAFETY: as above; nobody else calls the model meanwhile.
            let result = unsafe { foreign::adopt(model.0) }
                .map_err(|e| e.to_string())
                .and_then(|m| run(m, rounds));
            if last != 0 {
                // SAFETY: the caller gives its reference away.
                unsafe {
                    if let Some(release) = (*model.0).release {
                        release((*model.0).owner);
                    }
                }
            }
            result
        });
        host.join()
            .unwrap_or_else(|_| Err("the host panicked".into()))
    });
    let Err(reason) = outcome else { return 0 };
    let len = reason.len().min(text_bytes.saturating_sub(1));
    // SAFETY: the caller's promise.
    unsafe {
        std::ptr::copy_nonoverlapping(reason.as_ptr(), text.cast(), len);
        text.add(len).write(0);
    }
    -1
}

struct Shared(*const frt_model_runtime_v1);
// SAFETY: the caller waits for the thread and keeps its reference until then.
unsafe impl Send for Shared {}

fn run(model: ForeignModel, rounds: Rounds<'_>) -> Result<(), String> {
    let mut set = ForeignProducer::new(model)
        .build("main")
        .map_err(|e| e.to_string())?;
    set.warm().map_err(|e| e.to_string())?;
    set.set_hot(true);
    let before = set.hot_contract();
    let ports = ["state", "noise", "actions"].map(|name| set.port(name));
    let [Some(state), noise, Some(actions)] = ports else {
        return Err("ports: expected state and actions".into());
    };
    let plan = set.default_plan().ok_or("the model has no plan")?;
    let mut noises = rounds.noise;
    for (values, out) in rounds.states.zip(rounds.actions) {
        let mut tick = || {
            set.set_input(state, InputData::F32(values))?;
            if let (Some(noise), Some(bytes)) = (noise, noises.next()) {
                set.swap_in(noise, bytes)?;
            }
            set.run(plan, KEY_INHERIT)?;
            set.sync()?;
            set.get_output(actions, out)
        };
        tick().map_err(|e| e.to_string())?;
    }
    let changes = before.changes(&set.hot_contract());
    if changes.is_empty() {
        return Ok(());
    }
    Err(format!("changed while hot: {}", changes.join("; ")))
}
