//! Native libraries for tests: built with `cc`, each test with a copy of its own, so that unloading shows.
#![allow(dead_code)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::OnceLock;

use flashrt_runtime::{Error, ForeignLibrary, ForeignModel};

/// Folder for what tests build.
pub fn scratch() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
}

/// Compiles a C file into a shared library.
pub fn compile(source: &Path, out: &Path, extra: &[String]) {
    // Another test binary may do the same at the same time: only a whole file gets the name.
    let partial = out.with_extension(format!("so.{}", std::process::id()));
    let output = Command::new("cc")
        .args([
            "-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", "-g", "-shared", "-fPIC", "-o",
        ])
        .arg(&partial)
        .arg(source)
        .args(extra)
        .output()
        .expect("cc runs");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {text}", source.display());
    std::fs::rename(&partial, out).unwrap();
}

/// The checkout.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The fixture, compiled once a test binary.
fn fixture() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let source = root().join("src/runtime/tests/foreign/fixture.c");
        let out = scratch().join(format!("libfixture-{}.so", std::process::id()));
        compile(&source, &out, &[]);
        out
    })
}

/// The fixture with the other factory: an export and nothing else.
pub fn export_fixture() -> Native {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        let source = root().join("src/runtime/tests/foreign/fixture.c");
        let out = scratch().join(format!("libexport-{}.so", std::process::id()));
        compile(&source, &out, &["-DEXPORT_ONLY".to_owned()]);
        out
    });
    Native::copy_of(built)
}

/// A library file of a test's own, and the log that it writes.
pub struct Native {
    pub library: PathBuf,
    log: PathBuf,
}

impl Native {
    /// A copy of `library`.
    pub fn copy_of(library: &Path) -> Native {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
        let native = Native {
            library: scratch().join(format!("libnative-{number}.so")),
            log: scratch().join(format!("native-{number}.log")),
        };
        std::fs::copy(library, &native.library).unwrap();
        let _ = std::fs::remove_file(&native.log);
        native
    }

    /// A copy of the fixture.
    pub fn fixture() -> Native {
        Native::copy_of(fixture())
    }

    /// The fixture's configuration for a case.
    pub fn config(&self, case: &str) -> String {
        format!(r#"{{"case": "{case}", "log": "{}"}}"#, self.log.display())
    }

    /// Opens the fixture's case.
    pub fn open(&self, case: &str) -> Result<ForeignModel, Error> {
        ForeignLibrary::open(&self.library, &self.config(case))
    }

    /// How often the library wrote this line.
    pub fn count(&self, line: &str) -> usize {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        text.lines().filter(|l| *l == line).count()
    }

    /// True while the process has the library in memory.
    pub fn is_loaded(&self) -> bool {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let name = self.library.file_name().unwrap().to_str().unwrap();
        maps.contains(name)
    }
}

impl Drop for Native {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.library);
        let _ = std::fs::remove_file(&self.log);
    }
}

/// Opens a case that must be refused; the error's text.
pub fn refused(case: &str) -> String {
    let native = Native::fixture();
    let error = native.open(case).err();
    let error = error.unwrap_or_else(|| panic!("case {case} must be refused"));
    error.to_string()
}
