//! The memory that capsules live in, seen from above.

use flashrt_exec::{Buffer, Context, Error, Event, Slice, Space, StreamId};
use flashrt_runtime::LiveSet;

/// What a capsule needs of an execution layer. Object safe, so that tests and foreign layers can stand in.
pub trait CapsuleMemory {
    /// Allocates `bytes` in `space`.
    fn alloc(&self, name: &str, space: Space, bytes: usize) -> Result<Buffer, Error>;
    /// Enqueues a copy between any two spaces; equal lengths.
    fn copy(&self, dst: &Slice, src: &Slice) -> Result<(), Error>;
    /// Enqueues copies, (destination, source) each; no window is in two of them. Sets `has_begun` once one may be enqueued, also
    /// when it fails.
    fn copy_many(&self, pairs: &[(&Slice, &Slice)], has_begun: &mut bool) -> Result<(), Error> {
        pairs.iter().try_for_each(|(dst, src)| {
            self.copy(dst, src)?;
            *has_begun = true;
            Ok(())
        })
    }
    /// A new event.
    fn event(&self) -> Result<Event, Error>;
    /// Marks the work enqueued so far.
    fn record(&self, event: &Event) -> Result<(), Error>;
    /// True when everything before the mark is complete. Never blocks.
    fn query(&self, event: &Event) -> Result<bool, Error>;
    /// Waits until every enqueued copy is complete.
    fn sync(&self) -> Result<(), Error>;
    /// Fingerprint to stamp capsules with and to compare.
    fn fingerprint(&self) -> u64;
}

/// The memory of a live set's own context; copies go to one stream.
pub struct ContextMemory<'a> {
    ctx: &'a Context,
    stream: StreamId,
    fingerprint: u64,
}

impl<'a> ContextMemory<'a> {
    /// The memory under `live`, with copies on stream 0.
    pub fn of(live: &'a LiveSet) -> ContextMemory<'a> {
        ContextMemory {
            ctx: live.context(),
            stream: StreamId(0),
            fingerprint: live.fingerprint(),
        }
    }

    /// The memory of `ctx` with copies on `stream`, for live sets of `fingerprint`: a stream beside those of the ticks, so that
    /// work of other sets goes on meanwhile. No order is left open: snapshot and restore wait for the set's own work before
    /// the first copy, and for the last copy before they return.
    pub fn on(ctx: &'a Context, stream: StreamId, fingerprint: u64) -> ContextMemory<'a> {
        ContextMemory {
            ctx,
            stream,
            fingerprint,
        }
    }
}

impl CapsuleMemory for ContextMemory<'_> {
    fn alloc(&self, name: &str, space: Space, bytes: usize) -> Result<Buffer, Error> {
        self.ctx.alloc(name, space, bytes)
    }
    fn copy(&self, dst: &Slice, src: &Slice) -> Result<(), Error> {
        self.ctx.copy(dst, src, self.stream)
    }
    fn copy_many(&self, pairs: &[(&Slice, &Slice)], has_begun: &mut bool) -> Result<(), Error> {
        let result = self.ctx.copy_many(pairs, self.stream);
        // What is refused is refused before the first copy; what the device says may come later.
        let is_refusal = matches!(
            &result,
            Err(Error::ForeignContext { .. }
                | Error::LengthMismatch { .. }
                | Error::Overlap { .. }
                | Error::BadStream { .. }
                | Error::Recording { .. }
                | Error::Busy { .. })
        );
        *has_begun |= !is_refusal && !pairs.is_empty();
        result
    }
    fn event(&self) -> Result<Event, Error> {
        self.ctx.event()
    }
    fn record(&self, event: &Event) -> Result<(), Error> {
        self.ctx.record(event, self.stream)
    }
    fn query(&self, event: &Event) -> Result<bool, Error> {
        self.ctx.query(event)
    }
    fn sync(&self) -> Result<(), Error> {
        self.ctx.synchronize(self.stream)
    }
    fn fingerprint(&self) -> u64 {
        self.fingerprint
    }
}
