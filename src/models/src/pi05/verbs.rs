//! Inputs into the host's staging buffers, outputs out of them.

use std::sync::Arc;

use flashrt_exec::{Buffer, Context, Graph, ShapeKey, StreamId};
use flashrt_ops::preprocess::{resize_normalize, Frame, PixelFormat as Pixels};
use flashrt_ops::Tensor;
use flashrt_runtime::{Error, ImageView, InputData, PixelFormat, PortId, Verbs};

use super::set::SetBuffers;
use super::Shared;
use crate::discretize::bin;
use crate::{tokenizer, Error as ModelError};

/// Order of the ports.
pub(super) const IMAGES: PortId = PortId(0);
pub(super) const STATE: PortId = PortId(1);
pub(super) const PROMPT: PortId = PortId(2);
pub(super) const ACTIONS: PortId = PortId(3);

/// The verbs of one live set. Fields beside the buffers are constants, or scratch that every call rewrites.
pub(super) struct Pi05Verbs {
    pub shared: Arc<Shared>,
    pub ctx: Context,
    pub buffers: Arc<SetBuffers>,
    /// Everything that a warm run may change.
    pub mutable: Vec<Buffer>,
    pub context: Graph,
    pub action: Graph,
    pub full: Graph,
    pub scratch: Staging,
    pub last_error: String,
}

/// Reused storage of the transforms.
pub(super) struct Staging {
    text: String,
    state: Vec<f32>,
    bins: Vec<i32>,
    ids: Vec<i32>,
    bytes: Vec<u8>,
    pixels: Vec<f32>,
}

impl Staging {
    pub fn new(shared: &Shared, buffers: &SetBuffers) -> Staging {
        let c = &shared.config;
        let elements = c.robot_dim().max(c.max_prompt_tokens);
        Staging {
            text: String::with_capacity(buffers.in_prompt.bytes()),
            state: Vec::with_capacity(c.robot_dim()),
            bins: Vec::with_capacity(c.robot_dim()),
            ids: Vec::with_capacity(c.max_prompt_tokens),
            pixels: Vec::with_capacity(buffers.in_images.numel()),
            bytes: Vec::with_capacity(
                (4 * elements)
                    .max(c.prefix_tokens())
                    .max(buffers.in_prompt.bytes()),
            ),
        }
    }
}

fn refused(port: &str, source: ModelError) -> Error {
    Error::PortInput {
        port: port.into(),
        source: Box::new(source),
    }
}

fn wrong_kind(port: &str, expected: &str, data: &InputData<'_>) -> Error {
    Error::PortFormat {
        port: port.into(),
        expected: expected.into(),
        got: data.kind().into(),
    }
}

/// Writes a whole host view.
fn write(t: &Tensor, bytes: &[u8]) -> Result<(), Error> {
    Ok(t.slice().buffer().host_write(t.slice().offset(), bytes)?)
}

impl Pi05Verbs {
    fn set_state(&mut self, data: &InputData<'_>) -> Result<(), Error> {
        let n = self.shared.config.robot_dim();
        let bad_count = |got: usize| Error::PortBytes {
            port: "state".into(),
            expected: 4 * n as u64,
            got: got as u64,
        };
        let s = &mut self.scratch;
        match data {
            InputData::F32(v) if v.len() != n => return Err(bad_count(4 * v.len())),
            InputData::Bytes(v) if v.len() != 4 * n => return Err(bad_count(v.len())),
            InputData::F32(v) => {
                s.state.clear();
                s.state.extend_from_slice(v);
            }
            InputData::Bytes(v) => {
                s.state.clear();
                s.state.extend(
                    v.chunks_exact(4)
                        .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])),
                );
            }
            other => return Err(wrong_kind("state", &format!("{n} f32 values"), other)),
        }
        if let Some(index) = s.state.iter().position(|x| !x.is_finite()) {
            return Err(refused(
                "state",
                ModelError::NonFinite {
                    index,
                    value: s.state[index],
                },
            ));
        }
        stored_text(&self.buffers.in_prompt, &mut s.bytes, &mut s.text)?;
        let has_prompt = !s.text.is_empty();
        if has_prompt {
            // The instruction fitted with other bins, so this can only fail for a restored foreign text.
            encode(&self.shared, &s.state, &s.text, &mut s.bins, &mut s.ids)
                .map_err(|e| refused("state", e))?;
        }
        s.bytes.clear();
        s.bytes.extend(s.state.iter().flat_map(|x| x.to_ne_bytes()));
        write(&self.buffers.in_state, &s.bytes)?;
        if has_prompt {
            self.write_tokens()?;
        }
        Ok(())
    }

    fn set_prompt(&mut self, data: &InputData<'_>) -> Result<(), Error> {
        let text = match data {
            InputData::Text(t) => *t,
            InputData::Bytes(b) => std::str::from_utf8(b).map_err(|e| {
                refused(
                    "prompt",
                    ModelError::PromptEncoding {
                        valid_up_to: e.valid_up_to(),
                    },
                )
            })?,
            other => return Err(wrong_kind("prompt", "UTF-8 text", other)),
        };
        // As in C, a NUL ends the text.
        let text = text.split('\0').next().unwrap_or("");
        let s = &mut self.scratch;
        read_state(&self.buffers.in_state, &mut s.bytes, &mut s.state)?;
        encode(&self.shared, &s.state, text, &mut s.bins, &mut s.ids)
            .map_err(|e| refused("prompt", e))?;
        let limit = self.buffers.in_prompt.bytes() - 4;
        let (words, letters) =
            tokenizer::words(text).fold((0, 0), |(n, b), w| (n + 1, b + w.len()));
        let bytes = letters + words - 1;
        if bytes > limit {
            return Err(refused("prompt", ModelError::PromptBytes { bytes, limit }));
        }
        s.bytes.clear();
        s.bytes.extend((bytes as u32).to_le_bytes());
        for (i, word) in tokenizer::words(text).enumerate() {
            if i > 0 {
                s.bytes.push(b' ');
            }
            s.bytes.extend_from_slice(word.as_bytes());
        }
        s.bytes.resize(limit + 4, 0);
        self.buffers.in_prompt.host_write(0, &s.bytes)?;
        self.write_tokens()
    }

    /// Stages `ids`: tokens, padded, and the validity of the prompt's slots. The image tokens are always valid.
    fn write_tokens(&mut self) -> Result<(), Error> {
        let c = &self.shared.config;
        let s = &mut self.scratch;
        let valid = s.ids.len();
        s.ids
            .resize(c.max_prompt_tokens, self.shared.tokenizer.pad_id());
        s.bytes.clear();
        s.bytes.extend(s.ids.iter().flat_map(|id| id.to_ne_bytes()));
        write(&self.buffers.in_tokens, &s.bytes)?;
        s.bytes.clear();
        s.bytes.resize(c.image_tokens() + valid, 1);
        s.bytes.resize(c.prefix_tokens(), 0);
        write(&self.buffers.in_mask, &s.bytes)
    }

    fn set_images(&mut self, data: &InputData<'_>) -> Result<(), Error> {
        let c = &self.shared.config;
        let InputData::Images(views) = data else {
            return Err(wrong_kind(
                "images",
                &format!("{} image views", c.num_views),
                data,
            ));
        };
        if views.len() != c.num_views {
            return Err(Error::PortFormat {
                port: "images".into(),
                expected: format!("{} image views", c.num_views),
                got: views.len().to_string(),
            });
        }
        let side = c.image;
        let elements = side * side * 3;
        let pixels = &mut self.scratch.pixels;
        pixels.resize(c.num_views * elements, 0.0);
        for (i, (view, out)) in views
            .iter()
            .zip(pixels.chunks_exact_mut(elements))
            .enumerate()
        {
            resize_normalize(&frame(i, view)?, side, side, out)
                .map_err(|e| Error::model_from("pi05", e))?;
        }
        let target = self.buffers.in_images.slice();
        let (from, to) = (target.offset(), target.offset() + target.bytes());
        target.buffer().host_with_mut(|bytes| {
            for (dst, x) in bytes[from..to].chunks_exact_mut(4).zip(pixels.iter()) {
                dst.copy_from_slice(&x.to_ne_bytes());
            }
        })?;
        Ok(())
    }

    fn graph(&self, name: &str) -> Result<&Graph, Error> {
        [&self.context, &self.action, &self.full]
            .into_iter()
            .find(|g| g.name() == name)
            .ok_or_else(|| Error::NotFound {
                kind: "graph",
                name: name.into(),
            })
    }

    fn keep<T>(&mut self, result: Result<T, Error>) -> Result<T, Error> {
        if let Err(e) = &result {
            self.last_error = e.to_string();
        }
        result
    }
}

/// The view as a frame, after a check of its geometry against its bytes.
fn frame<'a>(index: usize, view: &ImageView<'a>) -> Result<Frame<'a>, Error> {
    let format = match view.format {
        PixelFormat::Rgb8 => Pixels::Rgb8,
        PixelFormat::Bgr8 => Pixels::Bgr8,
        PixelFormat::Rgba8 => Pixels::Rgba8,
        PixelFormat::Bgra8 => Pixels::Bgra8,
        other => {
            return Err(Error::PortFormat {
                port: "images".into(),
                expected: "RGB8, BGR8, RGBA8 or BGRA8".into(),
                got: format!("{other} in view {index}"),
            })
        }
    };
    let (width, height) = (view.width as usize, view.height as usize);
    let stride_bytes = match view.stride_bytes {
        0 => width.saturating_mul(format.bytes()),
        n => n as usize,
    };
    let frame = Frame {
        format,
        width,
        height,
        stride_bytes,
        data: view.data,
    };
    frame.check().map_err(|e| match e {
        flashrt_ops::Error::Length { expected, got, .. } => Error::PortBytes {
            port: "images".into(),
            expected: expected as u64,
            got: got as u64,
        },
        e => Error::PortFormat {
            port: "images".into(),
            expected: "pixels in rows at least as long as the width".into(),
            got: format!("{width}x{height} with stride {stride_bytes} in view {index}: {e}"),
        },
    })?;
    Ok(frame)
}

/// Token ids of an instruction at a state.
fn encode(
    shared: &Shared,
    state: &[f32],
    text: &str,
    bins: &mut Vec<i32>,
    ids: &mut Vec<i32>,
) -> Result<(), ModelError> {
    bins.clear();
    bins.extend(
        state
            .iter()
            .enumerate()
            .map(|(i, &x)| bin(shared.stats.state.normalize(i, x))),
    );
    shared.tokenizer.encode(text, Some(bins), ids)
}

/// Copies the stored instruction into `text`; empty when there is none.
fn stored_text(buffer: &Buffer, bytes: &mut Vec<u8>, text: &mut String) -> Result<(), Error> {
    bytes.resize(buffer.bytes(), 0);
    buffer.host_read(0, bytes)?;
    let n = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize;
    let broken = || {
        Error::model(
            "pi05",
            format!(
                "in_prompt holds no text of at most {} bytes",
                bytes.len() - 4
            ),
        )
    };
    let stored = bytes
        .get(4..n.saturating_add(4))
        .and_then(|b| std::str::from_utf8(b).ok())
        .ok_or_else(broken)?;
    text.clear();
    text.push_str(stored);
    Ok(())
}

/// Copies the stored state into `state`.
fn read_state(t: &Tensor, bytes: &mut Vec<u8>, state: &mut Vec<f32>) -> Result<(), Error> {
    bytes.resize(t.slice().bytes(), 0);
    t.slice().buffer().host_read(t.slice().offset(), bytes)?;
    state.clear();
    state.extend(
        bytes
            .chunks_exact(4)
            .map(|b| f32::from_ne_bytes([b[0], b[1], b[2], b[3]])),
    );
    Ok(())
}

impl Verbs for Pi05Verbs {
    fn set_input(&mut self, port: PortId, data: InputData<'_>) -> Result<(), Error> {
        let result = match port {
            IMAGES => self.set_images(&data),
            STATE => self.set_state(&data),
            PROMPT => self.set_prompt(&data),
            _ => Err(Error::Unsupported {
                verb: "set_input of this port",
            }),
        };
        self.keep(result)
    }

    fn get_output(&mut self, port: PortId, out: &mut [u8]) -> Result<usize, Error> {
        let source = self.buffers.out_actions.slice();
        let result = match out.get_mut(..source.bytes()) {
            _ if port != ACTIONS => Err(Error::Unsupported {
                verb: "get_output of this port",
            }),
            None => Err(Error::OutputTooSmall {
                port: "actions".into(),
                needed: source.bytes() as u64,
                got: out.len() as u64,
            }),
            Some(out) => source
                .buffer()
                .host_read(source.offset(), out)
                .map_err(Error::from)
                .map(|()| source.bytes()),
        };
        self.keep(result)
    }

    fn prepare(&mut self, graph: &str, key: ShapeKey) -> Result<(), Error> {
        let result = self.graph(graph).and_then(|g| {
            if g.has_variant(key) {
                return Ok(());
            }
            self.shared.capture(g, key, &self.buffers)
        });
        self.keep(result)
    }

    fn evict(&mut self, graph: &str, key: ShapeKey) -> Result<(), Error> {
        let result = self.graph(graph).and_then(|g| Ok(g.evict(key)?));
        self.keep(result)
    }

    /// Replays every variant once and puts every byte back.
    fn warm(&mut self) -> Result<(), Error> {
        let mut kept = Vec::with_capacity(self.mutable.len());
        for b in &self.mutable {
            let mut bytes = vec![0; b.bytes()];
            self.ctx.download(&b.all(), &mut bytes)?;
            kept.push(bytes);
        }
        let mut result = Ok(());
        for (graph, keys) in [
            (&self.context, &[super::CONTEXT_KEY][..]),
            (&self.action, &self.shared.keys),
            (&self.full, &self.shared.keys),
        ] {
            for &key in keys.iter().filter(|k| graph.has_variant(**k)) {
                result = result.and_then(|()| graph.replay(key, StreamId(0)));
            }
        }
        let result = result
            .and_then(|()| self.ctx.synchronize(StreamId(0)))
            .map_err(Error::from);
        for (b, bytes) in self.mutable.iter().zip(&kept) {
            self.ctx.upload(&b.all(), bytes)?;
        }
        self.keep(result)
    }

    fn last_error(&self) -> &str {
        &self.last_error
    }
}
