//! Queues of deferred work and the order in which they run.

use super::{lock_ops, CpuExec, Op};
use crate::{Error, Pool, StreamId, StreamOrder};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::Arc;

/// Items that a stream holds before a submission has to run some of them, as a driver whose queue is
/// full does. Allocated with the stream, never grown.
const QUEUE_LEN: usize = 256;

/// Most urgent and least urgent priority; others are clamped.
const PRIORITIES: std::ops::RangeInclusive<i32> = -5..=0;

/// A place in a stream: everything submitted to it before `position`.
#[derive(Clone, Copy)]
pub(super) struct Point {
    pub(super) stream: usize,
    pub(super) position: usize,
}

/// What a stream can be asked to do.
pub(super) enum Work {
    Launch(Arc<CpuExec>),
    Op(Op),
    Wait(Point),
}

struct Item {
    /// Number of the submission, over all streams.
    order: u64,
    work: Work,
}

struct Stream {
    queue: VecDeque<Item>,
    /// Items submitted and items finished, ever.
    submitted: usize,
    completed: usize,
    /// Operations of the launch at the head that have run already (adversarial order only).
    cursor: usize,
    priority: i32,
    failure: Option<Arc<Failure>>,
}

/// A kernel's panic, shared by the streams that it reached by way of events. Told once.
struct Failure {
    error: Error,
    told: AtomicBool,
}

/// All streams of a context.
pub(super) struct Streams {
    all: Vec<Stream>,
    order: StreamOrder,
    /// State of the generator behind the adversarial order.
    random: u64,
    next_order: u64,
    #[cfg(test)]
    pub(super) trace: Vec<String>,
}

impl Streams {
    pub(super) fn new(order: StreamOrder) -> Streams {
        let random = match order {
            StreamOrder::Submission => 0,
            StreamOrder::Adversarial { seed } => seed,
        };
        Streams {
            all: vec![Stream::new(0)],
            order,
            random,
            next_order: 0,
            #[cfg(test)]
            trace: Vec::new(),
        }
    }

    /// Notes a submission for the tests of this crate.
    pub(super) fn trace(&mut self, _what: &str, _stream: usize) {
        #[cfg(test)]
        self.trace.push(format!("{_what} s{_stream}"));
    }

    pub(super) fn index(&self, id: StreamId) -> Result<usize, Error> {
        crate::context::check_stream(id, self.all.len())
    }

    pub(super) fn add(&mut self, priority: i32) -> Result<StreamId, Error> {
        let id = i32::try_from(self.all.len()).map_err(|_| Error::Invalid {
            what: "number of streams",
            expected: format!("at most {}", i32::MAX),
            got: self.all.len().to_string(),
        })?;
        self.all.push(Stream::new(priority));
        Ok(StreamId(id))
    }

    pub(super) fn priority(&self, stream: usize) -> i32 {
        self.all[stream].priority
    }

    /// The place behind everything submitted to `stream` so far.
    pub(super) fn end(&self, stream: usize) -> Point {
        Point {
            stream,
            position: self.all[stream].submitted,
        }
    }

    /// True when everything before `point` has run.
    pub(super) fn is_past(&self, point: Point) -> bool {
        self.all[point.stream].completed >= point.position
    }

    /// Queues `work`; runs earlier work while the queue is full. Never allocates.
    pub(super) fn push(&mut self, stream: usize, work: Work, pool: &Pool) {
        while self.all[stream].queue.len() == QUEUE_LEN && self.step(pool) {}
        let order = self.next_order;
        self.next_order += 1;
        let stream = &mut self.all[stream];
        stream.queue.push_back(Item { order, work });
        stream.submitted += 1;
    }

    /// Runs until everything before `point` has run.
    pub(super) fn run_to(&mut self, point: Point, pool: &Pool) {
        // An event is recorded after what it covers was submitted, so waits cannot form a circle and
        // some stream can always run: `step` only answers false when all queues are empty.
        while !self.is_past(point) && self.step(pool) {}
    }

    /// Runs one item (in adversarial order: one operation). False when there was nothing to run.
    pub(super) fn step(&mut self, pool: &Pool) -> bool {
        let picked = match self.order {
            StreamOrder::Submission => self.oldest(),
            StreamOrder::Adversarial { .. } => self.any_runnable(),
        };
        match picked {
            Some(stream) => self.run_head(stream, pool),
            None => return false,
        }
        true
    }

    /// The stream whose head was submitted first. It can run: what it waits for is older still.
    fn oldest(&self) -> Option<usize> {
        let heads = self
            .all
            .iter()
            .enumerate()
            .filter_map(|(i, s)| Some((s.queue.front()?.order, i)));
        heads.min().map(|(_, stream)| stream)
    }

    /// One of the streams whose head is not an open wait, each equally likely.
    fn any_runnable(&mut self) -> Option<usize> {
        let count = self.runnable().count();
        if count == 0 {
            return None;
        }
        // The multiply takes the high bits; its bias is far below what a test can see.
        let pick = ((u128::from(self.next_random()) * count as u128) >> 64) as usize;
        self.runnable().nth(pick)
    }

    fn runnable(&self) -> impl Iterator<Item = usize> + '_ {
        self.all
            .iter()
            .enumerate()
            .filter_map(|(i, s)| match s.queue.front()?.work {
                Work::Wait(point) if !self.is_past(point) => None,
                _ => Some(i),
            })
    }

    /// SplitMix64, as published by Steele, Lea and Flood (2014).
    fn next_random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn run_head(&mut self, stream: usize, pool: &Pool) {
        let one_op = matches!(self.order, StreamOrder::Adversarial { .. });
        let this = &mut self.all[stream];
        let mut origin = None;
        let result = match &this.queue[0].work {
            Work::Wait(point) => {
                let from = point.stream;
                self.inherit_failure(stream, from);
                Ok(())
            }
            Work::Op(op) => op.run(pool),
            Work::Launch(exec) => {
                let ops = lock_ops(exec);
                let last = if one_op {
                    ops.len().min(this.cursor + 1)
                } else {
                    ops.len()
                };
                let result = ops[this.cursor..last]
                    .iter()
                    .try_for_each(|op| op.run(pool));
                if result.is_ok() && last < ops.len() {
                    this.cursor = last;
                    return;
                }
                if result.is_err() {
                    origin = Some(exec.origin());
                }
                result
            }
        };
        let this = &mut self.all[stream];
        this.cursor = 0;
        this.completed += 1;
        this.queue.pop_front();
        if let Err((kernel, message)) = result {
            let origin = origin.unwrap_or_else(|| "an eager call".into());
            let error = Error::KernelPanicked {
                kernel,
                origin,
                stream: stream as i32,
                message,
            };
            this.keep_failure(Arc::new(Failure {
                error,
                told: AtomicBool::new(false),
            }));
        }
    }

    /// A stream that waited for a failed one has failed inputs: it reports the failure too, unless
    /// somebody was told meanwhile.
    fn inherit_failure(&mut self, stream: usize, from: usize) {
        if let Some(failure) = self.all[from].failure.clone() {
            self.all[stream].keep_failure(failure);
        }
    }

    /// Reports the failure that `stream` holds, once.
    pub(super) fn report(&mut self, stream: usize) -> Result<(), Error> {
        match self.all[stream].failure.take() {
            Some(failure) if !failure.told.swap(true, Relaxed) => Err(failure.error.clone()),
            _ => Ok(()),
        }
    }

    /// Reports one failure of any stream and forgets the others.
    pub(super) fn report_any(&mut self) -> Result<(), Error> {
        let mut first = Ok(());
        for stream in 0..self.all.len() {
            first = first.and(self.report(stream));
        }
        first
    }

    /// Empties all queues without running them.
    pub(super) fn take_queued(&mut self) -> impl Sized {
        let queued: Vec<_> = self
            .all
            .iter_mut()
            .map(|s| std::mem::take(&mut s.queue))
            .collect();
        queued
    }
}

impl Stream {
    fn new(priority: i32) -> Stream {
        Stream {
            queue: VecDeque::with_capacity(QUEUE_LEN),
            submitted: 0,
            completed: 0,
            cursor: 0,
            priority: priority.clamp(*PRIORITIES.start(), *PRIORITIES.end()),
            failure: None,
        }
    }

    /// Keeps the first failure that nobody was told of.
    fn keep_failure(&mut self, failure: Arc<Failure>) {
        let open = |f: &Arc<Failure>| !f.told.load(Relaxed);
        if !self.failure.as_ref().is_some_and(open) && open(&failure) {
            self.failure = Some(failure);
        }
    }
}
