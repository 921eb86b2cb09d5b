//! Elements by their positions: taken, put in their places, marked.

pub(crate) mod card;
mod place;
mod put_back;
mod rows;

use opsmith::dtype::{bf16, f16};
use opsmith::memory;
use opsmith::prelude::*;
use opsmith::space::Extents;
use opsmith::{Dim, Shape};
use opsmith_core::kernel::Settled;

use self::rows::{FewRows, position};
use crate::define::ops;
use crate::elementwise::Shared;
use crate::few;
use crate::linear::{self, Facts, Linear, is_float, last_input};
use crate::moved_on_card::moves;
use crate::parameters::{axis_of, dims, elements, empty_text, numbers};

ops! {
    /// The op `Gather`: parts of a tensor by their positions along a dim.
    Gather = linear::forward::<Gathering>(), with &[linear::gradient::<Gathering>, linear::second::<Gathering>];
    /// The op `SparseToDense`: a tensor of zeros but for some places.
    SparseToDense = linear::forward::<Placing>(), with &[linear::gradient::<Placing>, linear::second::<Placing>];
    /// The op `OneHot`: a one at each position.
    OneHot = one_hot();
}

/// The numbers of an input of positions, as positions from the start.
fn positions(context: &OpKernelContext<'_>, name: &'static str, dim: usize) -> Result<Vec<usize>> {
    let position = |element| position(name, dim, element);
    let tensor = context.input(name)?;
    match tensor.dtype() {
        DType::Int32 => {
            let all = tensor.view::<i32, IxDyn>()?;
            memory::try_collected(all.iter().map(|&n| n.into()).enumerate().map(position), name)
        }
        _ => {
            let all = tensor.view::<i64, IxDyn>()?;
            memory::try_collected(all.iter().copied().enumerate().map(position), name)
        }
    }
}

struct Gathering {
    axis: i64,
}

/// A gather as rows: of `outer` tables of `dim` rows of `inner` elements each, the rows at the positions.
struct Rows {
    outer: usize,
    dim: usize,
    inner: usize,
    positions: Vec<usize>,
    /// The shape of the result.
    shape: Extents,
}

impl Gathering {
    /// The dim of a tensor of a shape, and the shape of the result.
    fn axis_and_shape(&self, context: &OpKernelContext<'_>, shape: &[usize]) -> Result<(usize, Extents)> {
        let axis = axis_of(self.axis, shape.len())?;
        let (before, behind) = (&shape[..axis], &shape[axis + 1..]);
        Ok((axis, before.iter().chain(context.input_shape("indices")?).chain(behind).copied().collect()))
    }

    fn rows(&self, context: &OpKernelContext<'_>, from: &[usize]) -> Result<Rows> {
        let (axis, shape) = self.axis_and_shape(context, from)?;
        let positions = positions(context, "indices", from[axis])?;
        Ok(Rows {
            outer: from[..axis].iter().product(),
            dim: from[axis],
            inner: from[axis + 1..].iter().product(),
            positions,
            shape,
        })
    }
}

impl Linear for Gathering {
    const FACTS: Facts = Facts {
        name: "Gather",
        x: "x",
        attrs: &["axis: int = 0", "Index: {int32, int64} = DT_INT64"],
        dtypes: "type",
        parameters: &["indices: Index"],
        host: &[],
        dims: &["(... but axis)", "(i...)", "(... with i... at axis)"],
        doc: "Parts of a tensor by their positions along a dim.\n\n\
              x: Any tensor with dims.\n\
              indices: Positions along that dim, counted from the end where negative; of any shape. On a card one that is not there \
              gives zeros.\n\
              axis: Which dim; counted from the end where negative.\n\
              y: Of the shape of `x` with that of `indices` in place of the dim.",
        shape: |c| {
            let (input, indices, axis) =
                (c.with_rank_at_least(c.input(0)?, 1)?, c.input(1)?, c.get_int("axis")?);
            let Some(rank) = input.rank() else { return Ok(Shape::unknown()) };
            let axis = axis_of(axis, rank)? as i64;
            let (before, behind) = (c.subshape(&input, 0, axis)?, c.subshape(&input, axis + 1, None)?);
            Ok(c.concatenate(&c.concatenate(&before, &indices), &behind))
        },
    };

    const STRIDED: bool = false;
    const ON_CARD: [fn(DType) -> bool; 2] = [moves, is_float];

    fn new(construction: &OpKernelConstruction<'_>) -> Result<Self> {
        Ok(Gathering { axis: construction.attr("axis")? })
    }

    fn forward(&self, context: &OpKernelContext<'_>) -> Result<()> {
        if crate::card::is_on_card(context) {
            let (axis, shape) = self.axis_and_shape(context, context.input_shape(0)?)?;
            return card::take(context, axis, &shape);
        }
        let input = context.input(0)?;
        let Rows { outer, dim, inner, positions, shape } = self.rows(context, input.shape())?;
        if input.dtype() == DType::String {
            let text = input.strings()?;
            let rows =
                (0..outer).flat_map(|table| positions.iter().map(move |at| (table * dim + at) * inner));
            let mut taken: Vec<&[u8]> = empty_text(&shape)?;
            if inner > 0 {
                taken.chunks_exact_mut(inner).zip(rows).for_each(|(row, first)| {
                    row.copy_from_slice(&text[first..first + inner]);
                });
            }
            return context.set_string_output(0, &shape, &taken);
        }
        let output = context.allocate_output(0, &shape)?;
        let bytes = inner * input.dtype().size();
        let (from, to, count) =
            (Shared(input.data_ptr().cast_mut()), Shared(output.data_ptr()), positions.len());
        context.compute().parallel_for(outer * count, 4 + bytes / 16, |range| {
            let (from, to) = (&from, &to);
            for row in range {
                let source = row / count * dim + positions[row % count];
                // SAFETY: both rows are in their tensors, which are dense, and each is written by one thread.
                unsafe { to.0.add(row * bytes).copy_from_nonoverlapping(from.0.add(source * bytes), bytes) };
            }
        });
        Ok(())
    }

    fn settle(&self, context: &OpKernelContext<'_>) -> Option<Settled> {
        let (input, indices) = (context.input(0).ok()?, context.input("indices").ok()?);
        let (axis, shape) = self.axis_and_shape(context, input.shape()).ok()?;
        let [outer, inner] = [&input.shape()[..axis], &input.shape()[axis + 1..]];
        let tables = outer.iter().fold(1, |tables: usize, dim| tables.saturating_mul(*dim));
        let count = indices.num_elements();
        if !few::is_small(input.dtype(), &shape, tables.saturating_mul(count)) {
            return None;
        }
        let bytes = inner.iter().product::<usize>() * input.dtype().size();
        let call = FewRows { tables, dim: input.shape()[axis], bytes, count, index: indices.dtype() };
        Some(few::settled(shape, call))
    }

    fn backward(&self, context: &OpKernelContext<'_>) -> Result<()> {
        if crate::card::is_on_card(context) {
            let (axis, shape) = self.axis_and_shape(context, context.input_shape(0)?)?;
            return put_back::put_back(context, axis, last_input(context, &shape)?);
        }
        let rows = self.rows(context, context.input_shape(0)?)?;
        let gradient = last_input(context, &rows.shape)?;
        let Rows { outer, dim, inner, positions, .. } = rows;
        let count = positions.len();
        let runs = |act: &mut dyn FnMut(usize, usize, usize)| {
            for row in 0..outer * count {
                act(row * inner, (row / count * dim + positions[row % count]) * inner, inner);
            }
        };
        add_up(context, gradient, context.input_shape(0)?, runs)
    }
}

/// Runs of elements to be added: calls what it is given with the first element of each, its place among the sums, and its
/// length.
pub(crate) trait Runs: Fn(&mut dyn FnMut(usize, usize, usize)) {}

impl<F: Fn(&mut dyn FnMut(usize, usize, usize))> Runs for F {}

/// Makes output 0 of a shape by adding runs of the elements of a gradient to places of it. float16 and bfloat16 are added up in
/// float32.
pub(crate) fn add_up(
    context: &OpKernelContext<'_>,
    gradient: TensorView<'_>,
    shape: &[usize],
    runs: impl Runs,
) -> Result<()> {
    let mut output = context.allocate_output(0, shape)?;
    match gradient.dtype() {
        DType::Float32 => add_floats::<f32>(gradient, output.as_slice_mut()?, &runs),
        DType::Float64 => add_floats::<f64>(gradient, output.as_slice_mut()?, &runs),
        DType::Float16 => {
            let sums = context.compute().temp::<f32>(output.num_elements())?;
            add(gradient.as_slice()?, sums, f16::to_f32, &runs);
            output.as_slice_mut()?.iter_mut().zip(sums).for_each(|(to, sum)| *to = f16::from_f32(*sum));
            Ok(())
        }
        _ => {
            let sums = context.compute().temp::<f32>(output.num_elements())?;
            add(gradient.as_slice()?, sums, bf16::to_f32, &runs);
            output.as_slice_mut()?.iter_mut().zip(sums).for_each(|(to, sum)| *to = bf16::from_f32(*sum));
            Ok(())
        }
    }
}

fn add_floats<T: Float>(gradient: TensorView<'_>, sums: &mut [T], runs: &dyn Runs) -> Result<()> {
    sums.fill(T::zero());
    add(gradient.as_slice()?, sums, |term| term, runs);
    Ok(())
}

fn add<T: Element, S: Float>(terms: &[T], sums: &mut [S], wide: impl Fn(T) -> S, runs: &dyn Runs) {
    runs(&mut |first, place, count| {
        for (sum, &term) in sums[place..place + count].iter_mut().zip(&terms[first..first + count]) {
            *sum += wide(term);
        }
    });
}

struct Placing;

/// The shape of a dense tensor that values have places in.
fn dense_shape(context: &OpKernelContext<'_>, values: &[usize]) -> Result<Extents> {
    let (shape, indices) = (dims(context, "shape")?, context.input_shape("indices")?);
    let count = values.first().copied().unwrap_or(1);
    let fits = match indices {
        [rows] => *rows == count && shape.len() == 1,
        [rows, columns] => *rows == count && *columns == shape.len(),
        _ => false,
    };
    ensure!(
        fits && values.len() == 1,
        InvalidArgument,
        "expected a vector of n values and an (n, {}) matrix of indices for `shape` {shape:?}, got shapes {values:?} \
         and {indices:?}",
        shape.len()
    );
    Ok(shape)
}

/// Where each value goes in a dense tensor, whose shape comes with it.
fn places(context: &OpKernelContext<'_>, values: &[usize]) -> Result<(Extents, Vec<usize>)> {
    let (shape, count) = (dense_shape(context, values)?, values[0]);
    let all = numbers(context.input("indices")?, "indices")?;
    let index_of = |value: usize| &all[value * shape.len()..(value + 1) * shape.len()];
    let place = |value: usize| {
        let (index, mut place) = (index_of(value), 0);
        for (&at, &dim) in index.iter().zip(&shape) {
            let at = usize::try_from(at).ok().filter(|&at| at < dim);
            let Some(at) = at else {
                bail!(OutOfRange, "index {index:?}, of value {value}, is not in a tensor of shape {shape:?}");
            };
            place = place * dim + at;
        }
        Ok(place)
    };
    let places = memory::try_collected((0..count).map(place), "places of values")?;
    if !places.is_sorted_by(|place, next| place < next) {
        let mut sorted = memory::copied(&places, "places of values in order")?;
        sorted.sort_unstable();
        if let Some(pair) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            let index = places.iter().position(|place| *place == pair[0]).map(index_of);
            bail!(InvalidArgument, "index {:?} is there twice", index.unwrap_or_default());
        }
    }
    Ok((shape, places))
}

impl Linear for Placing {
    const FACTS: Facts = Facts {
        name: "SparseToDense",
        x: "values",
        attrs: &["Index: {int32, int64} = DT_INT64"],
        dtypes: "type",
        parameters: &["indices: Index", "shape: Index"],
        host: &["shape"],
        dims: &["(n)", "(n, _...)", "(_...)", "+(_...)"],
        doc: "A tensor that is zero (text: empty) but for some places.\n\n\
              values: A vector of n values.\n\
              indices: The place of each, a row of an (n, rank) matrix; no place twice. Of a vector, another vector will do. On a card one \
              that is not there is left out, and of values of one place the last one counts.\n\
              shape: The shape of the result.\n\
              y: Of that shape.",
        shape: |c| c.shape_from_input(2),
    };

    const STRIDED: bool = false;
    const ON_CARD: [fn(DType) -> bool; 2] = [moves, is_float];

    fn new(_: &OpKernelConstruction<'_>) -> Result<Self> {
        Ok(Placing)
    }

    fn forward(&self, context: &OpKernelContext<'_>) -> Result<()> {
        let values = context.input(0)?;
        if crate::card::is_on_card(context) {
            return place::place(context, &dense_shape(context, values.shape())?);
        }
        let (shape, places) = places(context, values.shape())?;
        if values.dtype() == DType::String {
            let mut all = empty_text(&shape)?;
            places.iter().zip(values.strings()?).for_each(|(&place, text)| all[place] = text);
            return context.set_string_output(0, &shape, &all);
        }
        let output = context.allocate_output(0, &shape)?;
        let size = output.dtype().size();
        if output.num_elements() == 0 {
            return Ok(());
        }
        // SAFETY: zeros are a value of every dtype but text; the places are in the output, which is dense, and there is a
        // value, in a dense tensor, for each.
        unsafe {
            output.data_ptr().write_bytes(0, output.num_elements() * size);
            for (value, place) in places.into_iter().enumerate() {
                let from = values.data_ptr().add(value * size);
                output.data_ptr().add(place * size).copy_from_nonoverlapping(from, size);
            }
        }
        Ok(())
    }

    fn backward(&self, context: &OpKernelContext<'_>) -> Result<()> {
        let values = context.input_shape(0)?;
        if crate::card::is_on_card(context) {
            return place::take(context, last_input(context, &dense_shape(context, values)?)?);
        }
        let (shape, places) = places(context, values)?;
        let gradient = last_input(context, &shape)?;
        add_up(context, gradient, values, |act| {
            places.iter().enumerate().for_each(|(value, &place)| act(place, value, 1));
        })
    }
}

struct OneHotKernel {
    depth: usize,
    axis: i64,
}

impl OpKernel for OneHotKernel {
    fn new(construction: &mut OpKernelConstruction<'_>) -> Result<Self> {
        Ok(OneHotKernel { depth: construction.attr("depth")?, axis: construction.attr("axis")? })
    }

    fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<()> {
        let indices = context.input_shape(0)?;
        let axis = axis_of(self.axis, indices.len() + 1)?;
        let mut shape = Extents::from_slice(indices);
        shape.insert(axis, self.depth);
        ensure!(elements(&shape).is_some(), ResourceExhausted, "a tensor of shape {shape:?} is too large");
        if crate::card::is_on_card(context) {
            return card::mark(context, axis, &shape);
        }
        let inner: usize = indices[axis..].iter().product();
        let positions = numbers(context.input("indices")?, "indices")?;
        let mut output = context.allocate_output(0, &shape)?;
        let place = |(at, &index): (usize, &i64)| {
            let index = usize::try_from(index).ok().filter(|&index| index < self.depth)?;
            Some((at / inner * self.depth + index) * inner + at % inner)
        };
        let places = positions.iter().enumerate().filter_map(place);
        match output.dtype() {
            DType::Bool => {
                let output = output.as_slice_mut::<bool>()?;
                output.fill(false);
                places.for_each(|place| output[place] = true);
            }
            dtype => dispatch!(dtype, RealNumber, |T| {
                let output = output.as_slice_mut::<T>()?;
                output.fill(num_traits::Zero::zero());
                places.for_each(|place| output[place] = num_traits::One::one());
                Ok(())
            })?,
        }
        Ok(())
    }
}

fn one_hot() -> OpDef {
    OpDef::new("OneHot")
        .attr("depth: int >= 0")
        .attr("axis: int = -1")
        .attr(
            "dtype: {float32, float64, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool} \
             = DT_FLOAT",
        )
        .attr("Index: {int32, int64} = DT_INT64")
        .input("indices: Index")
        .output("y: dtype")
        .parallel("(... less axis) -> (... but axis)")
        .doc(
            "Zeros but for a one at each position, along a new dim.\n\n\
             indices: Positions from 0; for one that is not below `depth` there is no one.\n\
             depth: How large the new dim is.\n\
             axis: Which dim of the result is the new one; counted from the end where negative.\n\
             dtype: The dtype of the result.\n\
             y: The zeros and ones.",
        )
        .shape_fn(|c| {
            let (indices, axis, depth) = (c.input(0)?, c.get_int("axis")?, c.get_dim("depth")?);
            let shape = match indices.dims() {
                None => Shape::unknown(),
                Some(dims) => {
                    let axis = axis_of(axis, dims.len() + 1)?;
                    let mut dims: Vec<Dim> = dims.to_vec();
                    dims.insert(axis, depth);
                    dims.into()
                }
            };
            c.set_output(0, shape)
        })
        .not_differentiable()
        .kernel(KernelDef::cpu::<OneHotKernel>())
        .kernel(KernelDef::cuda::<OneHotKernel>())
}

#[cfg(test)]
mod tests {
    use opsmith::ndarray::Array2;
    use opsmith::{infer_ok, testing};

    use super::*;

    #[test]
    fn positions_are_in_the_tensor() -> Result<()> {
        let x = array![[1, 2], [3, 4], [5, 6]];
        let outputs = testing::call::<Gather>().input(&x).input(&array![[-1i64, 0]]).run()?;
        assert_eq!(outputs.array::<i32, Ix3>("y")?, array![[[5, 6], [1, 2]]]);
        let error = testing::call::<Gather>().input(&x).input(&array![0i64, 3]).run().unwrap_err();
        assert_eq!(
            error.to_string(),
            "OutOfRange: Gather: `indices` must be positions along a dim of 3, got 3 at element 1"
        );
        infer_ok!(testing::shapes::<Gather>().attr("axis", 1.into()), "[2,n,4];[?]", "[2,d1_0,4]");
        let (values, shape) = (array![1.0, 2.0], array![2i64, 2]);
        let place = |indices: Array2<i64>| {
            testing::call::<SparseToDense>().input(&values).input(&indices).input(&shape).run()
        };
        assert_eq!(place(array![[1, 0], [0, 1]])?.array::<f64, Ix2>("y")?, array![[0.0, 2.0], [1.0, 0.0]]);
        assert!(place(array![[1, 0], [1, 0]]).unwrap_err().message().contains("index [1, 0] is there twice"));
        assert!(
            place(array![[1, 0], [2, 0]])
                .unwrap_err()
                .message()
                .contains("is not in a tensor of shape [2, 2]")
        );
        Ok(())
    }

    #[test]
    fn there_is_no_one_beyond_the_depth() -> Result<()> {
        let indices = array![1i32, -1, 2];
        let call = testing::call::<OneHot>().input(&indices).attr("depth", 2).attr("axis", 0);
        let outputs = call.attr("dtype", DType::Bool).run()?;
        assert_eq!(outputs.array::<bool, Ix2>("y")?, array![[false, false, false], [true, false, false]]);
        Ok(())
    }
}
