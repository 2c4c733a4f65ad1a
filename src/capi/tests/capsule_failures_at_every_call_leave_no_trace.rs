//! Whichever call of the backend fails, in whichever verb: a status, nothing leaked, nothing torn. Every index is tried.

mod capsule_support;
use capsule_support::*;
use flashrt_capi::*;

const BEFORE: &[u8] = b"abcdefgh";

struct Set {
    core: Core,
    live: cap_buffer,
    graph: cap_graph,
    capsule: cap_capsule,
    blob: Vec<u8>,
}

/// A capsule of three regions (one of them empty), taken on stream 1 and not run yet.
fn set() -> Set {
    let core = Core::default();
    let live = core.fake.buffer(BEFORE);
    let graph = core.fake.graph(9, &[1]);
    let regions = [region(live, 0, 3), region(live, 8, 0), region(live, 3, 5)];
    let saved = core.snapshot(&regions, b"meta", HOST, 0);
    let blob = core.serialize(saved).unwrap();
    core.discard(saved);
    let capsule = core.snapshot(&regions, b"meta", GPU, 1);
    core.fake.calls();
    Set {
        core,
        live,
        graph,
        capsule,
        blob,
    }
}

impl Set {
    /// The capsule is what it was when it was made.
    fn is_whole(&self, tier: i32) {
        let core = &self.core;
        let mut expected = self.blob.clone();
        expected[16] = tier as u8;
        assert_eq!(core.serialize(self.capsule).unwrap(), expected);
        assert_eq!(core.meta(self.capsule).unwrap(), b"meta");
        assert_eq!(core.ready(self.capsule), OK);
    }
}

/// Runs `verb` once for each call that it makes, with that call failing, and once whole. `verb` says whether it did its
/// work; `code` is what failing `int` functions answer.
fn each_failure(code: i32, verb: impl Fn(&Set) -> Result<(), i32>, after: impl Fn(&Set, bool)) {
    let whole = set();
    verb(&whole).expect("without failures it works");
    let calls = whole.core.fake.calls();
    after(&whole, true);
    drop(whole);
    for (n, name) in calls.iter().enumerate() {
        let set = set();
        let held = (set.core.fake.allocations().len(), set.core.fake.events());
        set.core.fake.with(|state| {
            state.broken = Some(Break::Call(n));
            state.code = code;
        });
        let result = verb(&set);
        set.core.fake.with(|state| state.broken = None);
        let what = format!(
            "call {n}, {name}, of {calls:?} answers {code}: {result:?}, {}",
            text()
        );
        match *name {
            // Freeing cannot fail.
            "buffer_free" | "event_free" => assert_eq!(result, Ok(()), "{what}"),
            "fingerprint" => assert!(matches!(result, Ok(()) | Err(FINGERPRINT)), "{what}"),
            "buffer_alloc" => assert_eq!(result, Err(NOMEM), "{what}"),
            "buffer_bytes" => assert_eq!(result, Err(ARG), "{what}"),
            // Above 0 is not an error of a query or of `graph_has`.
            "event_query" | "graph_has" if code > 0 => assert_eq!(result, Ok(()), "{what}"),
            _ => assert_eq!(result, Err(BACKEND), "{what}"),
        }
        for stream in 0..3 {
            set.core.fake.run(stream);
        }
        after(&set, result.is_ok());
        if result.is_err() {
            let now = (set.core.fake.allocations().len(), set.core.fake.events());
            assert_eq!(now, held, "{what}");
        }
    }
    // Dropping the sets counts allocations and events once more.
}

fn null_is(capsule: cap_capsule, status: impl Fn() -> i32) -> Result<cap_capsule, i32> {
    if capsule.is_null() {
        Err(status())
    } else {
        Ok(capsule)
    }
}

/// A snapshot has no status of its own: the text tells.
fn status_of_text() -> i32 {
    let text = text();
    match () {
        () if text.contains("buffer_alloc") => NOMEM,
        () if text.contains("of a buffer of") => ARG,
        () if text.contains("of the backend") => BACKEND,
        () => panic!("{text}"),
    }
}

#[test]
fn of_a_snapshot() {
    for code in [-7, 3] {
        each_failure(
            code,
            |set| {
                let regions = [
                    region(set.live, 1, 2),
                    region(set.live, 8, 0),
                    region(set.live, 4, 4),
                ];
                let capsule = set.core.snapshot(&regions, b"x", HOST, 2);
                null_is(capsule, status_of_text).map(|_| ())
            },
            |set, _| {
                assert_eq!(set.core.fake.read(set.live), BEFORE);
                set.is_whole(GPU);
            },
        );
    }
}

#[test]
fn of_a_restore() {
    for code in [-7, 3] {
        each_failure(
            code,
            |set| {
                set.core.fake.run(1);
                set.core.fake.write(set.live, &[0; 8]);
                status(set.core.restore(set.capsule, 2))
            },
            |set, _| {
                set.core.fake.write(set.live, BEFORE);
                assert_eq!(set.core.restore(set.capsule, 0), OK);
                assert_eq!(set.core.sync(0), OK);
                assert_eq!(set.core.fake.read(set.live), BEFORE);
            },
        );
    }
}

fn status(status: i32) -> Result<(), i32> {
    match status {
        OK => Ok(()),
        other => Err(other),
    }
}

#[test]
fn of_a_restore_into() {
    for code in [-7, 3] {
        each_failure(
            code,
            |set| {
                let branch = set.core.fake.buffer(&[0; 8]);
                let windows = [
                    region(branch, 0, 3),
                    region(branch, 8, 0),
                    region(branch, 3, 5),
                ];
                status(set.core.restore_into(set.capsule, &windows, 2))
            },
            |set, _| set.is_whole(GPU),
        );
    }
}

#[test]
fn of_a_tier_move() {
    for code in [-7, 3] {
        each_failure(
            code,
            |set| status(set.core.tier_move(set.capsule, HOST, 2)),
            |set, is_done| set.is_whole(if is_done { HOST } else { GPU }),
        );
    }
}

#[test]
fn of_serialise() {
    for code in [-7, 3] {
        each_failure(
            code,
            |set| set.core.serialize(set.capsule).map(|_| ()),
            |set, _| set.is_whole(GPU),
        );
    }
}

#[test]
fn of_a_load() {
    for code in [-7, 3] {
        each_failure(
            code,
            |set| null_is(set.core.load(&set.blob), || cap_load_status()).map(|_| ()),
            |set, _| set.is_whole(GPU),
        );
    }
}

#[test]
fn of_the_views() {
    each_failure(
        -7,
        |set| set.core.regions(set.capsule).map(|_| ()),
        |set, _| {
            set.core.fake.run(1);
            set.is_whole(GPU);
        },
    );
}

#[test]
fn of_ready_fire_swap_sync_and_drop() {
    for code in [-7, 3] {
        let nothing = |_: &Set, _| ();
        each_failure(
            code,
            |set| status(set.core.fire(&stage(set.graph, 1, 0))),
            nothing,
        );
        let src = [7; 8];
        each_failure(
            code,
            |set| status(set.core.swap(set.live, &src, 0)),
            nothing,
        );
        each_failure(code, |set| status(set.core.sync(1)), nothing);
    }
    each_failure(
        -7,
        |set| match set.core.ready(set.capsule) {
            1 => Ok(()),
            other => Err(other),
        },
        |_, _| (),
    );
    each_failure(
        -7,
        |set| {
            set.core.fake.run(1);
            set.core.discard(set.capsule);
            Ok(())
        },
        |set, _| {
            assert_eq!(set.core.fake.allocations(), []);
            assert_eq!(set.core.fake.events(), 0);
        },
    );
}

#[test]
fn of_a_tick() {
    for code in [-7, 3] {
        each_failure(
            code,
            |set| {
                let stages = [0, 1, 2].map(|stream| stage(set.graph, 1, stream));
                let (result, failed) = set.core.tick(&stages, &[[1, 0], [2, 0], [2, 1]], 0);
                assert_eq!(failed >= 0, result != OK);
                status(result)
            },
            |set, _| {
                set.core.fake.run(1);
                set.is_whole(GPU);
            },
        );
    }
}

#[test]
fn of_one_function_for_good() {
    // The clean-up after the first failure meets it again.
    for function in [
        "sync",
        "buffer_copy",
        "event",
        "event_record",
        "buffer_upload",
        "buffer_alloc",
        "stream_wait",
    ] {
        let set = set();
        let held = (set.core.fake.allocations().len(), set.core.fake.events());
        set.core
            .fake
            .with(|state| state.broken = Some(Break::Function(function)));
        let moved = set.core.tier_move(set.capsule, HOST, 2);
        let loaded = set.core.load(&set.blob);
        let taken = set.core.snapshot(&[region(set.live, 0, 3)], &[], HOST, 0);
        set.core.fake.with(|state| state.broken = None);
        let works = (moved == OK, !loaded.is_null(), !taken.is_null());
        let expected = match function {
            "sync" => (false, false, true),
            "buffer_copy" => (false, true, false),
            "buffer_upload" => (true, false, true),
            "stream_wait" => (false, true, true),
            _ => (false, false, false),
        };
        assert_eq!(works, expected, "{function}");
        set.core.fake.run(0);
        set.core.discard(loaded);
        set.core.discard(taken);
        let now = (set.core.fake.allocations().len(), set.core.fake.events());
        assert_eq!(now, held, "{function}");
        set.is_whole(if moved == OK { HOST } else { GPU });
    }
}
