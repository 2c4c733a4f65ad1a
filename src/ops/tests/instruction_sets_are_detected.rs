//! The paths that the other tests compare: the portable one, and every faster one of this machine.

use flashrt_ops::Isa;

#[test]
fn the_portable_path_is_always_there_and_faster_ones_follow_the_cpu() {
    let found = Isa::available();
    assert_eq!(found[0], Isa::Portable);
    #[cfg(target_arch = "x86_64")]
    {
        let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
        assert_eq!(found.contains(&Isa::Avx2), avx2);
        let avx512 = cfg!(flashrt_avx512) && is_x86_feature_detected!("avx512f");
        assert_eq!(found.contains(&Isa::Avx512), avx2 && avx512);
    }
    assert_eq!(Some(&Isa::selected()), found.last());
    eprintln!("instruction sets under test: {found:?}");
}

#[test]
fn a_forced_path_holds_inside_its_closure_only() {
    let usual = Isa::selected();
    Isa::Portable.with(|| {
        assert_eq!(Isa::selected(), Isa::Portable);
        // What the CPU lacks falls back to the next slower path.
        Isa::Avx512.with(|| assert_eq!(Isa::selected(), usual));
        assert_eq!(Isa::selected(), Isa::Portable);
    });
    assert_eq!(Isa::selected(), usual);
}
