//! Values that attributes may have, to try what depends on them.

use std::ops::Bound;

use super::{Allowed, AttrDef, Signature};
use crate::AttrValue;
use crate::attr::AttrBase;

/// At most so many combinations are tried.
const MOST: usize = 64;

impl AttrDef {
    /// Some values that it may have, the default first; of types that decide nothing but what is computed with, one.
    fn samples(&self) -> Vec<AttrValue> {
        let tried: Vec<AttrValue> = match (self.ty.base, self.ty.list, &self.allowed) {
            (_, false, Some(Allowed::Strings(texts))) => {
                texts.iter().map(|text| text.as_str().into()).collect()
            }
            (_, false, Some(Allowed::Ints(ints))) => ints.iter().copied().map(AttrValue::Int).collect(),
            (_, false, Some(Allowed::Types(types))) => {
                types.iter().take(1).copied().map(AttrValue::Type).collect()
            }
            (AttrBase::Bool, false, _) => [false, true].map(AttrValue::Bool).to_vec(),
            (AttrBase::Int, false, _) => (-1..=3).map(AttrValue::Int).collect(),
            (AttrBase::Float, false, _) => [1.0, 0.5, 0.0]
                .into_iter()
                .chain(self.floats_within().into_iter().take(1))
                .map(AttrValue::Float)
                .collect(),
            (AttrBase::Int, true, None) => {
                let lists = [&[][..], &[0], &[1], &[-1], &[0, 1], &[1, 0], &[2, 0, 1]];
                lists.map(|list| AttrValue::Ints(list.to_vec())).to_vec()
            }
            _ => vec![],
        };
        let ends = [&self.min, &self.max].into_iter().filter_map(|bound| match bound {
            Bound::Included(end) => Some(end),
            _ => None,
        });
        let mut samples: Vec<AttrValue> = Vec::new();
        for value in self.default.iter().chain(ends).chain(&tried) {
            if !samples.contains(value) && self.check(value).is_ok() {
                samples.push(value.clone());
            }
        }
        samples
    }
}

impl Signature {
    /// Combinations of values that the attributes may have, each in the definition's order, that of the defaults first; of many attributes
    /// those in which one has no default. There are none where nothing is known of the values of an attribute.
    pub fn attr_samples(&self) -> Vec<Vec<AttrValue>> {
        let samples: Vec<Vec<AttrValue>> = self.attrs.iter().map(AttrDef::samples).collect();
        let count = samples.iter().try_fold(1usize, |count, own| count.checked_mul(own.len()));
        if count.is_some_and(|count| count <= MOST) {
            return samples.iter().fold(vec![vec![]], |all, own| {
                let longer = |values: &Vec<AttrValue>, value: &AttrValue| {
                    [&values[..], std::slice::from_ref(value)].concat()
                };
                all.iter().flat_map(|values| own.iter().map(move |value| longer(values, value))).collect()
            });
        }
        let Some(plain) = samples.iter().map(|own| own.first().cloned()).collect::<Option<Vec<_>>>() else {
            return vec![];
        };
        let others = samples.iter().enumerate().flat_map(|(at, own)| {
            let plain = &plain;
            own.iter().skip(1).map(move |value| {
                let mut values = plain.clone();
                values[at] = value.clone();
                values
            })
        });
        std::iter::once(plain.clone()).chain(others).collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::{AttrValue, SignatureBuilder};

    #[test]
    fn samples_are_values_that_attributes_may_have() {
        let builder =
            SignatureBuilder::new("Op").attr("a: int >= 2 = 5").attr("b: bool").attr("c: {'x', 'y'} = 'y'");
        let samples = builder.attr("T: {float, double}").input("x: T").build().unwrap().attr_samples();
        assert_eq!(samples.len(), 3 * 2 * 2);
        assert_eq!(samples[0][..3], [AttrValue::Int(5), AttrValue::Bool(false), "y".into()]);
        assert!(samples.iter().all(|values| matches!(values[0], AttrValue::Int(5 | 2 | 3))));
        let many =
            (0..9).fold(SignatureBuilder::new("Op"), |def, at| def.attr(format!("b{at}: bool = true")));
        let samples = many.build().unwrap().attr_samples();
        assert_eq!((samples.len(), &samples[9][8]), (10, &AttrValue::Bool(false)));
        let unknown = SignatureBuilder::new("Op").attr("t: tensor").build().unwrap();
        assert!(unknown.attr_samples().is_empty());
    }
}
