//! Checked handles: what C holds is a number that only looks like a pointer.
//!
//! | Bits | Hold |
//! |---|---|
//! | 63..56 | a mark that no address of a process has |
//! | 55..28 | generation of the slot |
//! | 27..4 | index of the slot |
//! | 3..0 | zero |
//!
//! A handle is looked up in storage that is never freed and never followed as an address, so null, misaligned,
//! fabricated, destroyed and wrong-kind handles are told apart from live ones without touching unknown memory. Every
//! reuse of a slot has its own generation, and a slot that has used them all up rests for good: a destroyed handle
//! never becomes valid again.

#[cfg(loom)]
use loom::sync::{
    atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering::*},
    Mutex, MutexGuard,
};
#[cfg(not(loom))]
use std::sync::{
    atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering::*},
    Mutex, MutexGuard,
};

use crate::status::Failure;
use std::collections::VecDeque;
use std::ffi::c_void;
use std::ptr::{null_mut, without_provenance_mut};
use std::sync::PoisonError;

/// Something that C can hold a handle of.
///
/// # Safety
/// No other type has the same `KIND`, which is not 0. Taken: 1..=15 exec, 16..=31 runtime, 32..=47 capsule.
pub(crate) unsafe trait Object: 'static {
    /// Number of the type.
    const KIND: u32;
    /// What errors call it.
    const NAME: &'static str;
}

const MARK: u64 = 0xf7 << 56;
const GENERATION_BITS: u32 = if cfg!(loom) { 1 } else { 28 };
const LAST_GENERATION: u64 = (1 << GENERATION_BITS) - 1;
const INDEX_BITS: u32 = 24;

/// Slots of the first chunk; each further one has twice as many as the one before.
const FIRST: u32 = if cfg!(loom) { 1 } else { 256 };
const CHUNKS: usize = if cfg!(loom) { 2 } else { 16 };
const SLOTS: u32 = FIRST * ((1 << CHUNKS) - 1);
const _: () = assert!(SLOTS <= 1 << INDEX_BITS);

/// One place for an object. Free, or between two owners, while `tag` is 0.
struct Slot {
    /// Kind and generation of the object.
    tag: AtomicU64,
    object: AtomicPtr<c_void>,
    /// Generation of the next object; written under the lock of the registry.
    next: AtomicU32,
}

impl Slot {
    fn new() -> Slot {
        Slot {
            tag: AtomicU64::new(0),
            object: AtomicPtr::new(null_mut()),
            next: AtomicU32::new(0),
        }
    }
}

struct Free {
    /// Slots that were used before, the one freed first in front.
    used: VecDeque<u32>,
    /// Slots from here on were never used.
    fresh: u32,
}

struct Registry {
    chunks: [AtomicPtr<Slot>; CHUNKS],
    free: Mutex<Free>,
}

/// What a handle says of itself.
#[derive(Clone, Copy)]
struct Parts {
    index: u32,
    generation: u64,
}

impl Parts {
    fn of(handle: *mut c_void) -> Option<Parts> {
        let bits = handle.addr() as u64;
        let is_ours = bits >> 56 == MARK >> 56 && bits & 0xf == 0;
        is_ours.then_some(Parts {
            index: (bits >> 4) as u32 & ((1 << INDEX_BITS) - 1),
            generation: (bits >> 28) & ((1 << 28) - 1),
        })
    }

    fn handle(self) -> *mut c_void {
        let bits = MARK | self.generation << 28 | u64::from(self.index) << 4;
        without_provenance_mut(bits as usize)
    }

    fn tag(self, kind: u32) -> u64 {
        u64::from(kind) << 32 | self.generation
    }
}

/// The chunk that holds a slot, and the place in it.
fn place(index: u32) -> (usize, usize) {
    let chunk = ((index + FIRST).ilog2() - FIRST.ilog2()) as usize;
    (chunk, (index + FIRST - (FIRST << chunk)) as usize)
}

impl Registry {
    #[cfg(not(loom))]
    const fn new() -> Registry {
        Registry {
            chunks: [const { AtomicPtr::new(null_mut()) }; CHUNKS],
            free: Mutex::new(Free {
                used: VecDeque::new(),
                fresh: 0,
            }),
        }
    }

    #[cfg(loom)]
    fn new() -> Registry {
        Registry {
            chunks: std::array::from_fn(|_| AtomicPtr::new(null_mut())),
            free: Mutex::new(Free {
                used: VecDeque::new(),
                fresh: 0,
            }),
        }
    }

    fn free(&self) -> MutexGuard<'_, Free> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn slot(&self, index: u32) -> Option<&Slot> {
        let (chunk, at) = place(index);
        let chunk = self.chunks.get(chunk)?.load(Acquire);
        if chunk.is_null() {
            return None;
        }
        // SAFETY: a chunk in the table is initialised and never freed, and `place` stays inside its length.
        Some(unsafe { &*chunk.add(at) })
    }

    /// A slot for one object, and its first or next generation. `None` when all slots are in use.
    fn reserve(&self) -> Option<(Parts, &Slot)> {
        let mut free = self.free();
        let index = match free.used.pop_front() {
            Some(index) => index,
            None => {
                let index = free.fresh;
                if index >= SLOTS {
                    return None;
                }
                let (chunk, at) = place(index);
                if at == 0 {
                    let slots: Box<[Slot]> = (0..FIRST << chunk).map(|_| Slot::new()).collect();
                    self.chunks[chunk].store(Box::leak(slots).as_mut_ptr(), Release);
                }
                free.fresh += 1;
                index
            }
        };
        let slot = self.slot(index)?;
        let generation = slot.next.load(Relaxed).into();
        Some((Parts { index, generation }, slot))
    }

    fn issue<T: Object>(&self, object: Box<T>) -> *mut c_void {
        let Some((parts, slot)) = self.reserve() else {
            return null_mut();
        };
        slot.object.store(Box::into_raw(object).cast(), Relaxed);
        slot.tag.store(parts.tag(T::KIND), Release);
        parts.handle()
    }

    /// # Safety
    /// That of [`get`].
    unsafe fn get<'a, T: Object>(&self, handle: *mut c_void) -> Option<&'a T> {
        let parts = Parts::of(handle)?;
        let slot = self.slot(parts.index)?;
        if slot.tag.load(Acquire) != parts.tag(T::KIND) {
            return None;
        }
        let object = slot.object.load(Relaxed).cast::<T>();
        // SAFETY: the tag names this generation and `T`, whose kind no other type has, so the object is a live box of
        // it; the caller promises that it stays one.
        unsafe { object.as_ref() }
    }

    fn take<T: Object>(&self, handle: *mut c_void) -> Option<Box<T>> {
        let parts = Parts::of(handle)?;
        let slot = self.slot(parts.index)?;
        let tag = parts.tag(T::KIND);
        // One taker wins.
        slot.tag.compare_exchange(tag, 0, AcqRel, Relaxed).ok()?;
        let object = slot.object.swap(null_mut(), Relaxed).cast::<T>();
        {
            let mut free = self.free();
            if parts.generation < LAST_GENERATION {
                slot.next.store(parts.generation as u32 + 1, Relaxed);
                free.used.push_back(parts.index);
            }
        }
        // SAFETY: `issue` made it from a box of `T`, and the exchange above gave it to this call alone.
        (!object.is_null()).then(|| unsafe { Box::from_raw(object) })
    }
}

#[cfg(not(loom))]
static REGISTRY: Registry = Registry::new();
#[cfg(loom)]
loom::lazy_static! {
    static ref REGISTRY: Registry = Registry::new();
}

/// Keeps `object` until [`take`] and returns its handle, never one that was returned before. Null (and the object is
/// dropped) when there are some 16 million already. Any thread.
pub(crate) fn issue<T: Object>(object: Box<T>) -> *mut c_void {
    REGISTRY.issue(object)
}

/// The object behind `handle`; `None` unless it is a live handle of a `T`. Takes no lock and no memory. Any thread.
///
/// # Safety
/// While the reference is in use, nobody takes the object: whoever runs foreign code (a callback, a host function)
/// first clones what it needs and lets the reference go. The caller of the C function serialises calls on one object.
pub(crate) unsafe fn get<'a, T: Object>(handle: *mut c_void) -> Option<&'a T> {
    // SAFETY: the caller's promise.
    unsafe { REGISTRY.get(handle) }
}

/// [`get`] for `call`, with a text that says what came instead.
///
/// # Safety
/// That of [`get`].
pub(crate) unsafe fn need<'a, T: Object>(
    call: &str,
    handle: *mut c_void,
) -> Result<&'a T, Failure> {
    // SAFETY: the caller's promise.
    unsafe { get(handle) }.ok_or_else(|| absent::<T>(call, handle))
}

/// The failure of a `call` that needs a live `T` and got `handle`.
pub(crate) fn absent<T: Object>(call: &str, handle: *mut c_void) -> Failure {
    let name = T::NAME;
    if handle.is_null() {
        Failure::invalid(call, format_args!("expected a handle ({name}), got null"))
    } else {
        Failure::invalid(
            call,
            format_args!(
                "{handle:p} is no live handle ({name}): destroyed, of another kind or not ours"
            ),
        )
    }
}

/// Takes the object out; its handle is dead from now on. `None` unless it is a live handle of a `T`: of two calls only
/// one gets it. Any thread.
pub(crate) fn take<T: Object>(handle: *mut c_void) -> Option<Box<T>> {
    REGISTRY.take(handle)
}

/// Registries of tests end, the real one lives for ever. Their objects are taken before.
#[cfg(test)]
impl Drop for Registry {
    fn drop(&mut self) {
        for (chunk, slots) in self.chunks.iter().enumerate() {
            let slots = slots.load(Acquire);
            if !slots.is_null() {
                let slots = std::ptr::slice_from_raw_parts_mut(slots, (FIRST << chunk) as usize);
                // SAFETY: leaked by `reserve` with this length, and nobody uses the registry any more.
                drop(unsafe { Box::from_raw(slots) });
            }
        }
    }
}

#[cfg(test)]
struct Apple(u32);
#[cfg(test)]
// SAFETY: the numbers from 0xffff_fff0 on are used by no other type.
unsafe impl Object for Apple {
    const KIND: u32 = 0xffff_fff0;
    const NAME: &'static str = "apple";
}
#[cfg(test)]
struct Pear;
#[cfg(test)]
// SAFETY: as above.
unsafe impl Object for Pear {
    const KIND: u32 = 0xffff_fff1;
    const NAME: &'static str = "pear";
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn apple(handle: *mut c_void) -> Option<u32> {
        // SAFETY: the tests keep no reference.
        unsafe { get::<Apple>(handle) }.map(|a| a.0)
    }

    #[test]
    fn an_object_is_found_until_it_is_taken_once() {
        let handle = issue(Box::new(Apple(3)));
        assert_eq!(apple(handle), Some(3));
        assert_eq!(take::<Apple>(handle).map(|a| a.0), Some(3));
        assert_eq!(apple(handle), None);
        assert!(take::<Apple>(handle).is_none());
    }

    #[test]
    fn a_handle_of_another_kind_is_neither_found_nor_taken() {
        let handle = issue(Box::new(Pear));
        assert_eq!(apple(handle), None);
        assert!(take::<Apple>(handle).is_none());
        assert!(take::<Pear>(handle).is_some());
    }

    #[test]
    fn null_misaligned_addresses_and_fabricated_numbers_are_refused() {
        let handle = issue(Box::new(Apple(1)));
        let mut local = 0u64;
        let mut strange = vec![0, 1, 8, usize::MAX, 0xf7 << 56, (&raw mut local).addr()];
        for bit in 0..64 {
            strange.push(handle.addr() ^ (1 << bit));
        }
        for n in strange {
            assert_eq!(apple(without_provenance_mut(n)), None, "{n:#x}");
            assert!(take::<Apple>(without_provenance_mut(n)).is_none(), "{n:#x}");
        }
        assert_eq!(apple(handle), Some(1));
        take::<Apple>(handle);
    }

    #[test]
    fn a_refusal_names_the_call_and_the_kind() {
        // SAFETY: no reference is kept.
        let text = |handle| unsafe { need::<Pear>("frt_x", handle) }.err().unwrap().text;
        assert_eq!(
            text(null_mut()),
            "frt_x: expected a handle (pear), got null"
        );
        assert_eq!(
            text(without_provenance_mut(16)),
            "frt_x: 0x10 is no live handle (pear): destroyed, of another kind or not ours"
        );
    }

    #[test]
    fn a_destroyed_handle_stays_dead_when_its_slot_is_used_again() {
        let registry = Registry::new();
        let mut seen = HashSet::new();
        for n in 0..if cfg!(miri) { 100 } else { 5000 } {
            let handle = registry.issue(Box::new(Apple(n)));
            assert!(seen.insert(handle), "{handle:p} came twice");
            assert!(registry.take::<Apple>(handle).is_some());
        }
        // One slot served them all.
        assert_eq!(registry.free().fresh, 1);
        for handle in seen {
            // SAFETY: no reference is kept.
            assert!(unsafe { registry.get::<Apple>(handle) }.is_none());
        }
    }

    #[test]
    fn slots_are_used_again_in_the_order_in_which_they_were_freed() {
        let registry = Registry::new();
        let index = |handle| Parts::of(handle).unwrap().index;
        let handles: Vec<_> = (0..4).map(|n| registry.issue(Box::new(Apple(n)))).collect();
        for i in [2, 0, 3] {
            registry.take::<Apple>(handles[i]);
        }
        let again: Vec<_> = (0..4).map(|n| registry.issue(Box::new(Apple(n)))).collect();
        assert_eq!(
            again.iter().map(|&h| index(h)).collect::<Vec<_>>(),
            [2, 0, 3, 4]
        );
        for handle in again.into_iter().chain([handles[1]]) {
            assert!(registry.take::<Apple>(handle).is_some());
        }
    }

    #[test]
    fn a_slot_rests_after_its_last_generation() {
        let registry = Registry::new();
        let first = registry.issue(Box::new(Apple(0)));
        registry.take::<Apple>(first);
        registry
            .slot(0)
            .unwrap()
            .next
            .store(LAST_GENERATION as u32, Relaxed);
        let last = registry.issue(Box::new(Apple(1)));
        assert_eq!(Parts::of(last).unwrap().index, 0);
        assert!(registry.take::<Apple>(last).is_some());
        let next = registry.issue(Box::new(Apple(2)));
        assert_eq!(Parts::of(next).unwrap().index, 1);
        registry.take::<Apple>(next);
    }

    #[test]
    fn thousands_of_objects_live_side_by_side_over_several_chunks() {
        let registry = Registry::new();
        let handles: Vec<_> = (0..if cfg!(miri) { 900 } else { 3000 })
            .map(|n| registry.issue(Box::new(Apple(n))))
            .collect();
        for (n, &handle) in handles.iter().enumerate() {
            // SAFETY: no reference is kept.
            assert_eq!(
                unsafe { registry.get::<Apple>(handle) }.unwrap().0,
                n as u32
            );
        }
        for handle in handles {
            registry.take::<Apple>(handle);
        }
    }

    #[test]
    fn every_index_has_its_place_in_a_chunk() {
        assert_eq!(place(0), (0, 0));
        assert_eq!(place(255), (0, 255));
        assert_eq!(place(256), (1, 0));
        assert_eq!(place(767), (1, 511));
        assert_eq!(place(768), (2, 0));
        let (chunk, at) = place(SLOTS - 1);
        assert_eq!(
            (chunk, at + 1),
            (CHUNKS - 1, (FIRST << (CHUNKS - 1)) as usize)
        );
    }
}

/// `RUSTFLAGS="--cfg loom" cargo test -p flashrt-capi --lib handles`: every interleaving of two threads.
#[cfg(all(test, loom))]
mod tests {
    use super::*;
    use loom::thread;
    use std::sync::Arc;

    fn registry() -> Arc<Registry> {
        Arc::new(Registry::new())
    }

    fn value(registry: &Registry, handle: *mut c_void) -> Option<u32> {
        // SAFETY: only used where no other thread takes this very generation.
        unsafe { registry.get::<Apple>(handle) }.map(|a| a.0)
    }

    fn addr(index: u32, generation: u64) -> usize {
        Parts { index, generation }.handle().addr()
    }

    #[test]
    fn a_guessed_handle_finds_nothing_or_the_whole_object() {
        loom::model(|| {
            let registry = registry();
            let other = registry.clone();
            let issuer = thread::spawn(move || {
                // The second one makes a new chunk.
                [1, 2].map(|n| other.issue(Box::new(Apple(n))).addr())
            });
            for index in [0, 1] {
                let found = value(&registry, without_provenance_mut(addr(index, 0)));
                assert!(found.is_none() || found == Some(index + 1));
            }
            for (index, handle) in issuer.join().unwrap().into_iter().enumerate() {
                let handle = without_provenance_mut(handle);
                assert_eq!(value(&registry, handle), Some(index as u32 + 1));
                assert!(registry.take::<Apple>(handle).is_some());
            }
        });
    }

    #[test]
    fn of_two_takers_one_gets_the_object() {
        loom::model(|| {
            let registry = registry();
            let handle = registry.issue(Box::new(Apple(5))).addr();
            let other = registry.clone();
            let taker = thread::spawn(move || {
                other
                    .take::<Apple>(without_provenance_mut(handle))
                    .is_some()
            });
            let here = registry
                .take::<Apple>(without_provenance_mut(handle))
                .is_some();
            assert!(here ^ taker.join().unwrap());
        });
    }

    #[test]
    fn a_stale_handle_never_finds_the_next_object_of_its_slot() {
        loom::model(|| {
            let registry = registry();
            let stale = registry.issue(Box::new(Apple(1))).addr();
            registry.take::<Apple>(without_provenance_mut(stale));
            let other = registry.clone();
            let issuer = thread::spawn(move || other.issue(Box::new(Apple(2))).addr());
            assert_eq!(value(&registry, without_provenance_mut(stale)), None);
            assert!(registry
                .take::<Apple>(without_provenance_mut(stale))
                .is_none());
            let handle = issuer.join().unwrap();
            assert_ne!(handle, stale);
            assert_eq!(handle, addr(0, 1));
            assert!(registry
                .take::<Apple>(without_provenance_mut(handle))
                .is_some());
        });
    }

    #[test]
    fn two_issuers_get_two_slots() {
        loom::model(|| {
            let registry = registry();
            let other = registry.clone();
            let issuer = thread::spawn(move || other.issue(Box::new(Apple(1))).addr());
            let here = registry.issue(Box::new(Apple(2))).addr();
            let there = issuer.join().unwrap();
            assert_ne!(here, there);
            for (handle, expected) in [(here, 2), (there, 1)] {
                let handle = without_provenance_mut(handle);
                assert_eq!(value(&registry, handle), Some(expected));
                assert!(registry.take::<Apple>(handle).is_some());
            }
            // Pears are told from apples here too.
            let pear = registry.issue(Box::new(Pear));
            assert_eq!(value(&registry, pear), None);
            assert!(registry.take::<Pear>(pear).is_some());
        });
    }
}
