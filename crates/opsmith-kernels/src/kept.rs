//! What is made once for each kind of call, at the first one, and found again.

use std::sync::{Arc, OnceLock};

use opsmith_body::Graph;
use opsmith_core::fork::{Mutex, set_or_get};
use opsmith_core::{OpKernelContext, Result};

/// The most things that are kept beside the first.
const MOST: usize = 64;

/// Things by what they were made for. The first is kept for good, where it is found without a lock; of the others the oldest goes
/// where there are too many.
pub(crate) struct Kept<K, V> {
    first: OnceLock<(K, Arc<V>)>,
    others: Mutex<Vec<(K, Arc<V>)>>,
}

impl<K, V> Default for Kept<K, V> {
    fn default() -> Self {
        Kept { first: OnceLock::new(), others: Mutex::default() }
    }
}

impl<K: PartialEq, V> Kept<K, V> {
    /// The one of this key, made at its first use.
    #[inline]
    pub(crate) fn get(&self, key: K, make: impl FnOnce(&K) -> V) -> Arc<V> {
        match self.first.get() {
            Some((known, value)) if *known == key => value.clone(),
            _ => self.other(key, make),
        }
    }

    #[inline(never)]
    fn other(&self, key: K, make: impl FnOnce(&K) -> V) -> Arc<V> {
        let find = |others: &[(K, Arc<V>)]| {
            let mut all = self.first.get().into_iter().chain(others);
            all.find(|(known, _)| *known == key).map(|(_, value)| value.clone())
        };
        if let Some(value) = find(&self.others.lock()) {
            return value;
        }
        let value = Arc::new(make(&key));
        let mut others = self.others.lock();
        // Another thread may have made it meanwhile; all have one, by which a card's kernel is known.
        if let Some(value) = find(&others) {
            return value;
        }
        if self.first.get().is_none() {
            return set_or_get(&self.first, (key, value)).1.clone();
        }
        if others.len() == MOST {
            others.remove(0);
        }
        others.push((key, value.clone()));
        value
    }
}

#[cfg(test)]
impl<K, V> Kept<K, V> {
    /// All that is kept.
    pub(crate) fn all(&self) -> Vec<Arc<V>> {
        let others = self.others.lock();
        self.first.get().into_iter().chain(others.iter()).map(|(_, value)| value.clone()).collect()
    }
}

/// What of a graph's arguments a call has, as bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Presence {
    pub(crate) wanted: u64,
    /// The inputs that are not there.
    pub(crate) absent: u64,
}

impl Presence {
    /// All of so many outputs, and all inputs.
    pub(crate) fn all(outputs: usize) -> Presence {
        Presence { wanted: bits(0..outputs), absent: 0 }
    }

    /// Of a call whose inputs these are.
    pub(crate) fn of<'a, T: 'a>(
        context: &OpKernelContext<'_>,
        inputs: impl IntoIterator<Item = &'a Option<T>>,
    ) -> Result<Presence> {
        let absent = inputs.into_iter().enumerate().filter(|(_, input)| input.is_none());
        let mut given = Presence { wanted: 0, absent: bits(absent.map(|(position, _)| position)) };
        for output in 0..context.signature().outputs.len() {
            given.wanted |= if context.output_wanted(output)? { bits([output]) } else { 0 };
        }
        Ok(given)
    }

    pub(crate) fn is_absent(self, input: usize) -> bool {
        self.absent & bits([input]) != 0
    }

    pub(crate) fn is_wanted(self, output: usize) -> bool {
        self.wanted & bits([output]) != 0
    }

    /// The inputs that are there, of so many.
    pub(crate) fn inputs(self, count: usize) -> Vec<usize> {
        (0..count).filter(|input| !self.is_absent(*input)).collect()
    }

    /// The part of a graph that is computed: what is absent is nothing, and so is what it multiplies.
    pub(crate) fn part(self, graph: &Graph) -> Graph {
        let wanted: Vec<usize> =
            (0..graph.outputs().len()).filter(|output| self.is_wanted(*output)).collect();
        graph.with_outputs(&wanted).without_inputs(|input| self.is_absent(input))
    }
}

/// Positions as bits. Frameworks take at most as many arguments as there are bits.
pub(crate) fn bits(positions: impl IntoIterator<Item = usize>) -> u64 {
    let bit = |position: usize| 1_u64.checked_shl(position as u32).unwrap_or(0);
    positions.into_iter().fold(0, |bits, position| bits | bit(position))
}
