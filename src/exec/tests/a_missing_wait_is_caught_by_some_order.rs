//! The adversarial order earns its name: with every wait in place all seeds agree, and without any one
//! of them some seed gives a wrong result.

use flashrt_exec::{Buffer, Context, CpuOptions, Error, Space, StreamId, StreamOrder};

const SEEDS: u64 = 200;
const STEPS: u8 = 3;

/// The waits of `pipeline`, numbered. `None` leaves all of them in.
const WAITS: std::ops::Range<usize> = 0..4;

/// A three-stream pipeline over single buffers: `camera` → `vision` → `action`, where each stage must
/// wait for its input, and must not overwrite what the stage behind it has not read yet.
/// Returns the concatenated results.
fn pipeline(order: StreamOrder, without: Option<usize>) -> Result<Vec<u8>, Error> {
    let ctx = Context::cpu(CpuOptions { threads: 1, order })?;
    let (camera, vision, action) = (StreamId(0), ctx.stream(-1)?, ctx.stream(-2)?);
    let device = |name: &str| ctx.alloc(name, Space::Device, 8);
    let (frame, seen, act) = (device("frame")?, device("seen")?, device("act")?);
    let results: Buffer = ctx.alloc("results", Space::Host, STEPS.into())?;

    let look = ctx.graph("look", 0)?;
    look.capture::<Error>(0, |r| {
        r.fill(&seen.all(), 0)?;
        r.copy(&seen.all(), &frame.all())
    })?;
    let decide = ctx.graph("decide", 0)?;
    decide.capture::<Error>(0, |r| r.copy(&act.all(), &seen.all()))?;

    let events: Vec<_> = WAITS.map(|_| ctx.event()).collect::<Result<_, _>>()?;
    let wait = |number: usize, stream| match without {
        Some(n) if n == number => Ok(()),
        _ => ctx.wait(stream, &events[number]),
    };
    for step in 0..STEPS {
        wait(2, camera)?; // the frame before was looked at
        ctx.fill(&frame.all(), step + 1, camera)?;
        ctx.record(&events[0], camera)?;

        wait(0, vision)?; // the frame is there
        wait(3, vision)?; // what was seen before was used
        look.replay(0, vision)?;
        ctx.record(&events[1], vision)?;
        ctx.record(&events[2], vision)?;

        wait(1, action)?; // this frame was seen
        decide.replay(0, action)?;
        ctx.copy(&results.slice(step.into(), 1)?, &act.slice(0, 1)?, action)?;
        ctx.record(&events[3], action)?;
    }
    ctx.synchronize(action)?;
    let mut out = vec![0; STEPS.into()];
    results.host_read(0, &mut out)?;
    Ok(out)
}

fn expected() -> Vec<u8> {
    (1..=STEPS).collect()
}

#[test]
fn with_every_wait_all_orders_agree() {
    assert_eq!(pipeline(StreamOrder::Submission, None).unwrap(), expected());
    for seed in 0..SEEDS {
        let result = pipeline(StreamOrder::Adversarial { seed }, None).unwrap();
        assert_eq!(result, expected(), "seed {seed}");
    }
}

#[test]
fn without_any_one_wait_some_order_is_wrong() {
    for number in WAITS {
        let wrong = (0..SEEDS)
            .filter(|&seed| {
                pipeline(StreamOrder::Adversarial { seed }, Some(number)).unwrap() != expected()
            })
            .count();
        assert!(
            wrong > 0,
            "no seed of {SEEDS} noticed that wait {number} is missing"
        );
        // Not a rare accident either: a suite that runs a few dozen seeds would see it.
        assert!(
            wrong as u64 * 20 > SEEDS,
            "only {wrong} of {SEEDS} seeds noticed wait {number}"
        );
    }
}

#[test]
fn submission_order_does_not_notice() {
    // Why the adversarial mode exists: the natural order hides every one of these mistakes.
    for number in WAITS {
        assert_eq!(
            pipeline(StreamOrder::Submission, Some(number)).unwrap(),
            expected()
        );
    }
}

#[test]
fn the_same_seed_gives_the_same_order() {
    let mut distinct = std::collections::BTreeSet::new();
    for seed in 0..SEEDS {
        let order = StreamOrder::Adversarial { seed };
        let result = pipeline(order, Some(0)).unwrap();
        assert_eq!(result, pipeline(order, Some(0)).unwrap(), "seed {seed}");
        distinct.insert(result);
    }
    assert!(distinct.len() > 2, "{distinct:?}");
}

/// Two graphs without an event between them must interleave operation by operation, not only launch
/// by launch.
#[test]
fn launches_of_two_streams_interleave() {
    let torn = (0..SEEDS).any(|seed| {
        let ctx = Context::cpu(CpuOptions {
            threads: 1,
            order: StreamOrder::Adversarial { seed },
        })
        .unwrap();
        let s1 = ctx.stream(0).unwrap();
        let a = ctx.alloc("a", Space::Device, 2).unwrap();
        let write = ctx.graph("write", 0).unwrap();
        let halves = [a.slice(0, 1).unwrap(), a.slice(1, 1).unwrap()];
        write
            .capture::<Error>(0, |r| halves.iter().try_for_each(|half| r.fill(half, 1)))
            .unwrap();
        let seen = ctx.alloc("seen", Space::Device, 2).unwrap();
        write.replay(0, StreamId(0)).unwrap();
        ctx.copy(&seen.all(), &a.all(), s1).unwrap();
        let mut out = [9; 2];
        ctx.download(&seen.all(), &mut out).unwrap();
        out == [1, 0]
    });
    assert!(torn);
}
