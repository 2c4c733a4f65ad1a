//! Linear history with a cursor: a pure state machine over capsule ids.

/// The boundaries that one live set was at, oldest first, and where it stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct History {
    items: Vec<u64>,
    /// Index of the boundary that the set was last at.
    cursor: Option<usize>,
    /// Run counter of the set when it was there; `None` when it cannot be there any more.
    at_runs: Option<u64>,
}

impl History {
    pub(crate) fn with_capacity(n: usize) -> History {
        History {
            items: Vec::with_capacity(n),
            ..History::default()
        }
    }

    #[cfg(test)]
    pub(crate) fn items(&self) -> &[u64] {
        &self.items
    }

    pub(crate) fn contains(&self, id: u64) -> bool {
        self.items.contains(&id)
    }

    /// Ids newer than the cursor, oldest first: what the next snapshot discards.
    pub(crate) fn newer(&self) -> &[u64] {
        &self.items[self.cursor.map_or(0, |c| c + 1)..]
    }

    /// Ids up to the cursor, newest first.
    pub(crate) fn older(&self) -> impl Iterator<Item = u64> + '_ {
        self.items[..self.cursor.map_or(0, |c| c + 1)]
            .iter()
            .rev()
            .copied()
    }

    /// The set is at a new boundary: what was newer than the cursor is forgotten.
    pub(crate) fn push(&mut self, id: u64, runs: u64) {
        self.items.truncate(self.cursor.map_or(0, |c| c + 1));
        self.items.push(id);
        self.cursor = Some(self.items.len() - 1);
        self.at_runs = Some(runs);
    }

    /// The set is back at a boundary of its history. False when there is none with this id.
    pub(crate) fn go_to(&mut self, id: u64, runs: u64) -> bool {
        let Some(i) = self.items.iter().position(|x| *x == id) else {
            return false;
        };
        self.cursor = Some(i);
        self.at_runs = Some(runs);
        true
    }

    /// The set was moved to a state outside its history: the cursor's boundary lies strictly in its past now.
    pub(crate) fn leave(&mut self) {
        self.at_runs = None;
    }

    /// The capsule is gone.
    pub(crate) fn remove(&mut self, id: u64) {
        let Some(i) = self.items.iter().position(|x| *x == id) else {
            return;
        };
        self.items.remove(i);
        if let Some(c) = self.cursor {
            if c == i {
                // The set stood here; the next older boundary lies strictly in its past.
                self.at_runs = None;
            }
            if i <= c {
                self.cursor = c.checked_sub(1);
            }
        }
    }

    /// The boundary `steps` (≥ 1) before the present. The boundary that the set stands on does not count: nothing was run
    /// since. `Err` has the number of steps that there are.
    pub(crate) fn back(&self, steps: u32, runs: u64) -> Result<u64, usize> {
        let standing = usize::from(self.at_runs == Some(runs) && self.cursor.is_some());
        let reachable = self.cursor.map_or(0, |c| c + 1) - standing;
        match (steps as usize).checked_sub(1) {
            Some(n) if n < reachable => Ok(self.items[reachable - 1 - n]),
            _ => Err(reachable),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_snapshot_after_a_rollback_discards_the_newer_part() {
        let mut h = History::default();
        for id in 1..=4 {
            h.push(id, id * 10);
        }
        assert!(h.go_to(2, 41));
        assert_eq!(h.newer(), [3, 4]);
        h.push(5, 50);
        assert_eq!(h.items(), [1, 2, 5]);
        assert!(h.newer().is_empty());
    }

    #[test]
    fn one_step_back_is_the_last_boundary_once_something_has_run() {
        let mut h = History::default();
        h.push(1, 10);
        h.push(2, 20);
        assert_eq!(h.back(1, 25), Ok(2));
        assert_eq!(h.back(2, 25), Ok(1));
        assert_eq!(h.back(3, 25), Err(2));
        // Standing on it: a repeated rollback goes on into the past.
        assert_eq!(h.back(1, 20), Ok(1));
        assert_eq!(h.back(2, 20), Err(1));
        assert_eq!(h.back(0, 25), Err(2));
    }

    #[test]
    fn dropping_the_boundary_that_the_set_stands_on_makes_the_older_one_one_step_away() {
        let mut h = History::default();
        h.push(1, 10);
        h.push(2, 20);
        h.remove(2);
        assert_eq!(h.back(1, 20), Ok(1));
        h.remove(1);
        assert_eq!(h.back(1, 20), Err(0));
        h.push(3, 20);
        assert_eq!(h.items(), [3]);
    }

    #[test]
    fn after_leaving_the_boundary_at_the_cursor_is_one_step_away() {
        let mut h = History::default();
        h.push(1, 10);
        h.push(2, 20);
        h.leave();
        assert_eq!(h.back(1, 20), Ok(2));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Run,
        Push,
        Back(u32),
        Remove(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            Just(Step::Run),
            Just(Step::Push),
            (1u32..4).prop_map(Step::Back),
            (0usize..6).prop_map(Step::Remove),
        ]
    }

    proptest! {
        /// Against a model that keeps two plain stacks: the past (newest last) and the undone (next redo last).
        #[test]
        fn behaves_like_two_stacks(steps in prop::collection::vec(step(), 0..60)) {
            let mut h = History::default();
            let (mut past, mut undone): (Vec<u64>, Vec<u64>) = (vec![], vec![]);
            let mut stands = false;
            let (mut runs, mut next) = (0, 0);
            for s in steps {
                match s {
                    Step::Run => { runs += 1; stands = false; }
                    Step::Push => {
                        next += 1;
                        h.push(next, runs);
                        past.push(next);
                        undone.clear();
                        stands = true;
                    }
                    Step::Back(n) => {
                        let mut skip = n as usize - 1 + usize::from(stands && !past.is_empty());
                        let expected = past.len().checked_sub(skip + 1).map(|i| past[i]);
                        prop_assert_eq!(h.back(n, runs).ok(), expected);
                        if let Some(id) = expected {
                            prop_assert!(h.go_to(id, runs));
                            while skip > 0 { undone.extend(past.pop()); skip -= 1; }
                            stands = true;
                        }
                    }
                    Step::Remove(i) => {
                        let all: Vec<u64> = past.iter().copied().chain(undone.iter().rev().copied()).collect();
                        if let Some(id) = all.get(i) {
                            h.remove(*id);
                            if past.last() == Some(id) { stands = false; }
                            past.retain(|x| x != id);
                            undone.retain(|x| x != id);
                        }
                    }
                }
                let all: Vec<u64> = past.iter().copied().chain(undone.iter().rev().copied()).collect();
                prop_assert_eq!(h.items(), &all[..]);
                let newer: Vec<u64> = undone.iter().rev().copied().collect();
                prop_assert_eq!(h.newer(), &newer[..]);
            }
        }
    }
}
