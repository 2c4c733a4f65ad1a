//! Snapshot, restore, fork: what comes back, and what a refusal leaves alone.

mod common;

use std::cell::Cell;

use common::*;
use flashrt_capsule::{
    clear_outputs, restore_with, CapsuleMemory, ContextMemory, Error, SnapshotRequest, Store,
    StoreConfig, Tier,
};
use flashrt_exec::{Buffer, Context, CpuOptions, Event, Slice, Space, StreamOrder};
use flashrt_runtime::testing::{set_prompt, ToyOptions, ToyProducer};
use flashrt_runtime::{LiveSet, Producer, StateClass};

fn request(name: &str, tier: Tier) -> SnapshotRequest<'_> {
    SnapshotRequest::new(Some(name), tier, at(3, 7))
}

#[test]
fn a_restored_set_goes_on_exactly_as_the_first_time() {
    for tier in [Tier::Device, Tier::Host] {
        let (mut live, mut s) = (one(), store());
        set_prompt(&mut live, "pick the red cube").unwrap();
        run(&mut live, 0..3);
        let info = s.snapshot(&live, &request("mid", tier)).unwrap();
        assert_eq!(
            (info.tier, info.boundary, info.partial),
            (tier, at(3, 7), false)
        );
        // prompt 64 + state 32 + bias 64 + recurrent 128 + kv 2048 + rng 256 + mirror 64 + host_state 128
        assert_eq!((info.bytes, info.regions), (2784, 8));
        assert_eq!(info.fingerprint, live.fingerprint());
        let expected = run(&mut live, 3..7);
        set_prompt(&mut live, "something else").unwrap();
        assert_ne!(run(&mut live, 3..7), expected);

        let report = s.restore("mid", &mut live, false).unwrap();
        assert_eq!(report.bytes, 2784);
        assert_eq!(
            report.promoted_bytes,
            if tier == Tier::Host { 2784 - 128 } else { 0 }
        );
        assert_eq!(live.host_state().read().unwrap().tick, 3);
        assert_eq!(run(&mut live, 3..7), expected);
    }
}

#[test]
fn a_fork_into_an_idle_set_goes_on_like_its_origin_and_leaves_it_alone() {
    let mut m = open(&["a", "b"]);
    let mut s = store();
    set_prompt(&mut m.sets[0], "stack").unwrap();
    set_prompt(&mut m.sets[1], "other work").unwrap();
    run(&mut m.sets[0], 0..4);
    run(&mut m.sets[1], 90..93);
    s.snapshot(&m.sets[0], &named("branch")).unwrap();
    let before = image(&m.sets[0]);
    let report = s.restore("branch", &mut m.sets[1], false).unwrap();
    assert_eq!(&*report.info.origin, "a");
    assert_eq!(image(&m.sets[0]), before);
    let forked = run(&mut m.sets[1], 4..8);
    assert_eq!(image(&m.sets[0]), before);
    assert_eq!(run(&mut m.sets[0], 4..8), forked);
}

#[test]
fn output_rows_are_not_saved_and_cleared_on_demand() {
    let (mut live, mut s) = (one(), store());
    run(&mut live, 0..1);
    s.snapshot(&live, &named("a")).unwrap();
    run(&mut live, 1..2);
    let port = live.port("actions_raw").unwrap();
    let mut chunk = vec![0; 640];
    live.swap_out(port, &mut chunk).unwrap();
    s.restore("a", &mut live, false).unwrap();
    let mut after = vec![0; 640];
    live.swap_out(port, &mut after).unwrap();
    assert_eq!(after, chunk, "a restore does not touch them");
    let continuation = image(&live);
    clear_outputs(&mut live).unwrap();
    live.swap_out(port, &mut after).unwrap();
    assert_eq!(after, vec![0; 640]);
    let changed = image(&live)
        .iter()
        .zip(&continuation)
        .filter(|(a, b)| a != b)
        .count();
    // The chunk, and its copy in the staging buffer of the read.
    assert!(changed <= 1280, "{changed}");
}

#[test]
fn case_132_a_snapshot_before_the_first_tick_equals_the_warm_start_state() {
    let (mut live, mut s) = (one(), store());
    s.snapshot(&live, &named("home")).unwrap();
    let fresh = image(&one());
    let expected = run(&mut live, 0..3);
    s.restore("home", &mut live, false).unwrap();
    clear_outputs(&mut live).unwrap();
    assert_eq!(live.host_state().read().unwrap(), Default::default());
    assert_eq!(run(&mut live, 0..3), expected);
    let mut other = one();
    assert_eq!(image(&other), fresh);
    assert_eq!(run(&mut other, 0..3), expected);
}

#[test]
fn case_134_a_capsule_dropped_while_it_is_being_restored_stays_whole_by_counted_reference() {
    let (mut live, mut s) = (one(), store());
    run(&mut live, 0..2);
    s.snapshot(&live, &named("home")).unwrap();
    let expected = run(&mut live, 2..5);
    let held = s.get("home").unwrap();
    s.drop_capsule("home").unwrap();
    s.trim();
    let with_handle = s.usage();
    assert!(
        with_handle.host_free_bytes > 0,
        "held memory is still counted"
    );
    // Snapshots that want memory meanwhile do not get this one.
    for i in 0..4 {
        s.snapshot(&live, &named(&format!("n{i}"))).unwrap();
        s.drop_capsule(&format!("n{i}")).unwrap();
    }
    let report = s.restore_capsule(&held, &mut live, false).unwrap();
    assert_eq!(&*report.info.name, "home");
    assert_eq!(run(&mut live, 2..5), expected);
    drop(held);
    s.trim();
    assert_eq!(s.usage(), Default::default());
}

#[test]
fn case_134_a_capsule_overwritten_while_it_is_being_restored_stays_whole_too() {
    let (mut live, mut s) = (one(), store());
    s.snapshot(&live, &named("home")).unwrap();
    let expected = run(&mut live, 0..3);
    let held = s.get("home").unwrap();
    let mut again = named("home");
    again.overwrite = true;
    for _ in 0..3 {
        run(&mut live, 7..8);
        s.snapshot(&live, &again).unwrap();
    }
    s.restore_capsule(&held, &mut live, false).unwrap();
    assert_eq!(run(&mut live, 0..3), expected);
}

#[test]
fn case_136_a_missing_or_resized_region_refuses_the_whole_capsule() {
    let (mut live, mut s) = (one(), store());
    run(&mut live, 0..3);
    s.snapshot(&live, &named("good")).unwrap();
    let image_of = s.export("good", &live).unwrap();
    let expected = run(&mut live, 3..5);
    let before = image(&live);
    let usage = s.usage();

    let mut shorter = image_of.clone();
    shorter.regions.remove(3);
    let mut longer = image_of.clone();
    longer.regions.push(longer.regions[0].clone());
    let mut resized = image_of.clone();
    resized.regions[4].entry.bytes -= 64;
    resized.regions[4].data.truncate(2048 - 64);
    let mut short_data = image_of.clone();
    short_data.regions[4].data.pop();
    for (bad, text) in [
        (
            shorter,
            "region 3 'recurrent' (128 bytes at 0 of buffer 'recurrent')",
        ),
        (longer, "region 8 nothing"),
        (resized, "'kv' (1984 bytes"),
        (short_data, "2047 bytes of data"),
    ] {
        let e = s.import("bad", &bad, Tier::Host, &live).unwrap_err();
        assert!(e.is_format() && e.to_string().contains(text), "{e}");
    }
    assert_eq!(image(&live), before);
    assert_eq!(s.usage(), usage);
    s.import("copy", &image_of, Tier::Device, &live).unwrap();
    s.restore("copy", &mut live, false).unwrap();
    assert_eq!(run(&mut live, 3..5), expected);
}

#[test]
fn case_148_regions_of_equal_size_are_matched_by_name_not_by_place() {
    let (live, mut s) = (one(), store());
    s.snapshot(&live, &named("good")).unwrap();
    let mut image = s.export("good", &live).unwrap();
    // prompt and bias both have 64 bytes.
    image.regions.swap(0, 2);
    let e = s.import("swapped", &image, Tier::Host, &live).unwrap_err();
    assert!(e.is_format(), "{e}");
    let text = e.to_string();
    assert!(
        text.contains("region 0 'prompt'") && text.contains("has 'bias'"),
        "{text}"
    );
}

#[test]
fn an_exported_capsule_moves_to_another_context_of_the_same_model() {
    let (mut a, mut b) = (one(), one());
    let mut s = store();
    set_prompt(&mut a, "carry over").unwrap();
    run(&mut a, 0..3);
    s.snapshot(&a, &request("mid", Tier::Device)).unwrap();
    let expected = run(&mut a, 3..6);
    let image = s.export("mid", &a).unwrap();
    let mut t = store();
    let info = t.import("mid", &image, Tier::Host, &b).unwrap();
    assert_eq!(info.boundary, at(3, 7));
    t.restore("mid", &mut b, false).unwrap();
    assert_eq!(run(&mut b, 3..6), expected);
    assert!(t
        .import("mid", &image, Tier::Host, &b)
        .unwrap_err()
        .is_exists());
    // The memory of one context cannot be copied into a set of another: refused before any live write.
    let held = s.get("mid").unwrap();
    let before = common::image(&b);
    assert!(s
        .restore_capsule(&held, &mut b, false)
        .unwrap_err()
        .is_device());
    assert_eq!(common::image(&b), before);
    assert!(!b.is_poisoned());
}

#[test]
fn another_model_is_refused_and_the_first_differing_record_is_named() {
    let (live, mut s) = (one(), store());
    s.snapshot(&live, &named("v1")).unwrap();
    let image = s.export("v1", &live).unwrap();
    let other = |revision: &str, forget: Option<&str>| {
        let options = ToyOptions {
            revision: revision.to_owned(),
            forget: forget.map(str::to_owned),
            ..ToyOptions::default()
        };
        open_with(options, &["main"]).sets.remove(0)
    };
    for (mut set, ours, theirs) in [
        (other("2", None), "'revision=1'", "'revision=2'"),
        (
            other("1", Some("bias")),
            "'region.bias=continuation:bias'",
            "'region.recurrent=continuation:recurrent'",
        ),
    ] {
        let before = common::image(&set);
        for e in [
            s.restore("v1", &mut set, false).unwrap_err(),
            s.import("x", &image, Tier::Host, &set).unwrap_err(),
        ] {
            assert!(e.is_fingerprint(), "{e}");
            let text = e.to_string();
            assert!(text.contains(ours) && text.contains(theirs), "{text}");
            assert!(
                text.contains(&format!("{:016x}", live.fingerprint())),
                "{text}"
            );
        }
        assert_eq!(common::image(&set), before);
    }
    // Equal fingerprints do not help a different text.
    let mut forged = image.clone();
    forged.identity.extend(b"model=other\n");
    assert!(s
        .import("x", &forged, Tier::Host, &live)
        .unwrap_err()
        .is_fingerprint());
}

#[test]
fn budgets_are_checked_before_anything_is_allocated() {
    let live = one();
    let (device, host) = store().capsule_bytes(&live, Tier::Device);
    // Regions start at multiples of 64 bytes; the host state block lies in host memory in either tier.
    assert_eq!((device, host), (64 + 64 + 64 + 128 + 2048 + 256 + 64, 128));
    let mut s = Store::new(StoreConfig {
        device_budget_bytes: 2 * device + device - 1,
        host_budget_bytes: 1 << 20,
        capacity: 3,
    });
    let base = live.context().memory();
    s.snapshot(&live, &request("a", Tier::Device)).unwrap();
    s.snapshot(&live, &request("b", Tier::Device)).unwrap();
    let two = live.context().memory();
    let e = s.snapshot(&live, &request("c", Tier::Device)).unwrap_err();
    assert!(e.is_no_space(), "{e}");
    let text = e.to_string();
    assert!(
        text.contains(&format!(
            "device memory for capsules: {device} bytes needed, {} of",
            2 * device
        )),
        "{text}"
    );
    assert_eq!(live.context().memory(), two, "nothing was allocated");
    assert_eq!(s.list().len(), 2);

    s.snapshot(&live, &request("c", Tier::Host)).unwrap();
    let e = s.snapshot(&live, &request("d", Tier::Host)).unwrap_err();
    assert!(
        matches!(
            e,
            Error::Full {
                count: 3,
                capacity: 3
            }
        ),
        "{e}"
    );
    // A dropped backing of the other tier makes way.
    s.drop_capsule("a").unwrap();
    s.snapshot(&live, &request("d", Tier::Device)).unwrap();
    assert_eq!(
        s.list()
            .iter()
            .map(|i| i.name.to_string())
            .collect::<Vec<_>>(),
        ["b", "c", "d"]
    );
    s.clear();
    assert_eq!(live.context().memory(), base);
}

#[test]
fn reserve_is_all_or_nothing_and_serves_later_snapshots() {
    let live = one();
    let (_, host) = store().capsule_bytes(&live, Tier::Host);
    let mut s = Store::new(StoreConfig {
        device_budget_bytes: 0,
        host_budget_bytes: 3 * host,
        capacity: 8,
    });
    let base = live.context().memory();
    assert!(s.reserve(&live, Tier::Host, 4).unwrap_err().is_no_space());
    assert!(s.reserve(&live, Tier::Device, 1).unwrap_err().is_no_space());
    assert_eq!(live.context().memory(), base);
    s.reserve(&live, Tier::Host, 3).unwrap();
    let reserved = live.context().memory();
    for name in ["a", "b", "c"] {
        s.snapshot(&live, &named(name)).unwrap();
    }
    assert_eq!(live.context().memory(), reserved);
    assert!(s.snapshot(&live, &named("d")).unwrap_err().is_no_space());
}

#[test]
fn partial_capsules_are_flagged_and_refused_unless_allowed() {
    let (mut live, mut s) = (one(), store());
    run(&mut live, 0..3);
    let exclude = ["rng".to_owned()];
    let mut r = named("no-rng");
    r.exclude = &exclude;
    let info = s.snapshot(&live, &r).unwrap();
    assert!(info.partial);
    assert_eq!((info.regions, info.bytes), (7, 2784 - 256));
    let expected = run(&mut live, 3..5);
    let before = image(&live);
    let e = s.restore("no-rng", &mut live, false).unwrap_err();
    assert!(
        e.is_bad_argument() && e.to_string().contains("1 of 8 regions were left out"),
        "{e}"
    );
    assert_eq!(image(&live), before);
    s.restore("no-rng", &mut live, true).unwrap();
    assert_ne!(run(&mut live, 3..5), expected, "the control run differs");

    let wrong = ["chunk".to_owned()];
    r.exclude = &wrong;
    r.name = Some("x");
    assert!(
        s.snapshot(&live, &r).unwrap_err().is_bad_argument(),
        "output is no continuation region"
    );
    // Data of a partial capsule stays partial on the other side.
    let image = s.export("no-rng", &live).unwrap();
    assert!(
        s.import("again", &image, Tier::Host, &live)
            .unwrap()
            .partial
    );
}

#[test]
fn a_damaged_host_state_block_is_refused_before_the_first_live_write() {
    let (mut live, mut s) = (one(), store());
    s.snapshot(&live, &named("good")).unwrap();
    let mut data = s.export("good", &live).unwrap();
    data.regions[7].data[4] = 9;
    let e = s.import("bad", &data, Tier::Host, &live).unwrap_err();
    assert!(
        e.is_format() && e.to_string().contains("layout is 9, expected 1"),
        "{e}"
    );
    // And a live set that holds nonsense cannot be frozen.
    live.host_state()
        .buffer()
        .host_write(0, &[0xA5; 128])
        .unwrap();
    let e = s.snapshot(&live, &named("nonsense")).unwrap_err();
    assert!(e.to_string().contains("magic"), "{e}");
    s.restore("good", &mut live, false).unwrap();
    assert_eq!(live.host_state().read().unwrap().tick, 0);
}

#[test]
fn unknown_names_and_poisoned_sets_are_refused() {
    let (mut live, mut s) = (one(), store());
    let e = s.restore("nobody", &mut live, false).unwrap_err();
    assert!(
        e.is_not_found()
            && e.to_string()
                .contains("no capsule named 'nobody' (there are 0)"),
        "{e}"
    );
    assert!(s.drop_capsule("nobody").unwrap_err().is_not_found());
    s.snapshot(&live, &named("a")).unwrap();
    live.poison("test");
    assert!(s.snapshot(&live, &named("b")).unwrap_err().is_poisoned());
    assert!(s.restore("a", &mut live, false).unwrap_err().is_poisoned());
    assert!(clear_outputs(&mut live).unwrap_err().is_poisoned());
}

/// Fails the n-th copy, or the wait.
struct Faulty<'a> {
    inner: ContextMemory<'a>,
    copies_left: Cell<u32>,
    is_sync_broken: bool,
}

fn broken() -> flashrt_exec::Error {
    flashrt_exec::Error::Invalid {
        what: "test",
        expected: "a copy".into(),
        got: "a fault".into(),
    }
}

impl CapsuleMemory for Faulty<'_> {
    fn alloc(&self, name: &str, space: Space, bytes: usize) -> Result<Buffer, flashrt_exec::Error> {
        self.inner.alloc(name, space, bytes)
    }
    fn copy(&self, dst: &Slice, src: &Slice) -> Result<(), flashrt_exec::Error> {
        let left = self.copies_left.get().checked_sub(1).ok_or_else(broken)?;
        self.copies_left.set(left);
        self.inner.copy(dst, src)
    }
    fn event(&self) -> Result<Event, flashrt_exec::Error> {
        self.inner.event()
    }
    fn record(&self, event: &Event) -> Result<(), flashrt_exec::Error> {
        self.inner.record(event)
    }
    fn query(&self, event: &Event) -> Result<bool, flashrt_exec::Error> {
        self.inner.query(event)
    }
    fn sync(&self) -> Result<(), flashrt_exec::Error> {
        self.inner.sync()?;
        if self.is_sync_broken {
            return Err(broken());
        }
        Ok(())
    }
    fn fingerprint(&self) -> u64 {
        self.inner.fingerprint()
    }
}

fn twin(live: &LiveSet) -> ContextMemory<'_> {
    ContextMemory::of(live)
}

#[test]
fn a_failure_after_the_first_live_write_poisons_and_one_before_it_does_not() {
    for (copies, is_sync_broken, poisons) in [
        (0, false, false),
        (1, false, true),
        (7, false, true),
        (9, true, true),
    ] {
        // A second set on the same context lends the memory while the first is written.
        let mut m = open(&["a", "b"]);
        let mut s = store();
        s.snapshot(&m.sets[0], &named("x")).unwrap();
        let capsule = s.get("x").unwrap();
        let (a, b) = m.sets.split_at_mut(1);
        let mem = Faulty {
            inner: twin(&b[0]),
            copies_left: Cell::new(copies),
            is_sync_broken,
        };
        let e = restore_with(&mem, &capsule, &mut a[0], false).unwrap_err();
        assert_eq!(a[0].is_poisoned(), poisons, "{copies} {e}");
        assert_eq!(e.is_poisoned(), poisons, "{e}");
        assert!(e.is_device(), "{e}");
        if poisons {
            assert!(
                e.to_string().contains("failed midway, the set is poisoned"),
                "{e}"
            );
            assert!(a[0]
                .usable()
                .unwrap_err()
                .to_string()
                .contains("restore of 'x' failed midway"));
        }
    }
}

#[test]
fn a_snapshot_that_fails_midway_leaves_the_store_as_it_was() {
    let mut m = open(&["a", "b"]);
    let mut s = store();
    s.snapshot(&m.sets[0], &named("home")).unwrap();
    let expected = run(&mut m.sets[0], 0..2);
    let mut again = named("home");
    again.overwrite = true;
    for (name, copies) in [("home", 4), ("new", 4), ("new", 0)] {
        let mem = Faulty {
            inner: twin(&m.sets[1]),
            copies_left: Cell::new(copies),
            is_sync_broken: false,
        };
        again.name = Some(name);
        assert!(s
            .snapshot_with(&mem, &m.sets[0], &again)
            .unwrap_err()
            .is_device());
    }
    assert_eq!(s.list().len(), 1);
    assert_eq!(s.history("a").0.len(), 1);
    s.restore("home", &mut m.sets[0], false).unwrap();
    assert_eq!(run(&mut m.sets[0], 0..2), expected);
}

#[test]
fn a_snapshot_waits_for_what_is_in_flight_on_every_stream() {
    use flashrt_exec::{CpuOptions, StreamOrder};
    use flashrt_runtime::testing::ToyProducer;
    use flashrt_runtime::{Context, Producer};

    let saved = |order| {
        let ctx = Context::cpu(CpuOptions { threads: 1, order }).unwrap();
        let mut live = ToyProducer::new(&ctx, ToyOptions::default())
            .build("main")
            .unwrap();
        let plan = live.plan("context_action").unwrap();
        let mut s = store();
        for _ in 0..3 {
            live.run(plan, 10).unwrap();
        }
        s.snapshot(&live, &named("now")).unwrap();
        live.run(plan, 5).unwrap();
        s.restore("now", &mut live, false).unwrap();
        assert!(!live.is_in_flight());
        s.snapshot(&live, &named("after")).unwrap();
        let (a, b) = (
            s.export("now", &live).unwrap(),
            s.export("after", &live).unwrap(),
        );
        assert_eq!(a, b);
        a
    };
    let expected = saved(StreamOrder::Submission);
    for seed in 0..30 {
        assert_eq!(
            saved(StreamOrder::Adversarial { seed }),
            expected,
            "seed {seed}"
        );
    }
}

#[test]
fn stores_and_live_sets_move_to_the_device_thread() {
    fn is_send<T: Send>() {}
    is_send::<Store>();
    is_send::<LiveSet>();
    is_send::<flashrt_runtime::Model>();
    is_send::<flashrt_capsule::Capsule>();
}

#[test]
fn copies_on_a_side_stream_hold_the_run_in_flight_and_nothing_later() {
    for seed in 0..16 {
        let ctx = Context::cpu(CpuOptions {
            threads: 1,
            order: StreamOrder::Adversarial { seed },
        })
        .unwrap();
        let mut live = ToyProducer::new(&ctx, ToyOptions::default())
            .build("main")
            .unwrap();
        let side = ctx.stream(0).unwrap();
        let mem = ContextMemory::on(&ctx, side, live.fingerprint());
        let plan = live.plan("context_action").unwrap();
        let state = |live: &LiveSet| -> Vec<u8> {
            let regions = live.regions().iter();
            let saved = regions.filter(|r| r.class == StateClass::Continuation);
            let bytes = saved.flat_map(|r| {
                let mut out = vec![0; r.slice.bytes()];
                ctx.download(&r.slice, &mut out).unwrap();
                out
            });
            bytes.collect()
        };
        let mut s = store();
        set_prompt(&mut live, "pick the red cube").unwrap();
        run(&mut live, 0..2);
        live.run(plan, 10).unwrap(); // not waited for
        s.snapshot_with(&mem, &live, &request("mid", Tier::Device))
            .unwrap();
        let expected = state(&live);
        live.run(plan, 10).unwrap();
        live.run(plan, 10).unwrap();
        let capsule = s.get("mid").unwrap();
        restore_with(&mem, &capsule, &mut live, false).unwrap();
        assert_eq!(state(&live), expected, "seed {seed}");
        run(&mut live, 2..3);
        assert_ne!(state(&live), expected);
    }
}
