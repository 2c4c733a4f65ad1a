//! Edges are counted, so every value falls in the bin that numpy gives it.

use flashrt_models::discretize::bin;
use proptest::prelude::*;

/// (number of edges ≤ x) - 1, counted one by one; NaN sorts after every edge, as in numpy.
fn reference(x: f64) -> i32 {
    if x.is_nan() {
        return 255;
    }
    (0..256)
        .filter(|&i| -1.0 + 2.0 * f64::from(i) / 256.0 <= x)
        .count() as i32
        - 1
}

/// The neighbouring number above.
fn above(x: f64) -> f64 {
    let bits = x.to_bits();
    f64::from_bits(match x {
        0.0 => 1,
        x if x > 0.0 => bits + 1,
        _ => bits - 1,
    })
}

/// The neighbouring number below.
fn below(x: f64) -> f64 {
    -above(-x)
}

#[test]
fn edges_and_their_neighbours() {
    for i in 0..=256 {
        let edge = -1.0 + 2.0 * f64::from(i) / 256.0;
        for x in [below(edge), edge, above(edge), edge + 1.0 / 256.0] {
            assert_eq!(bin(x), reference(x), "{x:e}");
        }
    }
    assert_eq!(bin(below(-1.0)), -1);
    assert_eq!(bin(-1.0), 0);
    assert_eq!(bin(-0.0), 128);
    assert_eq!(bin(below(1.0 - 2.0 / 256.0)), 254);
    assert_eq!(bin(1.0 - 2.0 / 256.0), 255);
    assert_eq!(bin(1e300), 255);
    assert_eq!(bin(f64::INFINITY), 255);
    assert_eq!(bin(f64::NEG_INFINITY), -1);
    assert_eq!(bin(f64::NAN), 255);
    assert_eq!(bin(5e-324), 128);
    assert_eq!(bin(-5e-324), 127);
}

proptest! {
    #[test]
    fn any_bit_pattern(bits in any::<u64>()) {
        let x = f64::from_bits(bits);
        prop_assert_eq!(bin(x), reference(x));
    }

    #[test]
    fn values_in_range(x in -1.1f64..1.1) {
        prop_assert_eq!(bin(x), reference(x));
    }
}
