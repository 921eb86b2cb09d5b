//! Lanes: all that lies along one dim of a tensor. They are shared among threads, and elements are taken from and added to
//! positions along them.

use std::ops::Range;

use opsmith::dtype::{ToHalf, bf16, f16, sets};
use opsmith::memory;
use opsmith::ndarray::{ArrayView, ArrayViewMut, Dimension, RemoveAxis};
use opsmith::prelude::*;

use crate::linear::{FLOATS, floats, is_float};
use crate::parameters::axis_of;
use crate::sorted_on_card;

/// The lanes of a tensor that one thread goes through: all, or those at some positions along a dim.
pub(crate) struct Part(Option<(Axis, Range<usize>)>);

impl Part {
    /// These lanes of a tensor, which has as many as the one that was cut.
    pub(crate) fn of<'a, T, D: Dimension>(&self, array: &'a ArrayView<'_, T, D>) -> ArrayView<'a, T, D> {
        match &self.0 {
            Some((axis, range)) => array.slice_axis(*axis, range.clone().into()),
            None => array.view(),
        }
    }
}

/// Calls `body` with parts of the lanes of `output`, on the threads of the call. An element takes some `cost` nanoseconds.
pub(crate) fn by_lanes<T: Element, D: RemoveAxis>(
    cx: &Compute<'_>,
    output: ArrayViewMut<'_, T, D>,
    axis: Axis,
    cost: usize,
    body: impl Fn(Part, ArrayViewMut<'_, T, D>) -> Result<()> + Sync,
) -> Result<()> {
    // Else an empty tensor takes as long as it has lanes, of which there may be any number.
    if output.is_empty() {
        return Ok(());
    }
    let others = (0..output.ndim()).rev().map(Axis).filter(|&other| other != axis);
    match others.max_by_key(|&other| output.len_of(other)).filter(|&other| output.len_of(other) > 1) {
        Some(other) => {
            let cost = output.len().saturating_mul(cost) / output.len_of(other);
            cx.try_parallel_over(output, other, cost, |range, output| {
                body(Part(Some((other, range))), output)
            })
        }
        None => body(Part(None), output),
    }
}

/// The dim of lanes in what [`lanes`] gives.
pub(crate) const LANE: Axis = Axis(1);

/// How many elements the dims in front of a dim have, that dim, and those behind it.
pub(crate) fn three(shape: &[usize], axis: i64) -> Result<[usize; 3]> {
    let axis = axis_of(axis, shape.len())?;
    // The dims of what is empty may have any product.
    if shape.contains(&0) {
        return Ok([0, shape[axis], 1]);
    }
    Ok([shape[..axis].iter().product(), shape[axis], shape[axis + 1..].iter().product()])
}

/// The elements of a dense tensor of these dims, by lanes.
pub(crate) fn lanes<T>(dims: [usize; 3], elements: &[T]) -> Result<ArrayView3<'_, T>> {
    ArrayView3::from_shape(dims, elements).map_err(|error| Error::internal(error.to_string()))
}

/// The same of elements to be written.
pub(crate) fn lanes_mut<T>(dims: [usize; 3], elements: &mut [T]) -> Result<ArrayViewMut3<'_, T>> {
    ArrayViewMut3::from_shape(dims, elements).map_err(|error| Error::internal(error.to_string()))
}

/// A position along a lane; none for -1, which stands for no element.
#[inline]
fn position(index: i64, length: usize) -> Result<Option<usize>> {
    match usize::try_from(index) {
        Ok(at) if at < length => Ok(Some(at)),
        Err(_) if index == -1 => Ok(None),
        _ => Err(Error::out_of_range(format!(
            "`indices` must be positions along a dim of {length}, or -1, got {index}"
        ))
        .naming("indices")),
    }
}

/// Sets each element of `to` to that at its position along a dim of `from`; to `none` where that is -1.
pub(crate) fn take<T: Element, D: RemoveAxis>(
    cx: &Compute<'_>,
    from: ArrayView<'_, T, D>,
    indices: ArrayView<'_, i64, D>,
    to: ArrayViewMut<'_, T, D>,
    (axis, none): (Axis, T),
) -> Result<()> {
    by_lanes(cx, to, axis, 2, |part, mut to| {
        let (from, indices) = (part.of(&from), part.of(&indices));
        let lanes = from.lanes(axis).into_iter().zip(indices.lanes(axis));
        for ((from, indices), to) in lanes.zip(to.lanes_mut(axis)) {
            for (to, &index) in to.into_iter().zip(indices) {
                *to = position(index, from.len())?.map_or(none, |at| from[at]);
            }
        }
        Ok(())
    })
}

/// Adds each element of `terms` to that at its position along a dim of `sums`, which begin with zero. They are added up in
/// float64.
pub(crate) fn add<T: Near, D: RemoveAxis>(
    cx: &Compute<'_>,
    terms: ArrayView<'_, T, D>,
    indices: ArrayView<'_, i64, D>,
    sums: ArrayViewMut<'_, T, D>,
    axis: Axis,
) -> Result<()> {
    by_lanes(cx, sums, axis, 4, |part, mut sums| {
        let (terms, indices) = (part.of(&terms), part.of(&indices));
        let mut wide = memory::filled(0f64, sums.len_of(axis), "the sums along a dim")?;
        let lanes = terms.lanes(axis).into_iter().zip(indices.lanes(axis));
        for ((terms, indices), sums) in lanes.zip(sums.lanes_mut(axis)) {
            wide.fill(0.0);
            for (term, &index) in terms.into_iter().zip(indices) {
                if let Some(at) = position(index, wide.len())? {
                    wide[at] += term.to_f64().unwrap_or(f64::NAN);
                }
            }
            sums.into_iter().zip(&wide).for_each(|(to, &sum)| *to = T::near(sum));
        }
        Ok(())
    })
}

/// A float that numbers in double precision become. By way of float32 those of 16 bits would be rounded twice.
pub(crate) trait Near: AnyFloat {
    /// The nearest number.
    fn near(wide: f64) -> Self;
}

macro_rules! near {
    ($($ty:ident: |$w:ident| $near:expr;)*) => {$(
        impl Near for $ty {
            #[inline(always)]
            fn near($w: f64) -> Self {
                $near
            }
        }
    )*};
}

near! {
    f16: |w| w.to_f16();
    bf16: |w| w.to_bf16();
    f32: |w| w as f32;
    f64: |w| w;
}

/// The gradient of an op whose output `values` is made of the elements of `x` at the positions `indices`, and that one's
/// gradient: the kernels of both. The dim is the attribute `axis`, or the last one.
struct Positions<const TAKES: bool>(i64);

impl<const TAKES: bool> OpKernel for Positions<TAKES> {
    fn new(construction: &mut OpKernelConstruction<'_>) -> Result<Self> {
        let has_axis = construction.signature().attrs.iter().any(|attr| attr.name == "axis");
        Ok(Positions(if has_axis { construction.attr("axis")? } else { -1 }))
    }

    fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<()> {
        let given = context.input(context.signature().inputs.len() - 1)?;
        let indices = context.input("indices")?;
        let (has_x, rank) = (context.signature().inputs.len() == 3, indices.rank());
        let axis = axis_of(self.0, rank)?;
        let x = if has_x { context.input_shape("x")? } else { given.shape() };
        let fits = |shape: &[usize]| {
            shape.len() == rank && (0..rank).all(|dim| dim == axis || shape[dim] == indices.shape()[dim])
        };
        ensure!(
            fits(x) && (TAKES || given.shape() == indices.shape()),
            InvalidArgument for "indices",
            "`indices` must be positions along dim {axis} of a tensor of shape {x:?}, and the gradient of their shape, got {:?} \
             and {:?}",
            indices.shape(),
            given.shape()
        );
        let shape = if TAKES { indices.shape() } else { x };
        if crate::card::is_on_card(context) {
            return match TAKES {
                true => sorted_on_card::take(context, given, axis),
                false => sorted_on_card::add(context, given, (axis, shape)),
            };
        }
        dispatch!(given.dtype(), AnyFloat, |T| {
            let (cx, axis) = (context.compute(), Axis(axis));
            let (given, indices) = (given.view::<T, IxDyn>()?, indices.view::<i64, IxDyn>()?);
            let output = context.output_view::<T, IxDyn>(0, shape)?;
            match TAKES {
                true => take(&cx, given, indices, output, (axis, T::default())),
                false => add(&cx, given, indices, output, axis),
            }
        })
    }
}

/// The gradient op of the op `name`: with `x` where the output has another length along the dim, and with `axis` where the dim
/// is an attribute.
pub(crate) fn gradient(name: &str, has_x: bool, has_axis: bool) -> OpDef {
    let def = OpDef::new(&format!("{name}Grad"));
    let def = if has_axis { def.attr("axis: int = -1") } else { def };
    let def = def.attr(&format!("T: {FLOATS}"));
    let def = if has_x { def.input("x: T") } else { def };
    let dims = if has_axis { "(... but axis)" } else { "(..., _)" };
    let inputs = vec![dims; if has_x { 3 } else { 2 }].join(", ");
    def.input("indices: int64")
        .input("values_grad: T")
        .output("x_grad: T")
        .parallel(&format!("{inputs} -> {dims}"))
        .doc(&format!("The gradient of `{name}`."))
        .shape_fn(shape_fns::unchanged)
        .gradient(&format!("{name}GradGrad"))
        .kernels(floats::<Positions<false>>())
        .kernels(crate::card::kernels::<Positions<false>>(is_float))
}

/// The gradient's gradient.
pub(crate) fn second_gradient(name: &str, has_axis: bool) -> OpDef {
    let def = OpDef::new(&format!("{name}GradGrad"));
    let def = if has_axis { def.attr("axis: int = -1") } else { def };
    let dims = if has_axis { "(... but axis)" } else { "(..., _)" };
    def.attr(&format!("T: {FLOATS}"))
        .input("indices: int64")
        .input("x_grad_grad: T")
        .output("values_grad_grad: T")
        .parallel(&format!("{dims}, {dims} -> {dims}"))
        .doc(&format!("The gradient of `{name}Grad`."))
        .shape_fn(shape_fns::unchanged)
        .kernels(floats::<Positions<true>>())
        .kernels(crate::card::kernels::<Positions<true>>(is_float))
}

/// The kernel for each dtype of real numbers, of dense inputs.
pub(crate) fn of_real_numbers<K: OpKernel>() -> impl Iterator<Item = KernelDef> {
    sets::REAL_NUMBER.iter().map(|&dtype| KernelDef::cpu::<K>().dtype_constraint("T", dtype))
}

/// Whether a dtype is of those.
pub(crate) fn is_real(dtype: DType) -> bool {
    sets::REAL_NUMBER.contains(&dtype)
}
