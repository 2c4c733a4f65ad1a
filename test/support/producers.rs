//! The example producers, built for tests, and what they must answer.
//!
//! Included by path by tests of several crates. C: `cc` against the headers of the checkout and the library of this build.
//! Rust: cargo's example `rust_producer`, with the profile of the running test.
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

struct Built {
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
        run(Command::new("cc")
            .args([
                "-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", "-g", "-shared", "-fPIC",
            ])
            .args(["-fvisibility=hidden", "-o"])
            .arg(&c)
            .arg(root().join("src/capi/examples/c_producer/toy_policy.c"))
            .arg("-I")
            .arg(root().join("src/capi/include"))
            .arg(format!("-L{}", folder.display()))
            .args(["-l:libflashrt.so.0", "-lm"])
            .arg(format!("-Wl,-rpath,{}", folder.display())));
        Built {
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
}

/// Both.
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
