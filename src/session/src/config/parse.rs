//! From YAML to a checked [`Config`], driven by the table.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;

use serde_yaml::Value as Yaml;

use super::locate::{key_lines, line_of};
use super::table::{Key, Kind, Preset, KEYS};
use super::*;

/// Most entries of a list of tables, beside the views, which have their own limit.
const MAX_TABLES: usize = 256;
/// Most entries of a list of names or numbers: each live set and each shape bucket costs memory and time at configure.
const MAX_ITEMS: usize = 32;
/// Keys that say nothing to a native library.
const BUILTIN_ONLY: &[&str] = &[
    "model.weights",
    "model.flow_steps",
    "model.default_flow_steps",
    "model.seed",
    "backend",
    "device",
    "threads",
];
/// Smallest size of a joint's scale: below it a command would be out of all proportion.
const MIN_SCALE: f64 = 1e-6;

pub(super) fn parse(text: &str) -> Result<Config, ConfigError> {
    if text.len() > MAX_FILE_BYTES {
        return Err(ConfigError::new(
            "",
            None,
            format!("expected at most {MAX_FILE_BYTES} bytes, got more"),
        ));
    }
    let root: Yaml = serde_yaml::from_str(text).map_err(|e| {
        ConfigError::new(
            "",
            e.location().map(|l| l.line()),
            format!("not valid YAML: {e}"),
        )
    })?;
    let mut reader = Reader {
        lines: key_lines(text),
        values: BTreeMap::new(),
        counts: HashMap::new(),
    };
    match &root {
        Yaml::Mapping(_) => reader.walk(&root, "", "")?,
        other => {
            return Err(ConfigError::new(
                "",
                Some(1),
                format!("expected a map of keys, got {}", type_name(other)),
            ))
        }
    }
    let native = native(&reader)?;
    reader.fill_presets()?;
    build(&reader, native)
}

struct Reader {
    lines: HashMap<String, usize>,
    values: BTreeMap<String, Yaml>,
    /// Lengths of the lists of tables, by concrete path.
    counts: HashMap<String, usize>,
}

impl Reader {
    fn error(&self, path: &str, message: impl Into<String>) -> ConfigError {
        ConfigError::new(path, line_of(&self.lines, path), message)
    }

    /// `path` is concrete (`ports.images[0]`), `pattern` is the table's form (`ports.images[]`).
    fn walk(&mut self, node: &Yaml, path: &str, pattern: &str) -> Result<(), ConfigError> {
        if let Some(key) = KEYS.iter().find(|k| k.path == pattern) {
            if let Err(got) = check(&key.kind, node) {
                let unit = if key.unit.is_empty() {
                    String::new()
                } else {
                    format!(" ({})", key.unit)
                };
                return Err(self.error(
                    path,
                    format!("expected {}{unit}, got {got}", key.kind.describe()),
                ));
            }
            self.values.insert(path.to_string(), node.clone());
            return Ok(());
        }
        let list_pattern = format!("{pattern}[]");
        if KEYS.iter().any(|k| k.path.starts_with(&list_pattern)) {
            let Yaml::Sequence(items) = node else {
                return Err(self.error(
                    path,
                    format!("expected a list of tables, got {}", type_name(node)),
                ));
            };
            if items.is_empty() {
                return Err(self.error(path, "expected at least one entry, got an empty list"));
            }
            if items.len() > MAX_TABLES {
                return Err(self.error(
                    path,
                    format!("expected at most {MAX_TABLES} entries, got {}", items.len()),
                ));
            }
            self.counts.insert(path.to_string(), items.len());
            for (index, item) in items.iter().enumerate() {
                let item_path = format!("{path}[{index}]");
                match item {
                    Yaml::Mapping(_) => self.walk(item, &item_path, &list_pattern)?,
                    other => {
                        return Err(self.error(
                            &item_path,
                            format!("expected a table, got {}", type_name(other)),
                        ))
                    }
                }
            }
            return Ok(());
        }
        let Yaml::Mapping(map) = node else {
            return Err(self.error(
                path,
                format!(
                    "expected a table with keys {}, got {}",
                    children(pattern).join(", "),
                    type_name(node)
                ),
            ));
        };
        for (name, value) in map {
            let Some(name) = name.as_str() else {
                return Err(self.error(
                    path,
                    format!("expected a text key, got {}", type_name(name)),
                ));
            };
            let join = |base: &str| {
                if base.is_empty() {
                    name.to_string()
                } else {
                    format!("{base}.{name}")
                }
            };
            let (child, child_pattern) = (join(path), join(pattern));
            if !children(pattern).iter().any(|c| c == name) {
                return Err(self.error(
                    &child,
                    format!(
                        "unknown key; the nearest valid key is {}",
                        nearest(pattern, name)
                    ),
                ));
            }
            self.walk(value, &child, &child_pattern)?;
        }
        Ok(())
    }

    /// Presets for keys that were not given. Tables that are lists count only where they exist.
    fn fill_presets(&mut self) -> Result<(), ConfigError> {
        for key in KEYS {
            let list = key
                .path
                .find("[]")
                .map(|at| (&key.path[..at], &key.path[at + 2..]));
            let paths: Vec<String> = match list {
                Some((list, rest)) => match self.counts.get(list) {
                    Some(count) => (0..*count).map(|i| format!("{list}[{i}]{rest}")).collect(),
                    None if key.preset == Preset::Required => {
                        return Err(self.error(list, "required list of tables is missing"));
                    }
                    None => continue,
                },
                None => vec![key.path.to_string()],
            };
            for path in paths {
                if self.values.contains_key(&path) {
                    continue;
                }
                match key.preset {
                    Preset::Required => return Err(self.error(&path, self.missing(key))),
                    Preset::Absent => {}
                    Preset::Value(text) => {
                        let value = serde_yaml::from_str(text)
                            .map_err(|e| self.error(&path, e.to_string()))?;
                        self.values.insert(path, value);
                    }
                }
            }
        }
        Ok(())
    }

    fn missing(&self, key: &Key) -> String {
        format!(
            "required key is missing: expected {} ({})",
            key.kind.describe(),
            key.meaning
        )
    }

    fn text(&self, path: &str) -> String {
        self.values
            .get(path)
            .and_then(Yaml::as_str)
            .unwrap_or_default()
            .to_string()
    }
    fn float(&self, path: &str) -> f64 {
        self.values
            .get(path)
            .and_then(Yaml::as_f64)
            .unwrap_or_default()
    }
    fn float_or_off(&self, path: &str) -> Option<f64> {
        self.values.get(path).and_then(Yaml::as_f64)
    }
    fn int(&self, path: &str) -> i64 {
        self.values
            .get(path)
            .and_then(Yaml::as_i64)
            .unwrap_or_default()
    }
    fn flag(&self, path: &str) -> bool {
        self.values
            .get(path)
            .and_then(Yaml::as_bool)
            .unwrap_or_default()
    }
    fn texts(&self, path: &str) -> Vec<String> {
        let list = self.values.get(path).and_then(Yaml::as_sequence);
        list.into_iter()
            .flatten()
            .filter_map(|v| v.as_str().map(str::to_string))
            .collect()
    }
}

/// The native library, if one is asked for. Looks at what the file itself gives, before presets.
fn native(r: &Reader) -> Result<Option<NativeConfig>, ConfigError> {
    let has = |path: &str| r.values.contains_key(path);
    let key = |path: &str| KEYS.iter().find(|k| k.path == path);
    match (has("model.builtin"), has("model.library")) {
        (true, true) => Err(r.error(
            "model.library",
            "expected exactly one of model.builtin and model.library, got both",
        )),
        (false, false) => {
            let message = key("model.builtin").map_or_else(String::new, |k| r.missing(k));
            Err(r.error("model.builtin", message))
        }
        (true, false) => {
            if has("model.config") {
                return Err(r.error(
                    "model.config",
                    "it goes to a native library, but model.library is not given",
                ));
            }
            if !has("model.weights") {
                let message = key("model.weights").map_or_else(String::new, |k| r.missing(k));
                return Err(r.error("model.weights", message));
            }
            Ok(None)
        }
        (false, true) => {
            if let Some(other) = BUILTIN_ONLY.iter().find(|path| has(path)) {
                return Err(r.error(
                    other,
                    "not with a native library, which decides this by itself: give it what it understands in model.config",
                ));
            }
            let sessions = r.texts("sessions");
            if sessions.len() > 1 {
                return Err(r.error(
                    "sessions",
                    format!(
                        "expected one name, because a native library has one live set, got {}",
                        sessions.join(", ")
                    ),
                ));
            }
            let config = match r.values.get("model.config") {
                None => "{}".to_string(),
                Some(map) => serde_json::to_string(map).map_err(|e| {
                    r.error("model.config", format!("cannot be written as JSON: {e}"))
                })?,
            };
            Ok(Some(NativeConfig {
                library: PathBuf::from(r.text("model.library")),
                config,
            }))
        }
    }
}

fn build(r: &Reader, native: Option<NativeConfig>) -> Result<Config, ConfigError> {
    let buckets = r
        .values
        .get("model.flow_steps")
        .and_then(Yaml::as_sequence)
        .filter(|_| native.is_none());
    let flow_steps: Vec<u32> = buckets
        .into_iter()
        .flatten()
        .filter_map(|v| v.as_u64().map(|n| n as u32))
        .collect();
    let default_flow_steps = match r
        .values
        .get("model.default_flow_steps")
        .and_then(Yaml::as_u64)
    {
        Some(n) => n as u32,
        None => flow_steps.first().copied().unwrap_or(1),
    };
    if native.is_none() && !flow_steps.contains(&default_flow_steps) {
        return Err(r.error(
            "model.default_flow_steps",
            format!("expected one of model.flow_steps {flow_steps:?}, got {default_flow_steps}"),
        ));
    }
    let images: Vec<ImageConfig> = (0..r.counts.get("ports.images").copied().unwrap_or(0))
        .map(|i| {
            let at = |name: &str| format!("ports.images[{i}].{name}");
            ImageConfig {
                view: r.text(&at("view")),
                topic: r.text(&at("topic")),
                encodings: r.texts(&at("encodings")),
                max_age_ms: r.float(&at("max_age_ms")),
                reliability: reliability(&r.text(&at("reliability"))),
            }
        })
        .collect();
    if images.len() > crate::image::MAX_VIEWS {
        return Err(r.error(
            "ports.images",
            format!(
                "expected at most {} views, got {}",
                crate::image::MAX_VIEWS,
                images.len()
            ),
        ));
    }
    for (i, view) in images.iter().enumerate() {
        if !is_plain_name(&view.view) {
            return Err(r.error(
                &format!("ports.images[{i}].view"),
                format!(
                    "expected a name of letters, digits, '_', '-', '.', at most 64 bytes, got {:?}",
                    view.view
                ),
            ));
        }
    }
    unique(
        r,
        "ports.images",
        "view",
        images.iter().map(|v| v.view.as_str()),
    )?;
    let mut joints = Vec::new();
    for i in 0..r.counts.get("ports.state.joints").copied().unwrap_or(0) {
        let at = |name: &str| format!("ports.state.joints[{i}].{name}");
        let scale = r.float(&at("scale"));
        if scale.abs() < MIN_SCALE {
            return Err(r.error(
                &at("scale"),
                format!("expected a number at least {MIN_SCALE} away from 0, got {scale}"),
            ));
        }
        joints.push(JointConfig {
            name: r.text(&at("name")),
            unit: Unit::from_name(&r.text(&at("unit"))).unwrap_or(Unit::Rad),
            scale,
            offset: r.float(&at("offset")),
            limits: r.values.get(&at("limits")).and_then(pair),
        });
    }
    unique(
        r,
        "ports.state.joints",
        "name",
        joints.iter().map(|j| j.name.as_str()),
    )?;
    let names: Vec<String> = joints.iter().map(|j| j.name.clone()).collect();
    let limits = per_joint(r, "command.limits", &names, pair)?;
    let max_step = match r.values.get("command.max_step").and_then(Yaml::as_f64) {
        Some(step) => Some(vec![step; names.len()]),
        None => per_joint(r, "command.max_step", &names, Yaml::as_f64)?,
    };
    let state = StateConfig {
        topic: r.text("ports.state.topic"),
        joints,
        max_age_ms: r.float("ports.state.max_age_ms"),
        reliability: reliability(&r.text("ports.state.reliability")),
    };
    let sessions = r.texts("sessions");
    if let Some(bad) = sessions.iter().find(|s| !is_plain_name(s)) {
        return Err(r.error(
            "sessions",
            format!(
                "expected names of letters, digits, '_', '-', '.', at most 64 bytes, got {bad:?}"
            ),
        ));
    }
    let topics = r.values.iter().filter(|(path, _)| path.ends_with(".topic"));
    for (path, topic) in topics {
        if let Some(bad) = topic.as_str().filter(|t| !is_topic_name(t)) {
            return Err(r.error(
                path,
                format!(
                    "expected a ROS name (letters, digits, '_' in parts between '/', no part starts with a digit; \
                     '~/' may stand in front), got {bad:?}"
                ),
            ));
        }
    }
    Ok(Config {
        model: ModelConfig {
            builtin: r.text("model.builtin"),
            native,
            weights: PathBuf::from(r.text("model.weights")),
            flow_steps,
            default_flow_steps,
            seed: r.int("model.seed") as u64,
        },
        backend: if r.text("backend") == "cuda" {
            BackendKind::Cuda
        } else {
            BackendKind::Cpu
        },
        device: r.int("device") as i32,
        threads: r.int("threads") as usize,
        sessions,
        images,
        state,
        prompt: PromptConfig {
            text: r.text("ports.prompt.text"),
            topic: r.text("ports.prompt.topic"),
        },
        max_skew_ms: r.float_or_off("sync.max_skew_ms"),
        tick: TickConfig {
            mode: TickMode::from_name(&r.text("tick.mode")).unwrap_or(TickMode::Chunk),
            rate_hz: r.float("tick.rate_hz"),
            deadline_ms: r.float_or_off("tick.deadline_ms"),
            fresh: r.flag("tick.fresh"),
            context_every: r.int("tick.context_every") as u32,
        },
        chunk: ChunkConfig {
            execute_rows: r.int("chunk.execute_rows") as u32,
            control_rate_hz: r.float("chunk.control_rate_hz"),
            max_hold_ms: r.float("chunk.max_hold_ms"),
        },
        command: CommandConfig {
            topic: r.text("command.topic"),
            kind: CommandType::from_name(&r.text("command.type"))
                .unwrap_or(CommandType::JointTrajectory),
            limits,
            max_step,
            limit_reaction: if r.text("command.limit_reaction") == "refuse" {
                LimitReaction::Refuse
            } else {
                LimitReaction::Clamp
            },
        },
        capsules: CapsulesConfig {
            device_budget_mib: r.int("capsules.device_budget_mib") as u64,
            host_budget_mib: r.int("capsules.host_budget_mib") as u64,
            default_tier: Tier::from_name(&r.text("capsules.default_tier")).unwrap_or(Tier::Device),
        },
        status_rate_hz: r.float("status.rate_hz"),
        tick_log: r.flag("tick_log"),
    })
}

fn reliability(name: &str) -> Reliability {
    match name {
        "reliable" => Reliability::Reliable,
        _ => Reliability::BestEffort,
    }
}

/// `None` for `off`; else one value per joint, every joint exactly once.
fn per_joint<T>(
    r: &Reader,
    path: &str,
    names: &[String],
    read: impl Fn(&Yaml) -> Option<T>,
) -> Result<Option<Vec<T>>, ConfigError> {
    let Some(Yaml::Mapping(map)) = r.values.get(path) else {
        return Ok(None);
    };
    for key in map.keys().filter_map(Yaml::as_str) {
        if !names.iter().any(|n| n == key) {
            let near = closest(key, names.iter().map(String::as_str)).unwrap_or("none");
            return Err(r.error(
                &format!("{path}.{key}"),
                format!("no joint of that name in ports.state.joints; the nearest is {near}"),
            ));
        }
    }
    let mut out = Vec::with_capacity(names.len());
    for name in names {
        match map.get(name.as_str()).and_then(&read) {
            Some(value) => out.push(value),
            None => {
                return Err(r.error(
                    path,
                    format!("expected a value for every joint, got none for {name}"),
                ))
            }
        }
    }
    Ok(Some(out))
}

fn unique<'a>(
    r: &Reader,
    list: &str,
    field: &str,
    names: impl Iterator<Item = &'a str>,
) -> Result<(), ConfigError> {
    let mut seen = HashSet::new();
    for (index, name) in names.enumerate() {
        if !seen.insert(name) {
            return Err(r.error(
                &format!("{list}[{index}].{field}"),
                format!("expected different names, got {name:?} twice"),
            ));
        }
    }
    Ok(())
}

fn is_plain_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 64
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"_-.".contains(&b))
}

/// The rule of ROS for topic names, without substitutions.
fn is_topic_name(name: &str) -> bool {
    let parts = name
        .strip_prefix("~/")
        .or(name.strip_prefix('/'))
        .unwrap_or(name);
    name.len() <= 255
        && parts.split('/').all(|part| {
            part.bytes().next().is_some_and(|b| !b.is_ascii_digit())
                && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        })
}

/// Direct children of a table in the key table.
fn children(pattern: &str) -> Vec<String> {
    let prefix = if pattern.is_empty() {
        String::new()
    } else {
        format!("{pattern}.")
    };
    let mut out: Vec<String> = Vec::new();
    for key in KEYS {
        if let Some(rest) = key.path.strip_prefix(&prefix) {
            let name = rest.split(['.', '[']).next().unwrap_or(rest).to_string();
            if !out.contains(&name) {
                out.push(name);
            }
        }
    }
    out
}

/// The valid full path that is most like `name` where it stands: a sibling first, else any key with such a last part.
fn nearest(pattern: &str, name: &str) -> String {
    let name = head(name);
    let siblings = children(pattern);
    let sibling = closest(name, siblings.iter().map(String::as_str)).unwrap_or_default();
    let tail = |path: &'static str| path.rsplit('.').next().unwrap_or(path);
    let anywhere = KEYS
        .iter()
        .map(|k| k.path)
        .min_by_key(|p| distance(name, tail(p)))
        .unwrap_or_default();
    let sibling_distance = distance(name, sibling);
    if sibling_distance > name.len() / 2 && distance(name, tail(anywhere)) < sibling_distance {
        return anywhere.to_string();
    }
    if pattern.is_empty() {
        sibling.to_string()
    } else {
        format!("{pattern}.{sibling}")
    }
}

/// The part of a name that is compared: no valid key is as long.
fn head(name: &str) -> &str {
    name.char_indices()
        .nth(64)
        .map_or(name, |(cut, _)| &name[..cut])
}

/// The candidate that is most like `name` by edit distance; `None` if there is no candidate. Also for other name tables.
pub fn closest<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let name = head(name);
    candidates.min_by_key(|c| distance(name, c))
}

/// Edit distance (insert, delete, replace).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let replace = diagonal + usize::from(ca != *cb);
            diagonal = row[j + 1];
            row[j + 1] = replace.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

fn is_off(value: &Yaml) -> bool {
    // YAML 1.1 readers take a bare off as false.
    value.as_str() == Some("off") || value.as_bool() == Some(false)
}

fn pair(value: &Yaml) -> Option<(f64, f64)> {
    match value.as_sequence()?.as_slice() {
        [lo, hi] => {
            let (lo, hi) = (lo.as_f64()?, hi.as_f64()?);
            (lo.is_finite() && hi.is_finite() && lo < hi).then_some((lo, hi))
        }
        _ => None,
    }
}

/// `Err` holds what came instead.
fn check(kind: &Kind, value: &Yaml) -> Result<(), String> {
    let got = || Err(show(value));
    let float_in = |v: &Yaml, lo: f64, hi: f64| {
        v.as_f64()
            .is_some_and(|x| x.is_finite() && x >= lo && x <= hi)
    };
    let int_in = |v: &Yaml, lo: i64, hi: i64| v.as_i64().is_some_and(|x| x >= lo && x <= hi);
    let distinct = |items: &[Yaml]| {
        items.len() <= MAX_ITEMS && (1..items.len()).all(|i| !items[..i].contains(&items[i]))
    };
    let fits = match kind {
        Kind::Text => value.is_string(),
        Kind::Name => value.as_str().is_some_and(|s| !s.is_empty()),
        Kind::OneOf(words) => value.as_str().is_some_and(|s| words.contains(&s)),
        Kind::Int(lo, hi) => int_in(value, *lo, *hi),
        Kind::Float(lo, hi) => float_in(value, *lo, *hi),
        Kind::FloatOrOff(lo, hi) => is_off(value) || float_in(value, *lo, *hi),
        Kind::Bool => value.is_bool(),
        Kind::Ints(lo, hi) => value
            .as_sequence()
            .is_some_and(|s| !s.is_empty() && s.iter().all(|v| int_in(v, *lo, *hi)) && distinct(s)),
        Kind::Names => value.as_sequence().is_some_and(|s| {
            !s.is_empty()
                && s.iter().all(|v| v.as_str().is_some_and(|t| !t.is_empty()))
                && distinct(s)
        }),
        Kind::Words(words) => value.as_sequence().is_some_and(|s| {
            !s.is_empty()
                && s.iter()
                    .all(|v| v.as_str().is_some_and(|t| words.contains(&t)))
                && distinct(s)
        }),
        Kind::Map => value.is_mapping() && is_plain(value),
        Kind::RangeOrOff => is_off(value) || pair(value).is_some(),
        Kind::JointRanges => {
            is_off(value)
                || value
                    .as_mapping()
                    .is_some_and(|m| m.iter().all(|(k, v)| k.is_string() && pair(v).is_some()))
        }
        Kind::JointSteps => {
            let positive = |v: &Yaml| v.as_f64().is_some_and(|x| x.is_finite() && x > 0.0);
            is_off(value)
                || positive(value)
                || value
                    .as_mapping()
                    .is_some_and(|m| m.iter().all(|(k, v)| k.is_string() && positive(v)))
        }
    };
    if fits && !has_tag(value) {
        Ok(())
    } else {
        got()
    }
}

/// True for what JSON has too: text keys, finite numbers.
fn is_plain(value: &Yaml) -> bool {
    match value {
        Yaml::Number(n) => !n.is_f64() || n.as_f64().is_some_and(f64::is_finite),
        Yaml::Sequence(items) => items.iter().all(is_plain),
        Yaml::Mapping(map) => map.iter().all(|(k, v)| k.is_string() && is_plain(v)),
        _ => true,
    }
}

/// A tag asks for a type that no key has; the reader would look through it.
fn has_tag(value: &Yaml) -> bool {
    match value {
        Yaml::Tagged(_) => true,
        Yaml::Sequence(items) => items.iter().any(has_tag),
        Yaml::Mapping(map) => map.iter().any(|(k, v)| has_tag(k) || has_tag(v)),
        _ => false,
    }
}

fn type_name(value: &Yaml) -> &'static str {
    match value {
        Yaml::Null => "nothing",
        Yaml::Bool(_) => "a truth value",
        Yaml::Number(_) => "a number",
        Yaml::String(_) => "text",
        Yaml::Sequence(_) => "a list",
        Yaml::Mapping(_) => "a table",
        Yaml::Tagged(_) => "a tagged value",
    }
}

fn show(value: &Yaml) -> String {
    let text = match value {
        Yaml::Null => return "nothing".into(),
        Yaml::Bool(b) => b.to_string(),
        Yaml::Number(n) => n.to_string(),
        Yaml::String(s) => format!("text {s:?}"),
        other => match serde_yaml::to_string(other) {
            Ok(text) => format!("{} {}", type_name(other), text.trim().replace('\n', ", ")),
            Err(_) => type_name(other).to_string(),
        },
    };
    match text.char_indices().nth(120) {
        Some((cut, _)) => format!("{}…", &text[..cut]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::distance;

    #[test]
    fn distances_are_edits() {
        assert_eq!(distance("prompt", "promt"), 1);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("kitten", "sitting"), 3);
    }
}
