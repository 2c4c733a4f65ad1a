//! From chunks to commands at control rate. [`Emission::step`] is what the emitter thread does once per control period.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::Arc;

use crate::chunk::{Machine, Phase, Rules, Step};
use crate::config::{Config, JointConfig, LimitReaction};
use crate::io::{CommandRef, Event, Sink};
use crate::limit::{self, Limits, Verdict};
use crate::shared::{Handover, Stats};

/// Rows of one chunk on their way to the emitter. Goes round between the threads.
#[derive(Debug)]
pub(crate) struct ChunkSlot {
    pub generation: u64,
    pub chunk_id: u64,
    pub session: Arc<str>,
    pub epoch: u64,
    /// `[horizon, joints]`, the model's units.
    pub rows: Vec<f32>,
    /// Measured positions that the chunk was computed from, topic units; empty if it saw none.
    pub anchor: Vec<f64>,
}

/// State of the emitter. All of it is world state: no capsule holds it, no restore rolls it back.
#[derive(Debug)]
pub(crate) struct Emission {
    machine: Machine<Box<ChunkSlot>>,
    joints: Vec<JointConfig>,
    names: Vec<String>,
    limits: Limits,
    reaction: LimitReaction,
    max_hold_ns: u64,
    dt_ns: i64,
    generation: u64,
    is_open: bool,
    /// The next chunk was asked for and did not come yet.
    is_asking: bool,
    /// Last command sent since activation, and the generation in which it was.
    last: Option<u64>,
    /// Steady time of the last row that was sent.
    last_sent_ns: u64,
    /// The hold ended and no row was sent since.
    is_starved: bool,
    last_command: Vec<f64>,
    last_chunk: (u64, u32),
    /// Model units of the last emitted row, for the jump at a seam.
    last_row: Vec<f32>,
    has_last_row: bool,
    row: Vec<f64>,
    warned_limit_ns: Option<u64>,
}

impl Emission {
    pub fn new(config: &Config, execute_rows: u32) -> Emission {
        let width = config.state.joints.len();
        let max_hold_ns = (config.chunk.max_hold_ms * 1e6) as u64;
        Emission {
            machine: Machine::new(Rules {
                execute_rows,
                max_hold_ns,
            }),
            max_hold_ns,
            joints: config.state.joints.clone(),
            names: config.joint_names(),
            limits: Limits {
                range: config.command.limits.clone(),
                max_step: config.command.max_step.clone(),
            },
            reaction: config.command.limit_reaction,
            dt_ns: config.control_period_ns() as i64,
            generation: 0,
            is_open: false,
            is_asking: false,
            last: None,
            last_sent_ns: 0,
            is_starved: false,
            last_command: vec![0.0; width],
            last_chunk: (0, 0),
            last_row: vec![0.0; width],
            has_last_row: false,
            row: vec![0.0; width],
            warned_limit_ns: None,
        }
    }

    /// Activation: commands may flow, nothing is remembered from before.
    pub fn open(&mut self, generation: u64, handover: &Handover, stats: &Stats) {
        self.last = None;
        self.clear(generation, handover, stats);
        self.is_open = true;
    }

    /// Deactivation: no command from here on.
    pub fn close(&mut self, generation: u64, handover: &Handover, stats: &Stats) {
        self.is_open = false;
        self.clear(generation, handover, stats);
    }

    /// A new epoch: rows and hold are gone, chunks of another generation are dropped when they come.
    pub fn clear(&mut self, generation: u64, handover: &Handover, stats: &Stats) {
        self.generation = generation;
        self.machine.clear(&mut |slot| handover.give_back(slot));
        while let Some(slot) = handover.chunks.pop() {
            handover.give_back(slot);
        }
        self.has_last_row = false;
        self.is_asking = false;
        self.is_starved = false;
        stats.phase.store(self.machine.phase() as u8, Relaxed);
        stats.rows_left.store(0, Relaxed);
        handover.last_row_ros_ns.store(i64::MIN, Release);
    }

    /// One control step. Allocates nothing unless it warns. Called with the emission locked, so that no epoch changes between
    /// the decision and the publication.
    pub fn step(
        &mut self,
        steady_ns: u64,
        ros_ns: i64,
        handover: &Handover,
        stats: &Stats,
        sink: &dyn Sink,
    ) {
        if !self.is_open {
            return;
        }
        while let Some(slot) = handover.chunks.pop() {
            if slot.generation != self.generation {
                handover.give_back(slot);
                continue;
            }
            self.is_asking = false;
            if let Some(replaced) = self.machine.offer(slot) {
                handover.give_back(replaced);
            }
        }
        match self
            .machine
            .step(steady_ns, &mut |slot| handover.give_back(slot))
        {
            Step::Row { row, is_seam } => {
                self.emit_row(row, is_seam, steady_ns, ros_ns, handover, stats, sink)
            }
            Step::Hold => self.hold(steady_ns, ros_ns, stats, sink),
            Step::Starved { .. } => self.starve("no chunk came", sink),
            Step::Nothing => {}
        }
        let phase = match self.is_starved {
            true => Phase::Starved,
            false => self.machine.phase(),
        };
        stats.phase.store(phase as u8, Relaxed);
        stats
            .rows_left
            .store(u64::from(self.machine.rows_left()), Relaxed);
        if self.machine.wants_next() && !self.is_asking {
            self.is_asking = true;
            handover.requests.fetch_add(1, AcqRel);
            handover.wake_device();
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn emit_row(
        &mut self,
        row: u32,
        is_seam: bool,
        steady_ns: u64,
        ros_ns: i64,
        handover: &Handover,
        stats: &Stats,
        sink: &dyn Sink,
    ) {
        let Some(slot) = self.machine.seated() else {
            return;
        };
        let width = self.joints.len();
        let Some(values) = slot
            .rows
            .get(row as usize * width..(row as usize + 1) * width)
        else {
            return;
        };
        for (out, (joint, value)) in self.row.iter_mut().zip(self.joints.iter().zip(values)) {
            *out = joint.to_topic(f64::from(*value));
        }
        if is_seam && self.has_last_row {
            let jump = values
                .iter()
                .zip(&self.last_row)
                .map(|(a, b)| f64::from((a - b).abs()))
                .fold(0.0, f64::max);
            stats.boundary_jump_bits.store(jump.to_bits(), Relaxed);
        }
        // Within an epoch a step is measured from the last command; the first one of an epoch from where the robot is.
        let anchor = match self.last {
            Some(generation) if generation == self.generation => Some(self.last_command.as_slice()),
            _ if !slot.anchor.is_empty() => Some(slot.anchor.as_slice()),
            Some(_) => Some(self.last_command.as_slice()),
            None => None,
        };
        let verdict = limit::apply(&mut self.row, anchor, &self.limits, self.reaction);
        handover.last_row_ros_ns.store(ros_ns, Release);
        let is_emitted = matches!(verdict, Verdict::Emit { .. });
        match verdict {
            Verdict::Emit { limited: 0 } => {}
            Verdict::Emit { limited } => {
                stats.limited.fetch_add(u64::from(limited), Relaxed);
                self.warn_limit(steady_ns, sink, "values were moved onto a limit");
            }
            Verdict::OverLimit { index } => {
                stats.limited.fetch_add(1, Relaxed);
                self.warn_limit(
                    steady_ns,
                    sink,
                    &format!("row {row} refused: {} is over its limit", self.names[index]),
                );
            }
            Verdict::NonFinite { index } => {
                stats.limited.fetch_add(1, Relaxed);
                self.warn_limit(
                    steady_ns,
                    sink,
                    &format!("row {row} refused: {} is not finite", self.names[index]),
                );
            }
        }
        if !is_emitted {
            return self.hold(steady_ns, ros_ns, stats, sink);
        }
        let Some(slot) = self.machine.seated() else {
            return;
        };
        self.last_row
            .copy_from_slice(&slot.rows[row as usize * width..(row as usize + 1) * width]);
        self.has_last_row = true;
        self.last_command.copy_from_slice(&self.row);
        self.last = Some(self.generation);
        self.last_sent_ns = steady_ns;
        self.is_starved = false;
        self.last_chunk = (slot.chunk_id, row);
        stats.commands.fetch_add(1, Relaxed);
        sink.command(&CommandRef {
            session: &slot.session,
            epoch: slot.epoch,
            chunk_id: slot.chunk_id,
            row,
            is_hold: false,
            stamp_ns: ros_ns,
            dt_ns: self.dt_ns,
            names: &self.names,
            positions: &self.last_command,
        });
    }

    /// The last command again, never one of another epoch and never for longer than `max_hold_ms`: rows that a limit refuses
    /// do not make the hold longer.
    fn hold(&mut self, steady_ns: u64, ros_ns: i64, stats: &Stats, sink: &dyn Sink) {
        if self.last != Some(self.generation) {
            return;
        }
        if steady_ns.saturating_sub(self.last_sent_ns) > self.max_hold_ns {
            return self.starve("every row was refused", sink);
        }
        let Some(slot) = self.machine.seated() else {
            return;
        };
        stats.commands.fetch_add(1, Relaxed);
        stats.holds.fetch_add(1, Relaxed);
        sink.command(&CommandRef {
            session: &slot.session,
            epoch: slot.epoch,
            chunk_id: self.last_chunk.0,
            row: self.last_chunk.1,
            is_hold: true,
            stamp_ns: ros_ns,
            dt_ns: self.dt_ns,
            names: &self.names,
            positions: &self.last_command,
        });
    }

    /// Commands stop. Told once, until a row is sent again.
    fn starve(&mut self, why: &str, sink: &dyn Sink) {
        if !self.is_starved {
            self.is_starved = true;
            sink.event(Event::Warning(format!(
                "starved: {why} within max_hold_ms, commands stop"
            )));
        }
    }

    fn warn_limit(&mut self, steady_ns: u64, sink: &dyn Sink, text: &str) {
        if self
            .warned_limit_ns
            .is_none_or(|t| steady_ns.saturating_sub(t) >= 1_000_000_000)
        {
            self.warned_limit_ns = Some(steady_ns);
            sink.event(Event::Warning(format!("command limits: {text}")));
        }
    }
}

/// For `Acquire` readers of the hand-over.
pub(crate) fn last_row_ros_ns(handover: &Handover) -> Option<i64> {
    match handover.last_row_ros_ns.load(Acquire) {
        i64::MIN => None,
        ns => Some(ns),
    }
}
