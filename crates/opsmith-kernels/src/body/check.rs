//! What is wrong with a body, as its graph shows: found when a library is made, for the attributes' defaults, and for others when an
//! instance is.

use opsmith_body::{Axes, Axis, Graph};
use opsmith_core::{Error, OpKernelConstruction, Result, bail, ensure};

use super::{Arguments, AxisSize};
use crate::facts::Facts;

/// A body of an instance, whose axes have these sizes of their own.
///
/// # Errors
/// What is wrong with it, after the place of its function.
pub(super) fn check(
    body: &Graph,
    sizes: &[Option<usize>],
    arguments: &Arguments,
    facts: &Facts,
) -> Result<()> {
    check_body(body, sizes, arguments, facts).map_err(|error| error.within(facts.place))
}

fn check_body(body: &Graph, sizes: &[Option<usize>], arguments: &Arguments, facts: &Facts) -> Result<()> {
    check_results(body, arguments, facts)?;
    let axes = arguments.axes;
    if let Some((axis, _)) = body.limits().iter().find(|(axis, _)| sizes[axis.index()].is_none()) {
        let axis = axes[axis.index()];
        bail!(
            InvalidArgument,
            "the signature must give the size of the axis `{axis}`, along which `smallest` or `largest` puts \
             its numbers: `{axis} = 3`, or an attribute"
        );
    }
    if let Some(axis) = body.refolded_axes().iter().next() {
        let axis = axes[axis.index()];
        bail!(
            InvalidArgument,
            "its function folds along the axis `{axis}` a number that was folded along it already: it would be \
             counted once for each position of the axis; if you want that, write `x * S::count({axis})`"
        );
    }
    check_taken(body.taken(), |axis| sizes[axis.index()], axes)
}

/// A result has to lie on the axes of its output, and all axes are the signature's.
fn check_results(body: &Graph, arguments: &Arguments, facts: &Facts) -> Result<()> {
    let count = arguments.axes.len();
    let of_limits = body.limits().iter().flat_map(|&(axis, most)| [axis, most]);
    let named = of_limits.chain(body.taken().iter().map(|(axis, _)| *axis)).map(Axes::of);
    let used = named.fold(body.used_axes(), Axes::union);
    if let Some(axis) = used.iter().find(|axis| axis.index() >= count) {
        let position = axis.index();
        bail!(
            InvalidArgument,
            "its function uses axis number {position}, but its signature has {count} axes"
        );
    }
    let name_of = |axis: Axis| arguments.axes[axis.index()];
    let named = |axes: Axes| {
        let names: Vec<&str> = axes.iter().map(name_of).collect();
        format!("({})", names.join(","))
    };
    let advice = |own: Axes, said: Axes| match own.iter().find(|axis| !Axes::of(*axis).is_within(said)) {
        Some(axis) => {
            format!("fold it along `{0}`, as with `.sum({0})`, or give the output that axis", name_of(axis))
        }
        None => "take the other axes from the output".to_owned(),
    };
    for ((own, said), name) in body.result_axes().into_iter().zip(body.output_axes()).zip(facts.outputs) {
        ensure!(
            own == said || arguments.spreads && own.is_within(said),
            InvalidArgument for name,
            "its output `{name}` has the axes {}, but what the function returns for it has {}; {}",
            named(said),
            named(own),
            advice(own, said)
        );
    }
    Ok(())
}

/// A position that a number is taken from has to be there.
pub(super) fn check_taken(
    taken: &[(Axis, usize)],
    size: impl Fn(Axis) -> Option<usize>,
    axes: &[&str],
) -> Result<()> {
    for &(axis, position) in taken {
        let Some(size) = size(axis) else { continue };
        ensure!(
            position < size,
            InvalidArgument,
            "takes the number at position {position} along the axis `{}`, which has size {size}: positions \
             begin at 0",
            axes[axis.index()]
        );
    }
    Ok(())
}

/// The sizes that axes have of their own.
pub(super) fn own_sizes(
    construction: &OpKernelConstruction<'_>,
    arguments: &Arguments,
) -> Result<Vec<Option<usize>>> {
    let size = |size: &AxisSize| match *size {
        AxisSize::Given | AxisSize::Axis(_) => Ok(None),
        AxisSize::Fixed(size) => Ok(Some(size)),
        AxisSize::Attr(attr) => {
            let given: i64 = construction.attr(attr)?;
            let size = usize::try_from(given).map_err(|_| {
                Error::invalid_argument(format!(
                    "attribute `{attr}` is the size of an axis and must be at least 0, got {given}"
                ))
                .naming(attr)
            });
            size.map(Some)
        }
    };
    arguments.sizes.iter().map(size).collect()
}
