//! Models that come out of a native library through the published binary interface.
//!
//! [`ForeignLibrary::open`] loads a library and calls its factory. The declaration is checked and copied out; identity and
//! fingerprint stay the producer's. The [`ForeignProducer`] makes the model's one live set, which ticks like any other:
//! graphs through the execution library that their handles came from, OPAQUE stages and `step` through the producer's own
//! functions.
//!
//! | Symbol | Gives |
//! |---|---|
//! | `frt_model_runtime_open_v1` | a model runtime: ports, plan, verbs |
//! | `frt_runtime_open_v1` (when the first is missing) | an export: it can be described and its regions saved, not run |
//!
//! **References.** The reference that the factory gives is given back once, when the last part of the live set is gone, on the
//! thread that drops it; then the library is unloaded. An object of a wrong version or size, or without `release`, cannot be
//! given back: then its library stays loaded for ever, because it may still be in use by it.
//!
//! **Trust.** A library runs with all rights of the process. Null pointers, absurd counts, wrong numbers, wrong return codes and
//! texts without an end are refused with an error; a pointer to memory that is not there cannot be.

mod calls;
mod library;
mod object;
mod read;
mod set;

use std::ffi::{c_char, c_int, CString};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::abi::{self, frt_model_runtime_v1, frt_runtime_export_v1};
use crate::{Declaration, Error, LiveSet, Producer};
use library::Scope;
use object::{Declared, Object, Reference};

/// Why a native model is refused or failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForeignFault {
    /// The library cannot be loaded, has no factory, or its factory failed without a known code.
    Open,
    /// What it gave breaks the rules of the interface.
    Object,
    /// It is a legal model, but not one that can do what was asked for.
    Unsupported,
    /// A call answered with this code: -1 invalid argument, -2 not found, -3 unsupported, -4 shape or format mismatch,
    /// -5 storage too small, -6 backend failure; any other is unknown.
    Status(i32),
}

/// A fault before it is known which library it is about.
#[derive(Debug)]
struct Fault {
    kind: ForeignFault,
    reason: String,
}

impl Fault {
    fn open(reason: impl Into<String>) -> Fault {
        Fault {
            kind: ForeignFault::Open,
            reason: reason.into(),
        }
    }

    fn object(reason: impl Into<String>) -> Fault {
        Fault {
            kind: ForeignFault::Object,
            reason: reason.into(),
        }
    }

    fn unsupported(reason: impl Into<String>) -> Fault {
        Fault {
            kind: ForeignFault::Unsupported,
            reason: reason.into(),
        }
    }

    /// A call that answered with `code`, and the producer's text.
    fn status(call: &str, code: c_int, text: &str) -> Fault {
        Fault {
            kind: ForeignFault::Status(code),
            reason: format!("{call} answers {code} ({}): {text}", meaning(code)),
        }
    }

    fn of(self, model: &str) -> Error {
        Error::Foreign {
            model: model.to_owned(),
            fault: self.kind,
            reason: self.reason,
        }
    }
}

impl From<Error> for Fault {
    fn from(e: Error) -> Fault {
        Fault::object(e.to_string())
    }
}

/// What a status code of the interface says.
fn meaning(code: c_int) -> &'static str {
    match code {
        0 => "done",
        -1 => "invalid argument or configuration",
        -2 => "not found",
        -3 => "unsupported",
        -4 => "shape or format mismatch",
        -5 => "storage too small",
        -6 => "backend failure",
        _ => "a code without a meaning",
    }
}

/// What keeps a native model alive. The reference goes first, then the library.
struct Anchor {
    _reference: Reference,
    scope: Scope,
}

/// A native library with a model in it.
pub struct ForeignLibrary;

impl ForeignLibrary {
    /// Loads the library at `path` and opens its model with `config_json`.
    ///
    /// The library's initialisers and its factory run, with all rights of this process: open only what is trusted like the
    /// program itself. Slow: loads weights.
    ///
    /// # Errors
    /// [`Error::Foreign`]: the file is no loadable library; it has neither factory; the factory fails (with the meaning of its
    /// code); it gives null; the object breaks a rule (named, with numbers). Nothing stays loaded then, but for an object
    /// that cannot be given back, see the module.
    pub fn open(path: &Path, config_json: &str) -> Result<ForeignModel, Error> {
        let shown = path.display().to_string();
        open(path, config_json).map_err(|fault| fault.of(&shown))
    }
}

fn open(path: &Path, config_json: &str) -> Result<ForeignModel, Fault> {
    let config = CString::new(config_json).map_err(|e| {
        Fault::open(format!(
            "the configuration has a NUL at byte {}",
            e.nul_position()
        ))
    })?;
    // Absolute, so that the loader searches nowhere else.
    let path = path
        .canonicalize()
        .map_err(|e| Fault::open(format!("cannot be found: {e}")))?;
    let scope = Scope::open(&path)?;
    let object = call_factory(&scope, &config)?;
    // SAFETY: the factory says that `object` is an object of its kind, and gives its reference away.
    let reference = match unsafe { object.reference() } {
        Ok(reference) => reference,
        Err(fault) => {
            // Something of it may be running or in use.
            scope.leak();
            return Err(fault);
        }
    };
    // On a failure from here on the anchor gives the reference back, then the library.
    let anchor = Arc::new(Anchor {
        _reference: reference,
        scope,
    });
    // SAFETY: `anchor` holds a reference; what the object points to is the producer's promise.
    let declared = unsafe { object.declared() }?;
    Ok(ForeignModel::new(declared, Some(path), anchor))
}

type ModelFactory =
    unsafe extern "C" fn(config_json: *const c_char, out: *mut *mut frt_model_runtime_v1) -> c_int;
type ExportFactory =
    unsafe extern "C" fn(config_json: *const c_char, out: *mut *mut frt_runtime_export_v1) -> c_int;

fn call_factory(scope: &Scope, config: &CString) -> Result<Object, Fault> {
    let (model, export) = (
        abi::FRT_MODEL_RUNTIME_OPEN_V1_SYMBOL,
        abi::FRT_RUNTIME_OPEN_V1_SYMBOL,
    );
    let (symbol, code, object) = if let Some(at) = scope.find(model) {
        // SAFETY: the symbol's name fixes its type.
        let factory = unsafe { std::mem::transmute::<*const std::ffi::c_void, ModelFactory>(at) };
        let mut out = std::ptr::null_mut();
        // SAFETY: a NUL-terminated text and a place for the result, as the interface says.
        let code = unsafe { factory(config.as_ptr(), &mut out) };
        let object = (!out.is_null()).then_some(Object::Model(out));
        (model, code, object)
    } else if let Some(at) = scope.find(export) {
        // SAFETY: as above.
        let factory = unsafe { std::mem::transmute::<*const std::ffi::c_void, ExportFactory>(at) };
        let mut out = std::ptr::null_mut();
        // SAFETY: as above.
        let code = unsafe { factory(config.as_ptr(), &mut out) };
        let object = (!out.is_null()).then_some(Object::Export(out));
        (export, code, object)
    } else {
        return Err(Fault::open(format!(
            "it has neither the symbol {model} nor {export}: no native model"
        )));
    };
    if code != 0 {
        let text = scope.last_error();
        return Err(Fault::status(symbol, code, &text));
    }
    object.ok_or_else(|| Fault::object(format!("{symbol} answers 0 but gives a null object")))
}

/// Takes up an object that came another way than through [`ForeignLibrary::open`], with a reference of its own.
///
/// Execution symbols are looked for in the library that the object's functions lie in. Nothing is retained on failure.
///
/// # Safety
/// `object` is null or points to an object of the published layout, to which the caller holds a reference during the call; its
/// arrays are as long as it says, its texts have an end, and its functions keep the rules of the interface.
///
/// # Errors
/// [`Error::Foreign`] with the rule that the object breaks.
pub unsafe fn adopt(object: *const frt_model_runtime_v1) -> Result<ForeignModel, Error> {
    let object = Object::Model(object);
    // SAFETY: the caller's promise.
    let take = || unsafe {
        let declared = object.declared()?;
        let scope = Scope::around(&object.code()?);
        let anchor = Arc::new(Anchor {
            _reference: object.retain()?,
            scope,
        });
        Ok(ForeignModel::new(declared, None, anchor))
    };
    take().map_err(|fault: Fault| fault.of("adopted object"))
}

/// A native model, opened and checked, before its live set is made.
pub struct ForeignModel {
    // The anchor is last: everything else may still use the library.
    declared: Declared,
    name: String,
    library: Option<PathBuf>,
    exec_library: Option<PathBuf>,
    anchor: Arc<Anchor>,
}

impl ForeignModel {
    fn new(declared: Declared, library: Option<PathBuf>, anchor: Arc<Anchor>) -> ForeignModel {
        let pairs = &declared.declaration.pairs;
        let named = pairs.iter().find(|(k, v)| k == "model" && !v.is_empty());
        let stem = || {
            let stem = library.as_deref().and_then(Path::file_stem);
            stem.map_or("native".to_owned(), |s| s.to_string_lossy().into_owned())
        };
        ForeignModel {
            name: named.map_or_else(stem, |(_, v)| v.clone()),
            exec_library: anchor.scope.exec_library(),
            library,
            declared,
            anchor,
        }
    }

    /// The identity's pair `model`, else the library's file name without its ending.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// File of the library; `None` for an adopted object.
    pub fn library(&self) -> Option<&Path> {
        self.library.as_deref()
    }

    /// File that graphs are replayed through: the one that holds `frt_graph_replay` in the library's scope.
    pub fn exec_library(&self) -> Option<&Path> {
        self.exec_library.as_deref()
    }

    /// Everything that it declares. Pairs are read back from the identity text, for people.
    pub fn declaration(&self) -> &Declaration {
        &self.declared.declaration
    }

    /// The producer's identity text.
    pub fn identity(&self) -> &[u8] {
        &self.declared.identity
    }

    /// The producer's fingerprint, checked against the identity text.
    pub fn fingerprint(&self) -> u64 {
        self.declared.fingerprint
    }

    /// True for an export without ports and plan: it can be described and saved, not run.
    pub fn is_export_only(&self) -> bool {
        self.declared.is_export
    }
}

/// Makes the one live set of a native model.
pub struct ForeignProducer {
    name: String,
    model: Option<ForeignModel>,
}

impl ForeignProducer {
    /// The producer of `model`.
    pub fn new(model: ForeignModel) -> ForeignProducer {
        ForeignProducer {
            name: model.name.clone(),
            model: Some(model),
        }
    }
}

impl Producer for ForeignProducer {
    fn name(&self) -> &str {
        &self.name
    }

    /// Works once.
    ///
    /// # Errors
    /// [`Error::Foreign`]: a second call; a plan of graphs whose execution library is out of reach; windows and streams that
    /// do not exist.
    fn build(&mut self, set_name: &str) -> Result<LiveSet, Error> {
        let Some(model) = self.model.take() else {
            let reason = format!("a native model has one live set, '{set_name}' would be another");
            return Err(Fault::unsupported(reason).of(&self.name));
        };
        set::build(model, set_name).map_err(|fault| fault.of(&self.name))
    }

    /// 0: a native model does not say.
    fn weights_bytes(&self) -> usize {
        0
    }
}
