//! The free axes of a call.

use super::{Argument, Dots, Item, Parallel, View};
use crate::attr::AttrValue;
use crate::tensor::MAX_RANK;

/// A free axis of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FreeAxis {
    /// Its name; those that `...` stands for are `...[-1]`, `...[-2]` and so on.
    pub name: String,
    /// For each input which dim it is, counted from the end from 1 on; none where the input lacks it. An input that lacks the dim,
    /// or whose dim is 1 while the axis is longer, is taken whole by every part. Of a list the same holds of each tensor.
    pub inputs: Vec<Option<usize>>,
    /// The same of each output.
    pub outputs: Vec<OutputAxis>,
}

/// What a free axis is to an output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutputAxis {
    /// The dim along which the parts are put together, counted from the end from 1 on.
    pub dim: Option<usize>,
    /// Whether the output is the sum over the parts where it lacks the dim, or its dim is 1 while the axis is longer.
    pub is_sum: bool,
}

impl FreeAxis {
    /// How long it is in a call with inputs of these shapes, a list for each.
    pub fn size<'a>(&self, shapes: impl IntoIterator<Item = &'a [Vec<usize>]>) -> usize {
        let dims = self.inputs.iter().zip(shapes).flat_map(|(&dim, list)| {
            list.iter().filter_map(move |shape| shape.len().checked_sub(dim?).map(|at| shape[at]))
        });
        dims.max().unwrap_or(0)
    }

    /// The position of a dim in a tensor that has it whole, of an axis of this size.
    pub fn position(dim: Option<usize>, shape: &[usize], size: usize) -> Option<usize> {
        shape.len().checked_sub(dim?).filter(|&at| shape[at] == size)
    }
}

/// An axis: the name, or what is before the dots, and for those of dots which one, counted from the end.
type Found<'a> = (&'a str, Option<usize>);

/// The dims that dots of a name stand for.
pub(super) struct Space<'a> {
    name: &'a str,
    pub(super) rank: usize,
    held: Vec<bool>,
}

/// A call: its attributes by name, and the spaces of its dots.
pub(super) struct Call<'a> {
    attr: &'a dyn Fn(&str) -> Option<AttrValue>,
    spaces: Vec<Space<'a>>,
}

impl Parallel {
    /// The free axes of a call with these attributes, by name, and inputs of these ranks: of a list the largest, of an absent one none.
    /// There are none where the attributes do not fit the ranks.
    pub fn free_axes(
        &self,
        attr: &dyn Fn(&str) -> Option<AttrValue>,
        ranks: &[Option<usize>],
    ) -> Vec<FreeAxis> {
        let rank = |input: usize| ranks.get(input).copied().flatten();
        let found = Call::new(self, attr, ranks).and_then(|call| {
            let inputs = self.inputs.iter().enumerate();
            let inputs =
                inputs.map(|(input, own)| rank(input).map_or(Some(vec![]), |r| call.dims(own, Some(r))));
            let outputs = self.outputs.iter().map(|own| call.dims(own, None));
            Some((inputs.collect::<Option<Vec<_>>>()?, outputs.collect::<Option<Vec<_>>>()?))
        });
        let Some((inputs, outputs)) = found else { return vec![] };
        let mut axes: Vec<Found<'_>> = Vec::new();
        for axis in inputs.iter().flatten().flatten() {
            if !axes.contains(axis) {
                axes.push(*axis);
            }
        }
        let free = |axis: Found<'_>| {
            let dim = |dims: &Vec<Option<Found<'_>>>| {
                dims.iter().rev().position(|dim| *dim == Some(axis)).map(|at| at + 1)
            };
            let outputs = outputs.iter().zip(&self.outputs);
            FreeAxis {
                name: axis.1.map_or(axis.0.to_owned(), |at| format!("{}...[-{at}]", axis.0)),
                inputs: inputs.iter().map(dim).collect(),
                outputs: outputs
                    .map(|(dims, own)| OutputAxis { dim: dim(dims), is_sum: own.is_sum })
                    .collect(),
            }
        };
        axes.into_iter().map(free).collect()
    }
}

impl<'a> Call<'a> {
    pub(super) fn new(
        parallel: &'a Parallel,
        attr: &'a dyn Fn(&str) -> Option<AttrValue>,
        ranks: &[Option<usize>],
    ) -> Option<Call<'a>> {
        if ranks.iter().flatten().any(|rank| *rank > MAX_RANK) {
            return None;
        }
        let mut call = Call { attr, spaces: Vec::new() };
        // What dots are short of by attributes says less of their number than what they have.
        for less in [false, true] {
            for (input, own) in parallel.inputs.iter().enumerate() {
                let (Some(&Some(rank)), Some(dots)) = (ranks.get(input), &own.dots) else { continue };
                let Some(name) = dots.axes.as_deref() else { continue };
                let rest = rank.saturating_sub(call.count(own)?);
                let rank = match &dots.view {
                    View::Whole | View::But(_) | View::By(_) if !less => rest,
                    View::Less { at, unless } if less && call.space(name).is_none() => {
                        rest + if call.is_true(unless.as_deref())? { 0 } else { call.ints(at)?.len() }
                    }
                    _ => continue,
                };
                match call.spaces.iter_mut().find(|space| space.name == name) {
                    Some(space) => space.rank = space.rank.max(rank),
                    None => call.spaces.push(Space { name, rank, held: vec![] }),
                }
            }
        }
        for at in 0..call.spaces.len() {
            call.spaces[at].held = call.held(parallel, &call.spaces[at])?;
        }
        Some(call)
    }

    /// Which dims of a space are not free, by what attributes say in any argument.
    fn held(&self, parallel: &Parallel, space: &Space<'_>) -> Option<Vec<bool>> {
        let mut held = vec![false; space.rank];
        for dots in parallel.arguments().filter_map(|own| own.dots.as_ref()) {
            if let View::But(at) | View::Less { at, .. } | View::With { at, .. } = &dots.view
                && dots.axes.as_deref() == Some(space.name)
            {
                let marks = self.marks(at, space.rank)?;
                held.iter_mut().zip(marks).for_each(|(held, mark)| *held |= mark);
            }
        }
        Some(held)
    }

    /// For each dim of a space, whether an attribute has its position; of an empty list, all of them.
    fn marks(&self, attr: &str, rank: usize) -> Option<Vec<bool>> {
        let positions = self.ints(attr)?;
        let mut marks = vec![positions.is_empty(); rank];
        for position in positions {
            *marks.get_mut(from_start(position, rank)?)? = true;
        }
        Some(marks)
    }

    fn ints(&self, attr: &str) -> Option<Vec<i64>> {
        match (self.attr)(attr)? {
            AttrValue::Int(position) => Some(vec![position]),
            AttrValue::Ints(positions) => Some(positions),
            _ => None,
        }
    }

    /// The value of a `bool`; false where none is asked for.
    fn is_true(&self, attr: Option<&str>) -> Option<bool> {
        match attr.map(|attr| (self.attr)(attr)) {
            None => Some(false),
            Some(Some(AttrValue::Bool(value))) => Some(value),
            _ => None,
        }
    }

    /// How many dims an argument has beside those that dots stand for.
    pub(super) fn count(&self, own: &Argument) -> Option<usize> {
        own.items().map(|item| self.length(item)).sum()
    }

    fn length(&self, item: &Item) -> Option<usize> {
        match item {
            Item::HeldMany(attr) => match (self.attr)(attr)? {
                AttrValue::Int(count) => usize::try_from(count).ok().filter(|&n| n < 1 << 16),
                AttrValue::Ints(all) => Some(all.len()),
                _ => None,
            },
            _ => Some(1),
        }
    }

    pub(super) fn space(&self, name: &str) -> Option<&Space<'a>> {
        self.spaces.iter().find(|space| space.name == name)
    }

    /// The axis of each dim of an argument, none of those that are not free. The rank of an output follows from the inputs'.
    fn dims<'b>(&self, own: &'b Argument, rank: Option<usize>) -> Option<Vec<Option<Found<'b>>>> {
        let mut dims: Vec<Option<Found<'b>>> = Vec::new();
        let push = |dims: &mut Vec<Option<Found<'b>>>, items: &'b [Item]| {
            for item in items {
                match item {
                    Item::Axis(name) => dims.push(Some((name, None))),
                    _ => dims.resize(dims.len() + self.length(item)?, None),
                }
            }
            Some(())
        };
        push(&mut dims, &own.front)?;
        if let Some(dots) = &own.dots {
            let rest = rank.map(|rank| Some(rank.saturating_sub(self.count(own)?)));
            dims.extend(self.dotted(dots, rest.unwrap_or_default())?);
        }
        push(&mut dims, &own.back)?;
        let len = dims.len();
        if self.is_true(own.swapped.as_deref())? && len >= 2 {
            dims.swap(len - 2, len - 1);
        }
        // A tensor that has fewer dims than are counted at its end broadcasts along them.
        let surplus = rank.map_or(0, |rank| len.saturating_sub(rank));
        Some(dims.split_off(surplus))
    }

    /// The axes of the dims that dots stand for, of which an input has so many.
    fn dotted<'b>(&self, dots: &'b Dots, count: Option<usize>) -> Option<Vec<Option<Found<'b>>>> {
        let Some(name) = dots.axes.as_deref() else { return Some(vec![None; count.unwrap_or(0)]) };
        let all = |name: &'b str| -> Option<Vec<Option<Found<'b>>>> {
            let Some(space) = self.space(name) else { return Some(vec![]) };
            let dim = |(at, held): (usize, &bool)| (!held).then_some((name, Some(space.rank - at)));
            Some(space.held.iter().enumerate().map(dim).collect())
        };
        let dims = all(name)?;
        let rank = dims.len();
        Some(match &dots.view {
            View::Whole | View::But(_) => {
                let surplus = count.map_or(0, |count| rank.saturating_sub(count));
                dims[surplus..].to_vec()
            }
            View::Less { unless, .. } if self.is_true(unless.as_deref())? => dims,
            View::Less { at, .. } => {
                let gone = self.marks(at, rank)?;
                dims.into_iter().zip(gone).filter(|(_, gone)| !gone).map(|(dim, _)| dim).collect()
            }
            View::By(order) => {
                let order = self.ints(order)?;
                if order.is_empty() {
                    return Some(dims.into_iter().rev().collect());
                }
                let dim = |&position: &i64| dims.get(from_start(position, rank)?).copied();
                order.iter().map(dim).collect::<Option<_>>()?
            }
            View::With { others, at } => {
                let marks = self.marks(at, rank)?;
                let place = |(dim, mark): (Option<Found<'b>>, bool)| {
                    if mark { all(others) } else { Some(vec![dim]) }
                };
                dims.into_iter().zip(marks).map(place).collect::<Option<Vec<_>>>()?.concat()
            }
        })
    }
}

/// A position that is counted from the end where it is negative.
fn from_start(position: i64, rank: usize) -> Option<usize> {
    let position = if position < 0 { position.checked_add_unsigned(rank as u64)? } else { position };
    usize::try_from(position).ok().filter(|&position| position < rank)
}
