//! `frt_ctx_create` asks the environment, `frt_ctx_create_with` its arguments; what neither can give is null and a text.
//! One test, alone in its binary: it changes the environment.

mod exec_support;
use exec_support::*;

use flashrt_capi::*;
use std::env::{remove_var, set_var};
use std::ffi::{CStr, OsString};
use std::os::unix::ffi::OsStringExt;

fn backend(ctx: frt_ctx) -> i32 {
    assert!(!ctx.is_null(), "{}", last());
    // SAFETY: as for C.
    unsafe {
        let backend = frt_ctx_backend(ctx);
        frt_ctx_destroy(ctx);
        backend
    }
}

fn create() -> frt_ctx {
    // SAFETY: as for C.
    unsafe { frt_ctx_create() }
}

#[track_caller]
fn refused(ctx: frt_ctx, text: &str) {
    assert!(ctx.is_null());
    assert_eq!(last(), text);
}

#[test]
fn the_environment_or_the_number_decides() {
    let variables = ["FLASHRT_BACKEND", "FLASHRT_DEVICE", "FLASHRT_THREADS"];
    variables.iter().for_each(|v| remove_var(v));

    // By number.
    // SAFETY: as for C, here and below.
    let with = |kind, ordinal| unsafe { frt_ctx_create_with(kind, ordinal) };
    assert_eq!(backend(with(FRT_BACKEND_CPU, 0)), FRT_BACKEND_CPU);
    let cuda = with(FRT_BACKEND_CUDA, 0);
    let has_cuda = !cuda.is_null();
    if has_cuda {
        assert_eq!(backend(cuda), FRT_BACKEND_CUDA);
    } else {
        assert!(
            last().starts_with("frt_ctx_create_with: cuda backend is not available: "),
            "{}",
            last()
        );
    }
    refused(
        with(7, 0),
        "frt_ctx_create_with: kind: expected 0 (cpu) or 1 (cuda), got 7",
    );
    refused(
        with(FRT_BACKEND_CUDA, -3),
        "frt_ctx_create_with: device ordinal: expected 0 or more, got -3",
    );
    assert!(with(FRT_BACKEND_CUDA, 1 << 20).is_null());
    // Read on the CPU: no number at all.
    assert_eq!(backend(with(FRT_BACKEND_CPU, -3)), FRT_BACKEND_CPU);

    // By environment.
    let default = if has_cuda {
        FRT_BACKEND_CUDA
    } else {
        FRT_BACKEND_CPU
    };
    assert_eq!(backend(create()), default);
    set_var("FLASHRT_BACKEND", "");
    assert_eq!(backend(create()), default);
    set_var("FLASHRT_BACKEND", "cpu");
    assert_eq!(backend(create()), FRT_BACKEND_CPU);
    set_var("FLASHRT_BACKEND", "cuda");
    if has_cuda {
        assert_eq!(backend(create()), FRT_BACKEND_CUDA);
    } else {
        assert!(create().is_null());
        assert!(
            last().starts_with("frt_ctx_create: cuda backend is not available: "),
            "{}",
            last()
        );
    }
    set_var("FLASHRT_BACKEND", "tpu");
    refused(
        create(),
        "frt_ctx_create: FLASHRT_BACKEND: expected cpu or cuda, got \"tpu\"",
    );
    set_var("FLASHRT_BACKEND", OsString::from_vec(vec![0xff, 0xfe]));
    refused(
        create(),
        "frt_ctx_create: FLASHRT_BACKEND: expected cpu or cuda, got \"\\xFF\\xFE\"",
    );

    set_var("FLASHRT_BACKEND", "cpu");
    for (variable, bad) in [
        ("FLASHRT_DEVICE", "first"),
        ("FLASHRT_DEVICE", "-1"),
        ("FLASHRT_THREADS", "99999999999"),
        ("FLASHRT_THREADS", "two"),
    ] {
        set_var(variable, bad);
        let text = format!("frt_ctx_create: {variable}: expected a number from 0 on, got {bad:?}");
        refused(create(), &text);
        remove_var(variable);
    }
    set_var("FLASHRT_THREADS", "1000000");
    assert!(create().is_null());
    set_var("FLASHRT_THREADS", "2");
    assert_eq!(backend(create()), FRT_BACKEND_CPU);

    // SAFETY: a static text.
    let version = unsafe { CStr::from_ptr(frt_version()) };
    assert_eq!(version.to_str().unwrap(), env!("CARGO_PKG_VERSION"));
}
