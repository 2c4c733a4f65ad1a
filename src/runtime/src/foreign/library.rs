//! A shared library and the symbols in its scope.

use std::ffi::{c_char, c_int, c_void, CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use super::{read, Fault};

/// The symbol that makes an execution library.
pub(super) const REPLAY: &str = "frt_graph_replay";
/// `RTLD_NOLOAD` of Linux: a handle only if the library is loaded already.
const RTLD_NOLOAD: c_int = 4;

/// `Dl_info` of `dladdr`.
#[repr(C)]
struct DlInfo {
    file: *const c_char,
    base: *mut c_void,
    symbol: *const c_char,
    address: *mut c_void,
}

extern "C" {
    fn dladdr(address: *const c_void, info: *mut DlInfo) -> c_int;
}

/// The file that the code or data at `address` was loaded from; `None` when it lies in no loaded file.
pub(super) fn file_of(address: *const c_void) -> Option<PathBuf> {
    let mut info = DlInfo {
        file: std::ptr::null(),
        base: std::ptr::null_mut(),
        symbol: std::ptr::null(),
        address: std::ptr::null_mut(),
    };
    // SAFETY: dladdr only looks the address up; `info` is a Dl_info that it may write.
    let found = unsafe { dladdr(address, &mut info) };
    if found == 0 || info.file.is_null() {
        return None;
    }
    // SAFETY: dladdr succeeded, so that `file` is a NUL-terminated path of the loader, which stays while the file is loaded;
    // the caller holds what `address` lies in.
    let file = unsafe { CStr::from_ptr(info.file) };
    Some(PathBuf::from(OsStr::from_bytes(file.to_bytes())))
}

/// A library, or the program itself, with everything that it depends on.
pub(super) struct Scope {
    library: Library,
}

impl Scope {
    /// Loads a library with its own, private scope.
    ///
    /// Its initialisers run: a library is trusted like the program that loads it.
    pub(super) fn open(path: &Path) -> Result<Scope, Fault> {
        // SAFETY: initialisers of the library run with all rights of this process. That is what loading a native model is
        // asked for; the documentation of `ForeignLibrary::open` says so.
        unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }
            .map(|library| Scope { library })
            .map_err(|e| Fault::open(describe(&e)))
    }

    /// The scope of the loaded library that one of `addresses` lies in: the first that has an execution library, else the
    /// first, else the program's own.
    pub(super) fn around(addresses: &[*const c_void]) -> Scope {
        let mut first = None;
        for file in addresses.iter().filter_map(|a| file_of(*a)) {
            // SAFETY: nothing is loaded and no initialiser runs: only a handle to what is there.
            let loaded = unsafe { Library::open(Some(file), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD) };
            let Ok(library) = loaded else { continue };
            let scope = Scope { library };
            if scope.find(REPLAY).is_some() {
                return scope;
            }
            first.get_or_insert(scope);
        }
        first.unwrap_or_else(|| Scope {
            library: Library::this(),
        })
    }

    /// Address of a symbol of the library or of what it depends on.
    pub(super) fn find(&self, name: &str) -> Option<*const c_void> {
        let name = CString::new(name).ok()?;
        // SAFETY: only the address is taken, nothing is called or read through it here.
        let symbol = unsafe { self.library.get::<*const c_void>(name.as_bytes_with_nul()) };
        let address = symbol.ok()?.as_raw_ptr().cast_const();
        (!address.is_null()).then_some(address)
    }

    /// File of the execution library in this scope.
    pub(super) fn exec_library(&self) -> Option<PathBuf> {
        file_of(self.find(REPLAY)?)
    }

    /// The execution library's text about the last failure on this thread.
    pub(super) fn last_error(&self) -> String {
        let Some(at) = self.find("frt_last_error") else {
            return "no text (no frt_last_error)".to_owned();
        };
        // SAFETY: the symbol's name fixes its type; the text is checked by `error_text`.
        unsafe {
            let call =
                std::mem::transmute::<*const c_void, unsafe extern "C" fn() -> *const c_char>(at);
            read::error_text(call())
        }
    }

    /// Keeps the library loaded for ever.
    pub(super) fn leak(self) {
        std::mem::forget(self.library);
    }
}

/// libloading's text with the loader's own reason behind it.
fn describe(e: &libloading::Error) -> String {
    match std::error::Error::source(e) {
        Some(source) => format!("{e}: {source}"),
        None => e.to_string(),
    }
}
