//! A normalised number as one of 256 bins over [-1, 1].

/// Number of bins.
pub const BINS: usize = 256;

/// Bin of a normalised value: (number of edges ≤ value) - 1 with edges -1 + 2·i/256 for i in 0..256.
///
/// Below -1 the bin is -1; from 1 - 2/256 upwards, and for NaN, it is 255. All edges are exact in binary, so
/// the comparison with each is exact. Equals `numpy.digitize(value, numpy.linspace(-1, 1, 257)[:-1]) - 1`
/// for every value.
pub fn bin(value: f64) -> i32 {
    if value.is_nan() {
        return BINS as i32 - 1;
    }
    // (value + 1) · 128 would round: a value just below an edge could land on it. Ask the edges themselves.
    let guess = ((value + 1.0) * 128.0).floor().clamp(-1.0, 255.0) as i32;
    let edge = |i: i32| f64::from(i - 128) / 128.0;
    let mut bin = guess;
    while bin >= 0 && value < edge(bin) {
        bin -= 1;
    }
    while bin < BINS as i32 - 1 && value >= edge(bin + 1) {
        bin += 1;
    }
    bin
}
