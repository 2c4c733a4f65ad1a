//! Tensors of a safetensors file, by LeRobot's names, as f32.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use safetensors::tensor::{Dtype, Metadata};
use sha2::{Digest, Sha256};

use crate::Error;

/// Longest header that is read; a real one has some hundred kilobytes.
const MAX_HEADER_BYTES: u64 = 64 << 20;

/// An opened weights file: names, types and shapes in memory, data read tensor by tensor.
///
/// So a checkpoint larger than the memory left loads as long as its converted tensors fit.
#[derive(Debug)]
pub struct Weights {
    path: PathBuf,
    file: File,
    data_start: u64,
    tensors: BTreeMap<String, Entry>,
    sha256: String,
    bytes: u64,
}

#[derive(Debug, Clone)]
struct Entry {
    file_name: String,
    dtype: Dtype,
    shape: Vec<usize>,
    begin: u64,
    end: u64,
}

impl Weights {
    /// Opens `path`, reads the header and hashes the whole file.
    ///
    /// `canonical` maps a name of the file to the architecture's name for it.
    ///
    /// # Errors
    /// [`Error::Io`], and [`Error::WeightsFormat`] for a broken header, data that ends early, or two tensors
    /// that mean the same.
    pub fn open(path: &Path, canonical: &dyn Fn(&str) -> String) -> Result<Self, Error> {
        let io = |source| Error::Io {
            path: path.to_path_buf(),
            source,
        };
        let format = |reason: String| Error::WeightsFormat {
            path: path.to_path_buf(),
            reason,
        };
        let mut file = File::open(path).map_err(io)?;
        let bytes = file.metadata().map_err(io)?.len();
        if bytes < 8 {
            return Err(format(format!("{bytes} bytes, expected at least 8")));
        }
        let mut length = [0; 8];
        file.read_exact(&mut length).map_err(io)?;
        let header_bytes = u64::from_le_bytes(length);
        if header_bytes > MAX_HEADER_BYTES.min(bytes - 8) {
            return Err(format(format!(
                "header of {header_bytes} bytes in a file of {bytes}"
            )));
        }
        let mut header = vec![0; header_bytes as usize];
        file.read_exact(&mut header).map_err(io)?;
        let metadata: Metadata =
            serde_json::from_slice(&header).map_err(|e| format(e.to_string()))?;
        let data_start = 8 + header_bytes;
        let mut entries: Vec<Entry> = metadata
            .tensors()
            .into_iter()
            .map(|(file_name, info)| Entry {
                file_name,
                dtype: info.dtype,
                shape: info.shape.clone(),
                begin: info.data_offsets.0 as u64,
                end: info.data_offsets.1 as u64,
            })
            .collect();
        entries.sort_by(|a, b| (a.begin, a.end, &a.file_name).cmp(&(b.begin, b.end, &b.file_name)));
        // Tensors follow each other without gaps and fill the file, as the format demands.
        let mut at = 0;
        for t in &entries {
            let bits = t
                .shape
                .iter()
                .try_fold(t.dtype.bitsize() as u64, |n, &d| n.checked_mul(d as u64));
            let needed = bits.map(|b| b / 8);
            if t.begin != at || needed.and_then(|n| n.checked_add(at)) != Some(t.end) {
                return Err(format(format!(
                    "tensor `{}` {:?} {:?}: bytes {}..{} of the data, expected {} from {at}",
                    t.file_name,
                    t.dtype,
                    t.shape,
                    t.begin,
                    t.end,
                    needed.map_or("fewer than 2^64".into(), |n| n.to_string()),
                )));
            }
            at = t.end;
        }
        if at != bytes - data_start {
            return Err(format(format!(
                "the tensors have {at} bytes, the file holds {}",
                bytes - data_start
            )));
        }
        let mut tensors: BTreeMap<String, Entry> = BTreeMap::new();
        for entry in entries {
            let name = canonical(&entry.file_name);
            if let Some(other) = tensors.get(&name) {
                return Err(format(format!(
                    "`{}` and `{}` are the same tensor",
                    other.file_name, entry.file_name
                )));
            }
            tensors.insert(name, entry);
        }
        file.seek(SeekFrom::Start(0)).map_err(io)?;
        let mut hash = Sha256::new();
        std::io::copy(&mut file, &mut hash).map_err(io)?;
        let sha256 = hex(&hash.finalize());
        Ok(Weights {
            path: path.to_path_buf(),
            file,
            data_start,
            tensors,
            sha256,
            bytes,
        })
    }

    /// Lower-case hex SHA-256 of the file.
    pub fn sha256(&self) -> &str {
        &self.sha256
    }

    /// Size of the file in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Shape of the tensor with this canonical name.
    pub fn shape(&self, name: &str) -> Option<&[usize]> {
        self.tensors.get(name).map(|t| t.shape.as_slice())
    }

    /// Canonical names, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// Gives a tensor another name, if it is there and the new name is free.
    pub fn rename(&mut self, from: &str, to: &str) {
        if !self.tensors.contains_key(to) {
            if let Some(entry) = self.tensors.remove(from) {
                self.tensors.insert(to.into(), entry);
            }
        }
    }

    /// Drops a tensor that the architecture does not use, if it is there.
    pub fn ignore(&mut self, name: &str) {
        self.tensors.remove(name);
    }

    /// Checks names, shapes and element types of the whole file against a list of (name, shape).
    ///
    /// # Errors
    /// In this order: [`Error::TensorShape`], [`Error::MissingTensor`], [`Error::UnexpectedTensor`],
    /// [`Error::TensorDType`]; the first by name of its kind.
    pub fn check(&self, expected: &[(String, Vec<usize>)]) -> Result<(), Error> {
        for (name, shape) in expected {
            if let Some(t) = self.tensors.get(name) {
                if t.shape != *shape {
                    return Err(Error::TensorShape {
                        name: t.file_name.clone(),
                        expected: shape.clone(),
                        got: t.shape.clone(),
                    });
                }
            }
        }
        let missing: Vec<_> = expected
            .iter()
            .filter(|(name, _)| !self.tensors.contains_key(name))
            .collect();
        if let Some((name, shape)) = missing.first() {
            return Err(Error::MissingTensor {
                name: name.clone(),
                expected: shape.clone(),
                missing: missing.len(),
            });
        }
        let known: BTreeSet<&str> = expected.iter().map(|(name, _)| name.as_str()).collect();
        let extra: Vec<_> = self
            .tensors
            .iter()
            .filter(|(name, _)| !known.contains(name.as_str()))
            .collect();
        if let Some((_, t)) = extra.first() {
            return Err(Error::UnexpectedTensor {
                name: t.file_name.clone(),
                got: t.shape.clone(),
                extra: extra.len(),
            });
        }
        self.tensors.values().try_for_each(known_type)
    }

    /// Reads one tensor, converted to f32 (exact for every source type), row-major.
    ///
    /// # Errors
    /// [`Error::MissingTensor`], [`Error::TensorShape`] when it has not `shape`, [`Error::TensorDType`],
    /// [`Error::TensorValue`] for NaN and infinities, [`Error::Io`].
    pub fn read(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, Error> {
        let t = self.tensors.get(name).ok_or_else(|| Error::MissingTensor {
            name: name.into(),
            expected: shape.into(),
            missing: 1,
        })?;
        if t.shape != shape {
            return Err(Error::TensorShape {
                name: t.file_name.clone(),
                expected: shape.into(),
                got: t.shape.clone(),
            });
        }
        known_type(t)?;
        let io = |source| Error::Io {
            path: self.path.clone(),
            source,
        };
        let mut raw = vec![0; (t.end - t.begin) as usize];
        let mut file = &self.file;
        file.seek(SeekFrom::Start(self.data_start + t.begin))
            .map_err(io)?;
        file.read_exact(&mut raw).map_err(io)?;
        let values: Vec<f32> = match t.dtype {
            Dtype::F32 => raw
                .chunks_exact(4)
                .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
                .collect(),
            Dtype::F16 => raw
                .chunks_exact(2)
                .map(|b| half::f16::from_le_bytes([b[0], b[1]]).to_f32())
                .collect(),
            _ => raw
                .chunks_exact(2)
                .map(|b| half::bf16::from_le_bytes([b[0], b[1]]).to_f32())
                .collect(),
        };
        match values.iter().position(|x| !x.is_finite()) {
            Some(index) => Err(Error::TensorValue {
                name: t.file_name.clone(),
                index,
                value: values[index],
            }),
            None => Ok(values),
        }
    }
}

fn known_type(t: &Entry) -> Result<(), Error> {
    match t.dtype {
        Dtype::F32 | Dtype::F16 | Dtype::BF16 => Ok(()),
        other => Err(Error::TensorDType {
            name: t.file_name.clone(),
            got: format!("{other:?}"),
        }),
    }
}

/// Lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::with_capacity(2 * bytes.len()), |mut s, b| {
            s.push_str(&format!("{b:02x}"));
            s
        })
}
