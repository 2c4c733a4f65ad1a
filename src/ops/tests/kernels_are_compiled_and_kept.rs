//! Compiling kernels: ahead of time without a GPU, at first use with one, and what is said where it cannot be done.
//!
//! What needs NVRTC is skipped without it; `tools/check.sh` gives its path in FLASHRT_NVRTC.
#![cfg(feature = "cuda")]

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::{cuda, poisoned, run, tensor};
use flashrt_exec::{Space, StreamId};
use flashrt_ops::{compile_ahead, identity, prepare, rms_norm, Error, KernelSet};

const NVRTC: &str = "FLASHRT_NVRTC";
const CACHE: &str = "FLASHRT_KERNEL_CACHE";
/// Files of `kernels/`.
const FILES: usize = 13;
const NOWHERE: &str = "/nonexistent/libnvrtc.so";

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("flashrt-ops-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// Runs the test `name` of this file, which is ignored otherwise, in a process of its own.
fn child(name: &str, variables: &[(&str, &str)]) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--ignored", "--nocapture"]);
    let output = command.envs(variables.iter().copied()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}"
    );
    text
}

fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap());
    let mut files: Vec<_> = entries
        .map(|e| {
            (
                e.file_name().to_string_lossy().into_owned(),
                std::fs::read(e.path()).unwrap(),
            )
        })
        .collect();
    files.sort();
    files
}

#[test]
fn every_file_compiles_ahead_to_the_same_bytes() {
    let (first, second) = (folder("first"), folder("second"));
    for arch in ["sm_87", "sm_90", "sm_120"] {
        match compile_ahead(arch, &first) {
            Err(Error::NoCompiler { reason }) if std::env::var_os(NVRTC).is_none() => {
                eprintln!("skipped: {reason}");
                return;
            }
            count => assert_eq!(count.unwrap(), FILES),
        }
    }
    compile_ahead("sm_90", &second).unwrap();
    let of_90 = |all: Vec<(String, Vec<u8>)>| {
        all.into_iter()
            .filter(|f| f.0.contains("-sm_90-"))
            .collect::<Vec<_>>()
    };
    assert_eq!(files(&first).len(), 3 * FILES);
    assert_eq!(of_90(files(&first)), files(&second));
    let unknown = compile_ahead("sm_1", &second).unwrap_err().to_string();
    assert!(unknown.contains("for sm_1 with NVRTC-"), "{unknown}");
    for folder in [first, second] {
        std::fs::remove_dir_all(folder).unwrap();
    }
}

#[test]
fn without_a_compiler_the_error_says_where_it_was_looked_for_and_how_to_help() {
    child("no_compiler", &[(NVRTC, NOWHERE), (CACHE, "")]);
}

#[test]
#[ignore = "run by another test in a process of its own"]
fn no_compiler() {
    let folder = folder("none");
    let text = compile_ahead("sm_90", &folder).unwrap_err().to_string();
    for word in ["NVRTC is not found", NOWHERE, NVRTC, CACHE] {
        assert!(text.contains(word), "{text}");
    }
    // It may be installed meanwhile: nothing of the failure is kept, and a GPU without kernels is a GPU all the same.
    assert_eq!(
        compile_ahead("sm_90", &folder).unwrap_err().to_string(),
        text
    );
    if let Some(ctx) = cuda() {
        let error = prepare(&ctx, KernelSet::F32).unwrap_err().to_string();
        assert!(error.contains("NVRTC is not found"), "{error}");
        ctx.alloc("still usable", Space::Device, 16).unwrap();
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn what_was_compiled_ahead_runs_without_a_compiler() {
    let Some(ctx) = cuda() else { return };
    let folder = folder("ahead");
    compile_ahead(ctx.isa(), &folder).unwrap();
    let path = folder.to_str().unwrap();
    child("runs", &[(NVRTC, NOWHERE), (CACHE, path)]);
    // A damaged file is no file; with a compiler it is made anew.
    let whole = files(&folder);
    for (name, bytes) in &whole {
        std::fs::write(folder.join(name), &bytes[..bytes.len() - 1]).unwrap();
    }
    child("runs", &[(CACHE, path)]);
    assert_eq!(files(&folder), whole);
    std::fs::remove_dir_all(&folder).unwrap();
    // And a folder that cannot be made is none.
    child("runs", &[(CACHE, "/proc/flashrt")]);
}

#[test]
#[ignore = "run by another test in a process of its own"]
fn runs() {
    let Some(ctx) = cuda() else { return };
    prepare(&ctx, KernelSet::F32).unwrap();
    let name = identity(&ctx, KernelSet::F32).unwrap().unwrap();
    assert!(name.starts_with(&format!("{} NVRTC-", ctx.isa())), "{name}");
    let (x, w, out) = (
        tensor(&ctx, &[1, 2], &[3.0, 4.0]),
        tensor(&ctx, &[2], &[0.0, 1.0]),
        poisoned(&ctx, &[1, 2]),
    );
    run(&ctx, |r| rms_norm(r, &x, &w, 0.0, &out));
    let got = out.download_f32(&ctx).unwrap();
    // 5/√2 is the root of the mean square.
    assert!(
        (got[0] - 0.848_528).abs() < 1e-6 && (got[1] - 2.262_742).abs() < 1e-6,
        "{got:?}"
    );
}

#[test]
fn case_154_a_first_use_inside_a_capture_works_and_a_prepared_capture_takes_no_memory() {
    let Some(ctx) = cuda() else { return };
    let (x, w, out) = (
        tensor(&ctx, &[8, 64], &[1.0; 512]),
        tensor(&ctx, &[64], &[0.0; 64]),
        poisoned(&ctx, &[8, 64]),
    );
    let record = |key| {
        let graph = ctx.graph("norm", 0).unwrap();
        graph
            .capture::<Error>(key, |r| rms_norm(r, &x, &w, 0.0, &out))
            .unwrap();
        graph
    };
    // The kernels of this context are loaded by this capture.
    record(0).replay(0, StreamId(0)).unwrap();
    assert_eq!(out.download_f32(&ctx).unwrap(), [1.0; 512]);
    prepare(&ctx, KernelSet::F32).unwrap();
    let before = ctx.memory();
    let graph = record(1);
    for _ in 0..100 {
        graph.replay(1, StreamId(0)).unwrap();
    }
    ctx.synchronize_all().unwrap();
    assert_eq!(ctx.memory(), before);
}
