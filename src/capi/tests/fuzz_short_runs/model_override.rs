//! Foreign models and exports with any content below an override and a wrap: refused, or taken and given back once.

use crate::foreign_base::{self, pick, Base};
use crate::input::Input;
use crate::owner::{self, release, retain, use_model, Owner};
use flashrt_capi::*;

pub fn run(bytes: &[u8]) {
    let input = &Input::new(bytes);
    foreign_base::with(input, |base| take(input, base));
}

fn take(input: &Input<'_>, base: Base) {
    let owner = Owner::default();
    let mut table = owner::verbs(if input.is_odd(2) { input.byte() } else { 31 });
    table.struct_size = pick(input, &[48, 4096, 0]);
    let this = owner.pointer();
    let mut made = Vec::new();
    // SAFETY: see the module.
    unsafe {
        let first = frt_model_runtime_override_verbs(
            base.model,
            &table,
            this,
            this,
            Some(retain),
            Some(release),
        );
        made.push(first);
        if !first.is_null() {
            // Another one over ours.
            made.push(frt_model_runtime_override_verbs(
                first,
                &table,
                this,
                this,
                Some(retain),
                Some(release),
            ));
        }
        let retained = owner.retained.get();
        let wrapped = frt_model_runtime_wrap(
            base.exp,
            base.ports,
            base.n_ports,
            base.stages,
            base.n_stages,
            &table,
            this,
            this,
            Some(release),
        );
        // A wrapper has no retain of its own.
        assert_eq!(owner.retained.get(), retained);
        let wrappers = u64::from(!wrapped.is_null());
        made.push(wrapped);
        made.retain(|model| !model.is_null());
        for &model in &made {
            use_model(model);
        }
        // In either order.
        if input.one_in(2) {
            made.reverse();
        }
        let n = made.len() as u64;
        for model in made {
            ((*model).release.unwrap())((*model).owner);
        }
        assert_eq!(owner.retained.get() + wrappers, n);
        assert_eq!(owner.released.get(), n);
    }
}
