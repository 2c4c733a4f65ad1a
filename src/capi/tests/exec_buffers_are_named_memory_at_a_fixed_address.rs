//! Names, sizes, wrapped and host memory, copies and transfers.

mod exec_support;
use exec_support::*;

use flashrt_capi::*;
use std::ffi::{c_char, c_void, CStr, CString};
use std::ptr::{null, null_mut};

fn name(b: frt_buffer) -> Vec<u8> {
    // SAFETY: as for C.
    unsafe { CStr::from_ptr(frt_buffer_name(b)) }
        .to_bytes()
        .to_vec()
}

#[test]
fn a_name_is_copied_byte_for_byte() {
    on_each_backend(|ctx| {
        for bytes in [
            &b"tokens"[..],
            b"",
            "h\u{f6}he".as_bytes(),
            &[0xff, 0xfe, b'x', 0x80],
        ] {
            let text = CString::new(bytes).unwrap();
            // SAFETY: as for C.
            unsafe {
                let b = frt_buffer_alloc(ctx, text.as_ptr(), 4);
                let h = frt_buffer_alloc_host(ctx, text.as_ptr(), 4);
                let w = frt_buffer_wrap(ctx, text.as_ptr(), frt_buffer_dptr(b), 4);
                drop(text);
                assert_eq!([name(b), name(h), name(w)], [bytes, bytes, bytes]);
                assert_eq!(frt_buffer_name(b), frt_buffer_name(b));
            }
        }
        // SAFETY: as for C.
        unsafe {
            let b = frt_buffer_alloc(ctx, null(), 4);
            assert_eq!(name(b), b"");
            assert_eq!(CStr::from_ptr(frt_buffer_name(NO_BUFFER)), c"");
        }
    });
}

#[test]
fn names_that_are_not_utf8_are_legal_everywhere_and_readable_in_texts() {
    let odd: *const c_char = c"odd\xff".as_ptr();
    on_each_backend(|ctx| {
        // SAFETY: as for C.
        unsafe {
            let (g, b) = (frt_graph_create(ctx, odd, 0), frt_buffer_alloc(ctx, odd, 4));
            expect(frt_graph_bind(g, odd, b), FRT_OK);
            expect(frt_graph_replay(g, 1, 0), FRT_ERR_NO_VARIANT);
            assert!(
                last().contains("graph \"odd\u{fffd}\" has no variant"),
                "{}",
                last()
            );
            expect(frt_buffer_fill(ctx, b, 9, 0, 1, 0), FRT_ERR_INVALID);
            assert!(last().contains("buffer \"odd\u{fffd}\""), "{}", last());
            assert!(!frt_graph_create(ctx, null(), 0).is_null());
        }
    });
}

#[test]
fn a_new_buffer_is_zero_and_stays_where_it_is() {
    on_each_backend(|ctx| {
        let b = buffer(ctx, 300);
        // SAFETY: as for C.
        unsafe {
            let address = frt_buffer_dptr(b);
            assert!(!address.is_null());
            assert_eq!(address.addr() % 64, 0);
            assert_eq!(
                (frt_buffer_bytes(b), frt_buffer_space(b)),
                (300, FRT_SPACE_DEVICE)
            );
            assert_eq!(read(ctx, b), [0; 300]);
            write(ctx, b, &[3; 300]);
            assert_eq!(frt_buffer_dptr(b), address);
        }
    });
}

#[test]
#[cfg_attr(miri, ignore)] // Miri stops where the system answers null
fn sizes_without_memory_give_null_and_a_text() {
    on_each_backend(|ctx| {
        // SAFETY: as for C.
        unsafe {
            for bytes in [0, usize::MAX, usize::MAX - 63, isize::MAX as usize, 1 << 62] {
                for alloc in [frt_buffer_alloc, frt_buffer_alloc_host] {
                    assert!(alloc(ctx, c"huge".as_ptr(), bytes).is_null(), "{bytes}");
                    assert!(last().contains("\"huge\""), "{}", last());
                }
            }
            // The context still works.
            assert_eq!(read(ctx, buffer(ctx, 2)), [0, 0]);
        }
    });
}

#[test]
fn wrapped_memory_is_used_and_never_freed() {
    on_each_backend(|ctx| {
        // SAFETY: as for C.
        unsafe {
            let inner = buffer(ctx, 8);
            let base = frt_buffer_dptr(inner);
            let w = frt_buffer_wrap(ctx, c"w".as_ptr(), base.byte_add(2), 4);
            assert_eq!(
                (frt_buffer_dptr(w), frt_buffer_bytes(w)),
                (base.byte_add(2), 4)
            );
            expect(frt_buffer_fill(ctx, w, 0, 9, 4, 0), FRT_OK);
            assert_eq!(read(ctx, inner), [0, 0, 9, 9, 9, 9, 0, 0]);
            expect(frt_buffer_free(w), FRT_OK);
            assert_eq!(read(ctx, inner)[2], 9);
        }
    });
    // Memory of the caller outlives the context.
    let (ctx, mut memory) = (cpu(), vec![1u8; 16]);
    // SAFETY: as for C.
    unsafe {
        let w = frt_buffer_wrap(ctx, null(), memory.as_mut_ptr().cast(), 16);
        expect(frt_buffer_fill(ctx, w, 8, 2, 8, 0), FRT_OK);
        expect(frt_stream_sync(ctx, 0), FRT_OK);
        frt_ctx_destroy(ctx);
    }
    assert_eq!(memory[7..9], [1, 2]);
}

#[test]
fn wrapping_takes_zero_bytes_and_refuses_null_and_impossible_sizes() {
    on_each_backend(|ctx| {
        let b = buffer(ctx, 4);
        // SAFETY: as for C.
        unsafe {
            let address = frt_buffer_dptr(b);
            let empty = frt_buffer_wrap(ctx, c"empty".as_ptr(), address, 0);
            assert!(!empty.is_null(), "{}", last());
            assert_eq!(
                (frt_buffer_bytes(empty), frt_buffer_dptr(empty)),
                (0, address)
            );
            expect(frt_buffer_copy(ctx, empty, 0, b, 4, 0, 0), FRT_OK);
            expect(frt_buffer_copy(ctx, empty, 0, b, 0, 1, 0), FRT_ERR_INVALID);
            assert!(frt_buffer_wrap(ctx, c"null".as_ptr(), null_mut(), 4).is_null());
            assert!(frt_buffer_wrap(ctx, c"null".as_ptr(), null_mut(), 0).is_null());
            assert!(frt_buffer_wrap(ctx, c"huge".as_ptr(), address, usize::MAX).is_null());
            assert!(last().contains("\"huge\""), "{}", last());
        }
    });
}

#[test]
fn a_window_is_copied_exactly() {
    on_each_backend(|ctx| {
        let (a, b) = (buffer(ctx, 8), buffer(ctx, 8));
        write(ctx, a, &[0, 1, 2, 3, 4, 5, 6, 7]);
        // SAFETY: as for C.
        unsafe {
            expect(frt_buffer_copy(ctx, b, 1, a, 3, 4, 0), FRT_OK);
            assert_eq!(read(ctx, b), [0, 3, 4, 5, 6, 0, 0, 0]);
            // Inside one buffer too.
            expect(frt_buffer_copy(ctx, a, 0, a, 4, 4, 0), FRT_OK);
            assert_eq!(read(ctx, a), [4, 5, 6, 7, 4, 5, 6, 7]);
            expect(frt_buffer_copy(ctx, a, 0, a, 2, 4, 0), FRT_ERR_INVALID);
            assert!(last().contains("share bytes"), "{}", last());
        }
    });
}

#[test]
fn zero_bytes_succeed_up_to_the_very_end() {
    on_each_backend(|ctx| {
        let b = buffer(ctx, 4);
        // SAFETY: as for C.
        unsafe {
            expect(frt_buffer_copy(ctx, b, 4, b, 4, 0, 0), FRT_OK);
            expect(frt_buffer_copy(ctx, b, 0, b, 0, 0, 0), FRT_OK);
            expect(frt_buffer_fill(ctx, b, 4, 1, 0, 0), FRT_OK);
            expect(frt_buffer_upload(ctx, b, 4, null(), 0, 0), FRT_OK);
            expect(frt_buffer_download(ctx, b, 4, null_mut(), 0, 0), FRT_OK);
            expect(frt_buffer_copy(ctx, b, 5, b, 0, 0, 0), FRT_ERR_INVALID);
            expect(frt_buffer_upload(ctx, b, 5, null(), 0, 0), FRT_ERR_INVALID);
        }
        assert_eq!(read(ctx, b), [0; 4]);
    });
}

#[test]
fn ranges_are_added_without_overflow() {
    on_each_backend(|ctx| {
        let (a, b) = (buffer(ctx, 8), buffer(ctx, 8));
        let mut out = [5u8; 8];
        // SAFETY: as for C; none of the ranges is touched.
        unsafe {
            let mem = (&raw mut out).cast::<c_void>();
            for (offset, bytes) in [
                (0, 9),
                (8, 1),
                (usize::MAX, 1),
                (usize::MAX, usize::MAX),
                (1, usize::MAX),
                (4, usize::MAX - 3),
                (0, 1 << 63),
                (9, 0),
            ] {
                for status in [
                    frt_buffer_copy(ctx, a, offset, b, 0, bytes, 0),
                    frt_buffer_copy(ctx, a, 0, b, offset, bytes, 0),
                    frt_buffer_fill(ctx, a, offset, 1, bytes, 0),
                    frt_buffer_upload(ctx, a, offset, mem, bytes, 0),
                    frt_buffer_download(ctx, a, offset, mem, bytes, 0),
                ] {
                    expect(status, FRT_ERR_INVALID);
                    let text = format!("window at {offset} of {bytes} bytes leaves its 8 bytes");
                    assert!(
                        bytes == 0 || last().contains(&text) || last().contains("window at 0"),
                        "{}",
                        last()
                    );
                }
            }
        }
        assert_eq!((read(ctx, a), out), (vec![0; 8], [5; 8]));
    });
}

#[test]
fn host_memory_is_touched_in_place_and_copied_both_ways() {
    on_each_backend(|ctx| {
        // SAFETY: as for C; no work is under way where the memory is touched.
        unsafe {
            let (h, d) = (frt_buffer_alloc_host(ctx, c"h".as_ptr(), 4), buffer(ctx, 4));
            let back = frt_buffer_alloc_host(ctx, c"back".as_ptr(), 4);
            assert_eq!(frt_buffer_space(h), FRT_SPACE_HOST);
            frt_buffer_dptr(h).cast::<[u8; 4]>().write([1, 2, 3, 4]);
            expect(frt_buffer_copy(ctx, d, 0, h, 0, 4, 0), FRT_OK);
            expect(frt_buffer_copy(ctx, back, 0, d, 0, 4, 0), FRT_OK);
            expect(frt_stream_sync(ctx, 0), FRT_OK);
            assert_eq!(frt_buffer_dptr(back).cast::<[u8; 4]>().read(), [1, 2, 3, 4]);
            // Recorded too.
            let g = graph(ctx, 0);
            let status = capture(g, 1, |_| {
                expect(frt_buffer_copy(ctx, d, 0, h, 0, 4, 0), FRT_OK);
                expect(frt_buffer_copy(ctx, back, 0, d, 0, 4, 0), FRT_OK);
            });
            expect(status, FRT_OK);
            frt_buffer_dptr(h).cast::<[u8; 4]>().write([9, 8, 7, 6]);
            expect(frt_graph_replay(g, 1, 0), FRT_OK);
            expect(frt_stream_sync(ctx, 0), FRT_OK);
            assert_eq!(frt_buffer_dptr(back).cast::<[u8; 4]>().read(), [9, 8, 7, 6]);
        }
    });
}

#[test]
fn transfers_come_after_earlier_work_of_their_stream() {
    on_each_backend(|ctx| {
        let b = buffer(ctx, 4);
        // SAFETY: as for C.
        unsafe {
            let s1 = frt_ctx_stream(ctx, 0);
            let mut out = [0u8; 2];
            expect(frt_buffer_fill(ctx, b, 0, 1, 4, s1), FRT_OK);
            expect(
                frt_buffer_upload(ctx, b, 2, [8u8, 9].as_ptr().cast(), 2, s1),
                FRT_OK,
            );
            expect(frt_buffer_fill(ctx, b, 0, 3, 1, s1), FRT_OK);
            expect(
                frt_buffer_download(ctx, b, 0, (&raw mut out).cast(), 2, s1),
                FRT_OK,
            );
            assert_eq!(out, [3, 1]);
            assert_eq!(read(ctx, b), [3, 1, 8, 9]);
        }
    });
}

#[test]
fn transfers_need_memory_of_their_own() {
    let ctx = cpu();
    let b = buffer(ctx, 8);
    // SAFETY: as for C.
    unsafe {
        expect(frt_buffer_upload(ctx, b, 0, null(), 4, 0), FRT_ERR_INVALID);
        expect(
            frt_buffer_download(ctx, b, 0, null_mut(), 4, 0),
            FRT_ERR_INVALID,
        );
        assert_eq!(
            last(),
            "frt_buffer_download: host memory: expected 4 bytes, got null"
        );
        // On the CPU the caller could pass the buffer itself.
        let inside = frt_buffer_dptr(b).byte_add(2);
        expect(frt_buffer_upload(ctx, b, 0, inside, 4, 0), FRT_ERR_INVALID);
        expect(
            frt_buffer_download(ctx, b, 0, inside, 4, 0),
            FRT_ERR_INVALID,
        );
        expect(
            frt_buffer_upload(ctx, b, 4, frt_buffer_dptr(b), 4, 0),
            FRT_OK,
        );
        frt_ctx_destroy(ctx);
    }
}

#[test]
fn buffers_of_another_context_are_refused() {
    let other = cpu();
    let theirs = buffer(other, 4);
    on_each_backend(|ctx| {
        let (ours, g) = (buffer(ctx, 4), graph(ctx, 0));
        // SAFETY: as for C.
        unsafe {
            for status in [
                frt_buffer_copy(ctx, theirs, 0, ours, 0, 4, 0),
                frt_buffer_copy(ctx, ours, 0, theirs, 0, 4, 0),
                frt_buffer_fill(ctx, theirs, 0, 1, 4, 0),
                frt_graph_bind(g, c"port".as_ptr(), theirs),
            ] {
                expect(status, FRT_ERR_INVALID);
                assert!(last().ends_with("belongs to another context"), "{}", last());
            }
        }
    });
    assert_eq!(read(other, theirs), [0; 4]);
    // SAFETY: as for C.
    unsafe { frt_ctx_destroy(other) };
}

#[test]
fn a_bound_port_changes_no_captured_pointer_and_no_recency() {
    on_each_backend(|ctx| {
        let (g, a, b) = (graph(ctx, 2), buffer(ctx, 1), buffer(ctx, 1));
        capture_fill(ctx, g, 1, a, 5);
        capture_fill(ctx, g, 2, a, 6);
        // SAFETY: as for C.
        unsafe {
            expect(frt_graph_bind(g, c"out".as_ptr(), a), FRT_OK);
            expect(frt_graph_bind(g, c"out".as_ptr(), b), FRT_OK);
            expect(frt_graph_replay(g, 2, 0), FRT_OK);
            assert_eq!((read(ctx, a), read(ctx, b)), (vec![6], vec![0]));
            expect(frt_graph_evict_lru(g), FRT_OK);
            assert_eq!(
                (frt_graph_has_variant(g, 1), frt_graph_has_variant(g, 2)),
                (0, 1)
            );
        }
    });
}
