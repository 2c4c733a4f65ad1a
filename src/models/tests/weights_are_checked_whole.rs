//! One clear error for a weights file that does not fit, and the name variants that do.

mod common;

use common::Raw;
use flashrt_models::pi05::{names, open_weights, Pi05Config};
use flashrt_models::Error;

fn config() -> Pi05Config {
    common::golden_config()
}

/// Opens the golden weights after `change`.
fn with(name: &str, change: impl FnOnce(&mut Vec<Raw>)) -> Result<String, Error> {
    let mut tensors = common::raw(&common::golden_dir().join("model.safetensors"));
    change(&mut tensors);
    let path = common::temp_dir(name).join("model.safetensors");
    common::write_safetensors(&path, &tensors);
    open_weights(&config(), &path).map(|w| w.sha256().to_owned())
}

fn find<'a>(tensors: &'a mut [Raw], end: &str) -> &'a mut Raw {
    tensors.iter_mut().find(|t| t.0.ends_with(end)).unwrap()
}

const GATE: &str = "language_model.layers.1.mlp.up_proj.weight";

#[test]
fn the_golden_file_fits() {
    let path = common::golden_dir().join("model.safetensors");
    let weights = open_weights(&config(), &path).unwrap();
    assert_eq!(weights.names().count(), names::all(&config()).len());
    let want = common::load(&path);
    for (name, shape) in names::all(&config()) {
        assert_eq!(
            weights.read(&name, &shape).unwrap(),
            want[&name].f32(),
            "{name}"
        );
    }
}

#[test]
fn the_demo_files_fit_under_their_names() {
    let config = Pi05Config::read(&common::demo_dir().join("config.json")).unwrap();
    open_weights(&config, &common::demo_dir().join("model.safetensors")).unwrap();
}

#[test]
fn a_missing_tensor_is_named_with_its_shape() {
    let error = with("missing", |t| t.retain(|t| !t.0.ends_with(GATE))).unwrap_err();
    assert!(
        matches!(&error, Error::MissingTensor { name, expected, missing: 1 } if name.ends_with(GATE) && *expected == [96, 48]),
        "{error}"
    );
}

#[test]
fn an_extra_tensor_is_named() {
    let error = with("extra", |t| {
        t.push(("surprise".into(), "F32", vec![2], vec![0; 8]))
    })
    .unwrap_err();
    assert!(
        matches!(&error, Error::UnexpectedTensor { name, extra: 1, .. } if name == "surprise"),
        "{error}"
    );
}

#[test]
fn a_wrong_shape_is_named_with_both_shapes() {
    let error = with("shape", |t| find(t, GATE).2 = vec![48, 96]).unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains(GATE) && text.contains("[96, 48]") && text.contains("[48, 96]"),
        "{text}"
    );
}

#[test]
fn a_wrong_element_type_is_named() {
    let error = with("dtype", |t| find(t, GATE).1 = "I32").unwrap_err();
    assert!(
        matches!(&error, Error::TensorDType { name, .. } if name.ends_with(GATE)),
        "{error}"
    );
}

#[test]
fn dimensions_are_compared_with_the_configuration() {
    let path = common::golden_dir().join("model.safetensors");
    let check = |change: &dyn Fn(&mut Pi05Config)| {
        let mut c = config();
        change(&mut c);
        open_weights(&c, &path).unwrap_err()
    };
    for (key, want, error) in [
        ("depth", 2, check(&|c| c.depth = 1)),
        ("depth", 2, check(&|c| c.depth = 3)),
        ("v_depth", 2, check(&|c| c.v_depth = 3)),
        ("width", 48, check(&|c| c.width = 64)),
        ("ex_width", 32, check(&|c| c.ex_width = 48)),
        ("v_width", 32, check(&|c| c.v_width = 48)),
        ("patch", 8, check(&|c| c.patch = 4)),
        ("image", 32, check(&|c| c.image = 64)),
        ("vocab", 320, check(&|c| c.vocab = 321)),
        ("heads", 8, check(&|c| c.heads = 4)),
        ("adim", 6, check(&|c| c.adim = 7)),
        ("mlp", 96, check(&|c| c.mlp = 97)),
    ] {
        assert!(
            matches!(&error, Error::Dimension { key: k, weights, .. } if *k == key && *weights == want),
            "{key}: {error}"
        );
    }
}

#[test]
fn wrapped_and_tied_names_are_accepted() {
    with("wrapped", |t| {
        t.iter_mut().for_each(|t| t.0 = format!("model.{}", t.0))
    })
    .unwrap();
    with("compiled", |t| {
        t.iter_mut()
            .for_each(|t| t.0 = format!("model._orig_mod.{}", t.0))
    })
    .unwrap();
    with("tied", |t| {
        let embed = find(t, "embed_tokens.weight");
        let head = "paligemma_with_expert.paligemma.lm_head.weight";
        embed.0 = head.into();
        t.push((
            "paligemma_with_expert.gemma_expert.lm_head.weight".into(),
            "F32",
            vec![1],
            vec![0; 4],
        ));
    })
    .unwrap();
    let error = with("twice", |t| {
        let mut copy = t[0].clone();
        copy.0 = format!("model.{}", copy.0);
        t.push(copy);
    })
    .unwrap_err();
    assert!(error.to_string().contains("are the same tensor"), "{error}");
}

#[test]
fn half_precision_is_widened_exactly() {
    let values = [1.0f32, -0.5, 65504.0, 6.1e-5, 0.0, 3.140625];
    let dir = common::temp_dir("half");
    for (dtype, bytes) in [
        (
            "F16",
            values
                .iter()
                .flat_map(|x| half::f16::from_f32(*x).to_le_bytes())
                .collect::<Vec<u8>>(),
        ),
        (
            "BF16",
            values
                .iter()
                .flat_map(|x| half::bf16::from_f32(*x).to_le_bytes())
                .collect(),
        ),
    ] {
        let path = dir.join(dtype);
        common::write_safetensors(&path, &[("x".into(), dtype, vec![2, 3], bytes)]);
        let weights = flashrt_models::weights::Weights::open(&path, &|n: &str| n.into()).unwrap();
        let want: Vec<f32> = match dtype {
            "F16" => values
                .iter()
                .map(|x| half::f16::from_f32(*x).to_f32())
                .collect(),
            _ => values
                .iter()
                .map(|x| half::bf16::from_f32(*x).to_f32())
                .collect(),
        };
        assert_eq!(weights.read("x", &[2, 3]).unwrap(), want);
    }
}

#[test]
fn broken_files_are_refused() {
    let dir = common::temp_dir("broken");
    let open = |bytes: &[u8]| {
        let path = dir.join("x.safetensors");
        std::fs::write(&path, bytes).unwrap();
        open_weights(&config(), &path).unwrap_err()
    };
    let whole = std::fs::read(common::golden_dir().join("model.safetensors")).unwrap();
    for cut in [0, 7, 8, 100, whole.len() / 2, whole.len() - 1] {
        let error = open(&whole[..cut]);
        assert!(
            matches!(error, Error::WeightsFormat { .. }),
            "{cut}: {error}"
        );
    }
    let mut huge = whole.clone();
    huge[..8].copy_from_slice(&u64::MAX.to_le_bytes());
    assert!(matches!(open(&huge), Error::WeightsFormat { .. }));
    let missing = open_weights(&config(), &dir.join("none")).unwrap_err();
    assert!(
        matches!(&missing, Error::Io { path, .. } if path.ends_with("none")),
        "{missing}"
    );

    let mut nan = common::raw(&common::golden_dir().join("model.safetensors"));
    let t = find(&mut nan, "time_mlp_in.bias");
    t.3[4..8].copy_from_slice(&f32::NAN.to_le_bytes());
    let path = dir.join("nan");
    common::write_safetensors(&path, &nan);
    let error = open_weights(&config(), &path)
        .unwrap()
        .read("time_mlp_in.bias", &[32])
        .unwrap_err();
    assert!(
        matches!(&error, Error::TensorValue { name, index: 1, .. } if name == "time_mlp_in.bias"),
        "{error}"
    );
}

#[test]
fn a_bad_configuration_names_the_key() {
    let dir = common::temp_dir("config");
    let good = common::golden_config_text();
    let read = |text: &str| {
        let path = dir.join("config.json");
        std::fs::write(&path, text).unwrap();
        Pi05Config::read(&path).unwrap_err().to_string()
    };
    assert!(read(&good.replace("\"depth\"", "\"depht\"")).contains("unknown field `depht`"));
    assert!(read(&good.replace("\"depth\": 2, ", "")).contains("missing field `depth`"));
    assert!(read(&good.replace("\"anchor_dims\": 0, ", "")).contains("missing field `anchor_dims`"));
    assert!(read(&good.replace("\"depth\": 2", "\"depth\": 0")).contains("depth = 0"));
    assert!(read(&good.replace("\"kv\": 1", "\"kv\": 3"))
        .contains("kv = 3: expected a divisor of heads = 8"));
    assert!(read(&good.replace("\"patch\": 8", "\"patch\": 7")).contains("patch = 7"));
    assert!(read(&good.replace("\"depth\": 2", "\"depth\": -2")).contains("config.json"));
    assert!(
        read(&good.replace("\"anchor_dims\": 0", "\"anchor_dims\": 7"))
            .contains("anchor_dims = 7: expected at most 6")
    );
}
