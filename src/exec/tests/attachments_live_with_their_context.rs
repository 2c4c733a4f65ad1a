//! Objects of upper layers: made once, kept by type, dropped with the context.

use flashrt_exec::{Context, CpuOptions};
use std::sync::Arc;

struct Kernels(Arc<()>);
struct Tables(u32);

fn context() -> Context {
    Context::cpu(CpuOptions::default()).unwrap()
}

#[test]
fn the_first_call_makes_it_and_every_later_one_gets_the_same() {
    let (ctx, other) = (context(), context());
    let first = ctx.attachment(|| Ok::<_, ()>(Tables(1))).unwrap();
    let again = ctx.clone().attachment(|| Ok::<_, ()>(Tables(2))).unwrap();
    assert!(Arc::ptr_eq(&first, &again) && again.0 == 1);
    assert_eq!(other.attachment(|| Ok::<_, ()>(Tables(3))).unwrap().0, 3);
}

#[test]
fn a_failure_keeps_nothing_and_the_next_call_tries_again() {
    let ctx = context();
    assert_eq!(
        ctx.attachment(|| Err::<Tables, _>("no compiler")).err(),
        Some("no compiler")
    );
    assert_eq!(ctx.attachment(|| Ok::<_, ()>(Tables(4))).unwrap().0, 4);
}

#[test]
fn it_goes_with_the_last_handle_of_the_context_unless_it_is_held() {
    let life = Arc::new(());
    let ctx = context();
    let held = ctx
        .attachment(|| Ok::<_, ()>(Kernels(life.clone())))
        .unwrap();
    let buffer = ctx.alloc("b", flashrt_exec::Space::Host, 8).unwrap();
    drop(ctx);
    assert_eq!(Arc::strong_count(&life), 2);
    assert!(Arc::ptr_eq(&held.0, &life));
    drop(held);
    // Buffers hold memory, not the context.
    assert_eq!(Arc::strong_count(&life), 1);
    drop(buffer);
}

#[test]
fn making_one_may_ask_for_another() {
    let ctx = context();
    let made = ctx.attachment(|| {
        let tables = ctx.attachment(|| Ok::<_, ()>(Tables(5)))?;
        Ok::<_, ()>((tables.0, "kernels"))
    });
    assert_eq!(*made.unwrap(), (5, "kernels"));
}
