//! Dimensions of a π0.5 policy.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::discretize::BINS;
use crate::Error;

/// Dimensions and text of a π0.5 policy, as `config.json` beside the weights gives them.
///
/// Every key without a default is required; an unknown key is an error. Free notes go under `meta`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pi05Config {
    /// Width of the prefix backbone.
    pub width: usize,
    /// Layers of the prefix backbone and of the action expert.
    pub depth: usize,
    /// Hidden width of the prefix feed-forward.
    pub mlp: usize,
    /// Query heads of both.
    pub heads: usize,
    /// Key/value heads of both; divides `heads`.
    pub kv: usize,
    /// Width of one head of both; even.
    pub head_dim: usize,
    /// Width of the action expert; even.
    pub ex_width: usize,
    /// Hidden width of the action expert's feed-forward.
    pub ex_mlp: usize,
    /// Width of the vision tower.
    pub v_width: usize,
    /// Layers of the vision tower.
    pub v_depth: usize,
    /// Heads of the vision tower; divides `v_width`.
    pub v_heads: usize,
    /// Hidden width of the vision tower's feed-forward.
    pub v_mlp: usize,
    /// Side of a square patch in pixels; divides `image`.
    pub patch: usize,
    /// Side of the square image in pixels.
    pub image: usize,
    /// Rows of the token embedding.
    pub vocab: usize,
    /// Rows of an action chunk.
    pub chunk: usize,
    /// Columns of a raw action row.
    pub adim: usize,
    /// Flow steps of the deployed policy.
    pub steps: u32,
    /// Camera views.
    #[serde(default = "two")]
    pub num_views: usize,
    /// Token slots of the prompt.
    #[serde(default = "forty_eight")]
    pub max_prompt_tokens: usize,
    /// Columns of the robot's state and actions, the first of the model's; default `adim`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub robot_dim: Option<usize>,
    /// The first `anchor_dims` columns of an action are offsets from the state that the context saw. Without a
    /// default: a wrong guess would send the arm somewhere else.
    pub anchor_dims: usize,
    /// The tokenizer's word list; absent when the policy has another tokenizer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub words: Option<Vec<String>>,
    /// Token id of state bin 0; default `vocab` - 256.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_offset: Option<usize>,
    /// Rows of a chunk that a controller should execute; not read here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execute_rows: Option<usize>,
    /// Anything else; not read here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<serde_json::Value>,
}

fn two() -> usize {
    2
}

fn forty_eight() -> usize {
    48
}

/// Above this a dimension is a mistake, and products of four still fit 64 bits.
const MAX_DIM: usize = 1 << 20;

/// Bounds of dimensions that multiply work or memory while no weight shows them, or that there is a name for each of.
const MAX_OF: [(&str, usize); 8] = [
    ("depth", 256),
    ("v_depth", 256),
    ("image", 4096),
    ("patch", 4096),
    ("chunk", 4096),
    ("steps", super::MAX_FLOW_STEPS as usize),
    ("num_views", 16),
    ("max_prompt_tokens", 4096),
];

impl Pi05Config {
    /// Reads and checks `config.json`.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Json`], and those of [`Pi05Config::check`].
    pub fn read(path: &Path) -> Result<Self, Error> {
        let text = crate::read_text(path)?;
        let config: Pi05Config = serde_json::from_slice(&text).map_err(|source| Error::Json {
            path: path.into(),
            source,
        })?;
        config.check()?;
        Ok(config)
    }

    /// Checks ranges and divisibility.
    ///
    /// # Errors
    /// [`Error::Value`] with the key, its value and the rule.
    pub fn check(&self) -> Result<(), Error> {
        let bad = |key, got: usize, rule: String| {
            Err(Error::Value {
                key,
                got: got.to_string(),
                rule,
            })
        };
        for (key, got) in [
            ("width", self.width),
            ("depth", self.depth),
            ("mlp", self.mlp),
            ("heads", self.heads),
            ("kv", self.kv),
            ("head_dim", self.head_dim),
            ("ex_width", self.ex_width),
            ("ex_mlp", self.ex_mlp),
            ("v_width", self.v_width),
            ("v_depth", self.v_depth),
            ("v_heads", self.v_heads),
            ("v_mlp", self.v_mlp),
            ("patch", self.patch),
            ("image", self.image),
            ("vocab", self.vocab),
            ("chunk", self.chunk),
            ("adim", self.adim),
            ("steps", self.steps as usize),
            ("num_views", self.num_views),
            ("max_prompt_tokens", self.max_prompt_tokens),
            ("robot_dim", self.robot_dim()),
        ] {
            let most = MAX_OF
                .iter()
                .find(|(k, _)| *k == key)
                .map_or(MAX_DIM, |(_, most)| *most);
            if got == 0 || got > most {
                return bad(key, got, format!("expected 1..={most}"));
            }
        }
        if self.heads % self.kv != 0 {
            return bad(
                "kv",
                self.kv,
                format!("expected a divisor of heads = {}", self.heads),
            );
        }
        if self.head_dim % 2 != 0 {
            return bad("head_dim", self.head_dim, "expected an even number".into());
        }
        if self.ex_width % 2 != 0 || self.ex_width < 4 {
            return bad(
                "ex_width",
                self.ex_width,
                "expected an even number, at least 4".into(),
            );
        }
        if self.v_width % self.v_heads != 0 {
            return bad(
                "v_heads",
                self.v_heads,
                format!("expected a divisor of v_width = {}", self.v_width),
            );
        }
        if self.image % self.patch != 0 {
            return bad(
                "patch",
                self.patch,
                format!("expected a divisor of image = {}", self.image),
            );
        }
        if self.robot_dim() > self.adim {
            return bad(
                "robot_dim",
                self.robot_dim(),
                format!("expected at most adim = {}", self.adim),
            );
        }
        if self.anchor_dims > self.robot_dim() {
            return bad(
                "anchor_dims",
                self.anchor_dims,
                format!("expected at most {}", self.robot_dim()),
            );
        }
        if self.words.is_some() && self.vocab <= BINS {
            return bad(
                "vocab",
                self.vocab,
                format!("expected words and {BINS} state bins"),
            );
        }
        Ok(())
    }

    /// Columns of the robot's state and actions.
    pub fn robot_dim(&self) -> usize {
        self.robot_dim.unwrap_or(self.adim)
    }

    /// Token id of state bin 0.
    pub fn state_offset(&self) -> usize {
        self.state_offset.unwrap_or(self.vocab.saturating_sub(BINS))
    }

    /// Image tokens of one view.
    pub fn view_tokens(&self) -> usize {
        (self.image / self.patch).pow(2)
    }

    /// Image tokens of all views.
    pub fn image_tokens(&self) -> usize {
        self.num_views * self.view_tokens()
    }

    /// Rows of the prefix: image tokens, then the prompt's slots.
    pub fn prefix_tokens(&self) -> usize {
        self.image_tokens() + self.max_prompt_tokens
    }

    /// Elements of one patch: `[3, patch, patch]`.
    pub fn patch_elements(&self) -> usize {
        3 * self.patch * self.patch
    }

    /// Columns of a row of queries.
    pub fn q_width(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Columns of a row of keys or values.
    pub fn kv_width(&self) -> usize {
        self.kv * self.head_dim
    }

    /// The dimensions as one line for the identity.
    pub fn dims(&self) -> String {
        format!(
            "width={},depth={},mlp={},heads={},kv={},head_dim={},ex_width={},ex_mlp={},v_width={},v_depth={},\
             v_heads={},v_mlp={},patch={},image={},vocab={},chunk={},adim={},robot_dim={},num_views={},\
             max_prompt_tokens={},anchor_dims={}",
            self.width,
            self.depth,
            self.mlp,
            self.heads,
            self.kv,
            self.head_dim,
            self.ex_width,
            self.ex_mlp,
            self.v_width,
            self.v_depth,
            self.v_heads,
            self.v_mlp,
            self.patch,
            self.image,
            self.vocab,
            self.chunk,
            self.adim,
            self.robot_dim(),
            self.num_views,
            self.max_prompt_tokens,
            self.anchor_dims
        )
    }
}
