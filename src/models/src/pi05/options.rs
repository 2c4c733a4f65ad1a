//! Choices of a deployment.

use std::sync::Arc;

use crate::pi05::Pi05Config;
use crate::{Error, Tokenizer};

/// Where the noise that the flow starts from comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NoiseSource {
    /// Philox4x32-10 over the set's own key and counter, in the graph; the counter advances by draw.
    #[default]
    Philox,
    /// The SWAP input `noise`; the host writes it before a tick, and it keeps its bytes until then.
    External,
}

/// The stage plan that stands in the declaration; the others are registered too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StagePlan {
    /// One graph from images to actions.
    #[default]
    Full,
    /// `context`, then `action` after it.
    ContextAction,
}

impl StagePlan {
    /// Name of the plan.
    pub fn name(self) -> &'static str {
        match self {
            StagePlan::Full => "full",
            StagePlan::ContextAction => "context_action",
        }
    }
}

/// Choices of a deployment, beside what the policy's folder says.
#[derive(Clone)]
pub struct Pi05Options {
    /// Flow steps of the shape buckets that are captured at build, each in 1..=1000; the graphs' keys.
    pub flow_steps: Vec<u32>,
    /// The bucket that a run without a key takes; 0 takes the configuration's `steps` when that is a bucket,
    /// or else the first.
    pub default_flow_steps: u32,
    /// Key of the noise generator of every set. Continuation state: a restored capsule brings its own.
    pub seed: u64,
    /// Where noise comes from.
    pub noise: NoiseSource,
    /// The declared plan.
    pub stage_plan: StagePlan,
    /// Keeps named intermediates in extra buffers `tap.*`, and runs the last prefix layer to its end. For
    /// tests: a set with taps is another deployment and says so in its identity.
    pub taps: bool,
    /// Replaces the tokenizer that the configuration describes.
    pub tokenizer: Option<Arc<dyn Tokenizer>>,
}

impl Default for Pi05Options {
    fn default() -> Self {
        Pi05Options {
            flow_steps: vec![5, 10],
            default_flow_steps: 0,
            seed: 0,
            noise: NoiseSource::default(),
            stage_plan: StagePlan::default(),
            taps: false,
            tokenizer: None,
        }
    }
}

/// Most flow steps of a bucket.
pub const MAX_FLOW_STEPS: u32 = 1000;

impl Pi05Options {
    /// Checks the buckets and resolves the default one.
    pub(crate) fn buckets(&self, config: &Pi05Config) -> Result<(Vec<u32>, u32), Error> {
        let bad = |key, got: String, rule: &str| {
            Err(Error::Value {
                key,
                got,
                rule: rule.into(),
            })
        };
        let all = format!("{:?}", self.flow_steps);
        if self.flow_steps.is_empty()
            || self
                .flow_steps
                .iter()
                .any(|s| !(1..=MAX_FLOW_STEPS).contains(s))
        {
            return bad("flow_steps", all, "expected a list of numbers in 1..=1000");
        }
        if self
            .flow_steps
            .iter()
            .enumerate()
            .any(|(i, s)| self.flow_steps[..i].contains(s))
        {
            return bad("flow_steps", all, "expected each number once");
        }
        let default = match self.default_flow_steps {
            0 if self.flow_steps.contains(&config.steps) => config.steps,
            0 => self.flow_steps[0],
            n => n,
        };
        if !self.flow_steps.contains(&default) {
            return bad(
                "default_flow_steps",
                default.to_string(),
                &format!("expected one of flow_steps = {all}"),
            );
        }
        Ok((self.flow_steps.clone(), default))
    }
}
