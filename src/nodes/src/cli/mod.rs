//! The `flashrt` command. Needs no ROS.
//!
//! | Exit code | Meaning |
//! |---|---|
//! | 0 | done |
//! | 1 | failed; the reason is on the last line of stderr |
//! | 2 | the command line is not valid |
//! | 3 | done, but the answer is no: `verify` found the state not closed, `replay` gave other bytes than the log says |

pub mod bench;
pub mod describe;
pub mod output;
pub mod pipeline;
pub mod policy;
pub mod replay;
pub mod table;
pub mod verify;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use flashrt_session::ResultCode;

/// A finished command whose answer is no.
pub const EXIT_NO: u8 = 3;

/// Most repetitions of a benchmark.
const MAX_COUNT: i64 = 10_000_000;

const EXIT_CODES: &str =
    "Exit codes: 0 done; 1 failed, with the reason on stderr; 2 the command line is not valid; \
    3 done, but the answer is no (verify: not closed; replay: not exact)";

/// Looks at a deployment, checks it, replays what a robot recorded. No ROS needed.
#[derive(Parser)]
#[command(name = "flashrt", version, after_help = EXIT_CODES)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Ports, stages, identity and budgets of a deployment.
    Describe {
        /// Deployment file.
        config: PathBuf,
        /// The canonical identity text too.
        #[arg(long)]
        identity: bool,
    },
    /// Proves by experiment that a capsule holds the whole execution state; exit code 3 if it does not.
    Verify {
        /// Deployment file.
        config: PathBuf,
        /// The inner half of the check in a fresh process: restores this file, ticks, writes the output.
        #[arg(long, hide = true, num_args = 2, value_names = ["CAPSULE", "OUT"])]
        measure: Option<Vec<PathBuf>>,
    },
    /// Runs a recorded bag (mcap) offline, following its tick log; exit code 3 if any action differs from the log.
    Replay {
        /// Deployment file.
        #[arg(long)]
        config: PathBuf,
        /// Recorded bag: an .mcap file, or a rosbag2 folder that holds one.
        #[arg(long)]
        bag: PathBuf,
        /// Bag to write.
        #[arg(long)]
        out: PathBuf,
        /// Name of the node, when the bag has tick logs of several.
        #[arg(long)]
        node: Option<String>,
    },
    /// Measures; every number names machine, counts and what is timed.
    Bench {
        /// What to measure.
        #[arg(value_enum)]
        what: bench::What,
        /// Deployment file.
        #[arg(long)]
        config: PathBuf,
        /// Repetitions after warm-up.
        #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..=MAX_COUNT))]
        count: u32,
        /// JSON in place of a table.
        #[arg(long)]
        json: bool,
    },
    /// Compiles the GPU kernels ahead of time, for machines without a compiler: they find them by FLASHRT_KERNEL_CACHE. Needs
    /// NVRTC, no GPU.
    Kernels {
        /// Architecture, such as sm_87 (Orin), sm_89, sm_90, sm_110 (Thor) or sm_120; may be repeated.
        #[arg(long = "arch", required = true)]
        archs: Vec<String>,
        /// Folder to write to.
        #[arg(long)]
        out: PathBuf,
    },
    /// Every key of the deployment file, as a Markdown table.
    ConfigKeys,
    /// Every parameter of policy_node, as a Markdown table.
    Parameters,
    /// Every result code of the services.
    Codes,
}

/// Runs the command line.
pub fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(code) => code,
        Err(error) => {
            // Nobody may listen any more.
            let _ = writeln!(std::io::stderr(), "flashrt: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Arguments) -> Result<ExitCode> {
    match arguments.command {
        Command::Describe { config, identity } => describe::run(&config, identity)?,
        Command::Verify {
            config,
            measure: Some(files),
        } => verify::measure(&config, &files[0], &files[1])?,
        Command::Verify {
            config,
            measure: None,
        } => return verify::run(&config),
        Command::Replay {
            config,
            bag,
            out,
            node,
        } => return replay::run(&config, &bag, &out, node.as_deref()),
        Command::Bench {
            what,
            config,
            count,
            json,
        } => bench::run(what, &config, count as usize, json)?,
        Command::Kernels { archs, out } => {
            for arch in archs {
                let count = flashrt_models::builtin::compile_kernels(&arch, &out)?;
                output::print(format_args!("{arch}: {count} files in {}\n", out.display()))?;
            }
        }
        Command::ConfigKeys => {
            output::print(format_args!("{}", flashrt_session::config::docs_table()))?
        }
        Command::Parameters => output::print(format_args!("{}", parameters()))?,
        Command::Codes => output::print(format_args!("{}", codes()))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn parameters() -> String {
    let rows = crate::parameters::PARAMETERS.iter().map(|p| {
        let set = if p.is_dynamic {
            "at any time"
        } else {
            "at start"
        };
        vec![
            format!("`{}`", p.name),
            p.kind.into(),
            format!("`{}`", p.default),
            set.into(),
            p.meaning.into(),
        ]
    });
    table::markdown(&["Parameter", "Type", "Default", "Set", "Meaning"], rows)
}

fn codes() -> String {
    let rows = ResultCode::ALL
        .iter()
        .map(|code| vec![code.number().to_string(), code.name().into()]);
    table::plain(&["code", "name"], rows)
}
