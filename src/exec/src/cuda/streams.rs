//! The stream table: what may use streams when, waiting for them, and captures.

use super::device::Device;
use super::driver::{Failure, Raw, Stream};
use crate::context::check_stream;
use crate::{Error, StreamId};
use cudarc::driver::sys;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::sync::{PoisonError, RwLockReadGuard, RwLockWriteGuard};

/// The stream table. Calls of the driver that use a stream hold it for reading, so that no capture
/// begins under them; a capture begins and ends while it is held for writing.
#[derive(Default)]
pub(super) struct Streams {
    all: Vec<Entry>,
    is_capturing: bool,
}

pub(super) struct Entry {
    pub(super) raw: Stream,
    priority: i32,
    is_owned: bool,
    /// Streams that this one waited for since it was last synchronised, one bit each.
    upstream: AtomicU64,
}

/// The bit of a stream in a set of streams; the ones from 63 on share the last.
fn bit(stream: usize) -> u64 {
    1 << stream.min(63)
}

/// True when the failure of stream `failed` concerns whoever waited for stream `index` and `upstream`.
pub(super) fn covers(index: usize, upstream: u64, failed: i32) -> bool {
    usize::try_from(failed).is_ok_and(|failed| failed == index || upstream & bit(failed) != 0)
}

impl Streams {
    /// # Errors
    /// [`Error::BadStream`].
    pub(super) fn get(&self, id: StreamId) -> Result<(usize, &Entry), Error> {
        let index = check_stream(id, self.all.len())?;
        Ok((index, &self.all[index]))
    }

    pub(super) fn at(&self, index: usize) -> Option<&Entry> {
        self.all.get(index)
    }
}

impl Entry {
    /// Makes this stream a reader of stream `index` and of all that it waited for.
    pub(super) fn follow(&self, index: usize, other: &Entry) {
        self.upstream
            .fetch_or(bit(index) | other.upstream.load(Relaxed), Relaxed);
    }

    pub(super) fn upstream(&self) -> u64 {
        self.upstream.load(Relaxed)
    }

    pub(super) fn take_upstream(&self) -> u64 {
        self.upstream.swap(0, Relaxed)
    }

    pub(super) fn priority(&self) -> i32 {
        self.priority
    }
}

impl Device {
    /// Enters for calls that use streams. No capture begins or ends meanwhile.
    pub(super) fn enter(&self, call: &'static str) -> Result<RwLockReadGuard<'_, Streams>, Error> {
        self.check_free(call)?;
        let streams = self.read();
        match streams.is_capturing {
            true => Err(recording(call)),
            false => Ok(streams),
        }
    }

    /// Enters to change the stream table.
    fn enter_alone(&self, call: &'static str) -> Result<RwLockWriteGuard<'_, Streams>, Error> {
        self.check_free(call)?;
        let streams = self.streams.write().unwrap_or_else(PoisonError::into_inner);
        match streams.is_capturing {
            true => Err(recording(call)),
            false => Ok(streams),
        }
    }

    pub(super) fn read(&self) -> RwLockReadGuard<'_, Streams> {
        self.streams.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn create_stream(&self, priority: i32) -> Result<Stream, Failure> {
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        let mut raw = std::ptr::null_mut();
        // SAFETY: writes one handle; the context is current.
        unsafe {
            self.driver
                .cuStreamCreateWithPriority(&mut raw, flags, priority)
        }?;
        Ok(Raw(raw))
    }

    pub(super) fn add_stream(&self, priority: i32) -> Result<StreamId, Error> {
        let mut streams = self.enter_alone("stream")?;
        let id = next_stream(&streams)?;
        let priority = priority.clamp(*self.priorities.start(), *self.priorities.end());
        let raw = self.create_stream(priority).map_err(|f| self.fail(f))?;
        streams.all.push(Entry {
            raw,
            priority,
            is_owned: true,
            upstream: AtomicU64::new(0),
        });
        Ok(id)
    }

    /// # Safety
    /// `raw` is null or a stream of this device's context, and outlives the context that wraps it.
    pub(super) unsafe fn wrap_stream(&self, raw: sys::CUstream) -> Result<StreamId, Error> {
        let mut streams = self.enter_alone("wrap_stream")?;
        let id = next_stream(&streams)?;
        let mut priority = 0;
        if !raw.is_null() {
            // SAFETY: the caller's promise; writes one number.
            self.check(unsafe { self.driver.cuStreamGetPriority(raw, &mut priority) })?;
        }
        streams.all.push(Entry {
            raw: Raw(raw),
            priority,
            is_owned: false,
            upstream: AtomicU64::new(0),
        });
        Ok(id)
    }

    /// For the end of the device.
    pub(super) fn destroy_streams(&mut self) {
        if self.make_current().is_err() {
            return;
        }
        let streams = self
            .streams
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        let owned = streams.all.iter().filter(|entry| entry.is_owned);
        let all = owned.map(|entry| entry.raw).chain([self.service]);
        for stream in all.filter(|stream| !stream.0.is_null()) {
            // SAFETY: created here, destroyed once. Pending work ends before its resources go.
            let _ = unsafe { self.driver.cuStreamDestroy_v2(stream.0) };
        }
    }

    fn is_capturing(&self, stream: Stream) -> bool {
        let mut status = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE as u32;
        // SAFETY: a stream of the table; the status is an unsigned int.
        let answer = unsafe {
            self.driver
                .cuStreamIsCapturing(stream.0, (&raw mut status).cast())
        };
        match answer {
            Ok(()) => status != sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE as u32,
            // The legacy default stream while some stream that it orders captures.
            Err(failure) => {
                failure.code == sys::CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT as u32
            }
        }
    }

    /// Waits for what was submitted to one stream. A wrapped one may be in a capture of its owner, which
    /// waiting would break.
    pub(super) fn wait_for(&self, entry: &Entry) -> Result<(), Error> {
        if !entry.is_owned && self.is_capturing(entry.raw) {
            return Err(Error::Invalid {
                what: "stream to wait for",
                expected: "one that its owner is not capturing".into(),
                got: format!("wrapped stream {:p}", entry.raw.0),
            });
        }
        let _relaxed = self.relaxed();
        // SAFETY: a stream of the table.
        self.check(unsafe { self.driver.cuStreamSynchronize(entry.raw.0) })
    }

    /// Waits for all streams; all are waited for, the first failure is told.
    pub(super) fn wait_for_all(&self, streams: &Streams) -> Result<(), Error> {
        let mut first = Ok(());
        for entry in &streams.all {
            entry.take_upstream();
            first = first.and(self.wait_for(entry));
        }
        first
    }

    /// Waits for all streams, or for none if one is being captured by somebody.
    pub(super) fn settle(&self, streams: &Streams) -> bool {
        if streams.is_capturing || streams.all.iter().any(|s| self.is_capturing(s.raw)) {
            return false;
        }
        let _relaxed = self.relaxed();
        for entry in &streams.all {
            // SAFETY: a stream of the table.
            let answer = unsafe { self.driver.cuStreamSynchronize(entry.raw.0) };
            // Dropping tells nobody; the next call meets the failure again.
            let _ = self.check(answer);
        }
        true
    }

    /// The context goes: waits for all its work, and lets go of wrapped streams, which nobody promised to
    /// keep any longer. False if waiting was not possible.
    pub(super) fn finish_all(&self) -> bool {
        if self.host.is_inside() || self.make_current().is_err() {
            return false;
        }
        let mut streams = self.streams.write().unwrap_or_else(PoisonError::into_inner);
        let is_done = self.settle(&streams) && !self.is_lost();
        streams.all.retain(|entry| entry.is_owned);
        drop(streams);
        self.sweep();
        is_done
    }

    // ---- captures ----

    /// Puts stream 0, or the service stream for eager work, into capture mode.
    pub(super) fn begin_capture(
        &self,
        call: &'static str,
        is_eager: bool,
    ) -> Result<Stream, Error> {
        let mut streams = self.enter_alone(call)?;
        let stream = match is_eager {
            true => self.service,
            false => streams.all[0].raw,
        };
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: a stream of this context that nobody captures: the table says so and is held.
        self.check(unsafe { self.driver.cuStreamBeginCapture_v2(stream.0, mode) })?;
        streams.is_capturing = true;
        Ok(stream)
    }

    /// Ends the capture, whatever became of it. The graph is null where it failed.
    pub(super) fn end_capture(&self, stream: Stream) -> (sys::CUgraph, Result<(), Error>) {
        let mut graph = std::ptr::null_mut();
        let result = {
            let mut streams = self.streams.write().unwrap_or_else(PoisonError::into_inner);
            let result = self.make_current().and_then(|()| {
                // SAFETY: a stream of this context; writes one handle.
                self.check(unsafe { self.driver.cuStreamEndCapture(stream.0, &mut graph) })
            });
            streams.is_capturing = false;
            result
        };
        self.sweep();
        (graph, result)
    }
}

fn next_stream(streams: &Streams) -> Result<StreamId, Error> {
    i32::try_from(streams.all.len())
        .map(StreamId)
        .map_err(|_| Error::Invalid {
            what: "number of streams",
            expected: format!("at most {}", i32::MAX),
            got: streams.all.len().to_string(),
        })
}

/// A second thread's call while this context captures. The capturing thread's own calls are refused
/// before they come here, with the name of the graph.
fn recording(call: &'static str) -> Error {
    Error::Recording {
        call,
        recording: "other work".into(),
    }
}
