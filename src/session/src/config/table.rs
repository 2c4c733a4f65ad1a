//! The one table of configuration keys.

use std::fmt::Write;

/// Type of a key's value, with its range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// Any text.
    Text,
    /// Text, not empty.
    Name,
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// Integer, bounds included.
    Int(i64, i64),
    /// Finite number, bounds included.
    Float(f64, f64),
    /// Finite number, bounds included, or `off`.
    FloatOrOff(f64, f64),
    /// true or false.
    Bool,
    /// Non-empty list of different integers, bounds included.
    Ints(i64, i64),
    /// Non-empty list of different names.
    Names,
    /// Non-empty list of these words.
    Words(&'static [&'static str]),
    /// `[lo, hi]` with lo < hi, or `off`.
    RangeOrOff,
    /// Map from every joint to `[lo, hi]`, or `off`.
    JointRanges,
    /// A number for every joint, or a map from every joint to a number, or `off`.
    JointSteps,
    /// A map with text keys and any plain values, at any depth.
    Map,
}

/// What holds when a key is not given.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Preset {
    /// The key must be given.
    Required,
    /// The key may be left out; the meaning says what then.
    Absent,
    /// This YAML text.
    Value(&'static str),
}

/// One key. `[]` in the path stands for each element of a list.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Full path.
    pub path: &'static str,
    /// Type and range.
    pub kind: Kind,
    /// Unit; empty if it has none.
    pub unit: &'static str,
    /// Default.
    pub preset: Preset,
    /// Meaning.
    pub meaning: &'static str,
}

const fn key(
    path: &'static str,
    kind: Kind,
    unit: &'static str,
    preset: Preset,
    meaning: &'static str,
) -> Key {
    Key {
        path,
        kind,
        unit,
        preset,
        meaning,
    }
}

use Kind::*;
use Preset::{Absent, Required, Value};

/// Encodings that image ports can take today.
pub const ENCODINGS: &[&str] = &["rgb8", "bgr8"];

/// Every key of the deployment file.
pub const KEYS: &[Key] = &[
    key("model.builtin", OneOf(&["pi05"]), "", Absent, "built-in architecture; exactly one of builtin and library is given"),
    key("model.library", Name, "path", Absent, "native library (.so) that brings the model; it runs with the rights of the node; relative to this file, or below $share"),
    key("model.config", Map, "", Absent, "with library: handed to it as one JSON object; left out: {}"),
    key("model.weights", Name, "path", Absent, "with builtin: required; folder with config.json, model.safetensors and stats.json; relative to this file, or below $share"),
    key("model.flow_steps", Ints(1, 1000), "steps", Value("[5, 10]"), "with builtin: shape buckets: captured and warmed at configure"),
    key("model.default_flow_steps", Int(1, 1000), "steps", Absent, "with builtin: bucket that ticks use; left out: the first of flow_steps"),
    key("model.seed", Int(0, i64::MAX), "", Value("0"), "with builtin: seed of the noise generator"),
    key("backend", OneOf(&["cpu", "cuda"]), "", Value("cpu"), "with builtin: where the model runs"),
    key("device", Int(0, 255), "", Value("0"), "with builtin: ordinal of the device; the cpu backend has one, 0"),
    key("threads", Int(0, 1024), "threads", Value("0"), "with builtin: cpu threads; 0: every core; results never depend on it"),
    key("sessions", Names, "", Value("[main]"), "live sets; the first is active after configure, the others are targets of fork; a native library has one"),
    key("ports.images[].view", Name, "", Required, "view name; the order of the list is the model's order of views"),
    key("ports.images[].topic", Name, "", Required, "sensor_msgs/Image"),
    key("ports.images[].encodings", Words(ENCODINGS), "", Value("[rgb8, bgr8]"), "encodings that are accepted"),
    key("ports.images[].max_age_ms", Float(1.0, 60000.0), "ms", Value("250"), "oldest image that a tick may use; older: the tick is refused"),
    key("ports.images[].reliability", OneOf(&["best_effort", "reliable"]), "", Value("best_effort"), "reliability of the subscription; reliable does not match a best-effort publisher"),
    key("ports.state.reliability", OneOf(&["best_effort", "reliable"]), "", Value("best_effort"), "reliability of the subscription; reliable does not match a best-effort publisher"),
    key("ports.state.topic", Name, "", Required, "sensor_msgs/JointState"),
    key("ports.state.max_age_ms", Float(1.0, 60000.0), "ms", Value("250"), "oldest state that a tick may use; older: the tick is refused"),
    key("ports.state.joints[].name", Name, "", Required, "joint name in the message; the order of the list is the model's order"),
    key("ports.state.joints[].unit", OneOf(&["rad", "deg", "percent", "m"]), "", Value("rad"), "the model's unit; topics carry rad or m; percent is 100 times the topic's number"),
    key("ports.state.joints[].scale", Float(-1e6, 1e6), "", Value("1"), "model = topic in the model's unit * scale + offset; at least 1e-6 away from 0"),
    key("ports.state.joints[].offset", Float(-1e6, 1e6), "model unit", Value("0"), "see scale"),
    key("ports.state.joints[].limits", RangeOrOff, "rad or m", Value("off"), "plausible positions; a message outside is refused"),
    key("ports.prompt.text", Text, "", Value("''"), "instruction after configure; empty: none until one comes"),
    key("ports.prompt.topic", Name, "", Value("~/prompt"), "std_msgs/String, transient local"),
    key("sync.max_skew_ms", FloatOrOff(0.1, 60000.0), "ms", Value("off"), "largest time between the inputs of one tick; more: the tick is refused"),
    key("tick.mode", OneOf(&["chunk", "rate", "trigger"]), "", Value("chunk"), "chunk: when no row is left; rate: at rate_hz; trigger: only through ~/tick"),
    key("tick.rate_hz", Float(0.01, 1000.0), "Hz", Value("10"), "rate of mode rate"),
    key("tick.deadline_ms", FloatOrOff(0.1, 60000.0), "ms", Value("100"), "a slower tick is counted as a miss and warned about"),
    key("tick.fresh", Bool, "", Value("false"), "mode chunk: wait for inputs stamped after the last emitted command"),
    key("tick.context_every", Int(1, 1000), "ticks", Value("1"), "the context runs on every n-th tick; on the others the action stage runs alone on it"),
    key("chunk.policy", OneOf(&["plain"]), "", Value("plain"), "plain: a chunk starts at row 0 when execute_rows rows of the one before were emitted"),
    key("chunk.execute_rows", Int(0, 4096), "rows", Value("0"), "rows emitted of each chunk; 0: all"),
    key("chunk.control_rate_hz", Float(0.1, 1000.0), "Hz", Required, "rows emitted per second: the rate at which the policy was trained"),
    key("chunk.max_hold_ms", Float(0.0, 60000.0), "ms", Value("500"), "longest time in which the last command is repeated; then starved: no commands"),
    key("command.topic", Name, "", Required, "command output at control rate"),
    key("command.type", OneOf(&["joint_trajectory", "float64_multi_array", "joint_state"]), "", Value("joint_trajectory"), "message type of the command output"),
    key("command.limits", JointRanges, "rad or m", Required, "per joint [lo, hi] of a command, or off"),
    key("command.max_step", JointSteps, "rad or m", Required, "largest change from one command to the next, for all joints or per joint, or off"),
    key("command.limit_reaction", OneOf(&["clamp", "refuse"]), "", Value("clamp"), "clamp: move onto the limit; refuse: the last command is held, as long as max_hold_ms allows; both are counted"),
    key("capsules.device_budget_mib", Int(0, 1 << 20), "MiB", Value("64"), "memory of the device tier"),
    key("capsules.host_budget_mib", Int(0, 1 << 20), "MiB", Value("256"), "memory of the host tier"),
    key("capsules.default_tier", OneOf(&["device", "host"]), "", Value("device"), "tier of a snapshot that does not say"),
    key("status.rate_hz", Float(0.1, 100.0), "Hz", Value("2"), "rate of ~/status"),
    key("tick_log", Bool, "", Value("true"), "publish ~/tick_log, which exact replay follows"),
];

impl Kind {
    /// Type and range in words.
    pub fn describe(&self) -> String {
        match self {
            Text => "text".into(),
            Name => "text, not empty".into(),
            OneOf(words) => words.join(" | "),
            Int(lo, hi) if *hi == i64::MAX => format!("integer >= {lo}"),
            Int(lo, hi) => format!("integer {lo}..{hi}"),
            Float(lo, hi) => format!("number {lo}..{hi}"),
            FloatOrOff(lo, hi) => format!("number {lo}..{hi}, or off"),
            Bool => "true | false".into(),
            Ints(lo, hi) => format!("list of different integers {lo}..{hi}, at most 32"),
            Names => "list of different names, at most 32".into(),
            Words(words) => format!("list of different {}", words.join(", ")),
            RangeOrOff => "[lo, hi] with lo < hi, or off".into(),
            JointRanges => "map joint: [lo, hi] for every joint, or off".into(),
            Map => "map with text keys and finite numbers, texts, true, false, null, lists or maps"
                .into(),
            JointSteps => "number > 0, or map joint: number for every joint, or off".into(),
        }
    }
}

/// The table as Markdown, for the user page.
pub fn docs_table() -> String {
    let mut out = String::from(
        "| Key | Type and range | Unit | Default | Meaning |\n|---|---|---|---|---|\n",
    );
    for key in KEYS {
        let preset = match key.preset {
            Required => "required".to_string(),
            Absent => "left out".to_string(),
            Value(text) => format!("`{text}`"),
        };
        let kind = key.kind.describe().replace('|', "\\|");
        // Writing to a String cannot fail.
        let _ = writeln!(
            out,
            "| `{}` | {kind} | {} | {preset} | {} |",
            key.path, key.unit, key.meaning
        );
    }
    out
}
