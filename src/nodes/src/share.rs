//! Where the package's shared files (configurations, weights) lie.

use std::path::{Path, PathBuf};

/// The folder that `$share` stands for in a deployment file: beside the installed program, else of an installed package in
/// `AMENT_PREFIX_PATH`, else the source checkout that the program was built in. `None`: none of these.
pub fn folder() -> Option<PathBuf> {
    let program = std::env::current_exe()
        .ok()
        .and_then(|p| p.canonicalize().ok());
    let above: Vec<PathBuf> = program
        .iter()
        .flat_map(|p| p.ancestors().skip(1))
        .map(Path::to_path_buf)
        .collect();
    let prefixes = std::env::var_os("AMENT_PREFIX_PATH").unwrap_or_default();
    let installed = above
        .iter()
        .cloned()
        .chain(std::env::split_paths(&prefixes))
        .map(|p| p.join("share/flashrt_ros"));
    let checkout = above
        .iter()
        .cloned()
        .filter(|p| p.join("msg/ResultCode.msg").is_file());
    installed
        .chain(checkout)
        .find(|p| p.join("package.xml").is_file())
}
