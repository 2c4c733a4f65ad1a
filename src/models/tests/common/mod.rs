//! Shared by the tests: files, tensors, comparisons.
#![allow(dead_code)]

pub mod drive;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A tensor of a reference file, converted to f64.
#[derive(Clone, Debug)]
pub struct Reference {
    pub shape: Vec<usize>,
    pub values: Vec<f64>,
}

impl Reference {
    pub fn f32(&self) -> Vec<f32> {
        self.values.iter().map(|&x| x as f32).collect()
    }
    pub fn i32(&self) -> Vec<i32> {
        self.values.iter().map(|&x| x as i32).collect()
    }
}

/// The checkout, or the folder that has what a test on another machine needs of it.
pub fn repository() -> PathBuf {
    match std::env::var_os("FLASHRT_TEST_ROOT") {
        Some(root) => root.into(),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."),
    }
}

pub fn golden_dir() -> PathBuf {
    repository().join("test/data/golden_pi05")
}

/// The golden network's `config.json` with what LeRobot keeps elsewhere.
pub fn golden_config_text() -> String {
    let text = std::fs::read_to_string(golden_dir().join("config.json")).unwrap();
    text.replace('}', ", \"anchor_dims\": 0, \"max_prompt_tokens\": 18}")
}

pub fn golden_config() -> flashrt_models::pi05::Pi05Config {
    serde_json::from_str(&golden_config_text()).unwrap()
}

pub fn demo_dir() -> PathBuf {
    repository().join("config/so101_policy")
}

pub fn load(path: &Path) -> BTreeMap<String, Reference> {
    use safetensors::tensor::{Dtype, SafeTensors};
    let bytes = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let file = SafeTensors::deserialize(&bytes).expect("a safetensors file");
    file.tensors()
        .into_iter()
        .map(|(name, t)| {
            let d = t.data();
            let values = match t.dtype() {
                Dtype::F32 => d
                    .chunks_exact(4)
                    .map(|b| f32::from_le_bytes(b.try_into().unwrap()).into())
                    .collect(),
                Dtype::F64 => d
                    .chunks_exact(8)
                    .map(|b| f64::from_le_bytes(b.try_into().unwrap()))
                    .collect(),
                Dtype::I32 => d
                    .chunks_exact(4)
                    .map(|b| i32::from_le_bytes(b.try_into().unwrap()).into())
                    .collect(),
                Dtype::U8 => d.iter().map(|&b| f64::from(b)).collect(),
                other => panic!("{name}: {other:?}"),
            };
            (
                name,
                Reference {
                    shape: t.shape().to_vec(),
                    values,
                },
            )
        })
        .collect()
}

/// max |got - want| / max |want|
pub fn relative_error(got: &[f32], want: &[f64]) -> f64 {
    assert_eq!(got.len(), want.len());
    assert!(got.iter().all(|x| x.is_finite()), "non-finite result");
    let scale = want.iter().fold(0f64, |m, x| m.max(x.abs()));
    let diff = got
        .iter()
        .zip(want)
        .fold(0f64, |m, (g, w)| m.max((f64::from(*g) - w).abs()));
    diff / scale.max(f64::MIN_POSITIVE)
}

pub fn demo_words() -> Vec<String> {
    [
        "<pad>", "<bos>", "put", "the", "cube", "on", "pad", "red", "green", "blue", "state",
        "action",
    ]
    .map(String::from)
    .to_vec()
}

/// A fresh directory below the target folder's temporary one.
pub fn temp_dir(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

/// A tensor for [`write_safetensors`]: name, dtype name, shape, bytes.
pub type Raw = (String, &'static str, Vec<usize>, Vec<u8>);

pub fn write_safetensors(path: &Path, tensors: &[Raw]) {
    let mut header = serde_json::Map::new();
    let mut data = Vec::new();
    for (name, dtype, shape, bytes) in tensors {
        let begin = data.len();
        data.extend_from_slice(bytes);
        header.insert(
            name.clone(),
            serde_json::json!({"dtype": dtype, "shape": shape, "data_offsets": [begin, data.len()]}),
        );
    }
    let mut text = serde_json::to_vec(&header).unwrap();
    while text.len() % 8 != 0 {
        text.push(b' ');
    }
    let mut file = (text.len() as u64).to_le_bytes().to_vec();
    file.extend(text);
    file.extend(data);
    std::fs::write(path, file).unwrap();
}

pub fn f32_bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|x| x.to_le_bytes()).collect()
}

/// The tensors of a file as [`Raw`].
pub fn raw(path: &Path) -> Vec<Raw> {
    load(path)
        .into_iter()
        .map(|(name, t)| {
            let bytes = f32_bytes(&t.f32());
            (name, "F32", t.shape, bytes)
        })
        .collect()
}

/// A context on device 0; `None` where there is none, after saying so. With `FLASHRT_REQUIRE_CUDA` set that is a failure.
pub fn cuda() -> Option<flashrt_exec::Context> {
    match flashrt_exec::Context::cuda(0) {
        Ok(ctx) => Some(ctx),
        Err(e) if e.is_unavailable() && std::env::var_os("FLASHRT_REQUIRE_CUDA").is_none() => {
            let _ =
                std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("skipped: {e}\n"));
            None
        }
        Err(e) => panic!("{e}"),
    }
}
