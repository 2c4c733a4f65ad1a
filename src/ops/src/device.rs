//! What an operation asks of a device: kernels with their grid and arguments, in order.
//!
//! Plain data, on every build; `cuda` makes launches of it.

use crate::Tensor;

/// One file of `kernels/`: compiled and loaded as a whole.
pub(crate) struct Module {
    pub name: &'static str,
    pub source: &'static str,
}

/// The header that every kernel file includes.
pub(crate) const COMMON: (&str, &str) = ("common.cuh", include_str!("../../../kernels/common.cuh"));

macro_rules! modules {
    ($($constant:ident = $file:literal;)*) => {
        $(pub(crate) static $constant: Module = Module {
            name: concat!($file, ".cu"),
            source: include_str!(concat!("../../../kernels/", $file, ".cu")),
        };)*
        /// Every module.
        pub(crate) static MODULES: &[&Module] = &[$(&$constant),*];
    };
}

modules! {
    ACTION = "action";
    ATTENTION = "attention";
    CONV1D = "conv1d";
    DELTA = "delta";
    ELEMENTWISE = "elementwise";
    EMBED = "embed";
    FLASH = "flash";
    GATE = "gate";
    GEMV = "gemv";
    MATMUL = "matmul";
    NOISE = "noise";
    NORM = "norm";
    ROPE = "rope";
}

/// The modules of operations on f32 that every transformer has.
pub(crate) static F32_MODULES: &[&Module] = &[
    &ACTION,
    &ATTENTION,
    &ELEMENTWISE,
    &EMBED,
    &MATMUL,
    &NOISE,
    &NORM,
    &ROPE,
];

/// The kernel of an operation for a tensor's element type: `rms_norm_bf16`.
macro_rules! typed {
    ($name:literal, $tensor:expr) => {
        match $tensor.dtype() {
            $crate::DType::F16 => concat!($name, "_f16"),
            $crate::DType::BF16 => concat!($name, "_bf16"),
            _ => concat!($name, "_f32"),
        }
    };
}
pub(crate) use typed;

/// Bytes that a thread of a half-precision kernel moves at once.
pub(crate) const PACK: usize = 16;

/// True when runs of `len` elements of all `tensors` are whole packs on addresses of packs.
pub(crate) fn is_packed(tensors: &[&Tensor], len: usize) -> bool {
    tensors.iter().all(|t| {
        let address = t.slice().as_ptr() as usize;
        address % PACK == 0 && (len * t.dtype().bytes()) % PACK == 0
    })
}

/// Threads of a block of kernels that take a thread an element.
const BLOCK: usize = 256;

/// One launch.
pub(crate) struct Call {
    pub module: &'static Module,
    pub kernel: &'static str,
    pub grid: [u32; 2],
    pub block: u32,
    /// Bytes of dynamic shared memory.
    pub shared: u32,
    /// Each one as the bytes of its parameter.
    pub args: Vec<Vec<u8>>,
    /// A size that does not fit the kernels' 32 bits.
    pub excess: Option<usize>,
}

impl Call {
    /// A launch of nothing yet: one block of 256 threads.
    pub fn new(module: &'static Module, kernel: &'static str) -> Call {
        Call {
            module,
            kernel,
            grid: [1, 1],
            block: BLOCK as u32,
            shared: 0,
            args: Vec::new(),
            excess: None,
        }
    }

    /// As many blocks as give each of `n` elements a thread.
    pub fn each(self, n: usize) -> Call {
        self.blocks(n.div_ceil(BLOCK), 1)
    }

    pub fn blocks(mut self, x: usize, y: usize) -> Call {
        // The second dimension of a grid is the shorter one.
        if y > 65_535 {
            self.excess.get_or_insert(y);
        }
        self.grid = [self.narrow(x), self.narrow(y)];
        self
    }

    pub fn threads(mut self, block: u32) -> Call {
        self.block = block;
        self
    }

    pub fn shared(mut self, bytes: usize) -> Call {
        self.shared = self.narrow(bytes);
        self
    }

    pub fn tensor(self, t: &Tensor) -> Call {
        self.optional(Some(t))
    }

    /// Null for none.
    pub fn optional(mut self, t: Option<&Tensor>) -> Call {
        let address = t.map_or(0, |t| t.slice().as_ptr() as u64);
        self.args.push(address.to_ne_bytes().into());
        self
    }

    /// A count or an index.
    pub fn size(mut self, n: usize) -> Call {
        let n = self.narrow(n);
        self.args.push(n.to_ne_bytes().into());
        self
    }

    pub fn float(mut self, x: f32) -> Call {
        self.args.push(x.to_ne_bytes().into());
        self
    }

    /// A struct of `len` floats, zero beyond `values`.
    pub fn floats(mut self, values: &[f32], len: usize) -> Call {
        let mut bytes: Vec<u8> = values.iter().flat_map(|v| v.to_ne_bytes()).collect();
        bytes.resize(len * 4, 0);
        self.args.push(bytes);
        self
    }

    /// A struct of counts and, last, a float.
    pub fn words(mut self, counts: &[usize], last: f32) -> Call {
        let words: Vec<u32> = counts.iter().map(|&n| self.narrow(n)).collect();
        let counts = words.iter().flat_map(|w| w.to_ne_bytes());
        self.args.push(counts.chain(last.to_ne_bytes()).collect());
        self
    }

    fn narrow(&mut self, n: usize) -> u32 {
        match i32::try_from(n) {
            Ok(n) => n as u32,
            Err(_) => {
                self.excess.get_or_insert(n);
                0
            }
        }
    }
}
