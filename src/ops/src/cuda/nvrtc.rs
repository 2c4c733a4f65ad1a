//! NVRTC, looked up when something has to be compiled.

use std::ffi::{c_char, c_int, c_void, CStr, CString};
use std::path::Path;
use std::sync::OnceLock;

use libloading::Library;

use crate::device::{Module, COMMON};
use crate::Error;

/// Environment variable with the path of the compiler, before the usual names.
const PATH_VARIABLE: &str = "FLASHRT_NVRTC";
const NAMES: [&str; 3] = ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"];

/// How a file is compiled, apart from the architecture. No contraction: kernels say where a product and a sum round once.
pub(super) const OPTIONS: [&str; 3] = ["--std=c++17", "--fmad=false", "-default-device"];

type Program = *mut c_void;

/// The functions that are called, in a library that stays loaded.
pub(super) struct Nvrtc {
    major: c_int,
    minor: c_int,
    error_string: unsafe extern "C" fn(c_int) -> *const c_char,
    create: unsafe extern "C" fn(
        *mut Program,
        *const c_char,
        *const c_char,
        c_int,
        *const *const c_char,
        *const *const c_char,
    ) -> c_int,
    destroy: unsafe extern "C" fn(*mut Program) -> c_int,
    compile: unsafe extern "C" fn(Program, c_int, *const *const c_char) -> c_int,
    cubin_size: unsafe extern "C" fn(Program, *mut usize) -> c_int,
    cubin: unsafe extern "C" fn(Program, *mut c_char) -> c_int,
    log_size: unsafe extern "C" fn(Program, *mut usize) -> c_int,
    log: unsafe extern "C" fn(Program, *mut c_char) -> c_int,
    _library: Library,
}

/// Destroys the program on every way out.
struct Owned<'a>(&'a Nvrtc, Program);

impl Drop for Owned<'_> {
    fn drop(&mut self) {
        // SAFETY: created once, destroyed once.
        unsafe { (self.0.destroy)(&mut self.1) };
    }
}

impl Nvrtc {
    /// The compiler of this process. A failure is not kept: it may be installed meanwhile.
    pub(super) fn get() -> Result<&'static Nvrtc, Error> {
        static FOUND: OnceLock<Nvrtc> = OnceLock::new();
        if let Some(found) = FOUND.get() {
            return Ok(found);
        }
        let given = std::env::var(PATH_VARIABLE)
            .ok()
            .filter(|path| !path.is_empty());
        let opened = match &given {
            Some(path) => Nvrtc::open(path),
            None => {
                let mut reasons = Vec::new();
                NAMES
                    .iter()
                    .find_map(|name| {
                        Nvrtc::open(name)
                            .map_err(|reason| reasons.push(reason))
                            .ok()
                    })
                    .ok_or_else(|| reasons.join("; "))
            }
        };
        let opened = opened.map_err(|reason| Error::NoCompiler { reason })?;
        Ok(FOUND.get_or_init(|| opened))
    }

    fn open(path: &str) -> Result<Nvrtc, String> {
        // SAFETY: loading it runs its constructors, as in any program that links it.
        let library = unsafe { Library::new(path) }.map_err(|e| e.to_string())?;
        fn symbol<T: Copy>(library: &Library, path: &str, name: &str) -> Result<T, String> {
            // SAFETY: `T` is the function's type by NVRTC's documentation; the library stays with the pointer.
            let found = unsafe { library.get::<T>(name.as_bytes()) };
            found
                .map(|f| *f)
                .map_err(|_| format!("{path} has no {name}"))
        }
        let version: unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int =
            symbol(&library, path, "nvrtcVersion")?;
        let (mut major, mut minor) = (0, 0);
        // SAFETY: writes two numbers.
        if unsafe { version(&mut major, &mut minor) } != 0 || major < 12 {
            return Err(format!(
                "{path} is version {major}.{minor}, 12.0 or later is needed"
            ));
        }
        // It looks for its second half by name alone, which finds what is loaded already.
        if let Some(folder) = Path::new(path)
            .parent()
            .filter(|f| !f.as_os_str().is_empty())
        {
            let builtins = folder.join(format!("libnvrtc-builtins.so.{major}.{minor}"));
            // SAFETY: as above. Without it compiling says what is missing.
            if let Ok(builtins) = unsafe { Library::new(builtins) } {
                std::mem::forget(builtins);
            }
        }
        Ok(Nvrtc {
            major,
            minor,
            error_string: symbol(&library, path, "nvrtcGetErrorString")?,
            create: symbol(&library, path, "nvrtcCreateProgram")?,
            destroy: symbol(&library, path, "nvrtcDestroyProgram")?,
            compile: symbol(&library, path, "nvrtcCompileProgram")?,
            cubin_size: symbol(&library, path, "nvrtcGetCUBINSize")?,
            cubin: symbol(&library, path, "nvrtcGetCUBIN")?,
            log_size: symbol(&library, path, "nvrtcGetProgramLogSize")?,
            log: symbol(&library, path, "nvrtcGetProgramLog")?,
            _library: library,
        })
    }

    /// Such as `NVRTC-13.0`.
    pub(super) fn name(&self) -> String {
        format!("NVRTC-{}.{}", self.major, self.minor)
    }

    /// Machine code of `module` for `arch`, such as `sm_90`.
    pub(super) fn compile(&self, module: &Module, arch: &str) -> Result<Vec<u8>, Error> {
        let failed = |log: String| Error::KernelCompile {
            file: module.name,
            arch: arch.to_owned(),
            compiler: self.name(),
            log,
        };
        let text = |s: &str| CString::new(s).map_err(|_| failed("the source has a NUL".into()));
        let (source, name) = (text(module.source)?, text(module.name)?);
        let (header_name, header) = (text(COMMON.0)?, text(COMMON.1)?);
        let mut program = std::ptr::null_mut();
        // SAFETY: texts with an end, one header with its name; writes one handle.
        let status = unsafe {
            (self.create)(
                &mut program,
                source.as_ptr(),
                name.as_ptr(),
                1,
                &header.as_ptr(),
                &header_name.as_ptr(),
            )
        };
        self.check(status).map_err(failed)?;
        let program = Owned(self, program);

        let target = format!("--gpu-architecture={arch}");
        let options: Vec<CString> = OPTIONS
            .iter()
            .copied()
            .chain([target.as_str()])
            .map(text)
            .collect::<Result<_, _>>()?;
        let pointers: Vec<_> = options.iter().map(|o| o.as_ptr()).collect();
        // SAFETY: a live program, and texts with an end.
        let status =
            unsafe { (self.compile)(program.1, pointers.len() as c_int, pointers.as_ptr()) };
        if let Err(reason) = self.check(status) {
            let log = self
                .read(program.1, self.log_size, self.log)
                .unwrap_or_default();
            let log = String::from_utf8_lossy(&log);
            let first: Vec<&str> = log
                .trim_matches(['\0', '\n', ' '])
                .lines()
                .take(12)
                .collect();
            return Err(failed(format!("{reason}\n{}", first.join("\n"))));
        }
        self.read(program.1, self.cubin_size, self.cubin)
            .map_err(failed)
    }

    fn read(
        &self,
        program: Program,
        size: unsafe extern "C" fn(Program, *mut usize) -> c_int,
        get: unsafe extern "C" fn(Program, *mut c_char) -> c_int,
    ) -> Result<Vec<u8>, String> {
        let mut bytes = 0;
        // SAFETY: a live program; writes one number.
        self.check(unsafe { size(program, &mut bytes) })?;
        let mut out = vec![0u8; bytes];
        // SAFETY: a live program; writes as many bytes as it said.
        self.check(unsafe { get(program, out.as_mut_ptr().cast()) })?;
        Ok(out)
    }

    fn check(&self, status: c_int) -> Result<(), String> {
        if status == 0 {
            return Ok(());
        }
        // SAFETY: a text that is part of the library, for any number.
        let text = unsafe { CStr::from_ptr((self.error_string)(status)) };
        Err(text.to_string_lossy().into_owned())
    }
}
