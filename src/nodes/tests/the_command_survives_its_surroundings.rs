//! `flashrt` with closed pipes, full disks, folders for files and numbers without sense: an exit code, never a panic.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const DEMO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../config/so101_demo.yaml");

fn folder(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&path).unwrap();
    path
}

/// Exit code and stderr, with this stdout.
fn run(arguments: &[&str], stdout: Stdio) -> (Option<i32>, String) {
    let out = Command::new(env!("CARGO_BIN_EXE_flashrt"))
        .args(arguments)
        .stdout(stdout)
        .output()
        .expect("the command runs");
    (
        out.status.code(),
        String::from_utf8_lossy(&out.stderr).into_owned(),
    )
}

/// A pipe whose reader is gone.
fn broken_pipe() -> Stdio {
    let mut reader = Command::new("true").stdin(Stdio::piped()).spawn().unwrap();
    let pipe = reader.stdin.take().unwrap();
    reader.wait().unwrap();
    Stdio::from(pipe)
}

#[test]
fn a_reader_that_went_away_is_no_error() {
    for arguments in [
        &["config-keys"][..],
        &["parameters"],
        &["codes"],
        &["describe", DEMO, "--identity"],
    ] {
        let (code, stderr) = run(arguments, broken_pipe());
        assert_eq!((code, stderr.as_str()), (Some(0), ""), "{arguments:?}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_is_exit_code_1() {
    let full = File::options().write(true).open("/dev/full").unwrap();
    let (code, stderr) = run(&["config-keys"], full.into());
    assert_eq!(code, Some(1), "{stderr}");
    assert!(stderr.contains("cannot write to stdout"), "{stderr}");
}

#[test]
fn a_stderr_that_nobody_reads_is_no_panic() {
    let status = Command::new(env!("CARGO_BIN_EXE_flashrt"))
        .args(["describe", "/nonexistent.yaml"])
        .stderr(broken_pipe())
        .status()
        .unwrap();
    assert_eq!(status.code(), Some(1));
}

#[test]
fn counts_without_sense_are_refused_by_the_command_line() {
    for count in ["0", "-1", "18446744073709551615", "1e3", "99999999999"] {
        let (code, stderr) = run(
            &[
                "bench",
                "tick",
                "--config",
                DEMO,
                &format!("--count={count}"),
            ],
            Stdio::null(),
        );
        assert_eq!(code, Some(2), "{count}: {stderr}");
    }
}

#[test]
fn a_recording_is_never_overwritten_by_its_replay() {
    let folder = folder("replay-onto-itself");
    let bag = folder.join("bag.mcap");
    std::fs::write(&bag, b"precious").unwrap();
    let path = bag.to_str().unwrap();
    let link = folder.join("link.mcap");
    let _ = std::fs::remove_file(&link);
    std::os::unix::fs::symlink(&bag, &link).unwrap();
    for (from, to) in [(path, path), (folder.to_str().unwrap(), path)] {
        // A folder with two bags is refused for that already.
        let (code, stderr) = run(
            &["replay", "--config", DEMO, "--bag", from, "--out", to],
            Stdio::null(),
        );
        assert_eq!(code, Some(1), "{stderr}");
    }
    let (code, stderr) = run(
        &[
            "replay",
            "--config",
            DEMO,
            "--bag",
            link.to_str().unwrap(),
            "--out",
            path,
        ],
        Stdio::null(),
    );
    assert_eq!(code, Some(1));
    assert!(stderr.contains("the same file"), "{stderr}");
    assert_eq!(std::fs::read(&bag).unwrap(), b"precious");
}

#[test]
fn a_failed_replay_leaves_nothing_behind() {
    let folder = folder("replay-of-nonsense");
    let (bag, out) = (
        folder.join("in").with_extension("mcap"),
        folder.join("out.mcap"),
    );
    for (what, bytes) in [
        ("nothing", &b""[..]),
        ("text", b"hello"),
        ("only the magic", b"\x89MCAP0\r\n"),
        (
            "a record without end",
            b"\x89MCAP0\r\n\x05\xff\xff\xff\xff\xff\xff\xff\xff",
        ),
    ] {
        std::fs::write(&bag, bytes).unwrap();
        let arguments = [
            "replay",
            "--config",
            DEMO,
            "--bag",
            bag.to_str().unwrap(),
            "--out",
            out.to_str().unwrap(),
        ];
        let (code, stderr) = run(&arguments, Stdio::null());
        assert_eq!(code, Some(1), "{what}: {stderr}");
        assert!(stderr.contains(bag.to_str().unwrap()), "{what}: {stderr}");
        let left: Vec<_> = std::fs::read_dir(&folder)
            .unwrap()
            .map(|e| e.unwrap().file_name())
            .collect();
        assert_eq!(left, ["in.mcap"], "{what}");
    }
    let (code, stderr) = run(
        &[
            "replay",
            "--config",
            DEMO,
            "--bag",
            bag.to_str().unwrap(),
            "--out",
            folder.to_str().unwrap(),
        ],
        Stdio::null(),
    );
    assert_eq!(code, Some(1));
    assert!(stderr.contains("is a folder"), "{stderr}");
}
