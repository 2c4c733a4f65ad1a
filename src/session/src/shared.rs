//! What the device thread, the emitter thread and the callers share.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicU8, AtomicUsize, Ordering::*};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::Thread;

use crossbeam_queue::ArrayQueue;

use crate::code::SessionError;
use crate::command::{lock, Command, Operation};
use crate::config::{Config, TickMode};
use crate::core::CoreInfo;
use crate::emission::{ChunkSlot, Emission};
use crate::inlet::{Inlet, InletKind};
use crate::io::{Clock, Event, Sink};
use crate::latency::Latency;

/// Waiting messages per view.
const IMAGE_RING: usize = 8;
/// Waiting joint states: they come at a higher rate.
const JOINT_RING: usize = 32;
/// Slots beyond the ring: one in use, one being filled, two on the way.
const SPARE_SLOTS: usize = 4;
/// Commands that may wait for the device thread.
pub(crate) const QUEUE: usize = 1024;
/// One seated, one waiting, one on the way, one being filled, one spare.
const CHUNK_SLOTS: usize = 5;

/// Chunks from the device thread to the emitter and back, and the request in the other direction. Lock-free.
#[derive(Debug)]
pub(crate) struct Handover {
    pub chunks: ArrayQueue<Box<ChunkSlot>>,
    free: ArrayQueue<Box<ChunkSlot>>,
    /// Counts how often the emitter asked for a chunk.
    pub requests: AtomicU64,
    /// ROS time of the last row in this epoch; `i64::MIN`: none.
    pub last_row_ros_ns: AtomicI64,
    device: OnceLock<Thread>,
}

impl Handover {
    fn new(floats: usize, joints: usize) -> Handover {
        let free = ArrayQueue::new(CHUNK_SLOTS);
        let nobody: Arc<str> = Arc::from("");
        for _ in 0..CHUNK_SLOTS {
            let slot = ChunkSlot {
                generation: 0,
                chunk_id: 0,
                session: nobody.clone(),
                epoch: 0,
                rows: Vec::with_capacity(floats),
                anchor: Vec::with_capacity(joints),
            };
            let _ = free.push(Box::new(slot));
        }
        Handover {
            chunks: ArrayQueue::new(CHUNK_SLOTS),
            free,
            requests: AtomicU64::new(0),
            last_row_ros_ns: AtomicI64::new(i64::MIN),
            device: OnceLock::new(),
        }
    }

    /// A slot to fill: a free one, or the oldest that the emitter did not fetch yet.
    pub fn take_slot(&self) -> Option<Box<ChunkSlot>> {
        self.free
            .pop()
            .or_else(|| self.chunks.pop())
            .or_else(|| self.free.pop())
    }

    pub fn give_back(&self, slot: Box<ChunkSlot>) {
        // There are exactly as many slots as places.
        let _ = self.free.push(slot);
    }

    pub fn set_device(&self, thread: Thread) {
        let _ = self.device.set(thread);
    }

    pub fn wake_device(&self) {
        if let Some(thread) = self.device.get() {
            thread.unpark();
        }
    }
}

/// Numbers for the status.
#[derive(Debug, Default)]
pub(crate) struct Stats {
    pub epoch: AtomicU64,
    pub tick: AtomicU64,
    pub session: AtomicUsize,
    pub chunks: AtomicU64,
    pub commands: AtomicU64,
    pub holds: AtomicU64,
    pub limited: AtomicU64,
    pub deadline_misses: AtomicU64,
    pub ticks_refused: AtomicU64,
    pub phase: AtomicU8,
    pub rows_left: AtomicU64,
    pub boundary_jump_bits: AtomicU64,
    pub capsules: AtomicUsize,
    pub capsule_device_bytes: AtomicU64,
    pub capsule_host_bytes: AtomicU64,
    pub latency: Latency,
}

/// Texts for the status. The device thread writes them on refusals and commands, not on good ticks.
#[derive(Debug, Default)]
pub(crate) struct Texts {
    pub last_refusal: String,
    pub error: String,
    pub prompt: String,
}

pub(crate) struct Queued {
    pub operation: Operation,
    /// `None`: activate.
    pub command: Option<Command>,
    /// Steady time at which it was queued.
    pub queued_ns: u64,
}

/// Why a command was not queued.
pub(crate) enum NotQueued {
    /// The device thread is stopping; the command comes back.
    Stopping(Queued),
    /// [`QUEUE`] commands wait.
    Full,
}

pub(crate) struct Shared {
    pub config: Arc<Config>,
    pub info: CoreInfo,
    pub execute_rows: u32,
    pub clock: Arc<dyn Clock>,
    pub sink: Arc<dyn Sink>,
    /// Views in model order, then the state.
    pub inlets: Vec<Inlet>,
    /// Counts accepted messages, so that a waiting device thread sees news.
    pub input_news: AtomicU64,
    pub handover: Handover,
    pub emission: Mutex<Emission>,
    /// Chunks and commands of an older generation are never published.
    pub generation: AtomicU64,
    /// True while chunks may be published. Locked by the device thread around each publication and by whoever opens or closes
    /// it, so that nothing is published after a deactivate answered.
    pub publication: Mutex<bool>,
    pub is_active: AtomicBool,
    /// The device thread should end.
    pub is_stopping: AtomicBool,
    /// The emitter thread should end.
    pub emitter_stops: AtomicBool,
    pub has_error: AtomicBool,
    pub tick_mode: AtomicU8,
    queue: Mutex<VecDeque<Queued>>,
    queued: AtomicUsize,
    pub stats: Stats,
    pub texts: Mutex<Texts>,
}

impl Shared {
    pub fn new(
        config: Arc<Config>,
        info: CoreInfo,
        clock: Arc<dyn Clock>,
        sink: Arc<dyn Sink>,
    ) -> Shared {
        let execute_rows = match config.chunk.execute_rows {
            0 => info.horizon as u32,
            rows => rows,
        };
        let mut inlets = Vec::new();
        for view in &config.images {
            let kind = InletKind::Image {
                encodings: view.encodings.clone(),
            };
            let name = format!("images.{}", view.view);
            inlets.push(Inlet::new(
                &name,
                kind,
                view.max_age_ms,
                IMAGE_RING + SPARE_SLOTS,
                info.image_bytes,
            ));
        }
        let width = info.state_dim;
        let kind = InletKind::Joints {
            joints: config.state.joints.clone(),
            width,
        };
        inlets.push(Inlet::new(
            "state",
            kind,
            config.state.max_age_ms,
            JOINT_RING + SPARE_SLOTS,
            width * 4,
        ));
        let joints = config.state.joints.len();
        Shared {
            handover: Handover::new(info.horizon * joints, joints),
            emission: Mutex::new(Emission::new(&config, execute_rows)),
            tick_mode: AtomicU8::new(config.tick.mode as u8),
            execute_rows,
            config,
            info,
            clock,
            sink,
            inlets,
            input_news: AtomicU64::new(0),
            generation: AtomicU64::new(1),
            publication: Mutex::new(false),
            is_active: AtomicBool::new(false),
            is_stopping: AtomicBool::new(false),
            emitter_stops: AtomicBool::new(false),
            has_error: AtomicBool::new(false),
            queue: Mutex::new(VecDeque::new()),
            queued: AtomicUsize::new(0),
            stats: Stats::default(),
            texts: Mutex::default(),
        }
    }

    /// Waiting places of the ring of inlet `index`.
    pub fn ring_capacity(&self, index: usize) -> usize {
        if index + 1 == self.inlets.len() {
            JOINT_RING
        } else {
            IMAGE_RING
        }
    }

    pub fn tick_mode(&self) -> TickMode {
        match self.tick_mode.load(Relaxed) {
            1 => TickMode::Rate,
            2 => TickMode::Trigger,
            _ => TickMode::Chunk,
        }
    }

    /// Adds a command to the queue. Activations and time jumps always find a place: without them outputs would be wrong.
    pub fn enqueue(&self, queued: Queued) -> Result<(), NotQueued> {
        let mut queue = lock(&self.queue);
        if self.is_stopping.load(Acquire) {
            return Err(NotQueued::Stopping(queued));
        }
        let is_exempt = matches!(queued.command, None | Some(Command::TimeJump { .. }));
        if queue.len() >= QUEUE && !is_exempt {
            return Err(NotQueued::Full);
        }
        queue.push_back(queued);
        self.queued.fetch_add(1, Release);
        drop(queue);
        self.handover.wake_device();
        Ok(())
    }

    /// The next command. Takes the lock only when there is one.
    pub fn dequeue(&self) -> Option<Queued> {
        if self.queued.load(Acquire) == 0 {
            return None;
        }
        let next = lock(&self.queue).pop_front();
        if next.is_some() {
            self.queued.fetch_sub(1, Release);
        }
        next
    }

    /// A new generation: what was computed for an older one will not be published.
    pub fn next_generation(&self) -> u64 {
        self.generation.fetch_add(1, AcqRel) + 1
    }

    /// No chunk and no command is published after this.
    pub fn close_outputs(&self) {
        self.is_active.store(false, Release);
        *lock(&self.publication) = false;
        lock(&self.emission).close(self.next_generation(), &self.handover, &self.stats);
    }

    /// The error state: outputs are closed, ticks and commands are refused until cleanup and configure.
    pub fn enter_error(&self, error: &SessionError) {
        self.has_error.store(true, Release);
        self.close_outputs();
        lock(&self.texts).error = error.to_string();
        self.sink.event(Event::Error {
            code: error.code,
            message: error.message.clone(),
        });
    }

    /// One control step of the emitter.
    pub fn emit(&self) {
        let mut emission = lock(&self.emission);
        emission.step(
            self.clock.steady_ns(),
            self.clock.ros_ns(),
            &self.handover,
            &self.stats,
            self.sink.as_ref(),
        );
    }
}
