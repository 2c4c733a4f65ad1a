//! The plain hand-over: which row of which chunk is emitted at a control step. Pure.
//!
//! A chunk starts at row 0. After `execute_rows` rows the next chunk is taken, if one waits; of several that came meanwhile
//! the newest waits. With none, the last command is held for at most `max_hold_ns` after the last row, then the machine is
//! starved and emits nothing until a chunk comes. Nothing is held before a row was emitted, and [`Machine::clear`] (a new
//! epoch) forgets rows and hold alike.

/// Numbers of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Rows emitted of each chunk, at least 1.
    pub execute_rows: u32,
    /// Longest hold after the last row.
    pub max_hold_ns: u64,
}

/// What to do at a control step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing was ever emitted in this epoch and no chunk is there.
    Nothing,
    /// Emit this row of the seated chunk.
    Row {
        /// Row index.
        row: u32,
        /// The chunk was seated at this step.
        is_seam: bool,
    },
    /// Emit the last command again.
    Hold,
    /// Emit nothing: the hold ended.
    Starved {
        /// At this step.
        is_first: bool,
    },
}

/// State in words, for the status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// Nothing emitted in this epoch, nothing there.
    Idle = 0,
    /// A chunk waits for the next control step, and nothing was emitted before.
    Pending = 1,
    /// Rows left.
    Running = 2,
    /// The last command is repeated.
    Holding = 3,
    /// The hold ended.
    Starved = 4,
}

impl Phase {
    /// Name in the status.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Idle => "idle",
            Phase::Pending => "pending",
            Phase::Running => "running",
            Phase::Holding => "holding",
            Phase::Starved => "starved",
        }
    }
    /// From its number.
    pub fn from_number(number: u8) -> Phase {
        [
            Phase::Idle,
            Phase::Pending,
            Phase::Running,
            Phase::Holding,
            Phase::Starved,
        ]
        .get(number as usize)
        .copied()
        .unwrap_or(Phase::Idle)
    }
}

/// The machine. `C` owns a chunk's rows.
#[derive(Debug)]
pub struct Machine<C> {
    rules: Rules,
    seated: Option<C>,
    waiting: Option<C>,
    next_row: u32,
    /// Steady time of the last row in this epoch.
    last_row_ns: Option<u64>,
    is_starved: bool,
    phase: Phase,
}

impl<C> Machine<C> {
    /// An idle machine.
    pub fn new(rules: Rules) -> Machine<C> {
        Machine {
            rules: Rules {
                execute_rows: rules.execute_rows.max(1),
                ..rules
            },
            seated: None,
            waiting: None,
            next_row: 0,
            last_row_ns: None,
            is_starved: false,
            phase: Phase::Idle,
        }
    }

    /// Hands a chunk over. Returns the one that waited before, which will never be emitted.
    pub fn offer(&mut self, chunk: C) -> Option<C> {
        if self.phase == Phase::Idle {
            self.phase = Phase::Pending;
        }
        self.waiting.replace(chunk)
    }

    /// One control step at steady time `now_ns`. A chunk that is done goes to `recycle`.
    pub fn step(&mut self, now_ns: u64, recycle: &mut impl FnMut(C)) -> Step {
        let mut is_seam = false;
        if self.rows_left() == 0 {
            if let Some(next) = self.waiting.take() {
                if let Some(done) = self.seated.replace(next) {
                    recycle(done);
                }
                self.next_row = 0;
                is_seam = true;
            }
        }
        if self.rows_left() > 0 {
            let row = self.next_row;
            self.next_row += 1;
            self.last_row_ns = Some(now_ns);
            self.is_starved = false;
            self.phase = Phase::Running;
            return Step::Row { row, is_seam };
        }
        match self.last_row_ns {
            None => Step::Nothing,
            Some(last) if now_ns.saturating_sub(last) <= self.rules.max_hold_ns => {
                self.phase = Phase::Holding;
                Step::Hold
            }
            Some(_) => {
                let is_first = !self.is_starved;
                self.is_starved = true;
                self.phase = Phase::Starved;
                Step::Starved { is_first }
            }
        }
    }

    /// The seated chunk.
    pub fn seated(&self) -> Option<&C> {
        self.seated.as_ref()
    }

    /// Rows of the seated chunk that will still be emitted.
    pub fn rows_left(&self) -> u32 {
        match self.seated {
            Some(_) => self.rules.execute_rows.saturating_sub(self.next_row),
            None => 0,
        }
    }

    /// True when the next chunk should be computed now: no row left and none waiting.
    pub fn wants_next(&self) -> bool {
        self.rows_left() == 0 && self.waiting.is_none()
    }

    /// State in words.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// A new epoch: forgets rows, waiting chunk and hold.
    pub fn clear(&mut self, recycle: &mut impl FnMut(C)) {
        self.seated
            .take()
            .into_iter()
            .chain(self.waiting.take())
            .for_each(recycle);
        self.next_row = 0;
        self.last_row_ns = None;
        self.is_starved = false;
        self.phase = Phase::Idle;
    }
}
