//! Counts what some threads take from the heap. One mechanism for every test that says "allocates nothing"; each includes
//! this file by path, alone with one test in its binary.
//!
//! The counters leave out the test harness, whose main thread may allocate at any time: a thread counts if it takes memory
//! for the first time after [`count_new_threads`], or if it called [`count_this_thread`].
#![allow(dead_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::SeqCst};

#[derive(Clone, Copy, PartialEq)]
enum Role {
    Unknown,
    Outside,
    Counted,
}

thread_local! {
    static ROLE: Cell<Role> = const { Cell::new(Role::Unknown) };
}
static ARE_NEW_THREADS_COUNTED: AtomicBool = AtomicBool::new(false);
static TAKEN: AtomicU64 = AtomicU64::new(0);
static FREED: AtomicU64 = AtomicU64::new(0);
static LIVE_BYTES: AtomicI64 = AtomicI64::new(0);

/// From now on, threads that never took memory before are counted; the calling thread is not.
pub fn count_new_threads() {
    ROLE.set(Role::Outside);
    ARE_NEW_THREADS_COUNTED.store(true, SeqCst);
}

/// From now on, the calling thread is counted, and new threads with it.
pub fn count_this_thread() {
    ARE_NEW_THREADS_COUNTED.store(true, SeqCst);
    ROLE.set(Role::Counted);
}

/// Allocations and reallocations of counted threads so far.
pub fn taken() -> u64 {
    TAKEN.load(SeqCst)
}

/// Frees of counted threads so far.
pub fn freed() -> u64 {
    FREED.load(SeqCst)
}

/// Bytes taken less bytes freed by counted threads.
pub fn live_bytes() -> i64 {
    LIVE_BYTES.load(SeqCst)
}

fn is_counted() -> bool {
    // A thread that is being torn down has no role any more: it is not counted.
    ROLE.try_with(|role| {
        if role.get() == Role::Unknown {
            role.set(if ARE_NEW_THREADS_COUNTED.load(SeqCst) {
                Role::Counted
            } else {
                Role::Outside
            });
        }
        role.get() == Role::Counted
    })
    .unwrap_or(false)
}

struct Counting;

// SAFETY: every call goes to the system allocator unchanged; counting touches no memory that it manages.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_counted() {
            TAKEN.fetch_add(1, SeqCst);
            LIVE_BYTES.fetch_add(layout.size() as i64, SeqCst);
        }
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc`.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        if is_counted() {
            FREED.fetch_add(1, SeqCst);
            LIVE_BYTES.fetch_sub(layout.size() as i64, SeqCst);
        }
        // SAFETY: the caller keeps the contract of `GlobalAlloc::dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if is_counted() {
            TAKEN.fetch_add(1, SeqCst);
            LIVE_BYTES.fetch_add(size as i64 - layout.size() as i64, SeqCst);
        }
        // SAFETY: the caller keeps the contract of `GlobalAlloc::realloc`.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;
