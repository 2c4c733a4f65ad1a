//! Tensor names and shapes.

use super::Pi05Config;
use crate::weights::Weights;
use crate::Error;

const ROOT: &str = "paligemma_with_expert.";
const VISION: &str = "paligemma_with_expert.paligemma.model.vision_tower.vision_model.";
const PROJECTOR: &str = "paligemma_with_expert.paligemma.model.multi_modal_projector.linear.";
const PREFIX: &str = "paligemma_with_expert.paligemma.model.language_model.";
const EXPERT: &str = "paligemma_with_expert.gemma_expert.model.";

/// Embedding of prompt tokens `[vocab, width]`.
pub const EMBED: &str = "paligemma_with_expert.paligemma.model.language_model.embed_tokens.weight";
/// LeRobot saves the tied embedding under this name only.
const TIED_EMBED: &str = "paligemma_with_expert.paligemma.lm_head.weight";
/// Output heads of the language models, which a policy never uses.
const UNUSED: [&str; 2] = [
    TIED_EMBED,
    "paligemma_with_expert.gemma_expert.lm_head.weight",
];

/// Wrappers that savers put in front of every name.
const WRAPPERS: [&str; 3] = ["model.", "module.", "_orig_mod."];

/// Short names of the stand-alone training code, and what they stand for.
const SHORT: [(&str, &str); 9] = [
    ("patch.", "paligemma_with_expert.paligemma.model.vision_tower.vision_model.embeddings.patch_embedding."),
    ("vl.", "paligemma_with_expert.paligemma.model.vision_tower.vision_model.encoder.layers."),
    ("vnorm.", "paligemma_with_expert.paligemma.model.vision_tower.vision_model.post_layernorm."),
    ("proj.", PROJECTOR),
    ("embed.", "paligemma_with_expert.paligemma.model.language_model.embed_tokens."),
    ("lm.", "paligemma_with_expert.paligemma.model.language_model.layers."),
    ("lmnorm.", "paligemma_with_expert.paligemma.model.language_model.norm."),
    ("ex.", "paligemma_with_expert.gemma_expert.model.layers."),
    ("exnorm.", "paligemma_with_expert.gemma_expert.model.norm."),
];

/// LeRobot's name of a tensor that a file calls `name`.
pub fn canonical(name: &str) -> String {
    let mut bare = name;
    while let Some(rest) = WRAPPERS.iter().find_map(|w| bare.strip_prefix(w)) {
        bare = rest;
    }
    if bare == "pos" {
        return pos();
    }
    // Older transformers: no `model.` between paligemma and its parts.
    if let Some(rest) = bare.strip_prefix("paligemma_with_expert.paligemma.") {
        if rest.starts_with("vision_tower.") || rest.starts_with("multi_modal_projector.") {
            return format!("{ROOT}paligemma.model.{rest}");
        }
        if let Some(rest) = rest.strip_prefix("language_model.model.") {
            return format!("{PREFIX}{rest}");
        }
        if rest == "language_model.lm_head.weight" {
            return TIED_EMBED.into();
        }
    }
    for (short, long) in SHORT {
        if let Some(rest) = bare.strip_prefix(short) {
            return format!("{long}{rest}");
        }
    }
    bare.into()
}

/// Applies what LeRobot leaves out or saves in addition.
pub fn tie(weights: &mut Weights) {
    weights.rename(TIED_EMBED, EMBED);
    UNUSED.iter().for_each(|name| weights.ignore(name));
}

/// `part` of vision layer `i`.
pub fn vision(i: usize, part: &str) -> String {
    format!("{VISION}encoder.layers.{i}.{part}")
}

/// `part` of prefix layer `i`.
pub fn prefix(i: usize, part: &str) -> String {
    format!("{PREFIX}layers.{i}.{part}")
}

/// `part` of expert layer `i`.
pub fn expert(i: usize, part: &str) -> String {
    format!("{EXPERT}layers.{i}.{part}")
}

/// Patch embedding: `weight` or `bias`.
pub fn patch(part: &str) -> String {
    format!("{VISION}embeddings.patch_embedding.{part}")
}

/// Position embedding of the vision tower.
pub fn pos() -> String {
    format!("{VISION}embeddings.position_embedding.weight")
}

/// Final norm of the vision tower.
pub fn vision_norm(part: &str) -> String {
    format!("{VISION}post_layernorm.{part}")
}

/// Projection of image tokens into the prefix.
pub fn projector(part: &str) -> String {
    format!("{PROJECTOR}{part}")
}

/// Final norm of the prefix.
pub fn prefix_norm() -> String {
    format!("{PREFIX}norm.weight")
}

/// Final norm of the expert.
pub fn expert_norm(part: &str) -> String {
    format!("{EXPERT}norm.dense.{part}")
}

/// Every tensor of the architecture with its shape.
pub fn all(c: &Pi05Config) -> Vec<(String, Vec<usize>)> {
    let mut list = Vec::new();
    let mut linear = |name: &dyn Fn(&str) -> String, out: usize, input: usize| {
        list.push((name("weight"), vec![out, input]));
        list.push((name("bias"), vec![out]));
    };
    let (v, w, e) = (c.v_width, c.width, c.ex_width);
    for i in 0..c.v_depth {
        for part in ["q_proj", "k_proj", "v_proj", "out_proj"] {
            linear(&|x| vision(i, &format!("self_attn.{part}.{x}")), v, v);
        }
        linear(&|x| vision(i, &format!("mlp.fc1.{x}")), c.v_mlp, v);
        linear(&|x| vision(i, &format!("mlp.fc2.{x}")), v, c.v_mlp);
    }
    linear(&projector, w, v);
    for i in 0..c.depth {
        for part in ["input_layernorm", "post_attention_layernorm"] {
            linear(&|x| expert(i, &format!("{part}.dense.{x}")), 3 * e, e);
        }
    }
    linear(&expert_norm, 3 * e, e);
    linear(&|x| format!("action_in_proj.{x}"), e, c.adim);
    linear(&|x| format!("action_out_proj.{x}"), c.adim, e);
    linear(&|x| format!("time_mlp_in.{x}"), e, e);
    linear(&|x| format!("time_mlp_out.{x}"), e, e);

    list.push((patch("weight"), vec![v, 3, c.patch, c.patch]));
    list.push((patch("bias"), vec![v]));
    list.push((pos(), vec![c.view_tokens(), v]));
    for part in ["weight", "bias"] {
        list.push((vision_norm(part), vec![v]));
        for i in 0..c.v_depth {
            list.push((vision(i, &format!("layer_norm1.{part}")), vec![v]));
            list.push((vision(i, &format!("layer_norm2.{part}")), vec![v]));
        }
    }
    list.push((EMBED.into(), vec![c.vocab, w]));
    list.push((prefix_norm(), vec![w]));
    for i in 0..c.depth {
        list.push((prefix(i, "input_layernorm.weight"), vec![w]));
        list.push((prefix(i, "post_attention_layernorm.weight"), vec![w]));
        for (name, width, mlp) in [
            (&prefix as &dyn Fn(usize, &str) -> String, w, c.mlp),
            (&expert as &dyn Fn(usize, &str) -> String, e, c.ex_mlp),
        ] {
            list.push((name(i, "self_attn.q_proj.weight"), vec![c.q_width(), width]));
            list.push((
                name(i, "self_attn.k_proj.weight"),
                vec![c.kv_width(), width],
            ));
            list.push((
                name(i, "self_attn.v_proj.weight"),
                vec![c.kv_width(), width],
            ));
            list.push((name(i, "self_attn.o_proj.weight"), vec![width, c.q_width()]));
            list.push((name(i, "mlp.gate_proj.weight"), vec![mlp, width]));
            list.push((name(i, "mlp.up_proj.weight"), vec![mlp, width]));
            list.push((name(i, "mlp.down_proj.weight"), vec![width, mlp]));
        }
    }
    list.sort();
    list
}

/// Compares the dimensions that the tensors imply with the configuration's.
///
/// # Errors
/// [`Error::Dimension`] for the first that differs. Absent tensors and ranks are left to [`Weights::check`].
pub fn cross_check(c: &Pi05Config, weights: &Weights) -> Result<(), Error> {
    let first = |f: &dyn Fn(usize, &str) -> String, part: &str| f(0, part);
    let size = |key, config: usize, tensor: String, axis: usize| match weights.shape(&tensor) {
        Some(shape) if shape.len() > axis && shape[axis] != config => Err(Error::Dimension {
            key,
            config,
            weights: shape[axis],
            shape: shape.to_vec(),
            tensor,
        }),
        _ => Ok(()),
    };
    size("v_width", c.v_width, patch("weight"), 0)?;
    size("patch", c.patch, patch("weight"), 2)?;
    size("v_mlp", c.v_mlp, first(&vision, "mlp.fc1.weight"), 0)?;
    size("width", c.width, projector("weight"), 0)?;
    size("vocab", c.vocab, EMBED.into(), 0)?;
    size("mlp", c.mlp, first(&prefix, "mlp.gate_proj.weight"), 0)?;
    size("ex_width", c.ex_width, "action_in_proj.weight".into(), 0)?;
    size("adim", c.adim, "action_in_proj.weight".into(), 1)?;
    size(
        "ex_mlp",
        c.ex_mlp,
        first(&expert, "mlp.gate_proj.weight"),
        0,
    )?;
    let product = |key, config: usize, unit: usize, tensor: String, axis: usize| match weights
        .shape(&tensor)
    {
        Some(shape) if shape.len() > axis && shape[axis] != config * unit => {
            Err(Error::Dimension {
                key,
                config,
                weights: shape[axis] / unit,
                shape: shape.to_vec(),
                tensor,
            })
        }
        _ => Ok(()),
    };
    product(
        "heads",
        c.heads,
        c.head_dim,
        first(&prefix, "self_attn.q_proj.weight"),
        0,
    )?;
    product(
        "kv",
        c.kv,
        c.head_dim,
        first(&prefix, "self_attn.k_proj.weight"),
        0,
    )?;
    if let Some(shape) = weights.shape(&pos()) {
        if shape.first() != Some(&c.view_tokens()) {
            let side = (shape.first().map_or(0, |&n| n) as f64).sqrt() as usize;
            return Err(Error::Dimension {
                key: "image",
                config: c.image,
                weights: side * c.patch,
                shape: shape.to_vec(),
                tensor: pos(),
            });
        }
    }
    for (key, config, root) in [
        ("v_depth", c.v_depth, format!("{VISION}encoder.layers.")),
        ("depth", c.depth, format!("{PREFIX}layers.")),
        ("depth", c.depth, format!("{EXPERT}layers.")),
    ] {
        let index = |name: &str| {
            name.strip_prefix(&root)?
                .split('.')
                .next()?
                .parse::<usize>()
                .ok()
        };
        let last = weights
            .names()
            .filter_map(|n| index(n).map(|i| (i, n)))
            .max();
        if let Some((i, name)) = last {
            if i + 1 != config {
                return Err(Error::Dimension {
                    key,
                    config,
                    weights: i + 1,
                    shape: weights.shape(name).unwrap_or(&[]).to_vec(),
                    tensor: name.into(),
                });
            }
        }
    }
    Ok(())
}
