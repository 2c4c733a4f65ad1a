//! The node's parameters as a table, and checks of what the command line sets, made before the client library sees it.
//!
//! rclrs 0.8 ends the process with a panic when an override is an empty list, and it ignores overrides of parameters that
//! nobody declares. Both are caught here from the node's own command line.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use flashrt_session::config::closest;

/// One parameter of the node, for declaration and documentation.
pub struct Parameter {
    /// Name.
    pub name: &'static str,
    /// Type in words.
    pub kind: &'static str,
    /// Default in words.
    pub default: &'static str,
    /// May be set while the node runs.
    pub is_dynamic: bool,
    /// Meaning.
    pub meaning: &'static str,
}

/// Every parameter of the node. Everything else about a deployment is in the file that `config` names.
pub const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "config",
        kind: "string, path",
        default: "''",
        is_dynamic: true,
        meaning: "deployment file, read at each configure; empty: configure fails",
    },
    Parameter {
        name: "prompt",
        kind: "string",
        default: "''",
        is_dynamic: true,
        meaning: "instruction; empty: that of the deployment file. A set while the node is configured is applied at the next tick boundary",
    },
    Parameter {
        name: "tick_mode",
        kind: "string: chunk, rate or trigger",
        default: "''",
        is_dynamic: true,
        meaning: "when ticks happen; empty: tick.mode of the deployment file",
    },
    Parameter {
        name: "autostart",
        kind: "bool",
        default: "false",
        is_dynamic: false,
        meaning: "configure and activate by itself after start",
    },
    Parameter {
        name: "clock_jump_ms",
        kind: "double, ms, > 0",
        default: "100.0",
        is_dynamic: false,
        meaning: "ROS time that goes back by more than this starts a new epoch",
    },
];

/// Names that rclrs declares itself, or that ROS tools set on every node.
const FOREIGN: &[&str] = &["use_sim_time", "start_type_description_service"];

/// The meaning of a parameter in the table.
pub fn meaning(name: &str) -> &'static str {
    PARAMETERS
        .iter()
        .find(|p| p.name == name)
        .map_or("", |p| p.meaning)
}

/// What the command line sets, as `(where, parameter, value)`.
pub struct Overrides {
    entries: Vec<(String, String, serde_yaml::Value)>,
}

impl Overrides {
    /// Reads `-p name:=value` and `--params-file path` after `--ros-args`. Entries of a file for other nodes are left out
    /// as far as this can be told: `node` is the node's name without namespace.
    ///
    /// # Errors
    /// A parameter file cannot be read or is not YAML.
    pub fn read(arguments: &[String], node: &str) -> Result<Overrides> {
        let mut entries = Vec::new();
        let mut is_ros = false;
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            match argument.as_str() {
                "--ros-args" => is_ros = true,
                "--" => is_ros = false,
                "-p" | "--param" if is_ros => {
                    if let Some((name, value)) = rest.next().and_then(|a| a.split_once(":=")) {
                        // `node:name:=value` is for one node only.
                        let name = name.rsplit(':').next().unwrap_or(name);
                        let value = serde_yaml::from_str(value).unwrap_or(serde_yaml::Value::Null);
                        entries.push(("the command line".to_string(), name.to_string(), value));
                    }
                }
                "--params-file" if is_ros => {
                    let Some(path) = rest.next().map(PathBuf::from) else {
                        continue;
                    };
                    let text = std::fs::read_to_string(&path).with_context(|| {
                        format!("cannot read the parameter file {}", path.display())
                    })?;
                    let root: serde_yaml::Value =
                        serde_yaml::from_str(&text).with_context(|| {
                            format!("the parameter file {} is not YAML", path.display())
                        })?;
                    collect_nodes(&path.display().to_string(), "", &root, node, &mut entries);
                }
                _ => {}
            }
        }
        Ok(Overrides { entries })
    }

    /// # Errors
    /// A value is an empty list, which the client library cannot take and no parameter of this node wants.
    pub fn check_lists(&self) -> Result<()> {
        for (place, name, value) in &self.entries {
            if matches!(value, serde_yaml::Value::Sequence(items) if items.is_empty()) {
                anyhow::bail!(
                    "{place} sets parameter {name} to an empty list: leave it out ({})",
                    known()
                );
            }
        }
        Ok(())
    }

    /// The first parameter that this node does not have, in words that name the nearest one that it has.
    pub fn first_unknown(&self) -> Option<String> {
        let (place, name, _) = self.entries.iter().find(|(_, name, _)| {
            !FOREIGN.contains(&name.as_str())
                && !name.starts_with("qos_overrides./")
                && !PARAMETERS.iter().any(|p| p.name == name)
        })?;
        let near = closest(name, PARAMETERS.iter().map(|p| p.name)).unwrap_or("");
        Some(format!(
            "{place} sets parameter '{name}', which policy_node does not have; the nearest is '{near}' ({}). Ports, topics and limits belong into the deployment file",
            known()
        ))
    }
}

fn known() -> String {
    let names: Vec<_> = PARAMETERS.iter().map(|p| p.name).collect();
    format!("it has {}", names.join(", "))
}

/// Walks `namespace: node: ros__parameters: ...` and keeps what is for `node` or for any node.
fn collect_nodes(
    place: &str,
    path: &str,
    value: &serde_yaml::Value,
    node: &str,
    entries: &mut Vec<(String, String, serde_yaml::Value)>,
) {
    let serde_yaml::Value::Mapping(map) = value else {
        return;
    };
    for (key, value) in map {
        let Some(key) = key.as_str() else { continue };
        if key == "ros__parameters" {
            let last = path.rsplit('/').next().unwrap_or("");
            if last == node || last == "*" || last == "**" {
                collect_values(place, "", value, entries);
            }
        } else {
            collect_nodes(place, &format!("{path}/{key}"), value, node, entries);
        }
    }
}

fn collect_values(
    place: &str,
    prefix: &str,
    value: &serde_yaml::Value,
    entries: &mut Vec<(String, String, serde_yaml::Value)>,
) {
    match value {
        serde_yaml::Value::Mapping(map) => {
            for (key, value) in map {
                let Some(key) = key.as_str() else { continue };
                let name = if prefix.is_empty() {
                    key.to_string()
                } else {
                    format!("{prefix}.{key}")
                };
                collect_values(place, &name, value, entries);
            }
        }
        other => entries.push((place.to_string(), prefix.to_string(), other.clone())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(words: &[&str]) -> Vec<String> {
        words.iter().map(|w| w.to_string()).collect()
    }

    #[test]
    fn case_108_an_empty_list_is_named() {
        let overrides = Overrides::read(
            &arguments(&["policy_node", "--ros-args", "-p", "cameras:=[]"]),
            "policy_node",
        )
        .unwrap();
        let error = overrides.check_lists().unwrap_err().to_string();
        assert!(
            error.contains("cameras") && error.contains("empty list"),
            "{error}"
        );
    }

    #[test]
    fn an_unknown_parameter_names_the_nearest() {
        let overrides = Overrides::read(
            &arguments(&["policy_node", "--ros-args", "-p", "tick_mod:=rate"]),
            "policy_node",
        )
        .unwrap();
        let message = overrides.first_unknown().unwrap();
        assert!(
            message.contains("'tick_mod'") && message.contains("'tick_mode'"),
            "{message}"
        );
    }

    #[test]
    fn known_and_foreign_parameters_pass() {
        let words = [
            "policy_node",
            "--ros-args",
            "-p",
            "config:=a.yaml",
            "-p",
            "use_sim_time:=true",
            "--",
            "-p",
            "x:=[]",
        ];
        let overrides = Overrides::read(&arguments(&words), "policy_node").unwrap();
        assert!(overrides.check_lists().is_ok());
        assert_eq!(overrides.first_unknown(), None);
    }
}
