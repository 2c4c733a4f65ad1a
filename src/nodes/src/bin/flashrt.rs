//! The `flashrt` command.

fn main() -> std::process::ExitCode {
    flashrt_nodes::cli::main()
}
