//! Input ring of one port or view: fixed capacity, newest wins, and a pure selection rule.
//!
//! Which message a tick uses depends on the ring's content and the tick time alone: the newest one with a stamp at or
//! before the tick time; of equal stamps the one that arrived last. A message newer than the tick time waits for a later
//! tick. The message that a tick used stays the current one, and is used again while nothing newer came.
//!
//! A full ring gives up what arrived first, whatever its stamp says: stamps from a clock that was wrong for a while keep no
//! later message out.
//!
//! Counters add up: inserted = used + superseded + pending. No clock, no lock and, after construction, no allocation.

/// A message with its stamp.
#[derive(Debug)]
pub struct Entry<T> {
    /// ROS time.
    pub stamp_ns: i64,
    /// The message.
    pub item: T,
}

/// What a tick at some time would use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its stamp, ROS time.
    pub stamp_ns: i64,
    /// False: an earlier tick used it already.
    pub is_new: bool,
}

/// Counters since construction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages inserted.
    pub inserted: u64,
    /// Messages that a tick used (each once).
    pub used: u64,
    /// Messages that never were used: pushed out, passed over, or flushed at a new epoch.
    pub superseded: u64,
}

/// The ring.
#[derive(Debug)]
pub struct Ring<T> {
    /// In order of arrival.
    pending: Vec<Entry<T>>,
    capacity: usize,
    current: Option<Entry<T>>,
    counters: Counters,
}

impl<T> Ring<T> {
    /// An empty ring for up to `capacity` (at least 1) waiting messages.
    pub fn with_capacity(capacity: usize) -> Ring<T> {
        let capacity = capacity.max(1);
        Ring {
            pending: Vec::with_capacity(capacity),
            capacity,
            current: None,
            counters: Counters::default(),
        }
    }

    /// Adds a message. A full ring gives up the one that arrived first.
    /// Messages that leave go to `recycle`.
    pub fn insert(&mut self, stamp_ns: i64, item: T, recycle: &mut impl FnMut(T)) {
        self.counters.inserted += 1;
        if self.pending.len() == self.capacity {
            self.counters.superseded += 1;
            recycle(self.pending.remove(0).item);
        }
        self.pending.push(Entry { stamp_ns, item });
    }

    fn newest_until(&self, tick_ns: i64) -> Option<usize> {
        // max_by_key gives the last of equals, which is the later arrival.
        (0..self.pending.len())
            .filter(|i| self.pending[*i].stamp_ns <= tick_ns)
            .max_by_key(|i| self.pending[*i].stamp_ns)
            .filter(|i| {
                self.current
                    .as_ref()
                    .is_none_or(|c| self.pending[*i].stamp_ns >= c.stamp_ns)
            })
    }

    /// What a tick at `tick_ns` would use; changes nothing. `None`: no message at or before that time.
    pub fn candidate(&self, tick_ns: i64) -> Option<Candidate> {
        match self.newest_until(tick_ns) {
            Some(i) => Some(Candidate {
                stamp_ns: self.pending[i].stamp_ns,
                is_new: true,
            }),
            None => self
                .current
                .as_ref()
                .filter(|c| c.stamp_ns <= tick_ns)
                .map(|c| Candidate {
                    stamp_ns: c.stamp_ns,
                    is_new: false,
                }),
        }
    }

    /// Makes the candidate of `tick_ns` the current message and gives up everything at or before its stamp.
    /// Afterwards [`Ring::current`] is what [`Ring::candidate`] said.
    pub fn take(&mut self, tick_ns: i64, recycle: &mut impl FnMut(T)) -> Option<Candidate> {
        let candidate = self.candidate(tick_ns)?;
        if let Some(index) = self.newest_until(tick_ns) {
            self.counters.used += 1;
            if let Some(old) = self.current.replace(self.pending.remove(index)) {
                recycle(old.item);
            }
        }
        let mut i = 0;
        while i < self.pending.len() {
            if self.pending[i].stamp_ns <= candidate.stamp_ns {
                self.counters.superseded += 1;
                recycle(self.pending.remove(i).item);
            } else {
                i += 1;
            }
        }
        Some(candidate)
    }

    /// The message that the last tick used.
    pub fn current(&self) -> Option<&Entry<T>> {
        self.current.as_ref()
    }

    /// Forgets everything, the current message too: a new epoch uses no input of the old one.
    pub fn flush(&mut self, recycle: &mut impl FnMut(T)) {
        self.counters.superseded += self.pending.len() as u64;
        self.pending.drain(..).for_each(|e| recycle(e.item));
        if let Some(old) = self.current.take() {
            recycle(old.item);
        }
    }

    /// Earliest stamp of the messages that are there, ROS time.
    pub fn earliest_ns(&self) -> Option<i64> {
        self.current
            .iter()
            .chain(&self.pending)
            .map(|e| e.stamp_ns)
            .min()
    }

    /// Messages waiting.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Counters since construction.
    pub fn counters(&self) -> Counters {
        self.counters
    }
}
