//! A batch of calls as one call.

use super::call::Call;
use super::{Argument, Dots, FreeAxis, Parallel, View};
use crate::attr::AttrValue;

/// How a batch of calls is one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Batch {
    /// It is one more of the dims that dots stand for, in front of the others.
    InFront {
        /// The rank that each input then has: the dim of the batch, then dims of 1, then its own. None where it stays as it is.
        ranks: Vec<Option<usize>>,
        /// The attributes that are others then: they have positions of dims, or their order.
        attrs: Vec<(String, AttrValue)>,
        /// Which dim of each output the batch then is, counted from the end from 1 on; none of one that is not asked for.
        outputs: Vec<Option<usize>>,
    },
    /// It is put together with the dim of a free axis, as the slower one of the two. Inputs that lack it stay as they are, and all outputs
    /// have it.
    Beside(FreeAxis),
}

/// A batch of calls with the same attributes.
#[derive(Clone, Copy)]
pub struct Calls<'a> {
    /// The attributes, by name.
    pub attr: &'a dyn Fn(&str) -> Option<AttrValue>,
    /// The ranks of the inputs of one call, as [`Parallel::free_axes`] takes them.
    pub ranks: &'a [Option<usize>],
    /// Which inputs have the dim of the batch besides.
    pub batched: &'a [bool],
    /// Which outputs are asked for.
    pub wanted: &'a [bool],
}

impl Calls<'_> {
    fn is_batched(&self, input: usize) -> bool {
        self.batched.get(input).copied().unwrap_or(false)
    }

    fn is_wanted(&self, output: usize) -> bool {
        self.wanted.get(output).copied().unwrap_or(true)
    }

    /// Whether all outputs that are asked for have the axis.
    fn comes_out(&self, axis: &FreeAxis) -> bool {
        let mut outputs = axis.outputs.iter().enumerate();
        outputs.all(|(output, own)| own.dim.is_some() || !self.is_wanted(output))
    }
}

impl Parallel {
    /// The ways in which a batch of calls is one call, best first. Inputs without the batch that have the axis have to be repeated along
    /// it.
    ///
    /// A batch is beside a free axis only where all inputs that have it have it at its full size.
    pub fn batches(&self, calls: &Calls<'_>) -> Vec<Batch> {
        let mut names: Vec<&str> = Vec::new();
        for name in self.inputs.iter().filter_map(|own| own.dots.as_ref()?.axes.as_deref()) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        let in_front = names.into_iter().filter_map(|name| self.in_front(calls, name));
        in_front.chain(self.beside(calls).into_iter().map(Batch::Beside)).collect()
    }

    fn beside(&self, calls: &Calls<'_>) -> Vec<FreeAxis> {
        // How many dims a sum has is not known where it is of fewer than others have.
        if self.has_sums() && !self.is_even(calls).unwrap_or(false) {
            return Vec::new();
        }
        let fits = |axis: &FreeAxis| {
            let batched = (0..calls.ranks.len()).filter(|&input| calls.is_batched(input));
            let mut present = batched.filter(|&input| calls.ranks[input].is_some());
            present.all(|input| axis.inputs[input].is_some()) && calls.comes_out(axis)
        };
        let mut axes = self.free_axes(calls.attr, calls.ranks);
        axes.retain(fits);
        axes.sort_by_key(|axis| {
            let both = axis.inputs.iter().zip(calls.ranks).enumerate();
            let has = both.filter(|(_, (dim, _))| dim.is_some());
            let repeated = has.clone().filter(|(input, _)| !calls.is_batched(*input)).count();
            (repeated, has.filter(|(_, (dim, rank))| dim != rank).count())
        });
        axes
    }

    /// One more of the dims that the dots of this name stand for.
    fn in_front(&self, calls: &Calls<'_>, name: &str) -> Option<Batch> {
        let call = Call::new(self, calls.attr, calls.ranks)?;
        let count = call.space(name)?.rank;
        let mut attrs: Vec<(String, AttrValue)> = Vec::new();
        let is_of = |dots: &&Dots| dots.axes.as_deref() == Some(name);
        for dots in self.arguments().filter_map(|own| own.dots.as_ref()).filter(is_of) {
            let Some((attr, value)) = dots.with_one_in_front(calls.attr, count)? else { continue };
            if !attrs.iter().any(|(known, _)| *known == attr) {
                attrs.push((attr, value));
            }
        }
        let rank_in_front = |input: usize, own: &Argument| -> Option<Option<usize>> {
            let Some(rank) = calls.ranks.get(input).copied().flatten() else { return Some(None) };
            match own.dots.as_ref().filter(|_| own.leads(name)) {
                None if calls.is_batched(input) => None,
                None => Some(None),
                // These are not counted from the end, so they cannot be fewer.
                Some(Dots { view: View::Less { .. }, .. }) => Some(Some(rank + 1)),
                Some(_) => Some(Some((rank + 1).max(count + 1 + call.count(own)?))),
            }
        };
        let inputs = self.inputs.iter().enumerate().map(|(input, own)| rank_in_front(input, own));
        let in_front: Vec<Option<usize>> = inputs.collect::<Option<_>>()?;
        // Of the call that it becomes: the axis is there, and in front.
        let changed = |name: &str| {
            let other = attrs.iter().find(|(own, _)| own == name).map(|(_, value)| value.clone());
            other.or_else(|| (calls.attr)(name))
        };
        let now: Vec<Option<usize>> =
            in_front.iter().zip(calls.ranks).map(|(new, old)| new.or(*old)).collect();
        let name = format!("{name}...[-{}]", count + 1);
        let axes = self.free_axes(&changed, &now);
        let axis = axes.iter().find(|axis| axis.name == name)?;
        let is_there = axis.inputs == in_front && calls.comes_out(axis);
        let outputs = axis.outputs.iter().enumerate();
        let outputs = outputs.map(|(output, own)| own.dim.filter(|_| calls.is_wanted(output))).collect();
        is_there.then_some(Batch::InFront { ranks: in_front, attrs, outputs })
    }

    /// Whether all inputs with dots of a name have as many dims there.
    fn is_even(&self, calls: &Calls<'_>) -> Option<bool> {
        let call = Call::new(self, calls.attr, calls.ranks)?;
        for (own, rank) in self.inputs.iter().zip(calls.ranks) {
            let (Some(Dots { axes: Some(name), view }), Some(rank)) = (&own.dots, rank) else { continue };
            let is_whole = !matches!(view, View::Less { .. });
            if is_whole && *rank != call.count(own)? + call.space(name)?.rank {
                return Some(false);
            }
        }
        Some(true)
    }
}

impl Argument {
    /// Whether it begins with the dots of this name, also where the last two dims change places.
    fn leads(&self, name: &str) -> bool {
        let dots = self.dots.as_ref().is_some_and(|dots| dots.axes.as_deref() == Some(name));
        dots && self.front.is_empty() && (self.swapped.is_none() || self.back.len() > 1)
    }
}

impl Dots {
    /// The attribute that says which dims are there, for one more dim in front of `count`; none where it is no other. Nothing at all
    /// where that cannot be said.
    fn with_one_in_front(
        &self,
        attr: &dyn Fn(&str) -> Option<AttrValue>,
        count: usize,
    ) -> Option<Option<(String, AttrValue)>> {
        let (View::But(name) | View::Less { at: name, .. } | View::By(name) | View::With { at: name, .. }) =
            &self.view
        else {
            return Some(None);
        };
        let after = |position: i64| if position < 0 { position } else { position.saturating_add(1) };
        let count = i64::try_from(count).ok()?;
        let value = match (attr(name)?, &self.view) {
            (AttrValue::Int(position), _) => AttrValue::Int(after(position)),
            (AttrValue::Ints(order), View::By(_)) if order.is_empty() => {
                AttrValue::Ints([0].into_iter().chain((1..=count).rev()).collect())
            }
            (AttrValue::Ints(order), View::By(_)) => {
                AttrValue::Ints([0].into_iter().chain(order.into_iter().map(after)).collect())
            }
            (AttrValue::Ints(all), _) if all.is_empty() => AttrValue::Ints((1..=count).collect()),
            (AttrValue::Ints(positions), _) => AttrValue::Ints(positions.into_iter().map(after).collect()),
            _ => return None,
        };
        Some(Some((name.clone(), value)))
    }
}
