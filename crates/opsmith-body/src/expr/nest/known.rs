//! A graph, and what is known of its nodes while it is cut.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};

use super::Room;
use crate::axes::{Axes, Axis};
use crate::expr::graph::Graph;
use crate::expr::node::{Binary, Id, Node, Unary};

/// What a sum of exponentials is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Exponentials {
    /// The numbers.
    pub(super) number: Id,
    /// The largest of them.
    pub(super) largest: Id,
    /// What is subtracted from each, which is made of the largest one alone.
    pub(super) shift: Id,
}

/// A graph, and what is known of its nodes.
pub(super) struct Known<'a> {
    pub(super) graph: &'a Graph,
    pub(super) room: &'a Room<'a>,
    pub(super) axes: Vec<Axes>,
    /// The folds that are in memory, and in which array.
    kept: BTreeMap<Id, usize>,
    /// Worked out when it is asked for, as long as `kept` stays the same.
    folds: OnceCell<FoldsBelow>,
    /// For a card, the sums that can be computed in the loop of the largest number.
    pub(super) online: BTreeMap<Id, Exponentials>,
}

/// For each node, as bits, the folds in memory that it is computed from, not by way of others.
struct FoldsBelow {
    folds: Vec<Id>,
    words: usize,
    bits: Vec<u64>,
}

impl FoldsBelow {
    fn new(known: &Known<'_>) -> Self {
        let folds: Vec<Id> = known.kept.keys().copied().collect();
        let (nodes, words) = (known.graph.nodes(), folds.len().div_ceil(64));
        let mut bits = vec![0; nodes.len() * words];
        // The operands of a node come before it.
        for (index, node) in nodes.iter().enumerate() {
            let (before, own) = bits.split_at_mut(index * words);
            for operand in node.operands() {
                match folds.binary_search(&operand) {
                    Ok(fold) => own[fold / 64] |= 1 << (fold % 64),
                    Err(_) => {
                        let below = &before[operand.index() * words..][..words];
                        own.iter_mut().zip(below).for_each(|(own, below)| *own |= below);
                    }
                }
            }
        }
        FoldsBelow { folds, words, bits }
    }

    fn of(&self, id: Id) -> impl Iterator<Item = Id> {
        self.row(id).iter().enumerate().flat_map(move |(word, bits)| {
            let mut left = *bits;
            std::iter::from_fn(move || {
                let bit = left.trailing_zeros() as usize;
                left &= left.checked_sub(1)?;
                Some(self.folds[word * 64 + bit])
            })
        })
    }

    fn has(&self, id: Id, fold: usize) -> bool {
        self.row(id)[fold / 64] >> (fold % 64) & 1 == 1
    }

    fn row(&self, id: Id) -> &[u64] {
        &self.bits[id.index() * self.words..][..self.words]
    }
}

impl<'a> Known<'a> {
    /// Of a graph of which nothing is in memory yet.
    pub(super) fn new(graph: &'a Graph, room: &'a Room<'a>) -> Self {
        let (kept, online) = (BTreeMap::new(), BTreeMap::new());
        Known { graph, room, axes: graph.axes(), kept, folds: OnceCell::new(), online }
    }

    pub(super) fn kept(&self) -> &BTreeMap<Id, usize> {
        &self.kept
    }

    pub(super) fn keep(&mut self, kept: BTreeMap<Id, usize>) {
        self.kept = kept;
        self.folds = OnceCell::new();
    }

    pub(super) fn node(&self, id: Id) -> Node {
        self.graph.nodes()[id.index()]
    }

    /// Whether it is read from memory, by whoever does not compute it.
    pub(super) fn is_kept(&self, id: Id) -> bool {
        self.kept.contains_key(&id)
    }

    /// All that numbers are computed from, down to what is read from memory, themselves among it; folds of `own` are computed.
    pub(super) fn below(&self, roots: impl IntoIterator<Item = Id>, own: &BTreeSet<Id>) -> BTreeSet<Id> {
        let mut is_found = vec![false; self.graph.nodes().len()];
        let (mut found, mut pending) = (Vec::new(), roots.into_iter().collect::<Vec<Id>>());
        while let Some(id) = pending.pop() {
            if std::mem::replace(&mut is_found[id.index()], true) {
                continue;
            }
            found.push(id);
            if !self.is_kept(id) || own.contains(&id) {
                pending.extend(self.node(id).operands());
            }
        }
        found.into_iter().collect()
    }

    /// The folds in memory that a number is computed from, not by way of others, nor itself if it is one.
    pub(super) fn folds_below(&self, id: Id) -> BTreeSet<Id> {
        self.each_fold_below(id).collect()
    }

    pub(super) fn each_fold_below(&self, id: Id) -> impl Iterator<Item = Id> {
        self.folds.get_or_init(|| FoldsBelow::new(self)).of(id)
    }

    /// Those of some nodes that a fold in memory is below.
    pub(super) fn above(&self, fold: Id, among: &[Id]) -> impl Iterator<Item = Id> {
        let below = self.folds.get_or_init(|| FoldsBelow::new(self));
        let place = below.folds.binary_search(&fold).ok();
        let all = place.into_iter().flat_map(|place| among.iter().map(move |id| (place, *id)));
        all.filter(|(place, id)| below.has(*id, *place)).map(|(_, id)| id)
    }

    /// Some folds, and all that they need.
    pub(super) fn all(folds: &BTreeSet<Id>, needs: &BTreeMap<Id, BTreeSet<Id>>) -> BTreeSet<Id> {
        folds.iter().flat_map(|id| needs[id].iter().chain([id])).copied().collect()
    }
}

/// The free axes less those over which something dear would be computed again and again, being the same along them: for folds along an
/// axis, each on its axes.
pub(super) fn without_dear(known: &Known<'_>, folds: &[(Id, Axes)], fold: Axis, free: Axes) -> Axes {
    let operands = folds.iter().flat_map(|(id, _)| known.node(*id).operands());
    let mut free = free;
    for id in known.below(operands, &BTreeSet::new()) {
        let own = known.axes[id.index()];
        let fewer = free.both(own);
        if known.is_kept(id) || !own.has(fold) || !is_dear(known.node(id)) || fewer.is_empty() {
            continue;
        }
        let rest = folds.iter().map(|(_, axes)| axes.minus(fewer)).fold(Axes::NONE, Axes::union);
        if known.room.has(rest) {
            free = fewer;
        }
    }
    free
}

/// Whether it costs more than to be read.
pub(crate) fn is_dear(node: Node) -> bool {
    match node {
        Node::Fold(..) | Node::Binary(Binary::Pow | Binary::Div, ..) => true,
        Node::Unary(op, _) => !matches!(op, Unary::Neg | Unary::Abs | Unary::Sign | Unary::Floor),
        _ => false,
    }
}
