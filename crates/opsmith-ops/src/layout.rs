//! Ops that say how the elements of a tensor are arranged: shapes, orders of dims, repetitions and sums over them.

use opsmith::prelude::*;
use opsmith::space::{Extents, broadcast_shape};
use opsmith::{Dim, Shape};

use crate::define::ops;
use crate::linear::{self, FLOATS, Facts, Linear, is_float, last_input};
use crate::moved::{Moved, make, make_as};
use crate::moved_on_card::moves;
use crate::parameters::{axis_of, dims, elements, integers};
use crate::sums::sum_to;

ops! {
    /// The op `Reshape`: the same elements in another shape.
    Reshape = linear::forward::<Reshaping>(), with &[linear::gradient::<Reshaping>, linear::second::<Reshaping>];
    /// The op `Transpose`: dims in another order.
    Transpose = linear::forward::<Transposition>(),
        with &[linear::gradient::<Transposition>, linear::second::<Transposition>];
    /// The op `BroadcastTo`: dims repeated.
    BroadcastTo = linear::forward::<Repetition>(), with &[linear::gradient::<Repetition>, linear::second::<Repetition>];
    /// The op `SumTo`: sums over the dims that broadcasting repeats.
    SumTo = linear::forward::<SumOfRepetitions>(),
        with &[linear::gradient::<SumOfRepetitions>, linear::second::<SumOfRepetitions>];
}

/// The parameter that holds a shape.
const SHAPE: &[&str] = &["shape: Index"];
/// The dtypes of parameters.
const INDEX: &str = "Index: {int32, int64} = DT_INT64";

struct Reshaping;

impl Linear for Reshaping {
    const FACTS: Facts = Facts {
        name: "Reshape",
        x: "x",
        attrs: &[INDEX],
        dtypes: "type",
        parameters: SHAPE,
        host: &["shape"],
        dims: &[],
        doc: "The same elements, in row-major order, in another shape.\n\n\
              x: Any tensor.\n\
              shape: The shape, a vector; one dim of -1 is as large as the number of elements makes it.\n\
              y: Of that shape.",
        shape: |c| {
            let (shape, input) = (c.shape_from_input(1)?, c.input(0)?);
            let Some(sizes) = shape.dims() else { return Ok(shape) };
            // One that is not known is -1, or nothing at all is known.
            let is_open = |dim: &&Dim| matches!(dim, Dim::Unknown);
            if c.input_value(1).is_none() || sizes.iter().filter(is_open).count() != 1 {
                return Ok(shape);
            }
            let others = sizes.iter().filter(|dim| !is_open(dim));
            let others = others.cloned().collect::<Shape>().num_elements()?;
            let count = input.num_elements()?;
            if others.is(0) || matches!(count, Dim::Unknown) {
                return Ok(shape);
            }
            let open = c.divide(&count, &others, true)?;
            Ok(sizes.iter().map(|dim| if is_open(&dim) { open.clone() } else { dim.clone() }).collect())
        },
    };

    const ON_CARD: [fn(DType) -> bool; 2] = [moves; 2];

    fn new(_: &OpKernelConstruction<'_>) -> Result<Self> {
        Ok(Reshaping)
    }

    fn forward(&self, context: &OpKernelContext<'_>) -> Result<()> {
        let input = context.input(0)?;
        let shape = reshaped(context, input.shape())?;
        make_as(context, (0, 0), &shape, Moved::new(input))
    }

    fn backward(&self, context: &OpKernelContext<'_>) -> Result<()> {
        let shape = context.input_shape(0)?;
        let gradient = last_input(context, &reshaped(context, shape)?)?;
        make_as(context, (0, 0), shape, Moved::new(gradient))
    }
}

/// The shape that a tensor of `from` is to have.
fn reshaped(context: &OpKernelContext<'_>, from: &[usize]) -> Result<Extents> {
    let sizes = integers(context, "shape")?;
    let count: usize = from.iter().product();
    let error = || {
        Error::invalid_argument(format!(
            "`shape` must be that of {count} elements, with at most one dim of -1, got {sizes:?} for an input of \
             shape {from:?}"
        ))
        .naming("shape")
    };
    let known = sizes.iter().filter(|size| **size != -1).map(|&size| usize::try_from(size).ok());
    let known = known.collect::<Option<Extents>>().ok_or_else(error)?;
    let others = elements(&known).ok_or_else(error)?;
    let open = match sizes.len() - known.len() {
        0 => 1,
        1 if others > 0 => count / others,
        _ => return Err(error()),
    };
    if others.checked_mul(open) != Some(count) {
        return Err(error());
    }
    Ok(sizes.iter().map(|&size| usize::try_from(size).unwrap_or(open)).collect())
}

struct Transposition {
    order: Vec<i64>,
}

impl Transposition {
    /// The positions in the input of the dims of the output.
    fn order(&self, rank: usize) -> Result<Extents> {
        if self.order.is_empty() {
            return Ok((0..rank).rev().collect());
        }
        let order = self.order.iter().map(|&axis| axis_of(axis, rank)).collect::<Result<Extents>>();
        order
            .ok()
            .filter(|order| order.len() == rank && (0..rank).all(|axis| order.contains(&axis)))
            .ok_or_else(|| {
                let order = &self.order;
                Error::invalid_argument(format!(
                    "`perm` must have each dim of an input of rank {rank} once, got {order:?}"
                ))
                .naming("perm")
            })
    }
}

impl Linear for Transposition {
    const FACTS: Facts = Facts {
        name: "Transpose",
        x: "x",
        attrs: &["perm: list(int) = []"],
        dtypes: "type",
        parameters: &[],
        host: &[],
        dims: &["(...)", "(... by perm)"],
        doc: "The dims in another order.\n\n\
              x: Any tensor.\n\
              perm: For each dim of the output, its position in the input; empty turns the order around.\n\
              y: The same elements.",
        shape: |c| {
            let (input, order) = (c.input(0)?, c.get_ints("perm")?.to_vec());
            let Some(dims) = input.dims() else {
                return Ok(if order.is_empty() { input } else { Shape::unknown_of_rank(order.len()) });
            };
            let order = Transposition { order }.order(dims.len())?;
            Ok(order.iter().map(|&axis| dims[axis].clone()).collect())
        },
    };

    const ON_CARD: [fn(DType) -> bool; 2] = [moves; 2];

    fn new(construction: &OpKernelConstruction<'_>) -> Result<Self> {
        Ok(Transposition { order: construction.attr("perm")? })
    }

    fn forward(&self, context: &OpKernelContext<'_>) -> Result<()> {
        let input = Moved::new(context.input(0)?);
        let order = self.order(input.shape().len())?;
        make(context, (0, 0), input.permuted(&order))
    }

    fn backward(&self, context: &OpKernelContext<'_>) -> Result<()> {
        let shape = context.input_shape(0)?;
        let order = self.order(shape.len())?;
        let expected: Extents = order.iter().map(|&axis| shape[axis]).collect();
        let mut back = Extents::from_elem(0, order.len());
        for (position, &axis) in order.iter().enumerate() {
            back[axis] = position;
        }
        make(context, (0, 0), Moved::new(last_input(context, &expected)?).permuted(&back))
    }
}

struct Repetition;

impl Linear for Repetition {
    const FACTS: Facts = Facts {
        name: "BroadcastTo",
        x: "x",
        attrs: &[INDEX],
        dtypes: "type",
        parameters: SHAPE,
        host: &["shape"],
        dims: &[],
        doc: "The tensor repeated along dims of 1, and along new ones in front, to a shape.\n\n\
              x: A tensor that broadcasts to the shape by NumPy's rules.\n\
              shape: The shape, a vector.\n\
              y: Of that shape.",
        shape: |c| {
            let (shape, input) = (c.shape_from_input(1)?, c.input(0)?);
            if shape.to_known().is_some() {
                let all = c.broadcast(&input, &shape)?;
                c.merge_shapes(&shape, &all)?;
            }
            Ok(shape)
        },
    };

    const ON_CARD: [fn(DType) -> bool; 2] = [moves, is_float];

    fn new(_: &OpKernelConstruction<'_>) -> Result<Self> {
        Ok(Repetition)
    }

    fn forward(&self, context: &OpKernelContext<'_>) -> Result<()> {
        let (input, shape) = (Moved::new(context.input(0)?), dims(context, "shape")?);
        let repeated = input.clone().repeated(&shape);
        make(context, (0, 0), repeated.ok_or_else(|| does_not_broadcast(input.shape(), &shape))?)
    }

    fn backward(&self, context: &OpKernelContext<'_>) -> Result<()> {
        let (input, shape) = (context.input_shape(0)?, dims(context, "shape")?);
        if broadcast_shape([input, &shape]).as_ref() != Some(&shape) {
            return Err(does_not_broadcast(input, &shape));
        }
        sum_to(context, last_input(context, &shape)?, 0, input)
    }
}

#[cold]
fn does_not_broadcast(from: &[usize], to: &[usize]) -> Error {
    Error::invalid_argument(format!("shape {from:?} does not broadcast to {to:?}"))
}

struct SumOfRepetitions;

impl Linear for SumOfRepetitions {
    const FACTS: Facts = Facts {
        name: "SumTo",
        x: "x",
        attrs: &[INDEX],
        dtypes: FLOATS,
        parameters: SHAPE,
        host: &["shape"],
        dims: &[],
        doc: "The sum over the dims along which a tensor of a smaller shape is repeated when it broadcasts to this one: what \
              the gradient of broadcasting is made of. Numbers are added up in float64.\n\n\
              x: Any numbers.\n\
              shape: A shape, a vector, that broadcasts to that of `x`.\n\
              y: Of that shape.",
        shape: |c| c.shape_from_input(1),
    };

    const ON_CARD: [fn(DType) -> bool; 2] = [is_float, moves];

    fn new(_: &OpKernelConstruction<'_>) -> Result<Self> {
        Ok(SumOfRepetitions)
    }

    fn forward(&self, context: &OpKernelContext<'_>) -> Result<()> {
        let (input, shape) = (context.input(0)?, dims(context, "shape")?);
        if broadcast_shape([input.shape(), &shape]).as_deref() != Some(input.shape()) {
            return Err(does_not_broadcast(&shape, input.shape()));
        }
        sum_to(context, input, 0, &shape)
    }

    fn backward(&self, context: &OpKernelContext<'_>) -> Result<()> {
        let (input, shape) = (context.input_shape(0)?, dims(context, "shape")?);
        let gradient = Moved::new(last_input(context, &shape)?);
        make(context, (0, 0), gradient.repeated(input).ok_or_else(|| does_not_broadcast(&shape, input))?)
    }

    fn kernels() -> Vec<KernelDef> {
        linear::floats::<linear::Forward<Self>>().collect()
    }
}

#[cfg(test)]
mod tests {
    use opsmith::ndarray::{Array, Array1};
    use opsmith::{infer_error, infer_ok, testing};

    use super::*;

    #[test]
    fn shapes_are_checked() -> Result<()> {
        let x = Array::from_iter(0..6).into_shape_with_order((2, 3)).unwrap();
        let outputs = testing::call::<Reshape>().input(&x.t()).input(&array![-1i64, 2]).run()?;
        assert_eq!(outputs.array::<i32, Ix2>("y")?, array![[0, 3], [1, 4], [2, 5]]);
        for shape in [vec![-1i64, -1], vec![4], vec![-2, -3], vec![i64::MAX, i64::MAX], vec![0, -1]] {
            let error = testing::call::<Reshape>().input(&x).input(&Array1::from(shape)).run().unwrap_err();
            assert!(error.message().starts_with("Reshape: `shape` must be that of 6 elements"), "{error}");
        }
        let error = testing::call::<BroadcastTo>().input(&x).input(&array![2i64, 4]).run().unwrap_err();
        assert_eq!(error.message(), "BroadcastTo: shape [2, 3] does not broadcast to [2, 4]");
        let huge = array![i64::MAX, i64::MAX, 2, 3];
        assert!(
            testing::call::<BroadcastTo>()
                .input(&x)
                .input(&huge)
                .run()
                .unwrap_err()
                .message()
                .contains("too large")
        );
        let error = testing::call::<Transpose>().input(&x).attr("perm", vec![0, -2]).run().unwrap_err();
        assert!(
            error.message().contains("`perm` must have each dim of an input of rank 2 once, got [0, -2]")
        );
        Ok(())
    }

    #[test]
    fn a_vector_that_is_longer_than_shapes_are_is_not_read() {
        let (x, one) = (array![[1.0, 2.0]], opsmith::ndarray::arr0(1i64));
        let shape = one.broadcast(1 << 40).unwrap();
        let calls = [testing::call::<Reshape>(), testing::call::<BroadcastTo>(), testing::call::<SumTo>()];
        for call in calls {
            let error = call.input(&x).input(&shape).run().unwrap_err();
            let said = "input `shape` must be a vector of at most 254 numbers, one for each dim, got shape [1099511627776]";
            assert!(error.message().ends_with(said), "{error}");
        }
        infer_error!(
            testing::shapes::<Reshape>(),
            "is a shape, which has at most 254 dims, got 1099511627776",
            "?;[1099511627776]"
        );
    }

    #[test]
    fn shapes_that_are_inferred() {
        infer_ok!(testing::shapes::<Reshape>(), "[2,3];[2]", "[?,?]");
        infer_ok!(testing::shapes::<Reshape>(), "?;[?]", "?");
        infer_ok!(testing::shapes::<Transpose>(), "[2,?,n]", "[n,d0_1,2]");
        infer_ok!(testing::shapes::<Transpose>().attr("perm", vec![1, 0].into()), "?", "[?,?]");
        infer_error!(testing::shapes::<Transpose>().attr("perm", vec![1, 0].into()), "`perm`", "[1,2,3]");
    }
}
