//! Foreign models with any content in front of a consumer: refused, or described, made into a live set, run, and given back once.

use crate::foreign_base;
use crate::input::Input;
use flashrt_runtime::foreign::adopt;
use flashrt_runtime::{ForeignProducer, InputData, Producer, KEY_INHERIT};

pub fn run(bytes: &[u8]) {
    let input = &Input::new(bytes);
    foreign_base::with(input, |base| {
        // SAFETY: null, or an object of the layout that it says, whose arrays are as long as it says.
        let model = match unsafe { adopt(base.model) } {
            Ok(model) => model,
            Err(error) => return assert!(error.to_string().contains("adopted object"), "{error}"),
        };
        assert!(!model.is_export_only());
        let Ok(mut set) = ForeignProducer::new(model).build("fuzz") else {
            return;
        };
        let mut out = [0; 64];
        for name in ["a", "b", "image", "state"] {
            if let Some(port) = set.port(name) {
                let _ = set.set_input(port, InputData::F32(&[1.0; 4]));
                let _ = set.get_output(port, &mut out);
                let _ = set.swap_in(port, &out[..input.below(64)]);
            }
        }
        for _ in 0..3 {
            if let Some(plan) = set.default_plan() {
                let _ = set.run(plan, KEY_INHERIT);
            }
            let _ = set.sync();
        }
    });
}
