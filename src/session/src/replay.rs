//! Offline replay: runs a bag through the same inlets, rings, gate and tick as the live node, without ROS and without
//! threads, and writes the chunks that come out.
//!
//! The tick log says which inputs each tick used (stamp and hash per port) and which commands were applied between ticks.
//! Replay follows it entry by entry. It needs the log from a state that it can make itself: from configure on, or from a
//! reset on. Every action hash is compared with the live one.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use crate::bag::{BagMessage, BagSink, BagSource};
use crate::code::{ResultCode, SessionError};
use crate::command::{lock, Command, Tier};
use crate::config::Config;
use crate::core::{Core, Plan};
use crate::driver::{Driver, TickArgs, TickEnd};
use crate::inlet::Inlet;
use crate::io::{
    ChunkRef, Clock, CommandRef, Event, ImageRef, JointsRef, PushOutcome, Sink, TickRecord,
};
use crate::messages::{self, ImageMessage, JointsMessage};
use crate::shared::Shared;

/// One tick whose actions differ from the live ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// Live set.
    pub session: String,
    /// Tick number.
    pub tick: u64,
    /// Hash in the log.
    pub expected: u64,
    /// Hash of the replay; 0 if it was refused.
    pub got: u64,
}

/// What a replay did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplayReport {
    /// Topic of the tick log that was followed.
    pub tick_log_topic: String,
    /// Ticks run.
    pub ticks: u64,
    /// Entries of ticks that were refused live by the gate, and skipped.
    pub refused: u64,
    /// Operations applied.
    pub operations: u64,
    /// Chunks written.
    pub chunks: u64,
    /// Ticks whose actions differ. Empty: the replay is exact.
    pub mismatches: Vec<Mismatch>,
}

/// Choices of a replay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplayOptions {
    /// Needed when the bag has tick logs of several nodes.
    pub tick_log_topic: Option<String>,
}

/// Time as the log says.
struct LogClock {
    ros_ns: AtomicI64,
}

impl Clock for LogClock {
    fn steady_ns(&self) -> u64 {
        0
    }
    fn ros_ns(&self) -> i64 {
        self.ros_ns.load(Relaxed)
    }
}

/// Keeps the chunk and the last log entry of the entry under way.
#[derive(Default)]
struct Tap {
    chunk: Mutex<Option<Vec<u8>>>,
    hash: Mutex<u64>,
}

impl Sink for Tap {
    fn chunk(&self, chunk: &ChunkRef<'_>) {
        *lock(&self.chunk) = Some(messages::encode_chunk(chunk));
    }
    fn command(&self, _: &CommandRef<'_>) {}
    fn tick_log(&self, record: &TickRecord) {
        *lock(&self.hash) = record.actions_hash;
    }
    fn event(&self, _: Event) {}
}

fn bad(message: String) -> SessionError {
    SessionError::new(ResultCode::Format, message)
}

/// Replays `source` with the built-in model of `config` and writes an `ActionChunk` message per chunk to `out`.
///
/// # Errors
/// When the bag has no tick log, lacks an input or a capsule that the log names, or cannot be read or written. Actions that
/// differ are no error: they stand in the report.
pub fn replay(
    config: Config,
    options: &ReplayOptions,
    source: &mut dyn BagSource,
    out: &mut dyn BagSink,
) -> Result<ReplayReport, SessionError> {
    let core = crate::live::open(&config)?;
    replay_with(config, core, options, source, out)
}

/// [`replay`] with another device side.
///
/// # Errors
/// As [`replay`].
pub fn replay_with(
    config: Config,
    core: Box<dyn Core>,
    options: &ReplayOptions,
    source: &mut dyn BagSource,
    out: &mut dyn BagSink,
) -> Result<ReplayReport, SessionError> {
    let (topic, log) = read_log(source, options)?;
    let info = core.info().clone();
    let inputs = Inputs::read(&config, info.state_dim, &topic, &log, source)?;
    crate::engine::check_fit(&config, &info)?;
    let clock = Arc::new(LogClock {
        ros_ns: AtomicI64::new(0),
    });
    let tap = Arc::new(Tap::default());
    let shared = Arc::new(Shared::new(
        Arc::new(config),
        info,
        clock.clone(),
        tap.clone(),
    ));
    let mut replay = Replay {
        driver: Driver::new(shared.clone(), core)?,
        shared,
        clock,
        tap,
        inputs,
        is_active: false,
        chunk_topic: format!("{}/action_chunk", node_of(&topic)),
        report: ReplayReport {
            tick_log_topic: topic,
            ..ReplayReport::default()
        },
    };
    for record in &log {
        replay.entry(record, out)?;
    }
    out.finish()?;
    Ok(replay.report)
}

/// `/ns/node/tick_log` to `/ns/node`.
fn node_of(tick_log_topic: &str) -> &str {
    tick_log_topic.rsplit_once('/').map_or("", |(node, _)| node)
}

/// Topic and entries of the log to follow.
fn read_log(
    source: &mut dyn BagSource,
    options: &ReplayOptions,
) -> Result<(String, Vec<TickRecord>), SessionError> {
    let mut logs: HashMap<String, Vec<TickRecord>> = HashMap::new();
    source.for_each(&mut |message: &BagMessage<'_>| {
        if message.type_name == messages::TICK_LOG {
            let record = messages::decode_tick_log(message.data)?;
            match logs.get_mut(message.topic) {
                Some(log) => log.push(record),
                None => drop(logs.insert(message.topic.to_string(), vec![record])),
            }
        }
        Ok(())
    })?;
    let mut topics: Vec<String> = logs.keys().cloned().collect();
    topics.sort();
    let chosen = match (&options.tick_log_topic, topics.as_slice()) {
        (Some(topic), _) => topic.clone(),
        (None, [one]) => one.clone(),
        (None, []) => {
            return Err(SessionError::new(
                ResultCode::NotFound,
                format!(
                    "the bag has no {} message: record ~/tick_log (key tick_log)",
                    messages::TICK_LOG
                ),
            ))
        }
        (None, _) => {
            return Err(SessionError::new(
                ResultCode::BadArgument,
                format!(
                    "the bag has several tick logs, name one: {}",
                    topics.join(", ")
                ),
            ))
        }
    };
    match logs.remove(&chosen) {
        Some(log) => Ok((chosen, log)),
        None => Err(SessionError::new(
            ResultCode::NotFound,
            format!(
                "the bag has no tick log {chosen}; it has: {}",
                topics.join(", ")
            ),
        )),
    }
}

/// The messages that the log refers to, by port, stamp and hash.
struct Inputs {
    by_port: Vec<HashMap<(i64, u64), Vec<u8>>>,
}

impl Inputs {
    fn read(
        config: &Config,
        state_dim: usize,
        tick_log_topic: &str,
        log: &[TickRecord],
        source: &mut dyn BagSource,
    ) -> Result<Inputs, SessionError> {
        let node = node_of(tick_log_topic);
        let views = config.images.len();
        let mut topics: Vec<(String, &str)> = config
            .images
            .iter()
            .map(|v| (full_name(&v.topic, node), messages::IMAGE))
            .collect();
        topics.push((full_name(&config.state.topic, node), messages::JOINT_STATE));
        let mut wanted: Vec<HashSet<u64>> = vec![HashSet::new(); views + 1];
        for port in log.iter().flat_map(|r| &r.ports) {
            let index = match port.name.strip_prefix("images.") {
                Some(view) => config.images.iter().position(|v| v.view == view),
                None => (port.name.as_ref() == "state").then_some(views),
            };
            let index = index.ok_or_else(|| {
                bad(format!(
                    "the log names port {}, which the deployment lacks",
                    port.name
                ))
            })?;
            wanted[index].insert(port.hash);
        }
        let mut by_port: Vec<HashMap<(i64, u64), Vec<u8>>> = vec![HashMap::new(); views + 1];
        // Inlets compute the hash of the bytes that the model gets: the same code as live.
        let inlets = scratch_inlets(config, state_dim);
        source.for_each(&mut |message: &BagMessage<'_>| {
            for (index, (topic, type_name)) in topics.iter().enumerate() {
                if message.topic != topic || message.type_name != *type_name {
                    continue;
                }
                let Some((stamp_ns, hash)) = identify(&inlets[index], index < views, message.data)?
                else {
                    continue;
                };
                if wanted[index].contains(&hash) {
                    by_port[index].insert((stamp_ns, hash), message.data.to_vec());
                }
            }
            Ok(())
        })?;
        Ok(Inputs { by_port })
    }

    /// The message of a port. One that was unstamped is in the log under its receive time.
    fn find(&self, port: usize, stamp_ns: i64, hash: u64) -> Option<&[u8]> {
        let messages = self.by_port.get(port)?;
        messages
            .get(&(stamp_ns, hash))
            .or_else(|| messages.get(&(0, hash)))
            .map(Vec::as_slice)
    }
}

/// ROS name resolution: private, relative, absolute.
fn full_name(topic: &str, node: &str) -> String {
    let namespace = node_of(node);
    match (topic.strip_prefix("~/"), topic.starts_with('/')) {
        (Some(private), _) => format!("{node}/{private}"),
        (None, true) => topic.to_string(),
        (None, false) => format!("{namespace}/{topic}"),
    }
}

fn scratch_inlets(config: &Config, width: usize) -> Vec<Inlet> {
    use crate::inlet::InletKind;
    let mut inlets: Vec<Inlet> = config
        .images
        .iter()
        .map(|v| {
            Inlet::new(
                &v.view,
                InletKind::Image {
                    encodings: v.encodings.clone(),
                },
                v.max_age_ms,
                2,
                0,
            )
        })
        .collect();
    let kind = InletKind::Joints {
        joints: config.state.joints.clone(),
        width,
    };
    inlets.push(Inlet::new("state", kind, config.state.max_age_ms, 2, 0));
    inlets
}

fn push(
    inlet: &Inlet,
    is_image: bool,
    data: &[u8],
    stamp_ns: Option<i64>,
) -> Result<(i64, PushOutcome), SessionError> {
    if is_image {
        let m = ImageMessage::decode(data)?;
        let image = ImageRef {
            width: m.width,
            height: m.height,
            encoding: m.encoding,
            is_bigendian: m.is_bigendian,
            step: m.step,
            data: m.data,
        };
        Ok((
            m.stamp_ns,
            inlet.push_image(&image, stamp_ns.unwrap_or(m.stamp_ns), 0),
        ))
    } else {
        let m = JointsMessage::decode(data)?;
        let joints = JointsRef {
            names: &m.names,
            positions: &m.positions,
        };
        Ok((
            m.stamp_ns,
            inlet.push_joints(&joints, stamp_ns.unwrap_or(m.stamp_ns), 0),
        ))
    }
}

/// Stamp and hash of a message; `None` if the boundary refuses it.
fn identify(
    inlet: &Inlet,
    is_image: bool,
    data: &[u8],
) -> Result<Option<(i64, u64)>, SessionError> {
    let (stamp_ns, outcome) = push(inlet, is_image, data, None)?;
    if outcome != PushOutcome::Accepted {
        return Ok(None);
    }
    Ok(inlet.inbox.pop().map(|slot| {
        let hash = slot.hash;
        // A scratch inlet has two slots: one is being filled, this one goes back.
        let _ = inlet.free.push(slot);
        (stamp_ns, hash)
    }))
}

struct Replay {
    driver: Driver,
    shared: Arc<Shared>,
    clock: Arc<LogClock>,
    tap: Arc<Tap>,
    inputs: Inputs,
    is_active: bool,
    chunk_topic: String,
    report: ReplayReport,
}

impl Replay {
    fn entry(&mut self, record: &TickRecord, out: &mut dyn BagSink) -> Result<(), SessionError> {
        self.clock.ros_ns.store(record.stamp_ns, Relaxed);
        match record.operation {
            "" => self.tick(record, out),
            _ => self.operation(record),
        }
    }

    fn apply(&mut self, command: &Command, record: &TickRecord) -> Result<(), SessionError> {
        let outcome = self.driver.apply(0, command);
        if outcome.code.is_ok() {
            return Ok(());
        }
        Err(SessionError::new(
            outcome.code,
            format!(
                "tick {} of {}, {}: {}",
                record.tick,
                record.session,
                command.kind(),
                outcome.message
            ),
        ))
    }

    fn use_prompt(&mut self, record: &TickRecord) -> Result<(), SessionError> {
        if record.prompt.is_empty() || *self.driver.prompt() == record.prompt {
            return Ok(());
        }
        self.apply(&Command::Prompt(record.prompt.to_string()), record)
    }

    fn activate(&mut self) -> Result<(), SessionError> {
        self.driver.activate()?;
        self.is_active = true;
        Ok(())
    }

    fn operation(&mut self, record: &TickRecord) -> Result<(), SessionError> {
        self.report.operations += 1;
        let name = record.capsule.to_string();
        let options: Vec<&str> = record.options.split(',').collect();
        let has = |option: &str| options.contains(&option);
        // A switching fork logs the prompt of the set that it switches to.
        if !(record.operation == "fork" && has("switch_to")) {
            self.use_prompt(record)?;
        }
        match record.operation {
            "activate" => self.activate()?,
            "snapshot" => {
                let tier = options
                    .iter()
                    .find_map(|o| o.strip_prefix("tier="))
                    .and_then(Tier::from_name);
                let exclude = options
                    .iter()
                    .filter_map(|o| o.strip_prefix("exclude="))
                    .map(String::from)
                    .collect();
                let overwrite = has("overwrite");
                self.apply(
                    &Command::Snapshot {
                        name: Some(name),
                        tier,
                        overwrite,
                        exclude,
                    },
                    record,
                )?;
            }
            // A rollback is logged with the capsule that it found.
            "restore" | "rollback" => {
                let allow_partial = has("allow_partial");
                self.apply(
                    &Command::Restore {
                        name,
                        allow_partial,
                    },
                    record,
                )?;
            }
            "fork" => {
                let session = record.target.to_string();
                self.apply(
                    &Command::Fork {
                        name,
                        session,
                        switch_to: has("switch_to"),
                    },
                    record,
                )?;
            }
            "reset" => self.apply(
                &Command::Reset {
                    keep_prompt: has("keep_prompt"),
                },
                record,
            )?,
            // A capsule from before the bag is not here, and need not be.
            "drop" => drop(self.driver.apply(0, &Command::Drop { name })),
            _ => self.apply(&Command::TimeJump { delta_ns: 0 }, record)?,
        }
        self.driver.align_epoch(record.epoch);
        Ok(())
    }

    fn tick(&mut self, record: &TickRecord, out: &mut dyn BagSink) -> Result<(), SessionError> {
        // What the gate refused changed nothing.
        if record.ports.is_empty() && record.plan != Plan::Action.name()
            || matches!(
                record.code,
                ResultCode::WrongState | ResultCode::StaleInput | ResultCode::Skew
            )
        {
            self.report.refused += 1;
            return Ok(());
        }
        if !self.is_active {
            self.activate()?;
        }
        let plan = Plan::from_name(record.plan).ok_or_else(|| {
            bad(format!(
                "tick {} of {}: no plan in the log",
                record.tick, record.session
            ))
        })?;
        if *self.driver.session() != record.session {
            return Err(bad(format!(
                "tick {}: the log ticks live set {}, the replay stands at {}",
                record.tick,
                record.session,
                self.driver.session()
            )));
        }
        let expected = self.driver.tick_number() + 1;
        if record.code.is_ok() && record.tick != expected {
            return Err(bad(format!(
                "the log has tick {} where the replay is at {expected}: record from configure or from a reset on",
                record.tick
            )));
        }
        self.use_prompt(record)?;
        self.driver.align_epoch(record.epoch);
        if record.chunk_id > 0 {
            self.driver.set_chunk_id(record.chunk_id - 1);
        }
        let last = self.shared.inlets.len() - 1;
        for port in record.ports.iter().filter(|p| p.is_new) {
            let index = self.shared.inlets.iter().position(|i| i.name == port.name);
            let found = index.and_then(|i| {
                self.inputs
                    .find(i, port.stamp_ns, port.hash)
                    .map(|data| (i, data))
            });
            let Some((index, data)) = found else {
                return Err(SessionError::new(
                    ResultCode::NotFound,
                    format!(
                        "tick {} of {} used {} stamped {} ns with hash {:016x}: the bag lacks it",
                        record.tick, record.session, port.name, port.stamp_ns, port.hash
                    ),
                ));
            };
            push(
                &self.shared.inlets[index],
                index < last,
                data,
                Some(port.stamp_ns),
            )?;
        }
        *lock(&self.tap.chunk) = None;
        let args = TickArgs {
            tick_ns: record.stamp_ns,
            not_before_ns: None,
            plan: Some(plan),
            key: Some(record.key),
        };
        self.report.ticks += 1;
        let hash = match self.driver.tick(&args) {
            TickEnd::Done { .. } => *lock(&self.tap.hash),
            TickEnd::Refused(_) => 0,
            TickEnd::Failed(error) => return Err(error),
        };
        if hash != record.actions_hash {
            self.report.mismatches.push(Mismatch {
                session: record.session.to_string(),
                tick: record.tick,
                expected: record.actions_hash,
                got: hash,
            });
        }
        // A chunk that the live node did not publish (its activation ended) is not written either.
        let chunk = lock(&self.tap.chunk).take().filter(|_| record.chunk_id > 0);
        if let Some(data) = chunk {
            let message = BagMessage {
                topic: &self.chunk_topic,
                type_name: messages::ACTION_CHUNK,
                log_time_ns: record.stamp_ns.max(0) as u64,
                data: &data,
            };
            out.write(&message, messages::ACTION_CHUNK_DEFINITION)?;
            self.report.chunks += 1;
        }
        Ok(())
    }
}
