//! Compiled kernels on disk, so that a robot compiles once, or never.
//!
//! A file holds the code of one module for one architecture: `<name>-<arch>-<key>.cubin`. The key is a digest of source, header and
//! options, so a changed kernel has another file. Its content is `flashrt kernel 1\n`, the compiler's name, a line end, the SHA-256
//! of the code, the code. Files are written under another name and renamed; a file that does not fit is compiled again. A folder
//! that cannot be written only means that nothing is kept.

use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::nvrtc::{Nvrtc, OPTIONS};
use crate::device::{Module, COMMON, MODULES};
use crate::Error;

/// Environment variable with the folder; empty for none.
const FOLDER_VARIABLE: &str = "FLASHRT_KERNEL_CACHE";
const MAGIC: &[u8] = b"flashrt kernel 1\n";

/// Machine code, and what compiled it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Binary {
    pub(super) cubin: Vec<u8>,
    pub(super) compiler: String,
}

/// The code of `module` for `arch`: from the folder, or compiled now.
///
/// Without a compiler any compiler's file will do, with one only its own.
pub(super) fn binary(module: &Module, arch: &str) -> Result<Binary, Error> {
    let folder = folder();
    let kept = folder
        .as_deref()
        .and_then(|folder| read(&path(folder, module, arch)));
    let compiler = match (Nvrtc::get(), kept) {
        (Err(_), Some(kept)) => return Ok(kept),
        (Ok(compiler), Some(kept)) if kept.compiler == compiler.name() => return Ok(kept),
        (compiler, _) => compiler?,
    };
    let made = Binary {
        cubin: compiler.compile(module, arch)?,
        compiler: compiler.name(),
    };
    if let Some(folder) = folder {
        // Only time is lost without it.
        let _ = write(&path(&folder, module, arch), &made);
    }
    Ok(made)
}

/// Compiles every module for `arch` into `folder`; the number of files.
///
/// # Errors
/// Those of the compiler; [`Error::KernelFile`] when a file cannot be written.
pub(crate) fn compile_ahead(arch: &str, folder: &Path) -> Result<usize, Error> {
    let compiler = Nvrtc::get()?;
    for module in MODULES {
        let made = Binary {
            cubin: compiler.compile(module, arch)?,
            compiler: compiler.name(),
        };
        let path = path(folder, module, arch);
        write(&path, &made).map_err(|reason| Error::KernelFile {
            path: path.clone(),
            reason: reason.to_string(),
        })?;
    }
    Ok(MODULES.len())
}

fn folder() -> Option<PathBuf> {
    if let Some(given) = std::env::var_os(FOLDER_VARIABLE) {
        return (!given.is_empty()).then(|| given.into());
    }
    let of_user = |variable: &str| {
        std::env::var_os(variable)
            .filter(|v| !v.is_empty())
            .map(PathBuf::from)
    };
    let base =
        of_user("XDG_CACHE_HOME").or_else(|| of_user("HOME").map(|home| home.join(".cache")))?;
    Some(base.join("flashrt").join("kernels"))
}

fn path(folder: &Path, module: &Module, arch: &str) -> PathBuf {
    let mut key = Sha256::new();
    for part in [module.source, COMMON.1].into_iter().chain(OPTIONS) {
        key.update((part.len() as u64).to_le_bytes());
        key.update(part);
    }
    let key: String = key.finalize()[..12]
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect();
    let name = module.name.trim_end_matches(".cu");
    folder.join(format!("{name}-{arch}-{key}.cubin"))
}

/// `None` for a file that is not there, cannot be read, or is damaged.
fn read(path: &Path) -> Option<Binary> {
    let bytes = std::fs::read(path).ok()?;
    let rest = bytes.strip_prefix(MAGIC)?;
    let end = rest.iter().position(|&b| b == b'\n')?;
    let compiler = std::str::from_utf8(&rest[..end]).ok()?.to_owned();
    let (digest, cubin) = rest[end + 1..].split_at_checked(32)?;
    (digest == Sha256::digest(cubin).as_slice()).then(|| Binary {
        cubin: cubin.to_owned(),
        compiler,
    })
}

fn write(path: &Path, binary: &Binary) -> std::io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)?;
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(binary.compiler.as_bytes());
    bytes.push(b'\n');
    bytes.extend_from_slice(&Sha256::digest(&binary.cubin));
    bytes.extend_from_slice(&binary.cubin);
    // Two processes may compile at once: each has a name of its own, and the last one stays.
    let own = path.with_extension(format!("{}.new", std::process::id()));
    let written = std::fs::write(&own, &bytes).and_then(|()| std::fs::rename(&own, path));
    if written.is_err() {
        let _ = std::fs::remove_file(&own);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    static MODULE: Module = Module {
        name: "norm.cu",
        source: "a",
    };

    fn temporary(name: &str) -> PathBuf {
        let folder =
            std::env::temp_dir().join(format!("flashrt-kernels-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        folder
    }

    fn binary() -> Binary {
        Binary {
            cubin: (0..=255).collect(),
            compiler: "NVRTC-13.0".into(),
        }
    }

    #[test]
    fn what_was_written_is_read_back_and_nothing_else_is_left() {
        let folder = temporary("round");
        let path = path(&folder, &MODULE, "sm_90");
        assert_eq!(read(&path), None);
        write(&path, &binary()).unwrap();
        assert_eq!(read(&path), Some(binary()));
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_file_cut_at_any_length_or_with_any_byte_changed_is_not_used() {
        let folder = temporary("damage");
        let path = path(&folder, &MODULE, "sm_90");
        write(&path, &binary()).unwrap();
        let whole = std::fs::read(&path).unwrap();
        for length in 0..whole.len() {
            std::fs::write(&path, &whole[..length]).unwrap();
            assert_eq!(read(&path), None, "{length}");
        }
        let code = whole.len() - 256 - 32;
        for at in (0..MAGIC.len()).chain(code..whole.len()) {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            std::fs::write(&path, &changed).unwrap();
            assert_eq!(read(&path), None, "{at}");
        }
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn another_source_or_architecture_has_another_file() {
        let folder = Path::new("f");
        let other = Module {
            name: "norm.cu",
            source: "b",
        };
        let names = [
            path(folder, &MODULE, "sm_90"),
            path(folder, &MODULE, "sm_87"),
            path(folder, &other, "sm_90"),
        ];
        assert!(names[0] != names[1] && names[0] != names[2] && names[1] != names[2]);
        assert!(names[0].to_string_lossy().starts_with("f/norm-sm_90-"));
    }
}
