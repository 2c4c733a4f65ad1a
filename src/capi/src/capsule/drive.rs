//! Replays, swaps and waits.

use super::abi::{
    cap_buffer, cap_ctx, cap_event, cap_schedule, cap_stage, cap_status, cap_trigger,
};
use super::call::Call;
use super::context::{self, Context};
use crate::status::Failure;
use std::ffi::{c_int, c_void};

/// # Safety
/// That of `cap_fire`.
pub(super) unsafe fn fire(
    call: Call,
    ctx: cap_ctx,
    stage: *const cap_stage,
) -> Result<c_int, Failure> {
    let backend = context::backend(call, ctx)?;
    call.place("stage", stage)?;
    // SAFETY: `place` checked the address, the caller promises a stage there.
    let stage = unsafe { stage.read() };
    if stage.graph.is_null() {
        return Err(call.arg("the graph of the stage is null"));
    }
    if !backend.has(call, stage.graph, stage.key)? {
        return Err(call.arg(format_args!(
            "the graph has no variant for key {}",
            stage.key
        )));
    }
    backend.replay(call, stage.graph, stage.key, stage.stream)?;
    Ok(0)
}

/// # Safety
/// That of `cap_swap`.
pub(super) unsafe fn swap(
    call: Call,
    ctx: cap_ctx,
    dst: cap_buffer,
    src: *const c_void,
    n: usize,
    stream: c_int,
) -> Result<c_int, Failure> {
    let backend = context::backend(call, ctx)?;
    if dst.is_null() || src.is_null() {
        let name = if dst.is_null() { "dst" } else { "src" };
        return Err(call.arg(format_args!("`{name}` is null")));
    }
    let room = backend.bytes(dst);
    if n > room {
        return Err(call.arg(format_args!("{n} bytes into a buffer of {room}")));
    }
    if n > 0 {
        // SAFETY: the caller promises `n` bytes at `src`; the buffer holds as many.
        unsafe { backend.upload(call, dst, src, n, stream)? };
    }
    Ok(0)
}

pub(super) fn sync(call: Call, ctx: cap_ctx, stream: c_int) -> Result<c_int, Failure> {
    context::backend(call, ctx)?.sync(call, stream)?;
    Ok(0)
}

/// Arrays of a schedule, read entry by entry: a function of the backend may change them meanwhile.
#[derive(Clone, Copy)]
struct Schedule {
    stages: *const cap_stage,
    n_stages: usize,
    pairs: *const [c_int; 2],
    n_pairs: usize,
}

impl Schedule {
    /// # Safety
    /// `schedule` is null or as `cap_drive_tick` says.
    unsafe fn read(call: Call, schedule: *const cap_schedule) -> Result<Schedule, Failure> {
        call.place("schedule", schedule)?;
        // SAFETY: `place` checked the address, the caller promises a schedule there.
        let schedule = unsafe { schedule.read() };
        Ok(Schedule {
            stages: schedule.stages,
            n_stages: call.array("stages", schedule.stages, schedule.n_stages)?,
            pairs: schedule.deps,
            n_pairs: call.array("deps", schedule.deps, schedule.n_deps)?,
        })
    }

    /// Stage `i`, which is below `n_stages`.
    fn stage(&self, i: usize) -> cap_stage {
        // SAFETY: `read` checked the array's address, and the caller promises `n_stages` entries for the whole call.
        unsafe { self.stages.add(i).read() }
    }

    fn pairs(self) -> impl Iterator<Item = [c_int; 2]> {
        // SAFETY: as in `stage`.
        (0..self.n_pairs).map(move |i| unsafe { self.pairs.add(i).read() })
    }

    /// Earlier stages that `waiter` waits for.
    fn dependencies(self, waiter: usize) -> impl Iterator<Item = usize> {
        self.pairs().filter_map(move |[after, before]| {
            let (after, before) = (usize::try_from(after).ok()?, usize::try_from(before).ok()?);
            (after == waiter && before < waiter).then_some(before)
        })
    }

    /// Whether a later stage waits for `stage`.
    fn is_waited_for(self, stage: usize) -> bool {
        self.pairs().any(|[after, before]| {
            let pair = (usize::try_from(after), usize::try_from(before));
            matches!(pair, (Ok(after), Ok(before)) if before == stage && after > stage)
        })
    }
}

fn is_due(stage: &cap_stage, clock: u64) -> bool {
    if stage.trigger != cap_trigger::CAP_EVERY as c_int {
        return false;
    }
    let Ok(den @ 1..) = u64::try_from(stage.cadence_den) else {
        return true;
    };
    u64::try_from(stage.cadence_num).is_ok_and(|num| clock % den < num)
}

/// The events of one tick, by stage; freed when it ends.
struct Events<'a> {
    context: &'a Context,
    by_stage: Vec<cap_event>,
}

impl Drop for Events<'_> {
    fn drop(&mut self) {
        for &event in self.by_stage.iter().filter(|event| !event.is_null()) {
            self.context.backend.free_event(event);
        }
        self.context.keep_events(std::mem::take(&mut self.by_stage));
    }
}

/// # Safety
/// That of `cap_drive_tick`.
pub(super) unsafe fn tick(
    call: Call,
    ctx: cap_ctx,
    schedule: *const cap_schedule,
    clock: u64,
    failed: *mut c_int,
) -> Result<c_int, Failure> {
    call.aligned("failed", failed)?;
    let note = |stage: c_int| {
        if !failed.is_null() {
            // SAFETY: aligned, and the caller promises an int there.
            unsafe { failed.write(stage) };
        }
    };
    note(-1);
    let context = context::context(call, ctx)?;
    // SAFETY: the caller's promise.
    let schedule = unsafe { Schedule::read(call, schedule)? };
    for (i, pair) in schedule.pairs().enumerate() {
        let is_stage =
            |&index: &c_int| usize::try_from(index).is_ok_and(|index| index < schedule.n_stages);
        if !pair.iter().all(is_stage) {
            return Err(call.arg(format_args!(
                "pair {i} is {{{}, {}}}, expected two of {} stages",
                pair[0], pair[1], schedule.n_stages
            )));
        }
    }
    for i in 0..schedule.n_stages {
        let stage = schedule.stage(i);
        if is_due(&stage, clock) && stage.graph.is_null() {
            note(i as c_int);
            return Err(call.arg(format_args!("the graph of stage {i} is null")));
        }
    }

    let mut events = Events {
        by_stage: context.take_events(call, schedule.n_stages)?,
        context: &context,
    };
    for i in 0..schedule.n_stages {
        let stage = schedule.stage(i);
        if !is_due(&stage, clock) {
            continue;
        }
        if let Err(failure) = fire_stage(call, &mut events, schedule, i, stage) {
            note(i as c_int);
            let text = failure.text.strip_prefix(call.0).unwrap_or(&failure.text);
            let status = cap_status::CAP_ERR_BACKEND;
            return Err(call.fail(status, format_args!("stage {i}{text}")));
        }
    }
    Ok(0)
}

fn fire_stage(
    call: Call,
    events: &mut Events<'_>,
    schedule: Schedule,
    i: usize,
    stage: cap_stage,
) -> Result<(), Failure> {
    let backend = events.context.backend;
    for dependency in schedule.dependencies(i) {
        let event = events.by_stage[dependency];
        if !event.is_null() {
            backend.wait(call, stage.stream, event)?;
        }
    }
    backend.replay(call, stage.graph, stage.key, stage.stream)?;
    if schedule.is_waited_for(i) {
        events.by_stage[i] = backend.mark(call, stage.stream)?;
    }
    Ok(())
}
