//! Declares the parameters of [`crate::parameters`] on the node.

use std::sync::Arc;

use anyhow::Result;
use rclrs::{DeclarationError, MandatoryParameter, Node};

use crate::parameters::{meaning, PARAMETERS};

/// The declared parameters.
pub struct Parameters {
    /// Deployment file.
    pub config: MandatoryParameter<Arc<str>>,
    /// Instruction.
    pub prompt: MandatoryParameter<Arc<str>>,
    /// Tick mode.
    pub tick_mode: MandatoryParameter<Arc<str>>,
    /// Configure and activate by itself.
    pub is_autostart: bool,
    /// Smallest backward jump of ROS time that counts, nanoseconds.
    pub clock_jump_ns: i64,
}

/// A type error that names the parameter, which the library's does not.
fn named(name: &str, error: DeclarationError) -> anyhow::Error {
    let kind = PARAMETERS
        .iter()
        .find(|p| p.name == name)
        .map_or("", |p| p.kind);
    anyhow::anyhow!("parameter {name} ({kind}): {error}")
}

impl Parameters {
    /// Declares all.
    ///
    /// # Errors
    /// An override has the wrong type or is out of range; the message names the parameter.
    pub fn declare(node: &Node) -> Result<Parameters> {
        let string = |name: &'static str| {
            node.declare_parameter::<Arc<str>>(name)
                .default(Arc::from(""))
                .description(meaning(name))
        };
        let autostart = node
            .declare_parameter("autostart")
            .default(false)
            .description(meaning("autostart"))
            .read_only()
            .map_err(|e| named("autostart", e))?;
        let clock_jump = node
            .declare_parameter("clock_jump_ms")
            .default(100.0)
            .description(meaning("clock_jump_ms"))
            .validate(|ms: &f64| {
                if *ms > 0.0 {
                    Ok(())
                } else {
                    Err(format!("must be > 0, is {ms}"))
                }
            })
            .read_only()
            .map_err(|e| named("clock_jump_ms", e))?;
        Ok(Parameters {
            config: string("config")
                .mandatory()
                .map_err(|e| named("config", e))?,
            prompt: string("prompt")
                .mandatory()
                .map_err(|e| named("prompt", e))?,
            tick_mode: string("tick_mode")
                .validate(|mode: &Arc<str>| match &**mode {
                    "" | "chunk" | "rate" | "trigger" => Ok(()),
                    other => Err(format!(
                        "tick_mode must be chunk, rate or trigger, or empty; is '{other}'"
                    )),
                })
                .mandatory()
                .map_err(|e| named("tick_mode", e))?,
            is_autostart: autostart.get(),
            clock_jump_ns: (clock_jump.get() * 1e6) as i64,
        })
    }
}
