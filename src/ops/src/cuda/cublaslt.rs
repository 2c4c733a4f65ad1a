//! cuBLASLt, looked up when a product needs it: one handle a context, and the search for an algorithm.

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::time::Instant;

use flashrt_exec::{Context, Space, StreamId};
use libloading::Library;

use crate::{DType, Error, Tensor};

/// Environment variable with the path of the library, before the usual names.
const PATH_VARIABLE: &str = "FLASHRT_CUBLASLT";
const NAMES: [&str; 3] = ["libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"];

// Numbers of cublasLt.h.
const COMPUTE_F32: c_int = 68;
const TYPE_F32: c_int = 0;
const TYPE_F16: c_int = 2;
const TYPE_BF16: c_int = 14;
const DESC_TRANSA: c_int = 3;
const OP_T: c_int = 1;
const PREF_MAX_WORKSPACE: c_int = 1;
const PREF_REDUCTION_MASK: c_int = 3;
const REDUCTION_IN_F32: u32 = 2;

/// Scratch that an algorithm may use.
pub(crate) const WORKSPACE: usize = 32 << 20;
/// Algorithms that are tried, and launches that each is timed over.
const CANDIDATES: usize = 8;
const LAUNCHES: usize = 20;

/// What an algorithm is to the library: eight words.
pub(crate) type Algorithm = [u64; 8];

#[repr(C)]
#[derive(Clone, Copy)]
struct Found {
    algorithm: Algorithm,
    workspace: usize,
    state: c_int,
    waves: f32,
    reserved: [c_int; 4],
}

type Handle = *mut c_void;
type Status = c_int;
type Destroy = unsafe extern "C" fn(Handle) -> Status;
type SetAttribute = unsafe extern "C" fn(Handle, c_int, *const c_void, usize) -> Status;

/// The functions that are called, in a library that stays loaded as long as this.
struct Functions {
    create: unsafe extern "C" fn(*mut Handle) -> Status,
    destroy: Destroy,
    desc_create: unsafe extern "C" fn(*mut Handle, c_int, c_int) -> Status,
    desc_destroy: Destroy,
    desc_set: SetAttribute,
    layout_create: unsafe extern "C" fn(*mut Handle, c_int, u64, u64, i64) -> Status,
    layout_destroy: Destroy,
    pref_create: unsafe extern "C" fn(*mut Handle) -> Status,
    pref_destroy: Destroy,
    pref_set: SetAttribute,
    #[allow(clippy::type_complexity)] // the library's
    heuristic: unsafe extern "C" fn(
        Handle,
        Handle,
        Handle,
        Handle,
        Handle,
        Handle,
        Handle,
        c_int,
        *mut Found,
        *mut c_int,
    ) -> Status,
    #[allow(clippy::type_complexity)]
    matmul: unsafe extern "C" fn(
        Handle,
        Handle,
        *const f32,
        *const c_void,
        Handle,
        *const c_void,
        Handle,
        *const f32,
        *const c_void,
        Handle,
        *mut c_void,
        Handle,
        *const Algorithm,
        *mut c_void,
        usize,
        *mut c_void,
    ) -> Status,
    _library: Library,
}

/// The library with a handle on the device of one context.
pub(crate) struct CublasLt {
    functions: Functions,
    handle: Handle,
}
// SAFETY: a handle of cuBLASLt may be used by any thread, and by several at once.
unsafe impl Send for CublasLt {}
// SAFETY: as above.
unsafe impl Sync for CublasLt {}

impl Drop for CublasLt {
    fn drop(&mut self) {
        // SAFETY: created once, destroyed once.
        unsafe { (self.functions.destroy)(self.handle) };
    }
}

impl CublasLt {
    /// That of `ctx`.
    pub(crate) fn of(ctx: &Context) -> Result<Arc<CublasLt>, Error> {
        ctx.attachment(|| {
            let given = std::env::var(PATH_VARIABLE)
                .ok()
                .filter(|path| !path.is_empty());
            let names: Vec<String> = match given {
                Some(path) => vec![path],
                None => NAMES.map(String::from).into(),
            };
            let mut reasons = Vec::new();
            let functions = names
                .iter()
                .find_map(|name| {
                    Functions::open(name)
                        .map_err(|reason| reasons.push(reason))
                        .ok()
                })
                .ok_or_else(|| Error::NoCublas {
                    reason: reasons.join("; "),
                })?;
            let mut handle = std::ptr::null_mut();
            // SAFETY: writes one handle; the device's context is current on this thread, which has just used `ctx`.
            let status = unsafe { (functions.create)(&mut handle) };
            check("cublasLtCreate", status)?;
            Ok(CublasLt { functions, handle })
        })
    }
}

impl Functions {
    fn open(path: &str) -> Result<Functions, String> {
        // SAFETY: loading it runs its constructors, as in any program that links it.
        let library = unsafe { Library::new(path) }.map_err(|e| e.to_string())?;
        macro_rules! symbol {
            ($name:literal) => {
                // SAFETY: the field has the function's type by the library's documentation, and goes with the library.
                match unsafe { library.get($name.as_bytes()) } {
                    Ok(symbol) => *symbol,
                    Err(_) => return Err(format!("{path} has no {}", $name)),
                }
            };
        }
        Ok(Functions {
            create: symbol!("cublasLtCreate"),
            destroy: symbol!("cublasLtDestroy"),
            desc_create: symbol!("cublasLtMatmulDescCreate"),
            desc_destroy: symbol!("cublasLtMatmulDescDestroy"),
            desc_set: symbol!("cublasLtMatmulDescSetAttribute"),
            layout_create: symbol!("cublasLtMatrixLayoutCreate"),
            layout_destroy: symbol!("cublasLtMatrixLayoutDestroy"),
            pref_create: symbol!("cublasLtMatmulPreferenceCreate"),
            pref_destroy: symbol!("cublasLtMatmulPreferenceDestroy"),
            pref_set: symbol!("cublasLtMatmulPreferenceSetAttribute"),
            heuristic: symbol!("cublasLtMatmulAlgoGetHeuristic"),
            matmul: symbol!("cublasLtMatmul"),
            _library: library,
        })
    }
}

fn check(call: &'static str, status: Status) -> Result<(), Error> {
    match status {
        0 => Ok(()),
        status => Err(Error::Cublas { call, status }),
    }
}

/// An object of the library, destroyed with its owner.
struct Owned(Handle, Destroy);

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: created once, destroyed once.
        unsafe { (self.1)(self.0) };
    }
}

/// `out[M, N] = x[M, K]·w[N, K]ᵀ (+ out)`, described for the library, which counts columns first: it computes outᵀ = w·xᵀ.
pub(crate) struct Product {
    library: Arc<CublasLt>,
    desc: Owned,
    w: Owned,
    x: Owned,
    out: Owned,
}
// SAFETY: as for the handle; nothing changes after it is made.
unsafe impl Send for Product {}
// SAFETY: as above.
unsafe impl Sync for Product {}

impl Product {
    pub(crate) fn new(
        library: Arc<CublasLt>,
        m: usize,
        n: usize,
        k: usize,
        dtype: DType,
    ) -> Result<Product, Error> {
        let f = &library.functions;
        let kind = match dtype {
            DType::F16 => TYPE_F16,
            DType::BF16 => TYPE_BF16,
            _ => TYPE_F32,
        };
        let mut handle = std::ptr::null_mut();
        // SAFETY: writes one handle, here and below.
        check("cublasLtMatmulDescCreate", unsafe {
            (f.desc_create)(&mut handle, COMPUTE_F32, TYPE_F32)
        })?;
        let desc = Owned(handle, f.desc_destroy);
        // SAFETY: the attribute is an int.
        let status = unsafe {
            (f.desc_set)(
                desc.0,
                DESC_TRANSA,
                std::ptr::from_ref(&OP_T).cast(),
                size_of::<c_int>(),
            )
        };
        check("cublasLtMatmulDescSetAttribute", status)?;
        let layout = |rows: usize, cols: usize| {
            let mut handle = std::ptr::null_mut();
            // SAFETY: as above.
            let status = unsafe {
                (f.layout_create)(&mut handle, kind, rows as u64, cols as u64, rows as i64)
            };
            check("cublasLtMatrixLayoutCreate", status).map(|()| Owned(handle, f.layout_destroy))
        };
        let (w, x, out) = (layout(k, n)?, layout(k, m)?, layout(n, m)?);
        Ok(Product {
            library,
            desc,
            w,
            x,
            out,
        })
    }

    /// The algorithms that the library proposes, best first by its own estimate; at most `most`.
    pub(crate) fn proposals(&self, most: usize) -> Result<Vec<Algorithm>, Error> {
        let f = &self.library.functions;
        let mut handle = std::ptr::null_mut();
        // SAFETY: writes one handle.
        check("cublasLtMatmulPreferenceCreate", unsafe {
            (f.pref_create)(&mut handle)
        })?;
        let preference = Owned(handle, f.pref_destroy);
        // SAFETY: the attribute is a size.
        let status = unsafe {
            (f.pref_set)(
                preference.0,
                PREF_MAX_WORKSPACE,
                std::ptr::from_ref(&WORKSPACE).cast(),
                size_of::<usize>(),
            )
        };
        check("cublasLtMatmulPreferenceSetAttribute", status)?;
        // Shares of a sum are added up in f32: no algorithm that rounds them to the output's type.
        // SAFETY: the attribute is a 32-bit mask.
        let status = unsafe {
            (f.pref_set)(
                preference.0,
                PREF_REDUCTION_MASK,
                std::ptr::from_ref(&REDUCTION_IN_F32).cast(),
                size_of::<u32>(),
            )
        };
        check("cublasLtMatmulPreferenceSetAttribute", status)?;
        let nothing = Found {
            algorithm: [0; 8],
            workspace: 0,
            state: 0,
            waves: 0.0,
            reserved: [0; 4],
        };
        let (mut found, mut count) = (vec![nothing; most], 0);
        // SAFETY: descriptions of this library; writes as many results as asked for at most, and their number.
        let status = unsafe {
            (f.heuristic)(
                self.library.handle,
                self.desc.0,
                self.w.0,
                self.x.0,
                self.out.0,
                self.out.0,
                preference.0,
                most as c_int,
                found.as_mut_ptr(),
                &mut count,
            )
        };
        check("cublasLtMatmulAlgoGetHeuristic", status)?;
        let usable = found
            .iter()
            .take(count.max(0) as usize)
            .filter(|c| c.state == 0);
        Ok(usable.map(|c| c.algorithm).collect())
    }

    /// The fastest algorithm that the library proposes, timed on fresh operands; two sets of them, so that none stays in the cache.
    pub(crate) fn tune(
        &self,
        ctx: &Context,
        operands: [[Tensor; 3]; 2],
        workspace: &Tensor,
    ) -> Result<Algorithm, Error> {
        let stream = ctx.raw_stream(StreamId(0))?;
        let mut best: Option<(f64, Algorithm)> = None;
        for candidate in self.proposals(CANDIDATES)? {
            let mut times = Vec::new();
            for _ in 0..3 {
                ctx.synchronize(StreamId(0))?;
                let begin = Instant::now();
                for i in 0..LAUNCHES {
                    let [x, w, out] = &operands[i % 2];
                    self.launch(&candidate, x, w, out, false, workspace, stream)?;
                }
                ctx.synchronize(StreamId(0))?;
                times.push(begin.elapsed().as_secs_f64());
            }
            let time = times.into_iter().fold(f64::INFINITY, f64::min);
            if best.is_none_or(|(t, _)| time < t) {
                best = Some((time, candidate));
            }
        }
        best.map(|(_, algorithm)| algorithm).ok_or(Error::Cublas {
            call: "cublasLtMatmulAlgoGetHeuristic",
            status: 15, // not supported
        })
    }

    /// Enqueues the product on `stream`.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn launch(
        &self,
        algorithm: &Algorithm,
        x: &Tensor,
        w: &Tensor,
        out: &Tensor,
        adds: bool,
        workspace: &Tensor,
        stream: *mut c_void,
    ) -> Result<(), Error> {
        let at = |t: &Tensor| t.slice().as_ptr().cast::<c_void>();
        let (one, beta) = (1.0f32, if adds { 1.0f32 } else { 0.0 });
        // SAFETY: checked operands of the described shapes in device memory, a workspace of the size that the algorithm was chosen
        // for, and a stream of the handle's device.
        let status = unsafe {
            (self.library.functions.matmul)(
                self.library.handle,
                self.desc.0,
                &one,
                at(w),
                self.w.0,
                at(x),
                self.x.0,
                &beta,
                at(out),
                self.out.0,
                at(out),
                self.out.0,
                algorithm,
                at(workspace),
                workspace.slice().bytes(),
                stream,
            )
        };
        check("cublasLtMatmul", status)
    }
}

/// Scratch of one plan.
pub(crate) fn workspace(ctx: &Context) -> Result<Tensor, Error> {
    Tensor::alloc(
        ctx,
        "gemm_workspace",
        Space::Device,
        DType::U8,
        &[WORKSPACE],
    )
}
