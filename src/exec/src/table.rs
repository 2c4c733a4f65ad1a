//! The exact-key table of a graph, with least-recent eviction.

use crate::ShapeKey;
use std::collections::BTreeMap;

/// Values by exact key. At most `max` of them (0: no limit).
///
/// Each insert or turn gives its key the next stamp, so recency is a total order. A turn is one lookup and
/// allocates nothing; finding the least recent looks at every entry, which happens in set-up only.
pub(crate) struct Table<V> {
    entries: BTreeMap<ShapeKey, Entry<V>>,
    max: usize,
    next_stamp: u64,
}

struct Entry<V> {
    stamp: u64,
    value: V,
}

impl<V> Table<V> {
    pub(crate) fn new(max: usize) -> Table<V> {
        Table {
            entries: BTreeMap::new(),
            max,
            next_stamp: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn get(&self, key: ShapeKey) -> Option<&V> {
        self.entries.get(&key).map(|e| &e.value)
    }

    /// The value under `key`, which becomes the most recent unless `check` fails.
    pub(crate) fn take_turn<E>(
        &mut self,
        key: ShapeKey,
        check: impl FnOnce() -> Result<(), E>,
    ) -> Option<Result<&V, E>> {
        let entry = self.entries.get_mut(&key)?;
        if let Err(error) = check() {
            return Some(Err(error));
        }
        entry.stamp = self.next_stamp;
        self.next_stamp += 1;
        Some(Ok(&entry.value))
    }

    /// Inserts or replaces as the most recent. Returns what left the table: the value replaced, or
    /// else the least recent one if the table became too full.
    pub(crate) fn insert(&mut self, key: ShapeKey, value: V) -> Option<V> {
        let entry = Entry {
            stamp: self.next_stamp,
            value,
        };
        self.next_stamp += 1;
        if let Some(old) = self.entries.insert(key, entry) {
            return Some(old.value);
        }
        if self.max > 0 && self.entries.len() > self.max {
            return self.remove_lru().map(|(_, value)| value);
        }
        None
    }

    pub(crate) fn remove(&mut self, key: ShapeKey) -> Option<V> {
        self.entries.remove(&key).map(|e| e.value)
    }

    /// Removes the least recent entry.
    pub(crate) fn remove_lru(&mut self) -> Option<(ShapeKey, V)> {
        let key = *self.entries.iter().min_by_key(|(_, e)| e.stamp)?.0;
        Some((key, self.entries.remove(&key)?.value))
    }
}

#[cfg(test)]
mod tests {
    use super::Table;
    use proptest::prelude::*;

    /// The same rules, as plainly as they can be said: a list from least to most recent.
    #[derive(Default)]
    struct Model {
        list: Vec<(u64, u32)>,
        max: usize,
    }

    impl Model {
        fn take(&mut self, key: u64) -> Option<(u64, u32)> {
            let at = self.list.iter().position(|e| e.0 == key)?;
            Some(self.list.remove(at))
        }

        fn insert(&mut self, key: u64, value: u32) -> Option<u32> {
            let mut gone = self.take(key);
            self.list.push((key, value));
            if gone.is_none() && self.max > 0 && self.list.len() > self.max {
                gone = Some(self.list.remove(0));
            }
            gone.map(|e| e.1)
        }

        fn touch(&mut self, key: u64) {
            if let Some(entry) = self.take(key) {
                self.list.push(entry);
            }
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Insert(u64),
        Turn(u64, bool),
        Get(u64),
        Remove(u64),
        RemoveLru,
    }

    fn step() -> impl Strategy<Value = Step> {
        let key = || prop_oneof![0..6u64, Just(u64::MAX)];
        prop_oneof![
            key().prop_map(Step::Insert),
            (key(), any::<bool>()).prop_map(|(key, is_refused)| Step::Turn(key, is_refused)),
            key().prop_map(Step::Get),
            key().prop_map(Step::Remove),
            Just(Step::RemoveLru),
        ]
    }

    proptest! {
        #[test]
        fn behaves_as_a_list_ordered_by_recency(max in 0..5usize, steps in prop::collection::vec(step(), 0..200)) {
            let mut table = Table::new(max);
            let mut model = Model { max, ..Model::default() };
            for (value, step) in steps.into_iter().enumerate() {
                let value = value as u32;
                match step {
                    Step::Insert(key) => prop_assert_eq!(table.insert(key, value), model.insert(key, value)),
                    Step::Turn(key, is_refused) => {
                        let check = || if is_refused { Err(()) } else { Ok(()) };
                        let got = table.take_turn(key, check).map(|value| value.copied());
                        let held = model.list.iter().find(|e| e.0 == key).map(|e| e.1);
                        prop_assert_eq!(got, held.map(|value| if is_refused { Err(()) } else { Ok(value) }));
                        if !is_refused {
                            model.touch(key);
                        }
                    }
                    Step::Get(key) => {
                        let expected = model.list.iter().find(|e| e.0 == key).map(|e| e.1);
                        prop_assert_eq!(table.get(key).copied(), expected);
                    }
                    Step::Remove(key) => prop_assert_eq!(table.remove(key), model.take(key).map(|e| e.1)),
                    Step::RemoveLru => {
                        let expected = (!model.list.is_empty()).then(|| model.list.remove(0));
                        prop_assert_eq!(table.remove_lru(), expected);
                    }
                }
                prop_assert_eq!(table.len(), model.list.len());
                prop_assert!(max == 0 || table.len() <= max);
            }
        }
    }
}
