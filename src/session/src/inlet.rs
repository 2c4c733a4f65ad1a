//! The way of a message from a ROS thread to the device thread, for one port or view.
//!
//! A pusher checks the message, copies its bytes into a preallocated slot and hands the slot over through a lock-free
//! queue. The device thread drains the queue into its own [`Ring`](crate::ring::Ring). Slots go round: nothing is
//! allocated after the first frame of a size, and the device thread never waits for a pusher.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use crossbeam_queue::ArrayQueue;
use flashrt_runtime::PixelFormat;
use xxhash_rust::xxh3::xxh3_64;

use crate::code::{ResultCode, SessionError};
use crate::command::lock;
use crate::config::JointConfig;
use crate::io::{ImageRef, JointsRef, PushOutcome};
use crate::status::PortStatus;
use crate::{image, joints};

/// A message's bytes, ready for the model.
#[derive(Debug)]
pub(crate) struct Slot {
    pub stamp_ns: i64,
    /// xxh3-64 of `bytes`.
    pub hash: u64,
    /// Image: rows without padding. State: little-endian f32.
    pub bytes: Vec<u8>,
    pub format: PixelFormat,
    pub width: u32,
    pub height: u32,
    /// State in the model's units, padded with zeros to the port's width.
    pub floats: Vec<f32>,
    /// State in the topic's units, one per joint.
    pub topic: Vec<f64>,
}

/// What an inlet accepts.
#[derive(Debug)]
pub(crate) enum InletKind {
    Image {
        encodings: Vec<String>,
    },
    Joints {
        joints: Vec<JointConfig>,
        width: usize,
    },
}

#[derive(Debug)]
pub(crate) struct Inlet {
    pub name: Arc<str>,
    pub kind: InletKind,
    pub max_age_ns: i64,
    pub free: ArrayQueue<Box<Slot>>,
    pub inbox: ArrayQueue<Box<Slot>>,
    /// The slot that the next message is written into. Serialises pushers of this port; the device thread does not take it.
    pushing: Mutex<Option<Box<Slot>>>,
    received: AtomicU64,
    refused: AtomicU64,
    pushed_out: AtomicU64,
    used: AtomicU64,
    passed_over: AtomicU64,
    is_unstamped: AtomicBool,
    is_stale: AtomicBool,
    age_ms_bits: AtomicU64,
    last_refusal: Mutex<String>,
}

impl Inlet {
    /// An inlet with `slots` slots, each with room for `bytes` bytes.
    pub fn new(name: &str, kind: InletKind, max_age_ms: f64, slots: usize, bytes: usize) -> Inlet {
        let free = ArrayQueue::new(slots);
        for _ in 0..slots {
            let (floats, topic) = match &kind {
                InletKind::Image { .. } => (Vec::new(), Vec::new()),
                InletKind::Joints { joints, width } => (vec![0.0; *width], vec![0.0; joints.len()]),
            };
            let slot = Slot {
                stamp_ns: 0,
                hash: 0,
                bytes: Vec::with_capacity(bytes),
                format: PixelFormat::Rgb8,
                width: 0,
                height: 0,
                floats,
                topic,
            };
            // The queue has room for every slot.
            let _ = free.push(Box::new(slot));
        }
        Inlet {
            name: Arc::from(name),
            kind,
            max_age_ns: (max_age_ms * 1e6) as i64,
            free,
            inbox: ArrayQueue::new(slots),
            pushing: Mutex::new(None),
            received: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            pushed_out: AtomicU64::new(0),
            used: AtomicU64::new(0),
            passed_over: AtomicU64::new(0),
            is_unstamped: AtomicBool::new(false),
            is_stale: AtomicBool::new(false),
            age_ms_bits: AtomicU64::new(f64::NAN.to_bits()),
            last_refusal: Mutex::new(String::new()),
        }
    }

    pub fn push_image(&self, message: &ImageRef<'_>, stamp_ns: i64, now_ns: i64) -> PushOutcome {
        self.push(stamp_ns, now_ns, |kind, slot| {
            let InletKind::Image { encodings } = kind else {
                return Err(wrong_kind("an image"));
            };
            let checked = image::check(message, encodings)?;
            slot.bytes.clear();
            slot.bytes
                .reserve(checked.row_bytes * checked.height as usize);
            if checked.step == checked.row_bytes {
                slot.bytes.extend_from_slice(
                    &checked.data[..checked.row_bytes * checked.height as usize],
                );
            } else {
                checked
                    .rows()
                    .for_each(|row| slot.bytes.extend_from_slice(row));
            }
            slot.format = checked.format;
            slot.width = checked.width;
            slot.height = checked.height;
            Ok(())
        })
    }

    pub fn push_joints(&self, message: &JointsRef<'_>, stamp_ns: i64, now_ns: i64) -> PushOutcome {
        self.push(stamp_ns, now_ns, |kind, slot| {
            let InletKind::Joints { joints, .. } = kind else {
                return Err(wrong_kind("joint positions"));
            };
            joints::map(message, joints, &mut slot.floats, &mut slot.topic)?;
            slot.bytes.clear();
            slot.floats
                .iter()
                .for_each(|v| slot.bytes.extend_from_slice(&v.to_le_bytes()));
            Ok(())
        })
    }

    fn push(
        &self,
        stamp_ns: i64,
        now_ns: i64,
        fill: impl FnOnce(&InletKind, &mut Slot) -> Result<(), SessionError>,
    ) -> PushOutcome {
        let mut next = lock(&self.pushing);
        self.received.fetch_add(1, Relaxed);
        let Some(mut slot) = next.take().or_else(|| self.free.pop()) else {
            return self.refuse(SessionError::new(ResultCode::Busy, "every slot is in use"));
        };
        if let Err(error) = fill(&self.kind, &mut slot) {
            // A refused message costs no waiting one its place.
            *next = Some(slot);
            return self.refuse(error);
        }
        slot.hash = xxh3_64(&slot.bytes);
        slot.stamp_ns = if stamp_ns == 0 { now_ns } else { stamp_ns };
        self.is_unstamped.store(stamp_ns == 0, Relaxed);
        // There are exactly as many slots as places.
        let _ = self.inbox.push(slot);
        *next = self.free.pop().or_else(|| {
            // The device thread is behind: the oldest waiting message gives way.
            let oldest = self.inbox.pop();
            self.pushed_out
                .fetch_add(u64::from(oldest.is_some()), Relaxed);
            oldest
        });
        PushOutcome::Accepted
    }

    fn refuse(&self, error: SessionError) -> PushOutcome {
        self.refused.fetch_add(1, Relaxed);
        let mut last = lock(&self.last_refusal);
        last.clear();
        last.push_str(&error.message);
        PushOutcome::Refused {
            code: error.code,
            reason: error.message,
        }
    }

    /// Device thread: what its ring counted.
    pub fn publish_counters(&self, used: u64, passed_over: u64) {
        self.used.store(used, Relaxed);
        self.passed_over.store(passed_over, Relaxed);
    }

    /// Device thread: age at a tick.
    pub fn publish_age(&self, age_ns: Option<i64>) {
        let age_ms = age_ns.map_or(f64::NAN, |a| a as f64 / 1e6);
        self.age_ms_bits.store(age_ms.to_bits(), Relaxed);
        self.is_stale
            .store(age_ns.is_some_and(|a| a > self.max_age_ns), Relaxed);
    }

    pub fn status(&self) -> PortStatus {
        // What is taken away from `received` is read first, so that the rest is never negative.
        let used = self.used.load(Relaxed);
        let superseded = self.passed_over.load(Relaxed) + self.pushed_out.load(Relaxed);
        let refused = self.refused.load(Relaxed);
        let received = self.received.load(Relaxed);
        PortStatus {
            name: self.name.to_string(),
            received,
            used,
            superseded,
            refused,
            pending: received.saturating_sub(used + superseded + refused),
            last_refusal: lock(&self.last_refusal).clone(),
            age_ms: f64::from_bits(self.age_ms_bits.load(Relaxed)),
            max_age_ms: self.max_age_ns as f64 / 1e6,
            is_stale: self.is_stale.load(Relaxed),
            is_unstamped: self.is_unstamped.load(Relaxed),
        }
    }
}

fn wrong_kind(got: &str) -> SessionError {
    SessionError::new(ResultCode::Shape, format!("this port does not take {got}"))
}
