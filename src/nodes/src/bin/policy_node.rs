//! The policy node. Exit codes: 0 after SIGINT or SIGTERM, 1 on an error, 130 after a second signal.

fn main() -> std::process::ExitCode {
    match flashrt_nodes::ros::node::run(std::env::args().collect()) {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("policy_node: {error:#}");
            std::process::ExitCode::FAILURE
        }
    }
}
