//! 10^5 random and mangled blobs: no crash, and no allocation larger than the blob accounts for. One test, alone in its
//! binary, because it counts.

mod capsule_support;
use capsule_support::*;
use flashrt_capi::cap_load_status;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

static LARGEST: AtomicUsize = AtomicUsize::new(0);

struct Largest;

// SAFETY: every call goes to the system allocator unchanged.
unsafe impl GlobalAlloc for Largest {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LARGEST.fetch_max(layout.size(), SeqCst);
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc`.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Largest = Largest;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}

/// Half of them whole or nearly so, the others bytes.
fn blob(random: &mut Random) -> Vec<u8> {
    if random.below(8) == 0 {
        return (0..random.below(120))
            .map(|_| random.next() as u8)
            .collect();
    }
    let sizes: Vec<u64> = (0..random.below(6))
        .map(|_| random.below(40) as u64)
        .collect();
    let meta = random.below(20);
    let mut blob = Vec::new();
    blob.extend(0x4341_5053u32.to_ne_bytes());
    blob.extend(1u32.to_ne_bytes());
    blob.extend(STAMP.to_ne_bytes());
    blob.extend((random.below(3) as u32).to_ne_bytes());
    blob.extend((sizes.len() as u32).to_ne_bytes());
    blob.extend((meta as u64).to_ne_bytes());
    for size in &sizes {
        blob.extend(size.to_ne_bytes());
    }
    let rest = meta + sizes.iter().sum::<u64>() as usize;
    blob.extend((0..rest).map(|_| random.next() as u8));
    for _ in 0..random.below(3) {
        match random.below(4) {
            0 => blob.truncate(random.below(blob.len() + 1)),
            1 => blob.push(0),
            2 if blob.len() >= 40 => {
                // A size or a count that says something else.
                let at = [20, 24, 32][random.below(3)];
                let n = random.next() >> random.below(64);
                blob[at..at + 8].copy_from_slice(&n.to_ne_bytes());
            }
            _ => {
                if let Some(n) = blob.len().checked_sub(1) {
                    blob[random.below(n + 1)] ^= 1 << random.below(8);
                }
            }
        }
    }
    blob
}

#[test]
fn random_blobs_are_loaded_whole_or_refused() {
    let core = Core::default();
    core.fake.with(|state| state.is_quiet = true);
    let live = core.fake.buffer(&[0; 64]);
    let mut random = Random(20);
    let mut counts = [0; 2];
    for _ in 0..100_000 {
        let blob = blob(&mut random);
        core.fake.with(|state| state.largest_alloc = 0);
        LARGEST.store(0, SeqCst);
        let capsule = core.load(&blob);
        // An entry of the list of regions is twice its entry in the blob; small things cost some hundred bytes.
        let largest = LARGEST.load(SeqCst);
        assert!(
            largest <= 2 * blob.len() + 512,
            "{largest} for {}",
            blob.len()
        );
        assert!(core.fake.with(|state| state.largest_alloc) <= blob.len());
        if capsule.is_null() {
            counts[0] += 1;
            assert!([FORMAT, VERSION, FINGERPRINT].contains(&cap_load_status()));
            continue;
        }
        counts[1] += 1;
        let n = core.regions(capsule).unwrap().len();
        assert_eq!(
            core.restore_into(capsule, &vec![region(live, 0, 64); n], 0),
            OK
        );
        // What was loaded is what is written, but for the tier.
        let mut again = core.serialize(capsule).unwrap();
        again[16..20].copy_from_slice(&blob[16..20]);
        assert_eq!(again, blob);
        core.discard(capsule);
    }
    assert!(counts.iter().all(|&n| n > 20_000), "{counts:?}");
}
