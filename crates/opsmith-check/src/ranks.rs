//! Which ranks an op takes whose shape function is a function: it is asked.

use std::collections::BTreeMap;
use std::sync::Arc;

use opsmith_core::attr::TensorValue;
use opsmith_core::def::AttrDef;
use opsmith_core::{AttrValue, Dim, Error, Shape};
use serde_json::Value;

use crate::case::Case;
use crate::lab::Lab;
use crate::subject::Subject;
use crate::wire::Answer;

/// The largest rank that is tried, and where there is none up to it, the next: calls of large ranks are long.
const LARGEST: usize = 3;
/// As many combinations of ranks are tried.
const MOST: usize = 300;

/// What the shapes of an op's inputs may be, as far as its shape function says: the rank of each input, and which dims
/// are equal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Pattern {
    pub(crate) ranks: Vec<usize>,
    /// For each dim of each input a number; dims of one number have one size.
    pub(crate) dims: Vec<Vec<usize>>,
    /// The sizes that dims of some numbers must have.
    pub(crate) sizes: Vec<Size>,
}

/// The one size that dims of a number may have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Size {
    number: usize,
    size: usize,
    /// The position of the int attribute that had this value, and so may say the size.
    attr: Option<usize>,
}

impl Pattern {
    /// All inputs of rank 0.
    pub(crate) fn scalars(inputs: usize) -> Pattern {
        Pattern { ranks: vec![0; inputs], dims: vec![vec![]; inputs], sizes: vec![] }
    }

    /// Inputs of these ranks, of whose dims none are linked.
    pub(crate) fn of_ranks(ranks: Vec<usize>) -> Pattern {
        let mut numbers = 0..;
        let dims = ranks.iter().map(|rank| numbers.by_ref().take(*rank).collect()).collect();
        Pattern { ranks, dims, sizes: vec![] }
    }

    /// The size that dims of a number must have, with these values of all attributes.
    pub(crate) fn size(&self, number: usize, attrs: &[AttrValue]) -> Option<usize> {
        let own = self.sizes.iter().find(|own| own.number == number)?;
        match own.attr.and_then(|attr| attrs.get(attr)) {
            Some(AttrValue::Int(size)) => usize::try_from(*size).ok(),
            _ => Some(own.size),
        }
    }

    /// The same where tensors of these shapes are given for some inputs: what is linked to their dims has their size, the
    /// largest where they broadcast. `None` where they have other ranks.
    pub(crate) fn with_shapes(&self, given: &[Option<Vec<usize>>]) -> Option<Pattern> {
        let mut pattern = self.clone();
        let mut next = self.dims.iter().flatten().max().map_or(0, |most| most + 1);
        let mut linked: BTreeMap<usize, usize> = BTreeMap::new();
        for (input, shape) in given.iter().enumerate() {
            let Some(shape) = shape else { continue };
            if self.ranks[input] != shape.len() {
                return None;
            }
            for (dim, &size) in shape.iter().enumerate() {
                let most = linked.entry(self.dims[input][dim]).or_default();
                *most = size.max(*most);
                pattern.dims[input][dim] = next;
                pattern.sizes.push(Size { number: next, size, attr: None });
                next += 1;
            }
        }
        // Behind what the number must be, which comes first.
        pattern.sizes.extend(linked.into_iter().map(|(number, size)| Size { number, size, attr: None }));
        Some(pattern)
    }

    /// Whether all inputs have one rank.
    pub(crate) fn is_even(&self) -> bool {
        self.ranks.windows(2).all(|pair| pair[0] == pair[1])
    }
}

/// The patterns that shape inference accepts with a symbol for each dim; those of equal ranks first. `sample` has as many
/// tensors for each input, and the dtypes and attributes, that are asked with.
pub(crate) fn accepted(lab: &mut Lab<'_>, subject: &Subject, sample: &Case) -> Result<Vec<Pattern>, Error> {
    let names: Vec<&str> = subject.signature.inputs.iter().map(|input| input.name.as_str()).collect();
    let usual = accepted_of(lab, subject, sample, combinations(&names, LARGEST))?;
    if !usual.is_empty() {
        return Ok(usual);
    }
    let mut larger = combinations(&names, LARGEST + 1);
    larger.retain(|ranks| ranks.contains(&(LARGEST + 1)));
    accepted_of(lab, subject, sample, larger)
}

fn accepted_of(
    lab: &mut Lab<'_>,
    subject: &Subject,
    sample: &Case,
    tried: Vec<Vec<usize>>,
) -> Result<Vec<Pattern>, Error> {
    let request = |ranks: &Vec<usize>| {
        let list = |(input, list): (usize, &Vec<Option<Arc<TensorValue>>>)| {
            let shape = || (0..ranks[input]).map(|dim| Dim::symbol(&symbol(input, dim))).collect::<Shape>();
            list.iter().flatten().map(|_| shape()).collect()
        };
        sample.infer(subject, &sample.inputs.iter().enumerate().map(list).collect::<Vec<_>>())
    };
    let Ok(answers) = lab.ask(tried.iter().map(request).collect())? else { return Ok(vec![]) };
    let int = |def: &AttrDef| {
        let given = sample.attrs.iter().find(|(name, _)| *name == def.name).map(|(_, value)| value);
        match given.or(def.default.as_ref()) {
            Some(AttrValue::Int(value)) => Some(*value),
            _ => None,
        }
    };
    let ints: Vec<Option<i64>> = subject.signature.attrs.iter().map(int).collect();
    let pattern = |(ranks, answer): (Vec<usize>, Answer)| match answer {
        Answer::Inferred(response) => Some(linked(ranks, &response, &ints)),
        _ => None,
    };
    Ok(tried.into_iter().zip(answers).filter_map(pattern).collect())
}

fn symbol(input: usize, dim: usize) -> String {
    format!("i{input}d{dim}")
}

/// The pattern of these ranks, with the equalities that inference assumed with these values of int attributes.
fn linked(ranks: Vec<usize>, response: &str, ints: &[Option<i64>]) -> Pattern {
    let names =
        ranks.iter().enumerate().flat_map(|(input, rank)| (0..*rank).map(move |dim| symbol(input, dim)));
    let names: Vec<String> = names.collect();
    let mut classes: Vec<usize> = (0..names.len()).collect();
    let response: Value = serde_json::from_str(response).unwrap_or_default();
    let mut said: Vec<(usize, u64)> = Vec::new();
    for constraint in response["constraints"].as_array().into_iter().flatten() {
        if constraint["relation"] != "==" {
            continue;
        }
        let place = |side: &str| names.iter().position(|name| constraint[side].as_str() == Some(name));
        match (place("left"), place("right")) {
            (Some(left), Some(right)) => {
                let (kept, gone) = (classes[left], classes[right]);
                classes.iter_mut().filter(|class| **class == gone).for_each(|class| *class = kept);
            }
            (Some(dim), None) => said.extend(constraint["right"].as_u64().map(|size| (dim, size))),
            (None, Some(dim)) => said.extend(constraint["left"].as_u64().map(|size| (dim, size))),
            (None, None) => {}
        }
    }
    let size = |&(dim, size): &(usize, u64)| {
        let attr =
            ints.iter().position(|value| value.and_then(|value| u64::try_from(value).ok()) == Some(size));
        Size { number: classes[dim], size: size as usize, attr }
    };
    let sizes = said.iter().map(size).collect();
    let mut next = classes.into_iter();
    let dims = ranks.iter().map(|rank| next.by_ref().take(*rank).collect()).collect();
    Pattern { ranks, dims, sizes }
}

/// Combinations of ranks from 0 to `largest` of inputs of these names: those in which all are equal, then those in which gradients have the
/// ranks of what they are of, then the others, each by their sum.
///
/// Of more inputs than can be tried freely, as gradients of higher orders have, those that are gradients of one thing have one rank, and
/// what is saved has; where that are still too many, all have.
fn combinations(names: &[&str], largest: usize) -> Vec<Vec<usize>> {
    let each: Vec<usize> = (0..names.len()).collect();
    let place = |name: &str| names.iter().position(|other| stem(other) == stem(name)).unwrap_or_default();
    let of_stems: Vec<usize> = names.iter().map(|name| place(name)).collect();
    let tied = [each, of_stems.clone(), vec![0; names.len()]];
    let is_few = |ties: &&Vec<usize>| {
        let free = ties.iter().enumerate().filter(|(input, tie)| input == *tie).count();
        (largest + 1).checked_pow(free as u32).is_some_and(|count| count <= 1 << 14)
    };
    let Some(ties) = tied.iter().find(is_few) else { return Vec::new() };
    let mut all: Vec<Vec<usize>> = vec![vec![]];
    for (input, &tie) in ties.iter().enumerate() {
        let longer = |ranks: Vec<usize>| {
            let own = if tie == input { 0..=largest } else { ranks[tie]..=ranks[tie] };
            own.map(move |rank| [&ranks[..], &[rank]].concat())
        };
        all = all.into_iter().flat_map(longer).collect();
    }
    let is_mixed = |ranks: &Vec<usize>| ranks.windows(2).any(|pair| pair[0] != pair[1]);
    let differs =
        |ranks: &Vec<usize>| ranks.iter().zip(&of_stems).any(|(rank, &place)| *rank != ranks[place]);
    all.sort_by_key(|ranks| (is_mixed(ranks), differs(ranks), ranks.iter().sum::<usize>()));
    all.truncate(MOST);
    all
}

/// What an input is named after: `x` of `x_grad_grad_2`, `saved` of `saved_3`.
fn stem(name: &str) -> &str {
    let unnumbered = name.trim_end_matches(|sign: char| sign.is_ascii_digit());
    let name = unnumbered.strip_suffix('_').filter(|_| unnumbered.len() < name.len()).unwrap_or(name);
    name.strip_suffix("_grad").map_or(name, stem)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dims_that_inference_takes_for_equal_have_one_number() {
        let response = r#"{"constraints": [{"relation": "==", "left": "i1d0", "right": "i0d1"}]}"#;
        let pattern = linked(vec![2, 1], response, &[]);
        assert_eq!(pattern.dims[1][0], pattern.dims[0][1]);
        assert_ne!(pattern.dims[0][0], pattern.dims[0][1]);
    }

    #[test]
    fn dims_of_one_size_have_it() {
        let response = r#"{"constraints": [{"relation": "==", "left": "i1d0", "right": "i0d1"},
            {"relation": "==", "left": 3, "right": "i0d1"}, {"relation": "==", "left": "i0d0", "right": 5}]}"#;
        let pattern = linked(vec![2, 1], response, &[None, Some(5)]);
        let attrs = [AttrValue::Bool(true), AttrValue::Int(7)];
        let sizes = |input: usize| pattern.dims[input].iter().map(|dim| pattern.size(*dim, &attrs));
        assert_eq!(sizes(0).collect::<Vec<_>>(), [Some(7), Some(3)]);
        assert_eq!(sizes(1).collect::<Vec<_>>(), [Some(3)]);
    }

    #[test]
    fn what_is_linked_to_given_shapes_has_their_sizes() {
        let pattern = Pattern { ranks: vec![2; 3], dims: vec![vec![0, 1]; 3], sizes: vec![] };
        let given = [Some(vec![7, 1]), Some(vec![1, 5]), None];
        let fitted = pattern.with_shapes(&given).unwrap();
        let shape = |input: usize| fitted.dims[input].iter().map(|dim| fitted.size(*dim, &[]).unwrap());
        let shapes: Vec<Vec<usize>> = (0..3).map(|input| shape(input).collect()).collect();
        assert_eq!(shapes, [[7, 1], [1, 5], [7, 5]]);
        assert_eq!(pattern.with_shapes(&[Some(vec![7]), None, None]), None, "another rank");
    }

    #[test]
    fn equal_ranks_come_first() {
        assert_eq!(combinations(&[], LARGEST), vec![Vec::<usize>::new()]);
        assert_eq!(combinations(&["x"], LARGEST), [[0], [1], [2], [3]]);
        let two = combinations(&["x", "y"], LARGEST);
        assert_eq!((&two[3], &two[4], two.len()), (&vec![3, 3], &vec![0, 1], 16));
        assert_eq!(combinations(&["a", "b", "c", "d", "e", "f", "g", "h", "i"], LARGEST).len(), 4);
    }

    #[test]
    fn gradients_are_first_tried_with_the_ranks_of_what_they_are_of() {
        let names = ["x", "y", "z_grad", "x_grad_grad", "y_grad_grad"];
        let all = combinations(&names, LARGEST);
        assert_eq!(all.len(), MOST);
        assert!(all.contains(&vec![2, 2, 1, 2, 2]) && all.contains(&vec![2, 0, 3, 2, 0]));
    }

    #[test]
    fn of_many_inputs_gradients_of_one_thing_have_one_rank() {
        let names = ["x", "w", "saved_1", "saved_2", "y_grad", "x_grad_grad", "w_grad_grad", "x_grad_grad_2"];
        let all = combinations(&names, LARGEST);
        assert!(all.contains(&vec![2, 1, 1, 1, 2, 2, 1, 2]));
        assert!(all.iter().all(|ranks| ranks[0] == ranks[7] && ranks[2] == ranks[3]));
    }
}
