//! Compilers, the libraries that cargo made beside this test, and a prefix that they are installed in.
#![allow(dead_code)]

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Warnings that a program of ours must not give.
pub const STRICT: &[&str] = &["-Wall", "-Wextra", "-Werror", "-pedantic"];

/// A folder of this crate.
pub fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The folder with `libflashrt_capi.so` and `.a`: cargo puts them beside the test programs that it builds.
pub fn built() -> PathBuf {
    let program = std::env::current_exe().expect("a running test has a path");
    let folder = program
        .parent()
        .expect("a file lies in a folder")
        .to_path_buf();
    for file in ["libflashrt_capi.so", "libflashrt_capi.a"] {
        assert!(
            folder.join(file).is_file(),
            "{} has no {file}",
            folder.display()
        );
    }
    folder
}

/// An empty folder for the test `name`.
pub fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// Installs what cargo built below `prefix`, as packages do.
pub fn install(prefix: &Path) {
    let script = here("../../tools/capi/install.sh");
    run(Command::new(script).arg("--from").arg(built()).arg(prefix));
}

/// Runs a command that must succeed; its output.
pub fn run(command: &mut Command) -> String {
    let output = output(command);
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).trim().to_string()
}

/// Runs a command; fails only if it could not start.
pub fn output(command: &mut Command) -> Output {
    command
        .output()
        .unwrap_or_else(|e| panic!("{command:?} did not start: {e}"))
}

/// True if `program` is on the path.
pub fn is_there(program: impl AsRef<OsStr>) -> bool {
    Command::new(program)
        .arg("--version")
        .output()
        .is_ok_and(|output| output.status.success())
}

/// The C or C++ compilers of this machine with the standard to compile for: the usual one, and clang when it is there.
pub fn compilers(is_cpp: bool) -> Vec<Command> {
    let (variable, usual, clang, arguments) = match is_cpp {
        false => ("CC", "cc", "clang", ["-std=c11", "-xc"]),
        true => ("CXX", "c++", "clang++", ["-std=c++17", "-xc++"]),
    };
    let mut programs = vec![std::env::var(variable).unwrap_or_else(|_| usual.into())];
    if is_there(clang) {
        programs.push(clang.into());
    }
    let command = |program| {
        let mut command = Command::new(program);
        command.args(arguments).args(STRICT);
        command
    };
    programs.into_iter().map(command).collect()
}

/// The words that pkg-config prints for `arguments` in `prefix`.
pub fn pkg_config(prefix: &Path, arguments: &[&str]) -> Vec<String> {
    let words = run(Command::new("pkg-config")
        .env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"))
        .args(arguments));
    words.split_whitespace().map(String::from).collect()
}
