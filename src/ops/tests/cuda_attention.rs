//! Attention in f16 and bf16 against float64, from inputs that these types hold exactly, replayed from a captured graph.
//!
//! Weights are rounded to the type, so an element may be off by a rounding of the weighted values and by one of its own.

mod common;

use common::{cuda, ints, mask, refused, Seed};
use flashrt_exec::{Context, Space, StreamId};
use flashrt_ops::*;
use half::{bf16, f16};

const HALVES: [DType; 2] = [DType::F16, DType::BF16];

fn encode(dtype: DType, v: f32) -> u16 {
    match dtype {
        DType::F16 => f16::from_f32(v).to_bits(),
        _ => bf16::from_f32(v).to_bits(),
    }
}

fn decode(dtype: DType, bits: u16) -> f64 {
    match dtype {
        DType::F16 => f16::from_bits(bits).to_f64(),
        _ => bf16::from_bits(bits).to_f64(),
    }
}

fn upload(ctx: &Context, dtype: DType, shape: &[usize], bits: &[u16]) -> Tensor {
    let bytes: Vec<u8> = bits.iter().flat_map(|b| b.to_ne_bytes()).collect();
    common::raw(ctx, dtype, shape, &bytes)
}

fn download(ctx: &Context, t: &Tensor) -> Vec<u16> {
    let mut bytes = vec![0; t.slice().bytes()];
    ctx.download(t.slice(), &mut bytes).unwrap();
    bytes
        .chunks(2)
        .map(|b| u16::from_ne_bytes([b[0], b[1]]))
        .collect()
}

#[derive(Clone)]
struct Case {
    m: usize,
    hq: usize,
    hkv: usize,
    /// Keys of the parts.
    keys: Vec<usize>,
    /// Share of the first part that its mask lets through; none without a mask.
    open: Option<f32>,
    live: Option<i32>,
    causal: Causal,
    /// Room for so many shares of the keys.
    splits: usize,
    scale: f32,
}

fn case(m: usize, hq: usize, hkv: usize, keys: &[usize]) -> Case {
    Case {
        m,
        hq,
        hkv,
        keys: keys.to_vec(),
        open: None,
        live: None,
        causal: Causal::No,
        splits: 0,
        scale: 0.11,
    }
}

fn part<'a>(k: &'a Tensor, v: &'a Tensor) -> KvPart<'a> {
    KvPart { k, v, mask: None }
}

struct Part {
    k: Vec<u16>,
    v: Vec<u16>,
    mask: Option<Vec<u8>>,
    /// Rows that exist.
    live: usize,
}

/// Expected values, and for each the weighted absolute values that its roundings are measured by.
fn reference(c: &Case, dtype: DType, d: usize, q: &[u16], parts: &[Part]) -> Vec<(f64, f64)> {
    let total: usize = parts.iter().map(|p| p.live).sum();
    let value = |bits: u16| decode(dtype, bits);
    let mut out = vec![(0.0, 0.0); c.m * c.hq * d];
    for row in 0..c.m {
        let last = match c.causal {
            Causal::No => i64::MAX,
            Causal::Last => (total + row) as i64 - c.m as i64,
            Causal::At(offset) => (offset + row) as i64,
        };
        for h in 0..c.hq {
            let q = &q[(row * c.hq + h) * d..][..d];
            let mut seen = Vec::new();
            let mut position = 0;
            for p in parts {
                for n in 0..p.live {
                    if p.mask.as_ref().is_none_or(|m| m[n] != 0) && position <= last {
                        let at = (n * c.hkv + h / (c.hq / c.hkv)) * d;
                        let k = &p.k[at..at + d];
                        let dot: f64 = q.iter().zip(k).map(|(q, k)| value(*q) * value(*k)).sum();
                        seen.push((dot * f64::from(c.scale), &p.v[at..at + d]));
                    }
                    position += 1;
                }
            }
            let top = seen.iter().map(|s| s.0).fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = seen.iter().map(|s| (s.0 - top).exp()).sum();
            for (s, v) in seen {
                let weight = (s - top).exp() / sum;
                let to = &mut out[(row * c.hq + h) * d..][..d];
                for (to, v) in to.iter_mut().zip(v) {
                    to.0 += weight * value(*v);
                    to.1 += weight * value(*v).abs();
                }
            }
        }
    }
    out
}

fn check(ctx: &Context, c: &Case, dtype: DType, d: usize, seed: &mut Seed) {
    let about = format!(
        "{dtype} {d}: {}x{}/{} keys {:?} open {:?} live {:?} {:?} splits {}",
        c.m, c.hq, c.hkv, c.keys, c.open, c.live, c.causal, c.splits
    );
    let mut random = |n: usize, scale| -> Vec<u16> {
        (0..n).map(|_| encode(dtype, seed.unit() * scale)).collect()
    };
    let q = random(c.m * c.hq * d, 3.0);
    let row = c.hkv * d;
    let mut parts: Vec<Part> = c
        .keys
        .iter()
        .map(|&n| Part {
            k: random(n * row, 2.0),
            v: random(n * row, 1.0),
            mask: None,
            live: n,
        })
        .collect();
    if let Some(live) = c.live {
        parts[0].live = usize::try_from(live).unwrap_or(0).min(c.keys[0]);
    }
    parts[0].mask = c.open.map(|open| {
        (0..c.keys[0])
            .map(|_| u8::from((seed.unit() + 1.0) / 2.0 < open) * 5)
            .collect()
    });
    // What nobody may see is not a number.
    let first = &mut parts[0];
    for n in 0..c.keys[0] {
        if n >= first.live || first.mask.as_ref().is_some_and(|m| m[n] == 0) {
            first.k[n * row..][..row].fill(0xFFFF);
            first.v[n * row..][..row].fill(0xFFFF);
        }
    }

    let q_tensor = upload(ctx, dtype, &[c.m, c.hq, d], &q);
    let tensors: Vec<_> = parts
        .iter()
        .zip(&c.keys)
        .map(|(p, &n)| {
            (
                upload(ctx, dtype, &[n, c.hkv, d], &p.k),
                upload(ctx, dtype, &[n, c.hkv, d], &p.v),
                p.mask.as_ref().map(|m| mask(ctx, m)),
            )
        })
        .collect();
    let kv: Vec<KvPart<'_>> = tensors
        .iter()
        .map(|(k, v, mask)| KvPart {
            k,
            v,
            mask: mask.as_ref(),
        })
        .collect();
    let live = c.live.map(|n| ints(ctx, &[n]));
    let scratch = (c.splits > 0).then(|| common::poisoned(ctx, &[c.splits, c.m * c.hq * (d + 2)]));
    let bytes = c.m * c.hq * d * 2;
    let buffer = ctx.alloc("out", Space::Device, bytes + 64).unwrap();
    ctx.fill(&buffer.all(), 0xFF, StreamId(0)).unwrap();
    let out = Tensor::new(buffer.slice(32, bytes).unwrap(), dtype, &[c.m, c.hq, d]).unwrap();
    let within = Within {
        causal: c.causal,
        live: live.as_ref(),
        scratch: scratch.as_ref(),
    };
    let graph = ctx.graph("attention", 0).unwrap();
    graph
        .capture(0, |r| {
            attention_within(r, &q_tensor, &kv, c.scale, within, &out)
        })
        .unwrap();
    let replay = || {
        graph.replay(0, StreamId(0)).unwrap();
        ctx.synchronize(StreamId(0)).unwrap();
        download(ctx, &out)
    };
    let got = replay();
    assert!(got == replay(), "{about}: another replay, other bits");

    let eps = if dtype == DType::F16 { 4.9e-4 } else { 3.9e-3 };
    let want = reference(c, dtype, d, &q, &parts);
    for (i, (&got, &(want, size))) in got.iter().zip(&want).enumerate() {
        let got = decode(dtype, got);
        let off = (got - want).abs();
        assert!(
            off <= eps * (want.abs() + size) + 1e-6,
            "{about} [{i}]: {got} is not {want}"
        );
    }
    let mut all = vec![0; buffer.bytes()];
    ctx.download(&buffer.all(), &mut all).unwrap();
    let beside = all[..32].iter().chain(&all[32 + bytes..]);
    assert!(
        beside.copied().all(|b| b == 0xFF),
        "{about}: wrote beside its output"
    );
    assert!(download(ctx, &q_tensor) == q, "{about}: q changed");
    for ((k, v, _), p) in tensors.iter().zip(&parts) {
        assert!(
            download(ctx, k) == p.k && download(ctx, v) == p.v,
            "{about}: keys changed"
        );
    }
}

fn everywhere(cases: &[Case]) {
    let Some(ctx) = cuda() else { return };
    let mut seed = Seed(77);
    for dtype in HALVES {
        for d in HALF_HEAD_DIMS {
            for c in cases {
                check(&ctx, c, dtype, d, &mut seed);
            }
        }
    }
}

#[test]
fn odd_sizes_and_every_grouping_of_heads() {
    everywhere(&[
        case(1, 1, 1, &[1]),
        case(17, 4, 2, &[33]),
        case(9, 6, 6, &[64]),
        case(50, 8, 1, &[131]),
        case(65, 2, 2, &[129, 7]),
        Case {
            scale: -0.2,
            ..case(3, 2, 1, &[77])
        },
    ]);
}

#[test]
fn hidden_keys_stay_out_and_nothing_seen_gives_zeros() {
    let masked = |open, c| Case {
        open: Some(open),
        ..c
    };
    everywhere(&[
        masked(0.6, case(37, 8, 1, &[97, 37])),
        masked(0.5, case(3, 4, 4, &[200])),
        masked(0.0, case(5, 4, 2, &[70])),
        masked(0.0, case(20, 4, 2, &[70, 5])),
        masked(
            0.0,
            Case {
                splits: 2,
                ..case(2, 2, 1, &[150])
            },
        ),
    ]);
}

#[test]
fn causal_from_any_position() {
    let causal = |causal, c| Case { causal, ..c };
    everywhere(&[
        causal(Causal::Last, case(100, 4, 1, &[100])),
        causal(Causal::Last, case(33, 2, 2, &[150])),
        // The first queries are before every key.
        causal(Causal::Last, case(40, 2, 1, &[20])),
        causal(Causal::At(5), case(40, 2, 1, &[90])),
        causal(Causal::At(1 << 40), case(3, 2, 1, &[90])),
        causal(
            Causal::Last,
            Case {
                open: Some(0.7),
                ..case(30, 4, 2, &[90, 30])
            },
        ),
    ]);
}

#[test]
fn a_cache_that_grows_and_split_keys() {
    let grown = |live, c| Case {
        live: Some(live),
        ..c
    };
    let split = |splits, c| Case { splits, ..c };
    everywhere(&[
        grown(77, case(12, 8, 2, &[200])),
        grown(0, case(12, 8, 2, &[200])),
        grown(-5, case(2, 8, 2, &[200])),
        grown(1000, case(2, 8, 2, &[200])),
        grown(
            41,
            Case {
                causal: Causal::Last,
                ..case(30, 4, 2, &[90, 30])
            },
        ),
        split(3, case(7, 8, 2, &[333])),
        split(7, grown(517, case(1, 8, 1, &[1000]))),
        // More shares than blocks of keys.
        split(9, grown(17, case(1, 8, 1, &[200]))),
        split(
            4,
            Case {
                causal: Causal::Last,
                open: Some(0.7),
                ..case(16, 4, 1, &[300, 16])
            },
        ),
    ]);
}

#[test]
fn so_many_rows_that_the_widest_head_has_its_large_tile() {
    let Some(ctx) = cuda() else { return };
    let mut seed = Seed(78);
    for dtype in HALVES {
        for splits in [0, 2] {
            let c = Case {
                open: Some(0.7),
                causal: Causal::Last,
                splits,
                ..case(410, 8, 1, &[70, 411])
            };
            check(&ctx, &c, dtype, 256, &mut seed);
        }
    }
}

#[test]
fn one_graph_follows_the_count_of_keys() {
    let Some(ctx) = cuda() else { return };
    let (d, n, dtype) = (64, 300, DType::BF16);
    let mut seed = Seed(5);
    let mut random = |shape: &[usize]| {
        let bits: Vec<u16> = (0..shape.iter().product::<usize>())
            .map(|_| encode(dtype, seed.unit()))
            .collect();
        upload(&ctx, dtype, shape, &bits)
    };
    let (q, k, v) = (random(&[1, 4, d]), random(&[n, 2, d]), random(&[n, 2, d]));
    let (out, plain) = (random(&[1, 4, d]), random(&[1, 4, d]));
    let live = ints(&ctx, &[0]);
    let graph = ctx.graph("attention", 0).unwrap();
    let within = Within {
        live: Some(&live),
        ..Within::default()
    };
    graph
        .capture(0, |r| {
            attention_within(r, &q, &[part(&k, &v)], 0.2, within, &out)
        })
        .unwrap();
    for count in [1usize, 64, 65, 300] {
        ctx.upload(live.slice(), &(count as i32).to_ne_bytes())
            .unwrap();
        graph.replay(0, StreamId(0)).unwrap();
        let (k, v) = (k.rows(0..count).unwrap(), v.rows(0..count).unwrap());
        common::run(&ctx, |r| attention(r, &q, &[part(&k, &v)], 0.2, &plain));
        assert_eq!(download(&ctx, &out), download(&ctx, &plain), "{count}");
    }
}

#[test]
fn bad_operands_are_refused_by_name() {
    let cpu = common::context(1);
    let f = |shape: &[usize]| common::tensor(&cpu, shape, &vec![0.0; shape.iter().product()]);
    let (q, out) = (f(&[2, 2, 8]), f(&[2, 2, 8]));
    let kv = f(&[3, 1, 8]);
    let part_of = [part(&kv, &kv)];
    let causal = Within {
        causal: Causal::Last,
        ..Within::default()
    };
    let text = refused(&cpu, |r| {
        attention_within(r, &q, &part_of, 1.0, causal, &out)
    });
    assert!(
        text.contains("within") && text.contains("default in f32"),
        "{text}"
    );
    let half = |ctx: &Context, shape: &[usize]| {
        Tensor::alloc(ctx, "test", Space::Device, DType::BF16, shape).unwrap()
    };
    let (q, out) = (half(&cpu, &[2, 2, 64]), half(&cpu, &[2, 2, 64]));
    let text = refused(&cpu, |r| attention(r, &q, &part_of, 1.0, &out));
    assert!(
        text.contains("q is bf16") && text.contains("on cuda only"),
        "{text}"
    );

    let Some(gpu) = cuda() else { return };
    let (q, out, kv) = (
        half(&gpu, &[2, 2, 64]),
        half(&gpu, &[2, 2, 64]),
        half(&gpu, &[3, 1, 64]),
    );
    let (odd, f16_kv) = (
        half(&gpu, &[2, 2, 80]),
        Tensor::alloc(&gpu, "test", Space::Device, DType::F16, &[3, 1, 64]).unwrap(),
    );
    let small = common::poisoned(&gpu, &[2 * 2 * 66 - 1]);
    let (two, shifted) = (ints(&gpu, &[1, 2]), half(&gpu, &[4 * 64 + 1]));
    let bytes = shifted.slice().buffer().slice(2, 3 * 64 * 2).unwrap();
    let shifted = Tensor::new(bytes, DType::BF16, &[3, 1, 64]).unwrap();
    let none = Within::default();
    let scratch = Within {
        scratch: Some(&small),
        ..none
    };
    let live = Within {
        live: Some(&two),
        ..none
    };
    for (q, k, within, out, want) in [
        (&odd, &kv, none, &odd, "D one of [64, 72, 96, 128, 256]"),
        (&q, &f16_kv, none, &out, "k is f16, expected bf16"),
        (&q, &shifted, none, &out, "a start on 16 bytes"),
        (&q, &kv, scratch, &out, "at least 264 elements"),
        (&q, &kv, live, &out, "live has shape [2], expected [1]"),
        (&q, &kv, none, &q, "out"),
    ] {
        let text = refused(&gpu, |r| {
            attention_within(r, q, &[part(k, &kv)], 1.0, within, out)
        });
        assert!(text.contains(want), "{text}");
    }
}

#[test]
fn recommended_scratch_grows_with_the_keys_and_is_none_where_tiles_fill_a_device() {
    assert_eq!(attention_scratch(8192, 8, 1, 256, 8192), 0);
    assert_eq!(attention_scratch(1, 8, 1, 256, 64), 0);
    let short = attention_scratch(1, 32, 8, 128, 1024);
    let long = attention_scratch(1, 32, 8, 128, 65_536);
    assert!(0 < short && short < long, "{short} {long}");
    assert_eq!(long % (32 * 130), 0);
}
