//! The op that takes a part of a tensor.

use opsmith::prelude::*;
use opsmith::space::Extents;
use opsmith::{Dim, Shape};

use crate::define::ops;
use crate::linear::{self, Facts, Linear, last_input};
use crate::moved::{Moved, assemble, make};
use crate::moved_on_card::moves;
use crate::parameters::{integers, known_integers, length};

ops! {
    /// The op `Slice`: a part of a tensor.
    Slice = linear::forward::<Slicing>(), with &[linear::gradient::<Slicing>, linear::second::<Slicing>];
}

struct Slicing {
    clip: bool,
}

/// Where a slice begins and how large it is. What is not in the input is left out if it is to be clipped, else an error.
fn region(shape: &[usize], begin: &[i64], size: &[i64], clip: bool) -> Result<(Extents, Extents)> {
    ensure!(
        begin.len() == shape.len() && size.len() == shape.len(),
        InvalidArgument for "begin",
        "`begin` and `size` must have a number for each dim of an input of shape {shape:?}, got {begin:?} and {size:?}"
    );
    let mut region = (Extents::new(), Extents::new());
    for (axis, &dim) in shape.iter().enumerate() {
        let from_start =
            if begin[axis] < 0 { begin[axis].saturating_add_unsigned(dim as u64) } else { begin[axis] };
        let found = match clip {
            true => clipped(from_start, size[axis], dim),
            false => usize::try_from(from_start).ok().filter(|&start| start <= dim).and_then(|start| {
                let rest = dim - start;
                let length = if size[axis] == -1 { Some(rest) } else { usize::try_from(size[axis]).ok() };
                length.filter(|&length| length <= rest).map(|length| (start, length))
            }),
        };
        let Some((start, length)) = found else {
            bail!(
                InvalidArgument,
                "the part from {} of size {} along dim {axis} is not in an input of shape {shape:?}",
                begin[axis],
                size[axis]
            );
        };
        region.0.push(start);
        region.1.push(length);
    }
    Ok(region)
}

/// The part of a dim from `start` on that is in it, as NumPy's slices have it; none for a size below -1.
fn clipped(start: i64, size: i64, dim: usize) -> Option<(usize, usize)> {
    let end = match size {
        ..-1 => return None,
        -1 => i64::MAX,
        size => start.saturating_add(size),
    };
    let inside = |place: i64| usize::try_from(place).map_or(0, |place| place.min(dim));
    let first = inside(start);
    Some((first, inside(end).saturating_sub(first)))
}

impl Slicing {
    fn region(&self, context: &OpKernelContext<'_>, shape: &[usize]) -> Result<(Extents, Extents)> {
        let (begin, size) = (integers(context, "begin")?, integers(context, "size")?);
        region(shape, &begin, &size, self.clip)
    }
}

impl Linear for Slicing {
    const FACTS: Facts = Facts {
        name: "Slice",
        x: "x",
        attrs: &["Index: {int32, int64} = DT_INT64", "clip: bool = false"],
        dtypes: "type",
        parameters: &["begin: Index", "size: Index"],
        host: &["begin", "size"],
        dims: &[],
        doc: "A part of a tensor.\n\n\
              x: Any tensor.\n\
              begin: Along each dim, where the part begins; counted from the end where negative.\n\
              size: Along each dim, how large the part is; -1 is up to the end.\n\
              clip: Whether what is beyond the ends of a dim is left out, as NumPy's slices leave it out, and no error.\n\
              y: The part.",
        shape: |c| {
            let (input, begin, size) = (c.input(0)?, known_integers(c, 1), known_integers(c, 2));
            let rank = match (input.rank(), length(c, 1)?) {
                (Some(rank), _) | (None, Some(rank)) => rank,
                (None, None) => return Ok(Shape::unknown()),
            };
            let (input, clip) = (c.with_rank(input, rank)?, c.get_bool("clip")?);
            if let (Some(shape), Some(begin), Some(size)) = (input.to_known(), &begin, &size) {
                return Ok(Shape::known(&region(&shape, begin, size, clip)?.1));
            }
            let at = |numbers: &Option<Vec<i64>>, axis: usize| numbers.as_ref()?.get(axis).copied();
            let dim = |axis: usize| {
                let known = input.dims().and_then(|dims| usize::try_from(dims[axis].value()?).ok());
                match (known, at(&begin, axis), at(&size, axis)) {
                    (Some(dim), Some(begin), Some(size)) => {
                        let part = region(&[dim], &[begin], &[size], clip)?;
                        Ok(Dim::Known(part.1[0] as u64))
                    }
                    (.., Some(size @ 0..)) if !clip || size == 0 => Ok(Dim::Known(size.unsigned_abs())),
                    (.., Some(size)) if size < -1 => {
                        let text = format!("`size` must be at least -1 along dim {axis}, got {size}");
                        Err(c.error(text).naming("size"))
                    }
                    _ => Ok(Dim::Unknown),
                }
            };
            Ok((0..rank).map(dim).collect::<Result<Vec<Dim>>>()?.into())
        },
    };

    const ON_CARD: [fn(DType) -> bool; 2] = [moves; 2];

    fn new(construction: &OpKernelConstruction<'_>) -> Result<Self> {
        Ok(Slicing { clip: construction.attr("clip")? })
    }

    fn forward(&self, context: &OpKernelContext<'_>) -> Result<()> {
        let input = context.input(0)?;
        let (start, length) = self.region(context, input.shape())?;
        make(context, (0, 0), Moved::new(input).region(&start, &length))
    }

    fn backward(&self, context: &OpKernelContext<'_>) -> Result<()> {
        let shape = context.input_shape(0)?;
        let (start, length) = self.region(context, shape)?;
        let gradient = last_input(context, &length)?;
        assemble(context, (0, 0), shape, vec![(Moved::new(gradient), start)], true)
    }
}

#[cfg(test)]
mod tests {
    use opsmith::attr::TensorValue;
    use opsmith::{infer_error, infer_ok, testing};

    use super::*;

    #[test]
    fn parts_are_in_the_tensor() -> Result<()> {
        let x = array![[1, 2, 3], [4, 5, 6]];
        let call = || testing::call::<Slice>().input(&x);
        let (begin, size) = (array![0, -2], array![-1, 1]);
        assert_eq!(call().input(&begin).input(&size).run()?.array::<i32, Ix2>("y")?, array![[2], [5]]);
        for (begin, size) in [([0, 2], [2, 2]), ([-3, 0], [1, 1]), ([0, 0], [-2, 1])] {
            let (begin, size) = (array![begin[0], begin[1]], array![size[0], size[1]]);
            let error = call().input(&begin).input(&size).run().unwrap_err();
            assert!(error.message().contains("is not in an input of shape [2, 3]"), "{error}");
        }
        Ok(())
    }

    #[test]
    fn what_is_beyond_the_ends_is_left_out_if_it_may() -> Result<()> {
        let x = array![[1, 2, 3], [4, 5, 6]];
        let call = || testing::call::<Slice>().input(&x).attr("clip", true);
        for (begin, size, expected) in [
            ([0, 2], [2, 2], array![[3], [6]]),
            ([-3, 0], [2, 9], array![[1, 2, 3]]),
            ([-3, 0], [1, 9], opsmith::ndarray::Array2::zeros((0, 3))),
            ([7, 1], [-1, i32::MAX], opsmith::ndarray::Array2::zeros((0, 2))),
        ] {
            let (begin, size) = (array![begin[0], begin[1]], array![size[0], size[1]]);
            assert_eq!(call().input(&begin).input(&size).run()?.array::<i32, Ix2>("y")?, expected);
        }
        assert!(call().input(&array![0, 0]).input(&array![-2, 1]).run().is_err());
        let value = |numbers: [i64; 2]| {
            let bytes = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
            TensorValue { dtype: DType::Int64, shape: vec![2], bytes, strings: vec![] }
        };
        let of = |size: [i64; 2]| {
            let shapes = testing::shapes::<Slice>().attr("clip", true.into());
            shapes.input_value(1, value([0, 1])).input_value(2, value(size))
        };
        infer_ok!(of([5, 5]), "[?,3];[2];[2]", "[?,2]");
        infer_error!(of([-2, 5]), "at least -1", "[?,3];[2];[2]");
        Ok(())
    }
}
