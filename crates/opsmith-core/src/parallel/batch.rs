//! A batch of calls as one call.

use super::call::Call;
use super::{Argument, Dots, FreeAxis, Parallel, View};
use crate::attr::AttrValue;

/// How a batch of calls is one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Batch {
    /// It is one more of the dims that `...` stands for, in front of the others, and dim 0 of every output.
    InFront {
        /// The rank that each input then has: the dim of the batch, then dims of 1, then its own. None where it stays as it is.
        ranks: Vec<Option<usize>>,
        /// The attributes that are others then: they have positions of dims, or their order.
        attrs: Vec<(String, AttrValue)>,
    },
    /// It is put together with the dim of a free axis, as the slower one of the two. Inputs that lack it stay as they are, and all outputs
    /// have it.
    Beside(FreeAxis),
}

impl Parallel {
    /// The ways in which a batch of calls is one call, best first. `ranks` are as in [`free_axes`](Self::free_axes), of one call;
    /// `batched` tells which inputs have the dim of the batch besides. Those without it that have the axis have to be repeated along it.
    ///
    /// A batch is beside a free axis only where all inputs that have it have it at its full size.
    pub fn batches(
        &self,
        attr: &dyn Fn(&str) -> Option<AttrValue>,
        ranks: &[Option<usize>],
        batched: &[bool],
    ) -> Vec<Batch> {
        let is_batched = |input: usize| batched.get(input).copied().unwrap_or(false);
        let fits = |axis: &FreeAxis| {
            let has = |input: usize| axis.inputs.get(input).is_some_and(Option::is_some);
            let present = (0..ranks.len()).filter(|&input| ranks[input].is_some());
            present.filter(|&input| is_batched(input)).all(has)
                && axis.outputs.iter().all(|output| output.dim.is_some())
        };
        let mut beside: Vec<FreeAxis> = self.free_axes(attr, ranks).into_iter().filter(fits).collect();
        beside.sort_by_key(|axis| {
            let both = axis.inputs.iter().zip(ranks).enumerate();
            let repeated =
                both.clone().filter(|(input, (dim, _))| dim.is_some() && !is_batched(*input)).count();
            let moved = both.filter(|(_, (dim, rank))| dim.is_some() && dim != rank).count();
            (repeated, moved)
        });
        self.in_front(attr, ranks, &is_batched)
            .into_iter()
            .chain(beside.into_iter().map(Batch::Beside))
            .collect()
    }

    fn in_front(
        &self,
        attr: &dyn Fn(&str) -> Option<AttrValue>,
        ranks: &[Option<usize>],
        is_batched: &dyn Fn(usize) -> bool,
    ) -> Option<Batch> {
        let call = Call::new(self, attr, ranks)?;
        let count = call.space("")?.rank;
        let mut attrs: Vec<(String, AttrValue)> = Vec::new();
        for dots in self.arguments().filter_map(|own| own.dots.as_ref()) {
            let Some((name, value)) = dots.with_one_in_front(attr, count)? else { continue };
            if !attrs.iter().any(|(known, _)| *known == name) {
                attrs.push((name, value));
            }
        }
        let rank_in_front = |input: usize, own: &Argument| -> Option<Option<usize>> {
            let Some(rank) = ranks.get(input).copied().flatten() else { return Some(None) };
            match own.dots.as_ref().filter(|_| own.leads()) {
                None if is_batched(input) => None,
                None => Some(None),
                // These are not counted from the end, so they cannot be fewer.
                Some(Dots { view: View::Less { .. }, .. }) => Some(Some(rank + 1)),
                Some(_) => Some(Some((rank + 1).max(count + 1 + call.count(own)?))),
            }
        };
        let inputs = self.inputs.iter().enumerate().map(|(input, own)| rank_in_front(input, own));
        let in_front: Vec<Option<usize>> = inputs.collect::<Option<_>>()?;
        if !self.outputs.iter().all(Argument::leads) {
            return None;
        }
        // Of the call that it becomes: the axis is there, and in front.
        let changed = |name: &str| {
            attrs.iter().find(|(own, _)| own == name).map(|(_, value)| value.clone()).or_else(|| attr(name))
        };
        let now: Vec<Option<usize>> = in_front.iter().zip(ranks).map(|(new, old)| new.or(*old)).collect();
        let name = format!("...[-{}]", count + 1);
        let axes = self.free_axes(&changed, &now);
        let axis = axes.iter().find(|axis| axis.name == name)?;
        let is_there = axis.inputs == in_front && axis.outputs.iter().all(|output| output.dim.is_some());
        is_there.then_some(Batch::InFront { ranks: in_front, attrs })
    }
}

impl Argument {
    /// Whether it begins with `...`, also where the last two dims change places.
    fn leads(&self) -> bool {
        let dots = self.dots.as_ref().is_some_and(|dots| dots.axes.as_deref() == Some(""));
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
        if self.axes.as_deref() != Some("") {
            return None;
        }
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
