//! After a failure that spoils the driver's context, every call says so and what to do. Alone in its
//! binary: nothing else can use the device in this process afterwards.
#![cfg(feature = "cuda")]

#[path = "support/cuda.rs"]
mod support;

use cudarc::driver::sys;
use flashrt_exec::Error;
use std::ffi::CString;
use std::ptr::null_mut;
use support::{device, fill_graph, host, open, S0};

/// Writes to address 16, which is nobody's.
const PTX: &str = "
.version 7.0
.target sm_75
.address_size 64
.visible .entry wild()
{
    .reg .u64 %address;
    .reg .u32 %value;
    mov.u64 %address, 16;
    mov.u32 %value, 1;
    st.global.u32 [%address], %value;
    ret;
}
";

#[test]
fn every_later_call_is_refused_with_the_cause_and_drops_are_safe() {
    let Some(ctx) = open() else { return };
    let (a, b) = (device(&ctx, "a", 64), host(&ctx, "b", 64));
    let graph = fill_graph(&ctx, "fill", &a, 1);
    let event = ctx.event().unwrap();
    ctx.record(&event, S0).unwrap();

    let (text, name) = (CString::new(PTX).unwrap(), CString::new("wild").unwrap());
    let (mut module, mut function) = (null_mut(), null_mut());
    let stream = ctx.raw_stream(S0).unwrap().cast();
    // SAFETY: the context is current and the texts end in a zero; the kernel takes no arguments. What it
    // does to the device is the point of this test.
    unsafe {
        assert_eq!(
            sys::cuModuleLoadData(&mut module, text.as_ptr().cast()),
            sys::CUresult::CUDA_SUCCESS
        );
        assert_eq!(
            sys::cuModuleGetFunction(&mut function, module, name.as_ptr()),
            sys::CUresult::CUDA_SUCCESS
        );
        let answer = sys::cuLaunchKernel(
            function,
            1,
            1,
            1,
            1,
            1,
            1,
            0,
            stream,
            null_mut(),
            null_mut(),
        );
        assert_eq!(answer, sys::CUresult::CUDA_SUCCESS);
    }

    let first = ctx.synchronize(S0).unwrap_err().to_string();
    assert!(first.contains("CUDA_ERROR_ILLEGAL_ADDRESS"), "{first}");
    let calls: [(&str, Result<(), Error>); 12] = [
        ("synchronize", ctx.synchronize(S0)),
        ("synchronize_all", ctx.synchronize_all()),
        ("replay", graph.replay(0, S0)),
        ("copy", ctx.copy(&a.all(), &b.all(), S0)),
        ("fill", ctx.fill(&a.all(), 1, S0)),
        ("record", ctx.record(&event, S0)),
        ("wait", ctx.wait(S0, &event)),
        ("query", ctx.query(&event).map(drop)),
        ("download", ctx.download(&a.all(), &mut [0; 64])),
        (
            "alloc",
            ctx.alloc("late", flashrt_exec::Space::Device, 8).map(drop),
        ),
        ("stream", ctx.stream(0).map(drop)),
        ("enqueue", ctx.enqueue(S0, |r| r.fill(&a.all(), 1))),
    ];
    for (call, result) in calls {
        let error = result.unwrap_err();
        assert_eq!(error.code(), -5, "{call}: {error}");
        let text = error.to_string();
        assert!(
            text.starts_with(&format!("cuda backend, {call}: device 0 is lost")),
            "{text}"
        );
        assert!(text.contains("CUDA_ERROR_ILLEGAL_ADDRESS"), "{text}");
        assert!(text.contains("restart the process"), "{text}");
    }
    let capture = graph.capture::<Error>(1, |r| r.fill(&a.all(), 2));
    assert!(capture.unwrap_err().to_string().contains("restart"));

    // Host memory stays readable, and nothing hangs or crashes on the way out.
    b.host_write(0, &[1, 2]).unwrap();
    let mut out = [0; 2];
    b.host_read(0, &mut out).unwrap();
    assert_eq!(out, [1, 2]);
    drop((graph, event, a, b, ctx));
}
