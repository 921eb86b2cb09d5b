//! Which dims of a tensor are a row: as many of the last ones as an attribute says, or any that one lists.

use opsmith_body::Axes;
use opsmith_core::family::Like;
use opsmith_core::{Dim, InferenceContext, OpKernelConstruction, ProgramRows, Result, Shape, bail};
use smallvec::SmallVec;

use super::Reduction;

/// Which dims are a row.
pub(crate) enum RowDims {
    /// So many of the last ones.
    Last(usize),
    /// Those of these positions, counted from the end where negative; of none, all.
    Any {
        /// The positions.
        axes: Vec<i64>,
        /// Whether what there is one of for each row keeps them, as dims of 1.
        keep: bool,
    },
}

impl RowDims {
    /// The attributes that say it, in the definition language.
    pub(crate) fn attrs(any: bool) -> &'static [&'static str] {
        if any { &["axes: list(int) = []", "keep_dims: bool = false"] } else { &["axes: int >= 1 = 1"] }
    }

    /// The dims of an argument that is like one of the forward op's, of which those that are no row's are free.
    pub(crate) fn parallel<B: Reduction>(like: Like, saved: &[Axes]) -> &'static str {
        let axes = match like {
            Like::Input(input) => B::INPUT_AXES[input],
            Like::Output(output) => {
                let saved = || saved[output - B::OUTPUT_AXES.len()];
                B::OUTPUT_AXES.get(output).copied().unwrap_or_else(saved)
            }
        };
        match (B::ANY_AXES, axes.is_empty()) {
            (true, false) => "(... but axes)",
            (true, true) => "(... less axes unless keep_dims)",
            (false, false) => "(..., _*axes)",
            (false, true) => "(...)",
        }
    }

    /// What the attributes of an instance say.
    pub(crate) fn new(construction: &OpKernelConstruction<'_>, any: bool) -> Result<RowDims> {
        if any {
            return Ok(RowDims::Any {
                axes: construction.attr("axes")?,
                keep: construction.attr("keep_dims")?,
            });
        }
        construction.attr("axes").map(RowDims::Last)
    }

    /// The same for a program.
    pub(crate) fn told(self) -> ProgramRows {
        match self {
            RowDims::Last(axes) => {
                ProgramRows { dims: (1..=axes as i64).map(|dim| -dim).collect(), keep: false }
            }
            RowDims::Any { axes, keep } => ProgramRows { dims: axes, keep },
        }
    }
}

/// For each dim, whether it is one of `axes`; nothing if one of them is no dim or is there twice.
pub(crate) fn marks(axes: &[i64], rank: usize) -> Option<SmallVec<[bool; 6]>> {
    let mut is_row = SmallVec::from_elem(axes.is_empty(), rank);
    for &axis in axes {
        let from_start = if axis < 0 { axis.checked_add_unsigned(rank as u64)? } else { axis };
        let mark = is_row.get_mut(usize::try_from(from_start).ok()?)?;
        if std::mem::replace(mark, true) {
            return None;
        }
    }
    Some(is_row)
}

/// The positions of the dims that are no row's, then of those that are.
pub(crate) fn turned(is_row: &[bool]) -> impl Iterator<Item = usize> {
    let of = |row: bool| (0..is_row.len()).filter(move |&dim| is_row[dim] == row);
    of(false).chain(of(true))
}

/// The shape of what there is one of for each row; and that of a row, where it comes after that.
pub(crate) fn split(
    context: &InferenceContext<'_>,
    each: &Shape,
    any: bool,
) -> Result<(Shape, Option<Shape>)> {
    if any {
        return Ok((kept(context, each)?, None));
    }
    let axes = context.get_int("axes")?;
    if let Some(rank) = each.rank()
        && (rank as i64) < axes
    {
        let dims = if rank == 1 { "dim" } else { "dims" };
        bail!(InvalidArgument for "axes", "`axes` is {axes}, but the inputs have only {rank} {dims}: {each}");
    }
    Ok((context.subshape(each, 0, -axes)?, Some(context.subshape(each, -axes, None)?)))
}

/// The dims that are no row's.
fn kept(context: &InferenceContext<'_>, each: &Shape) -> Result<Shape> {
    let (axes, keep) = (context.get_ints("axes")?, context.get_bool("keep_dims")?);
    let Some(dims) = each.dims() else {
        return Ok(if axes.is_empty() && !keep { Shape::scalar() } else { Shape::unknown() });
    };
    let Some(is_row) = marks(axes, dims.len()) else {
        let rank = dims.len();
        bail!(
            InvalidArgument for "axes",
            "`axes` must be different dims of an input of rank {rank}, got {axes:?} (shape {each})"
        );
    };
    let dims = dims.iter().zip(is_row);
    if keep {
        return Ok(dims.map(|(dim, is_row)| if is_row { Dim::Known(1) } else { dim.clone() }).collect());
    }
    Ok(dims.filter(|(_, is_row)| !is_row).map(|(dim, _)| dim.clone()).collect())
}
