//! One set of weights, several live sets.

use crate::names::check_name;
use crate::{first_difference, Error, LiveSet};

/// Builds live sets of one model over one set of weights.
pub trait Producer: Send {
    /// Name of the model, for messages.
    fn name(&self) -> &str;
    /// Builds one independent live set: its own mutable buffers, its own captured graphs, the shared weights.
    fn build(&mut self, set_name: &str) -> Result<LiveSet, Error>;
    /// Bytes of the shared weights.
    fn weights_bytes(&self) -> usize;
}

/// A model with its live sets.
pub struct Model {
    // Sets drop before the producer: their graphs read its weights.
    /// The live sets, in the order of their names at [`Model::open`].
    pub sets: Vec<LiveSet>,
    producer: Box<dyn Producer>,
}

impl Model {
    /// Builds one live set per name. All sets must have the same identity; on any failure every set built so far is freed.
    pub fn open(mut producer: Box<dyn Producer>, names: &[String]) -> Result<Model, Error> {
        if names.is_empty() {
            return Err(Error::Declaration {
                what: "model",
                name: producer.name().to_owned(),
                reason: "0 live sets asked for, at least 1 is needed".to_owned(),
            });
        }
        for (i, name) in names.iter().enumerate() {
            check_name("live set", name)?;
            if names[..i].contains(name) {
                return Err(Error::Duplicate {
                    kind: "live set",
                    name: name.clone(),
                });
            }
        }
        let mut sets: Vec<LiveSet> = Vec::with_capacity(names.len());
        for name in names {
            let set = producer.build(name)?;
            if set.name() != name {
                return Err(Error::SetsDiffer {
                    set: set.name().to_owned(),
                    reference: name.clone(),
                    expected: format!("name {name}"),
                    got: format!("name {}", set.name()),
                });
            }
            if let Some(first) = sets.first() {
                if let Some((expected, got)) = first_difference(first.identity(), set.identity()) {
                    return Err(Error::SetsDiffer {
                        set: name.clone(),
                        reference: first.name().to_owned(),
                        expected,
                        got,
                    });
                }
            }
            sets.push(set);
        }
        Ok(Model { sets, producer })
    }

    /// Name of the model.
    pub fn name(&self) -> &str {
        self.producer.name()
    }

    /// Bytes of the shared weights.
    pub fn weights_bytes(&self) -> usize {
        self.producer.weights_bytes()
    }

    /// Fingerprint that all sets share.
    pub fn fingerprint(&self) -> u64 {
        self.sets.first().map_or(0, LiveSet::fingerprint)
    }

    /// The live set called `name`.
    pub fn set(&self, name: &str) -> Result<&LiveSet, Error> {
        self.sets
            .iter()
            .find(|s| s.name() == name)
            .ok_or_else(|| Error::NotFound {
                kind: "live set",
                name: name.to_owned(),
            })
    }

    /// The live set called `name`, to drive.
    pub fn set_mut(&mut self, name: &str) -> Result<&mut LiveSet, Error> {
        self.sets
            .iter_mut()
            .find(|s| s.name() == name)
            .ok_or_else(|| Error::NotFound {
                kind: "live set",
                name: name.to_owned(),
            })
    }
}
