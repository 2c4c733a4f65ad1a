//! The backend of this library: capsules of execution buffers, on every backend that the machine has.

mod capsule_support;
mod exec_support;
use capsule_support::{region, stage, text, ARG, BACKEND, DISK, FINGERPRINT, GPU, HOST, NOMEM, OK};
use exec_support::{buffer, capture_fill, graph, on_each_backend};
use flashrt_capi::*;
use std::ffi::c_int;
use std::mem::zeroed;
use std::ptr::{null, null_mut};

/// A capsule context over an execution context. Calls as C does: handles are live or checked, memory is live.
struct Capsules {
    table: cap_backend,
    ctx: cap_ctx,
}

impl Capsules {
    fn over(exec: frt_ctx, fingerprint: u64) -> Capsules {
        // SAFETY: all zero is a table without functions.
        let mut table = unsafe { zeroed() };
        // SAFETY: see the struct.
        let ctx = unsafe {
            assert_eq!(
                cap_backend_init_frt(&mut table, exec, fingerprint),
                OK,
                "{}",
                text()
            );
            cap_ctx_create(&table)
        };
        assert!(!ctx.is_null(), "{}", text());
        Capsules { table, ctx }
    }

    fn snapshot(&self, regions: &[cap_region], tier: c_int, stream: c_int) -> cap_capsule {
        let boundary = cap_boundary {
            regions: regions.as_ptr(),
            n_regions: regions.len() as c_int,
            meta: b"meta".as_ptr().cast(),
            meta_len: 4,
        };
        // SAFETY: see the struct.
        unsafe { cap_snapshot(self.ctx, &boundary, tier, stream) }
    }

    fn serialize(&self, capsule: cap_capsule) -> Vec<u8> {
        let mut len = 0;
        // SAFETY: see the struct.
        unsafe {
            assert_eq!(cap_serialize(self.ctx, capsule, null_mut(), &mut len), OK);
            let mut blob = vec![0; len];
            let out = blob.as_mut_ptr().cast();
            assert_eq!(
                cap_serialize(self.ctx, capsule, out, &mut len),
                OK,
                "{}",
                text()
            );
            blob
        }
    }
}

impl Drop for Capsules {
    fn drop(&mut self) {
        // SAFETY: see the struct.
        unsafe {
            cap_ctx_destroy(self.ctx);
            cap_backend_done_frt(&mut self.table);
        }
    }
}

fn fill(exec: frt_ctx, buffer: frt_buffer, bytes: &[u8]) {
    let src = bytes.as_ptr().cast();
    // SAFETY: live handles and memory.
    let status = unsafe { frt_buffer_upload(exec, buffer, 0, src, bytes.len(), 0) };
    assert_eq!(status, OK, "{}", text());
}

fn bytes(exec: frt_ctx, buffer: frt_buffer) -> Vec<u8> {
    // SAFETY: live handles and memory.
    unsafe {
        let mut out = vec![0; frt_buffer_bytes(buffer)];
        let status = frt_buffer_download(exec, buffer, 0, out.as_mut_ptr().cast(), out.len(), 0);
        assert_eq!(status, OK, "{}", text());
        out
    }
}

#[test]
fn a_state_is_frozen_moved_and_brought_back() {
    on_each_backend(|exec| {
        let capsules = Capsules::over(exec, 5);
        let live = buffer(exec, 8);
        fill(exec, live, b"abcdefgh");
        let g = graph(exec, 0);
        capture_fill(exec, g, 3, live, b'!');
        let regions = [
            region(live.cast(), 1, 3),
            region(live.cast(), 8, 0),
            region(live.cast(), 5, 2),
        ];
        // SAFETY: live handles and memory.
        unsafe {
            for tier in [GPU, HOST, DISK] {
                fill(exec, live, b"abcdefgh");
                let capsule = capsules.snapshot(&regions, tier, 0);
                assert!(!capsule.is_null(), "{}", text());
                assert_eq!(cap_fire(capsules.ctx, &stage(g.cast(), 3, 0)), OK);
                assert_eq!(cap_sync(capsules.ctx, 0), OK);
                assert_eq!(bytes(exec, live), b"!!!!!!!!");
                assert_eq!(cap_capsule_ready(capsules.ctx, capsule), OK);
                assert_eq!(cap_restore(capsules.ctx, capsule, 0), OK, "{}", text());
                assert_eq!(cap_sync(capsules.ctx, 0), OK);
                assert_eq!(bytes(exec, live), b"!bcd!fg!");
                for to in [HOST, GPU, DISK] {
                    assert_eq!(
                        cap_tier_move(capsules.ctx, capsule, to, 0),
                        OK,
                        "{}",
                        text()
                    );
                    let blob = capsules.serialize(capsule);
                    assert_eq!(blob[56..], *b"metabcdfg");
                }
                cap_capsule_drop(capsules.ctx, capsule);
            }
        }
    });
}

#[test]
fn a_blob_goes_to_another_context_of_the_same_fingerprint() {
    on_each_backend(|exec| {
        let live = buffer(exec, 4);
        fill(exec, live, b"tick");
        let blob = {
            let capsules = Capsules::over(exec, 5);
            let capsule = capsules.snapshot(&[region(live.cast(), 0, 4)], GPU, 0);
            capsules.serialize(capsule)
        };
        let other = exec_support::cpu();
        let branch = buffer(other, 6);
        let capsules = Capsules::over(other, 5);
        let strangers = Capsules::over(other, 6);
        // SAFETY: live handles and memory.
        unsafe {
            assert!(cap_load(strangers.ctx, blob.as_ptr().cast(), blob.len()).is_null());
            assert_eq!(cap_load_status(), FINGERPRINT);
            let capsule = cap_load(capsules.ctx, blob.as_ptr().cast(), blob.len());
            assert!(!capsule.is_null(), "{}", text());
            let window = region(branch.cast(), 1, 5);
            assert_eq!(cap_restore_into(capsules.ctx, capsule, &window, 1, 0), OK);
            assert_eq!(bytes(other, branch), b"\0tick\0");
            drop((capsules, strangers));
            frt_ctx_destroy(other);
        }
    });
}

#[test]
fn work_on_another_stream_is_in_the_blob_however_early() {
    on_each_backend(|exec| {
        let capsules = Capsules::over(exec, 5);
        let live = buffer(exec, 1 << 20);
        // SAFETY: live handles.
        unsafe {
            let side = frt_ctx_stream(exec, 0);
            assert_eq!(frt_buffer_fill(exec, live, 0, 7, 1 << 20, side), OK);
            let capsule = capsules.snapshot(&[region(live.cast(), 0, 1 << 20)], GPU, side);
            let blob = capsules.serialize(capsule);
            assert!(blob[44..].iter().all(|&byte| byte == 7));
        }
    });
}

#[test]
fn readiness_comes_with_polling_alone() {
    on_each_backend(|exec| {
        let capsules = Capsules::over(exec, 5);
        let live = buffer(exec, 64);
        let capsule = capsules.snapshot(&[region(live.cast(), 0, 64)], HOST, 0);
        for _ in 0..100_000_000 {
            // SAFETY: live handles.
            match unsafe { cap_capsule_ready(capsules.ctx, capsule) } {
                OK => return,
                pending => assert!(pending > 0, "{}", text()),
            }
        }
        panic!("still pending");
    });
}

#[test]
fn a_capsule_may_be_dropped_while_a_restore_still_reads_it() {
    on_each_backend(|exec| {
        let capsules = Capsules::over(exec, 5);
        let live = buffer(exec, 4096);
        fill(exec, live, &[1; 4096]);
        let capsule = capsules.snapshot(&[region(live.cast(), 0, 4096)], GPU, 0);
        fill(exec, live, &[2; 4096]);
        // SAFETY: live handles.
        unsafe {
            assert_eq!(cap_restore(capsules.ctx, capsule, 0), OK);
            cap_capsule_drop(capsules.ctx, capsule);
        }
        assert_eq!(bytes(exec, live), [1; 4096]);
    });
}

#[test]
fn a_tick_runs_stages_of_two_streams_in_order() {
    on_each_backend(|exec| {
        let capsules = Capsules::over(exec, 5);
        let (shared, out) = (buffer(exec, 8), buffer(exec, 8));
        let (produce, consume) = (graph(exec, 0), graph(exec, 0));
        capture_fill(exec, produce, 0, shared, 9);
        exec_support::capture(consume, 0, |_| {
            // SAFETY: live handles; recorded.
            let status = unsafe { frt_buffer_copy(exec, out, 0, shared, 0, 8, 0) };
            assert_eq!(status, OK);
        });
        // SAFETY: live handles and memory.
        unsafe {
            let side = frt_ctx_stream(exec, 0);
            let stages = [stage(produce.cast(), 0, side), stage(consume.cast(), 0, 0)];
            let deps = [[1, 0]];
            let schedule = cap_schedule {
                stages: stages.as_ptr(),
                n_stages: 2,
                deps: deps.as_ptr(),
                n_deps: 1,
            };
            let mut failed = 7;
            assert_eq!(
                cap_drive_tick(capsules.ctx, &schedule, 0, &mut failed),
                OK,
                "{}",
                text()
            );
            assert_eq!(failed, -1);
            assert_eq!(cap_sync(capsules.ctx, 0), OK);
        }
        assert_eq!(bytes(exec, out), [9; 8]);
    });
}

#[test]
fn a_swap_is_complete_and_inside_its_buffer() {
    on_each_backend(|exec| {
        let capsules = Capsules::over(exec, 5);
        let live = buffer(exec, 4);
        // SAFETY: live handles and memory.
        unsafe {
            assert_eq!(
                cap_swap(capsules.ctx, live.cast(), b"abc".as_ptr().cast(), 3, 0),
                OK
            );
            assert_eq!(
                cap_swap(capsules.ctx, live.cast(), b"abcde".as_ptr().cast(), 5, 0),
                ARG
            );
        }
        assert_eq!(bytes(exec, live), b"abc\0");
    });
}

#[test]
fn a_failure_passes_the_reason_on() {
    on_each_backend(|exec| {
        let capsules = Capsules::over(exec, 5);
        let live = buffer(exec, 4);
        let capsule = capsules.snapshot(&[region(live.cast(), 0, 4)], HOST, 0);
        // SAFETY: live handles.
        let status = unsafe { cap_restore(capsules.ctx, capsule, 99) };
        assert_eq!(status, BACKEND);
        assert!(
            text().starts_with(
                "cap_restore: `stream_wait` of the backend answered -1 (frt_stream_wait: "
            ),
            "{}",
            text()
        );
        // SAFETY: as above.
        let status = unsafe { cap_sync(capsules.ctx, 99) };
        assert_eq!(status, BACKEND);
        assert!(text().contains("(frt_stream_sync: "), "{}", text());
    });
}

#[test]
fn buffers_of_another_context_and_dead_ones_are_refused() {
    on_each_backend(|exec| {
        let capsules = Capsules::over(exec, 5);
        let other = exec_support::cpu();
        let theirs = buffer(other, 4);
        assert!(capsules
            .snapshot(&[region(theirs.cast(), 0, 4)], GPU, 0)
            .is_null());
        assert!(text().starts_with("cap_snapshot: `buffer_copy` of the backend answered -1"));
        let ours = buffer(exec, 4);
        let capsule = capsules.snapshot(&[region(ours.cast(), 0, 4)], GPU, 0);
        // SAFETY: live handles.
        unsafe {
            frt_ctx_destroy(other);
            assert_eq!(frt_buffer_free(ours), OK);
            assert_eq!(cap_restore(capsules.ctx, capsule, 0), ARG);
        }
        assert_eq!(
            text(),
            "cap_restore: region 0: 4 bytes at 0 of a buffer of 0"
        );
        assert!(capsules
            .snapshot(&[region(ours.cast(), 0, 4)], GPU, 0)
            .is_null());
        assert!(capsules
            .snapshot(&[region(theirs.cast(), 0, 4)], GPU, 0)
            .is_null());
    });
}

#[test]
fn a_backend_that_was_ended_fails_every_call_and_frees_what_is_left() {
    on_each_backend(|exec| {
        let mut capsules = Capsules::over(exec, 5);
        let live = buffer(exec, 4);
        let capsule = capsules.snapshot(&[region(live.cast(), 0, 4)], GPU, 0);
        let g = graph(exec, 0);
        capture_fill(exec, g, 0, live, 1);
        // SAFETY: live handles and memory.
        unsafe {
            let mut copy = capsules.table;
            cap_backend_done_frt(&mut capsules.table);
            assert!(capsules.table.self_.is_null());
            cap_backend_done_frt(&mut capsules.table);
            cap_backend_done_frt(&mut copy);
            assert_eq!(cap_ctx_fingerprint(capsules.ctx), 0);
            assert_eq!(cap_restore(capsules.ctx, capsule, 0), FINGERPRINT);
            assert_eq!(cap_tier_move(capsules.ctx, capsule, HOST, 0), NOMEM);
            assert!(
                text().contains("no live handle (backend of cap_backend_init_frt)"),
                "{}",
                text()
            );
            assert_eq!(cap_sync(capsules.ctx, 0), BACKEND);
            assert_eq!(cap_fire(capsules.ctx, &stage(g.cast(), 0, 0)), BACKEND);
            assert_eq!(
                cap_swap(capsules.ctx, live.cast(), b"x".as_ptr().cast(), 1, 0),
                BACKEND
            );
        }
    });
}

#[test]
fn capsules_outlive_an_execution_context_as_errors() {
    let exec = exec_support::cpu();
    let capsules = Capsules::over(exec, 5);
    let live = buffer(exec, 4);
    let capsule = capsules.snapshot(&[region(live.cast(), 0, 4)], GPU, 0);
    // SAFETY: live handles.
    unsafe {
        frt_ctx_destroy(exec);
        assert_eq!(cap_restore(capsules.ctx, capsule, 0), ARG);
        assert_eq!(cap_sync(capsules.ctx, 0), BACKEND);
        assert!(capsules.snapshot(&[], GPU, 0).is_null());
        cap_capsule_drop(capsules.ctx, capsule);
    }
}

#[test]
fn init_needs_room_and_a_live_context() {
    let exec = exec_support::cpu();
    // SAFETY: what is no pointer or handle is refused.
    unsafe {
        let mut table: cap_backend = zeroed();
        assert_eq!(cap_backend_init_frt(null_mut(), exec, 0), ARG);
        let odd = (&raw mut table).cast::<u8>().add(4).cast();
        assert_eq!(cap_backend_init_frt(odd, exec, 0), ARG);
        assert_eq!(cap_backend_init_frt(&mut table, null_mut(), 0), ARG);
        assert_eq!(text(), "cap_backend_init_frt: 0x0 is no execution context");
        assert!(table.self_.is_null());
        frt_ctx_destroy(exec);
        assert_eq!(cap_backend_init_frt(&mut table, exec, 0), ARG);
        cap_backend_done_frt(null_mut());
        cap_backend_done_frt(&mut table);
    }
}

#[test]
fn the_table_can_be_used_by_hand() {
    on_each_backend(|exec| {
        let capsules = Capsules::over(exec, 5);
        let table = &capsules.table;
        let this = table.self_;
        let mut memory = *b"host";
        let is_cpu = {
            // SAFETY: a live handle.
            unsafe { frt_ctx_backend(exec) == FRT_BACKEND_CPU }
        };
        // SAFETY: live handles and memory, and a whole table.
        unsafe {
            let wrap = table.buffer_wrap.unwrap();
            let host = wrap(this, null(), memory.as_mut_ptr().cast(), 4, 1);
            assert_eq!(host.is_null(), !is_cpu);
            let stream = table.stream.unwrap()(this, -1);
            assert!(stream > 0);
            let buffer = table.buffer_alloc.unwrap()(this, c"x".as_ptr(), 4, 0);
            let upload = table.buffer_upload.unwrap();
            assert_eq!(
                upload(this, buffer, 0, b"abcd".as_ptr().cast(), 4, stream),
                0
            );
            let mut out = [0u8; 4];
            let download = table.buffer_download.unwrap();
            assert_eq!(
                download(this, buffer, 0, out.as_mut_ptr().cast(), 4, stream),
                0
            );
            assert_eq!(&out, b"abcd");
            let g = graph(exec, 0);
            assert_eq!(
                table.graph_bind.unwrap()(this, g.cast(), c"in".as_ptr(), buffer),
                0
            );
            table.buffer_free.unwrap()(this, buffer);
            assert_eq!(table.buffer_bytes.unwrap()(this, buffer), 0);
            table.buffer_free.unwrap()(this, host);
        }
    });
}
