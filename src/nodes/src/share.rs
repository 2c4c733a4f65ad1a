//! Where the package's shared files (configurations, weights) lie.

use std::path::{Path, PathBuf};

/// The folder that `$share` stands for in a deployment file: beside the installed program, else of an installed package in
/// `AMENT_PREFIX_PATH`, else the source checkout that the program was built in. `None`: none of these.
pub fn folder() -> Option<PathBuf> {
    let program = std::env::current_exe()
        .ok()
        .and_then(|p| p.canonicalize().ok());
    let above: Vec<&Path> = program.iter().flat_map(|p| p.ancestors().skip(1)).collect();
    let prefixes = std::env::var_os("AMENT_PREFIX_PATH").unwrap_or_default();
    let installed = above
        .iter()
        .map(|p| p.to_path_buf())
        .chain(std::env::split_paths(&prefixes));
    let checkout = above
        .iter()
        .filter(|p| p.join("msg/ResultCode.msg").is_file());
    installed
        .map(|p| p.join("share/flashrt_ros"))
        .chain(checkout.map(|p| p.to_path_buf()))
        .find(|p| p.join("package.xml").is_file())
}
