//! The example producers, built for tests, and what they must answer.
//!
//! Included by path by tests of several crates. C: `cc` against the headers of the checkout and the library of this build.
//! Rust: cargo's example `rust_producer`, with the profile of the running test. A third one is the C producer with the
//! library inside, which shows the published execution symbols only.
#![allow(dead_code)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::OnceLock;

/// The checkout.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}

/// Execution symbols that every library of the interface has. Ours has more.
const PUBLISHED: &str = "frt_ctx_create frt_ctx_destroy frt_ctx_stream frt_ctx_wrap_stream frt_ctx_event frt_event_destroy \
    frt_event_record frt_stream_wait frt_buffer_alloc frt_buffer_wrap frt_buffer_dptr frt_buffer_bytes frt_buffer_name \
    frt_buffer_copy frt_graph_create frt_graph_destroy frt_graph_capture frt_graph_adopt frt_graph_bind frt_graph_replay \
    frt_graph_has_variant frt_graph_evict frt_graph_evict_lru frt_graph_variant_count frt_plan_create frt_plan_destroy \
    frt_plan_add frt_plan_after frt_plan_execute frt_plan_sync frt_model_runtime_open_v1";

/// The C producer with the other factory alone: its export, without ports and plan.
const EXPORT: &str = "#define frt_model_runtime_open_v1 open_model
#include \"toy_policy.c\"
EXPORT int frt_runtime_open_v1(const char* config_json, frt_runtime_export_v1** out) {
  frt_model_runtime_v1* model = NULL;
  int code = open_model(config_json, &model);
  *out = model ? (frt_runtime_export_v1*)model->exp : NULL;
  return code;
}
";

struct Built {
    export: PathBuf,
    published: PathBuf,
    c: PathBuf,
    rust: PathBuf,
}

fn run(command: &mut Command) {
    let output = command
        .output()
        .unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {text}");
}

/// Both producers, built once a test binary.
fn built() -> &'static Built {
    static BUILT: OnceLock<Built> = OnceLock::new();
    BUILT.get_or_init(|| {
        // target/<profile>/deps/<this program>
        let program = std::env::current_exe().unwrap();
        let profile = program.parent().and_then(Path::parent).unwrap();
        let name = match profile.file_name().and_then(|n| n.to_str()) {
            Some("debug") | None => "test",
            Some(other) => other,
        };
        run(Command::new(env!("CARGO"))
            .args([
                "build",
                "--locked",
                "--quiet",
                "--profile",
                name,
                "-p",
                "flashrt-capi",
            ])
            .args(["--lib", "--example", "rust_producer"])
            .arg("--target-dir")
            .arg(profile.parent().unwrap())
            .current_dir(root()));
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("producers-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        // The name that the loader asks for.
        let library = folder.join("libflashrt.so.0");
        std::fs::copy(profile.join("libflashrt_capi.so"), &library).unwrap();
        let c = folder.join("libtoy_policy.so");
        let toy_source = root().join("src/capi/examples/c_producer/toy_policy.c");
        let toy = |source: &Path, out: &Path| {
            let mut cc = Command::new("cc");
            cc.args([
                "-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", "-g", "-shared", "-fPIC",
            ])
            .arg("-o")
            .arg(out)
            .arg(source)
            .arg("-I")
            .arg(root().join("src/capi/include"));
            cc
        };
        run(toy(&toy_source, &c)
            .arg("-fvisibility=hidden")
            .arg(&library)
            .arg("-lm")
            .arg(format!("-Wl,-rpath,{}", folder.display())));
        let published = folder.join("libpublished.so");
        let map = folder.join("published.map");
        let names = PUBLISHED.replace(' ', "; ");
        std::fs::write(&map, format!("{{ global: {names}; local: *; }};")).unwrap();
        run(toy(&toy_source, &published)
            .arg(profile.join("libflashrt_capi.a"))
            .arg(format!("-Wl,--version-script={}", map.display()))
            .args(["-lgcc_s", "-lutil", "-lrt", "-lpthread", "-lm", "-ldl"]));
        let export = folder.join("libexport.so");
        let export_source = folder.join("export.c");
        std::fs::write(&export_source, EXPORT).unwrap();
        run(toy(&export_source, &export)
            .arg("-I")
            .arg(root().join("src/capi/examples/c_producer"))
            .arg("-fvisibility=hidden")
            .arg(&library)
            .arg("-lm")
            .arg(format!("-Wl,-rpath,{}", folder.display())));
        Built {
            export,
            published,
            c,
            rust: profile.join("examples/librust_producer.so"),
        }
    })
}

/// Which example.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Which {
    C,
    Rust,
    /// The C one, with an execution library of published symbols only.
    Published,
    /// The C one's export alone.
    Export,
}

/// Both languages.
pub const BOTH: [Which; 2] = [Which::C, Which::Rust];
/// Every plan that they know.
pub const PLANS: [&str; 4] = ["graph", "opaque", "mixed", "step"];

/// A copy of a producer's library under a name of its own, so that loading and unloading shows.
pub struct Library {
    pub path: PathBuf,
}

impl Library {
    pub fn of(which: Which) -> Library {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let from = match which {
            Which::C => &built().c,
            Which::Rust => &built().rust,
            Which::Published => &built().published,
            Which::Export => &built().export,
        };
        let number = NEXT.fetch_add(1, Relaxed);
        let path = built()
            .c
            .with_file_name(format!("lib{which:?}-{number}.so"));
        std::fs::copy(from, &path).unwrap();
        Library { path }
    }

    /// True while the process has it in memory.
    pub fn is_loaded(&self) -> bool {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        maps.contains(self.path.to_str().unwrap())
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// What a producer of the default sizes answers, computed from the description in `toy_policy.c`, in other words: noise is
/// kept as whole 1024ths.
#[derive(Clone, Debug, PartialEq)]
pub struct Oracle {
    pub state: Vec<f32>,
    /// Sum of all bytes of the image slot.
    pub image: u64,
    pub prompt: Vec<u8>,
    /// Noise times 1024.
    pub noise: Vec<i64>,
}

/// Rows of a chunk.
pub const HORIZON: usize = 4;
/// Values of a row.
pub const DIM: usize = 6;
/// Pixels of a side of the image slot.
pub const SIDE: usize = 8;

impl Oracle {
    pub fn new(seed: i64) -> Oracle {
        let count = (HORIZON * DIM) as i64;
        Oracle {
            state: vec![0.0; DIM],
            image: 0,
            prompt: Vec::new(),
            noise: (0..count)
                .map(|i| (seed * 31 + 7 * i).rem_euclid(1024))
                .collect(),
        }
    }

    /// An image of the slot's size, every byte the same.
    pub fn set_image(&mut self, value: u8) {
        self.image = u64::from(value) * (SIDE * SIDE * 3) as u64;
    }

    /// The noise as a SWAP window has it.
    pub fn noise_bytes(&self) -> Vec<u8> {
        let floats = self.noise.iter().map(|n| *n as f32 / 1024.0);
        floats.flat_map(f32::to_le_bytes).collect()
    }

    pub fn tick(&mut self) -> Vec<f32> {
        let bright = (self.image % 256) as f32 / 256.0;
        let words: u64 = (1u64..)
            .zip(&self.prompt)
            .map(|(i, b)| i * u64::from(*b))
            .sum();
        let word = (words % 1024) as f32 / 1024.0;
        let mut chunk = Vec::with_capacity(self.noise.len());
        for (i, n) in self.noise.iter_mut().enumerate() {
            chunk.push(self.state[i % DIM] + bright + word + *n as f32 / 1024.0);
            *n = (*n * 5 + i as i64 + 1).rem_euclid(1024);
        }
        chunk
    }

    pub fn tick_bytes(&mut self) -> Vec<u8> {
        self.tick().into_iter().flat_map(f32::to_le_bytes).collect()
    }
}
