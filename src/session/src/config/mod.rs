//! The deployment file. One table of keys ([`table::KEYS`]) holds name, type, unit, default, range and meaning; parsing,
//! checks and [`docs_table`] all derive from it. An unknown or mistyped key is an error that names the key, its line
//! and the nearest valid key.

mod locate;
mod parse;
pub mod table;

use std::fmt;
use std::io::Read as _;
use std::path::{Path, PathBuf};

pub use flashrt_exec::BackendKind;
pub use parse::closest;
pub use table::docs_table;

use crate::command::Tier;

/// When ticks happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum TickMode {
    /// When the current chunk has no row left to emit.
    Chunk = 0,
    /// At a fixed rate.
    Rate = 1,
    /// Only on request.
    Trigger = 2,
}

impl TickMode {
    /// `"chunk"`, `"rate"` or `"trigger"`.
    pub fn name(self) -> &'static str {
        match self {
            TickMode::Chunk => "chunk",
            TickMode::Rate => "rate",
            TickMode::Trigger => "trigger",
        }
    }
    /// The mode of this name.
    pub fn from_name(name: &str) -> Option<TickMode> {
        [TickMode::Chunk, TickMode::Rate, TickMode::Trigger]
            .into_iter()
            .find(|m| m.name() == name)
    }
}

/// Unit in which the model wants a joint. The topic always carries the ROS unit (rad, or m for prismatic joints).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Radians: the topic's number.
    Rad,
    /// Degrees: the topic's number times 180/π.
    Deg,
    /// The topic's number times 100 (with `scale` = 1/range a gripper angle becomes 0..100).
    Percent,
    /// Metres: the topic's number.
    Metre,
}

impl Unit {
    /// Name in the file and on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Unit::Rad => "rad",
            Unit::Deg => "deg",
            Unit::Percent => "percent",
            Unit::Metre => "m",
        }
    }
    /// Factor from the topic's unit.
    pub fn factor(self) -> f64 {
        match self {
            Unit::Rad | Unit::Metre => 1.0,
            Unit::Deg => 180.0 / std::f64::consts::PI,
            Unit::Percent => 100.0,
        }
    }
    fn from_name(name: &str) -> Option<Unit> {
        [Unit::Rad, Unit::Deg, Unit::Percent, Unit::Metre]
            .into_iter()
            .find(|u| u.name() == name)
    }
}

/// Reliability of a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reliability {
    /// Works with every publisher; a lost message is not sent again.
    BestEffort,
    /// Lost messages are sent again; needs a reliable publisher.
    Reliable,
}

/// Message type of the command topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandType {
    /// `trajectory_msgs/JointTrajectory`, one point per message.
    JointTrajectory,
    /// `std_msgs/Float64MultiArray`.
    Float64MultiArray,
    /// `sensor_msgs/JointState`.
    JointState,
}

impl CommandType {
    /// Name in the file.
    pub fn name(self) -> &'static str {
        match self {
            CommandType::JointTrajectory => "joint_trajectory",
            CommandType::Float64MultiArray => "float64_multi_array",
            CommandType::JointState => "joint_state",
        }
    }
    fn from_name(name: &str) -> Option<CommandType> {
        [
            CommandType::JointTrajectory,
            CommandType::Float64MultiArray,
            CommandType::JointState,
        ]
        .into_iter()
        .find(|t| t.name() == name)
    }
}

/// What happens to a row that breaks a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitReaction {
    /// The value is moved onto the limit and counted.
    Clamp,
    /// The row is not emitted, counted, and the last command is held.
    Refuse,
}

/// What runs: a built-in architecture, or a native library.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelConfig {
    /// Built-in architecture; empty with a native library.
    pub builtin: String,
    /// The native library, if that is what runs.
    pub native: Option<NativeConfig>,
    /// Folder with `config.json`, `model.safetensors`, `stats.json`; empty with a native library.
    pub weights: PathBuf,
    /// Shape buckets prepared at configure; empty with a native library.
    pub flow_steps: Vec<u32>,
    /// Bucket that ticks use.
    pub default_flow_steps: u32,
    /// Seed of the noise generator.
    pub seed: u64,
}

impl ModelConfig {
    /// Shape key of a tick that asks for none: the default bucket; with a native library `KEY_INHERIT`, which is each graph's
    /// own default.
    pub fn default_key(&self) -> u64 {
        match self.native {
            Some(_) => flashrt_runtime::KEY_INHERIT,
            None => u64::from(self.default_flow_steps),
        }
    }
}

/// A model that a native library brings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NativeConfig {
    /// The library.
    pub library: PathBuf,
    /// What it gets: one JSON object as text.
    pub config: String,
}

/// One camera view.
#[derive(Clone, Debug, PartialEq)]
pub struct ImageConfig {
    /// View name; the order in the file is the model's order.
    pub view: String,
    /// Topic, relative or private.
    pub topic: String,
    /// Accepted encodings.
    pub encodings: Vec<String>,
    /// Oldest image that a tick may use.
    pub max_age_ms: f64,
    /// Reliability of the subscription.
    pub reliability: Reliability,
}

/// One joint, at its place in the model's state and action vectors.
#[derive(Clone, Debug, PartialEq)]
pub struct JointConfig {
    /// Name in the messages.
    pub name: String,
    /// The model's unit.
    pub unit: Unit,
    /// model = topic · factor(unit) · scale + offset.
    pub scale: f64,
    /// In the model's unit.
    pub offset: f64,
    /// Plausible range of the topic's value (rad, m); `None`: off.
    pub limits: Option<(f64, f64)>,
}

impl JointConfig {
    /// Topic unit (rad, m) to model unit.
    pub fn to_model(&self, topic: f64) -> f64 {
        topic * self.unit.factor() * self.scale + self.offset
    }
    /// Model unit to topic unit.
    pub fn to_topic(&self, model: f64) -> f64 {
        (model - self.offset) / (self.unit.factor() * self.scale)
    }
}

/// Joint states.
#[derive(Clone, Debug, PartialEq)]
pub struct StateConfig {
    /// Topic.
    pub topic: String,
    /// Joints in model order.
    pub joints: Vec<JointConfig>,
    /// Oldest state that a tick may use.
    pub max_age_ms: f64,
    /// Reliability of the subscription.
    pub reliability: Reliability,
}

/// The instruction.
#[derive(Clone, Debug, PartialEq)]
pub struct PromptConfig {
    /// Instruction after configure; may be empty.
    pub text: String,
    /// Topic.
    pub topic: String,
}

/// When ticks happen.
#[derive(Clone, Debug, PartialEq)]
pub struct TickConfig {
    /// Mode after configure.
    pub mode: TickMode,
    /// Rate of mode `rate`.
    pub rate_hz: f64,
    /// A slower tick counts as a miss; `None`: off.
    pub deadline_ms: Option<f64>,
    /// Mode `chunk`: wait for inputs stamped after the last emitted command.
    pub fresh: bool,
    /// The context runs on every n-th tick; the action stage runs alone on the others.
    pub context_every: u32,
}

/// From chunk to commands.
#[derive(Clone, Debug, PartialEq)]
pub struct ChunkConfig {
    /// Rows emitted before the next chunk is taken; 0: the whole chunk.
    pub execute_rows: u32,
    /// Rows per second.
    pub control_rate_hz: f64,
    /// Longest time in which the last command is repeated.
    pub max_hold_ms: f64,
}

/// Where commands go and what bounds them.
#[derive(Clone, Debug, PartialEq)]
pub struct CommandConfig {
    /// Topic.
    pub topic: String,
    /// Message type.
    pub kind: CommandType,
    /// Per joint `(lo, hi)` in the topic's unit, in joint order; `None`: declared off.
    pub limits: Option<Vec<(f64, f64)>>,
    /// Per joint largest change from one command to the next, topic unit; `None`: declared off.
    pub max_step: Option<Vec<f64>>,
    /// What happens to a row that breaks one.
    pub limit_reaction: LimitReaction,
}

/// Frozen states.
#[derive(Clone, Debug, PartialEq)]
pub struct CapsulesConfig {
    /// Device tier.
    pub device_budget_mib: u64,
    /// Host tier.
    pub host_budget_mib: u64,
    /// Tier when a snapshot does not say.
    pub default_tier: Tier,
}

/// The deployment file, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Model.
    pub model: ModelConfig,
    /// Backend.
    pub backend: BackendKind,
    /// Device ordinal.
    pub device: i32,
    /// CPU threads; 0: every core.
    pub threads: usize,
    /// Live sets; the first is active after configure.
    pub sessions: Vec<String>,
    /// Views in model order.
    pub images: Vec<ImageConfig>,
    /// Joint states, which also name the action columns.
    pub state: StateConfig,
    /// Instruction.
    pub prompt: PromptConfig,
    /// Largest time between the inputs of one tick; `None`: off.
    pub max_skew_ms: Option<f64>,
    /// Ticks.
    pub tick: TickConfig,
    /// Chunks.
    pub chunk: ChunkConfig,
    /// Commands.
    pub command: CommandConfig,
    /// Capsules.
    pub capsules: CapsulesConfig,
    /// Rate of `~/status`.
    pub status_rate_hz: f64,
    /// Publish `~/tick_log`.
    pub tick_log: bool,
}

/// Largest deployment file. A real one has some kilobytes; more is a mistake or an attack on memory.
pub const MAX_FILE_BYTES: usize = 256 << 10;

impl Config {
    /// Parses and checks a deployment file. Paths stay as written: see [`Config::resolve_paths`].
    ///
    /// # Errors
    /// The first problem, with key, line, expected and got.
    pub fn from_yaml(text: &str) -> Result<Config, ConfigError> {
        parse::parse(text)
    }

    /// Reads a file and resolves its paths against its folder and `share`.
    ///
    /// # Errors
    /// As [`Config::from_yaml`], or that the file cannot be read.
    pub fn load(path: &Path, share: Option<&Path>) -> Result<Config, ConfigError> {
        let mut text = String::new();
        // One byte more than allowed, so that the parser sees that it is too long; a device without an end stops here.
        std::fs::File::open(path)
            .and_then(|f| f.take(MAX_FILE_BYTES as u64 + 1).read_to_string(&mut text))
            .map_err(|e| {
                ConfigError::new("", None, format!("cannot read {}: {e}", path.display()))
            })?;
        let mut config = Config::from_yaml(&text).map_err(|mut e| {
            e.file = path.display().to_string();
            e
        })?;
        config.resolve_paths(path.parent().unwrap_or(Path::new(".")), share)?;
        Ok(config)
    }

    /// Makes `model.weights` or `model.library` absolute: `$share/x` is below the package's share folder, any other relative path is below
    /// `base` (the folder of the deployment file).
    ///
    /// # Errors
    /// `$share` is used and `share` is `None`.
    pub fn resolve_paths(&mut self, base: &Path, share: Option<&Path>) -> Result<(), ConfigError> {
        let resolve = |key: &str, path: &Path| -> Result<PathBuf, ConfigError> {
            match (path.strip_prefix("$share"), share) {
                (Ok(rest), Some(share)) => Ok(share.join(rest)),
                (Ok(_), None) => Err(ConfigError::new(
                    key,
                    None,
                    format!(
                        "{} needs the package's share folder, which is not known here",
                        path.display()
                    ),
                )),
                (Err(_), _) => Ok(base.join(path)),
            }
        };
        match &mut self.model.native {
            Some(native) => native.library = resolve("model.library", &native.library)?,
            None => self.model.weights = resolve("model.weights", &self.model.weights)?,
        }
        Ok(())
    }

    /// Time from one row to the next.
    pub fn control_period_ns(&self) -> u64 {
        (1e9 / self.chunk.control_rate_hz).round() as u64
    }

    /// Names of the joints, in model order.
    pub fn joint_names(&self) -> Vec<String> {
        self.state.joints.iter().map(|j| j.name.clone()).collect()
    }
}

/// Why a deployment file is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// File, if known.
    pub file: String,
    /// Key with its path, for instance `ports.images[1].max_age_ms`; empty for the file as a whole.
    pub key: String,
    /// Line, from 1, where it could be found.
    pub line: Option<usize>,
    /// What was expected and what came.
    pub message: String,
}

impl ConfigError {
    pub(crate) fn new(
        key: impl Into<String>,
        line: Option<usize>,
        message: impl Into<String>,
    ) -> ConfigError {
        ConfigError {
            file: String::new(),
            key: printable(&key.into(), 120),
            line,
            message: printable(&message.into(), 800),
        }
    }
}

/// Text of the file may be of any length and hold anything: what is shown of it fits a log line.
fn printable(text: &str, limit: usize) -> String {
    let mut out = String::with_capacity(text.len().min(limit));
    for (count, c) in text.chars().enumerate() {
        if count == limit {
            out.push('…');
            break;
        }
        if c.is_control() {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.file.is_empty() {
            write!(f, "{}: ", self.file)?;
        }
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for ConfigError {}
