//! `flashrt replay`: a recorded bag, offline.

use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{anyhow, bail, Context as _, Result};
use flashrt_session::bag::{McapSink, McapSource};
use flashrt_session::replay::{replay, ReplayOptions, ReplayReport};
use flashrt_session::Config;

use super::output::say;

/// Mismatches that are printed one by one.
const SHOWN: usize = 10;

/// Replays `bag` into `out`. Exit code 3 if any action differs from what the tick log says.
///
/// `out` appears only when it is complete.
///
/// # Errors
/// A file cannot be read or written, or does not fit the deployment.
pub fn run(config: &Path, bag: &Path, out: &Path, node: Option<&str>) -> Result<ExitCode> {
    let config =
        Config::load(config, crate::share::folder().as_deref()).map_err(|e| anyhow!("{e}"))?;
    let bag = mcap_in(bag)?;
    if out.is_dir() {
        bail!("cannot write {}: it is a folder", out.display());
    }
    if let (Ok(from), Ok(to)) = (bag.canonicalize(), out.canonicalize()) {
        if from == to {
            bail!(
                "--bag and --out are the same file, {}: the recording would be lost",
                bag.display()
            );
        }
    }
    let mut source = McapSource::open(&bag)?;
    let options = ReplayOptions {
        tick_log_topic: node.map(|name| format!("/{}/tick_log", name.trim_matches('/'))),
    };

    let partial = beside(out);
    let report = write(&partial, |sink| {
        replay(config, &options, &mut source, sink)
            .with_context(|| format!("replay of {}", bag.display()))
    });
    let report = match report {
        Ok(report) => report,
        Err(error) => {
            // The reason of the failure matters more than a file that stays.
            let _ = std::fs::remove_file(&partial);
            return Err(error);
        }
    };
    std::fs::rename(&partial, out)
        .with_context(|| format!("cannot move the result to {}", out.display()))?;
    print(&report, out)?;
    Ok(if report.mismatches.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(super::EXIT_NO)
    })
}

fn write(
    path: &Path,
    fill: impl FnOnce(&mut McapSink<BufWriter<File>>) -> Result<ReplayReport>,
) -> Result<ReplayReport> {
    let file = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
    let mut sink = McapSink::new(BufWriter::new(file))?;
    let report = fill(&mut sink)?;
    sink.into_inner()
        .into_inner()
        .map_err(|e| anyhow!("cannot write {}: {}", path.display(), e.error()))?;
    Ok(report)
}

/// `out` with `.partial` behind its name.
fn beside(out: &Path) -> PathBuf {
    let mut name = out.as_os_str().to_owned();
    name.push(".partial");
    name.into()
}

/// The bag's file: itself, or the only one in a rosbag2 folder.
fn mcap_in(bag: &Path) -> Result<PathBuf> {
    if !bag.is_dir() {
        return Ok(bag.into());
    }
    let entries =
        std::fs::read_dir(bag).with_context(|| format!("cannot read {}", bag.display()))?;
    let mut found: Vec<PathBuf> = entries
        .filter_map(|entry| entry.ok().map(|e| e.path()))
        .filter(|path| path.extension().is_some_and(|e| e == "mcap"))
        .collect();
    match (found.pop(), found.len()) {
        (Some(file), 0) => Ok(file),
        (None, _) => bail!("no .mcap file in {}", bag.display()),
        (Some(_), more) => bail!("{} has {} .mcap files: name one", bag.display(), more + 1),
    }
}

fn print(report: &ReplayReport, out: &Path) -> Result<()> {
    say!("followed {}", report.tick_log_topic);
    say!(
        "{} ticks, {} operations, {} chunks written to {}; {} ticks were refused live and skipped",
        report.ticks,
        report.operations,
        report.chunks,
        out.display(),
        report.refused
    );
    for m in report.mismatches.iter().take(SHOWN) {
        say!(
            "tick {} of {}: actions {:016x}, in the log {:016x}",
            m.tick,
            m.session,
            m.got,
            m.expected
        );
    }
    let count = report.mismatches.len();
    say!(
        "{}",
        if count == 0 {
            "exact: every action hash is that of the log".into()
        } else {
            format!("NOT exact: {count} ticks differ")
        }
    );
    Ok(())
}
