//! Any bytes as a blob: refused with a status, or loaded, and then written again as they came.

use crate::capsule_support::*;
use crate::input::Input;
use flashrt_capi::cap_load_status;

pub fn run(bytes: &[u8]) {
    let input = Input::new(bytes);
    let core = Core::default();
    let live = core.fake.buffer(&[0; 4096]);
    let mut blob = Vec::new();
    // A good beginning, as far as the input says, gets further.
    let parts = input.below(4);
    if parts > 0 {
        blob.extend(0x4341_5053u32.to_ne_bytes());
        blob.extend(1u32.to_ne_bytes());
    }
    if parts > 1 {
        blob.extend(STAMP.to_ne_bytes());
    }
    let mut sizes = Vec::new();
    if parts > 2 {
        sizes = (0..input.below(5))
            .map(|_| input.size(200) as u64)
            .collect();
        let meta = input.size(30) as u64;
        blob.extend(u32::from(input.byte()).to_ne_bytes());
        blob.extend((sizes.len() as u32).to_ne_bytes());
        blob.extend(meta.to_ne_bytes());
        sizes
            .iter()
            .for_each(|size| blob.extend(size.to_ne_bytes()));
        // As many bytes as that needs, give or take one.
        let total = sizes
            .iter()
            .chain([&meta])
            .map(|&n| n as u128)
            .sum::<u128>();
        let wanted = total as usize % 2048 + input.below(3);
        blob.resize(blob.len() + wanted.saturating_sub(1), input.byte());
    }
    blob.extend(input.bytes(usize::MAX));

    core.fake.with(|state| state.largest_alloc = 0);
    let capsule = core.load(&blob);
    assert!(core.fake.with(|state| state.largest_alloc) <= blob.len());
    if capsule.is_null() {
        assert!([FORMAT, VERSION, FINGERPRINT].contains(&cap_load_status()));
        assert_eq!(core.fake.allocations(), []);
        return;
    }
    assert_eq!(cap_load_status(), OK);
    let views = core.regions(capsule).unwrap();
    if parts > 2 {
        assert_eq!(
            views.iter().map(|view| view.1 as u64).collect::<Vec<_>>(),
            sizes
        );
    }
    let fits = views.iter().all(|view| view.1 <= 4096);
    let windows = vec![region(live, 0, 4096); views.len()];
    // The header is no window, but no window is refused for having no bytes either.
    if !windows.is_empty() {
        let expected = if fits { OK } else { ARG };
        assert_eq!(core.restore_into(capsule, &windows, 0), expected);
    }
    assert_eq!(core.restore(capsule, 0), ARG);
    let mut again = core.serialize(capsule).unwrap();
    again[16..20].copy_from_slice(&blob[16..20]);
    assert_eq!(again, blob);
    assert_eq!(core.tier_move(capsule, GPU, 1), OK);
    assert_eq!(core.serialize(capsule).unwrap()[20..], blob[20..]);
}
