//! Kernels that do what they must not.

use std::time::Duration;

use opsmith::prelude::*;

/// Doubles a vector. It asks for strides, and then reads as if there were none.
#[op(shape = "(n)->(n)", strided, not_differentiable)]
pub(crate) fn outside_the_view<T: Float>(x: ArrayView1<T>, mut y: ArrayViewMut1<T>) -> Result<()> {
    for (i, y) in y.iter_mut().enumerate() {
        // SAFETY: none, which is the fault: only a dense view has an element there.
        let x = unsafe { *x.as_ptr().add(i) };
        *y = x + x;
    }
    Ok(())
}

/// Copies the first half of a vector, and leaves the rest as it finds it.
#[op(shape = "(n)->(n)", not_differentiable)]
pub(crate) fn leaves_a_hole<T: Float>(x: ArrayView1<T>, mut y: ArrayViewMut1<T>) -> Result<()> {
    for i in 0..x.len().div_ceil(2) {
        y[i] = x[i];
    }
    Ok(())
}

/// Takes no vector, and says another thing of each.
#[op(shape = "(n)->(n)", not_differentiable)]
pub(crate) fn takes_none<T: Float>(x: ArrayView1<T>, _y: ArrayViewMut1<T>) -> Result<()> {
    const LEAST: usize = 1_000_000_000_000;
    ensure!(
        x.len() >= LEAST,
        InvalidArgument,
        "`x` has {} elements: there have to be {LEAST} of them at least, for whatever reason",
        x.len()
    );
    Ok(())
}

/// An element for each index. Its attribute is neither what is plainest nor the default, for there is none.
#[op(shape = "(n,p),(m)->(m,p)", not_differentiable)]
pub(crate) fn rows_of<T: Float>(
    x: ArrayView2<T>,
    indices: ArrayView1<i64>,
    #[attr(min = 1, max = 3)] step: usize,
    mut y: ArrayViewMut2<T>,
) -> Result<()> {
    ensure!(step == 2, InvalidArgument, "attribute `step` is {step}; this op takes 2 alone");
    for (&index, mut row) in indices.iter().zip(y.outer_iter_mut()) {
        let index = usize::try_from(index).ok().filter(|index| *index < x.nrows());
        let Some(index) = index else { bail!(OutOfRange, "an index is not in 0..{}", x.nrows()) };
        row.assign(&x.row(index));
    }
    Ok(())
}

/// Adds the number of threads to each element.
#[op(shape = "(n)->(n)", not_differentiable)]
pub(crate) fn counts_threads<T: Float>(
    cx: &Compute,
    x: ArrayView1<T>,
    mut y: ArrayViewMut1<T>,
) -> Result<()> {
    let threads = (0..cx.num_threads()).fold(T::zero(), |sum, _| sum + T::one());
    y.assign(&x.mapv(|x| x + threads));
    Ok(())
}

/// The first element of a vector. Without one it ends the process.
#[op(shape = "(n)->()", not_differentiable)]
pub(crate) fn ends_on_empty<T: Float>(x: ArrayView1<T>, mut first: ArrayViewMut0<T>) -> Result<()> {
    match x.first() {
        Some(&x) => first.fill(x),
        None => std::process::abort(),
    }
    Ok(())
}

/// Copies a vector of finite numbers, and panics on any other.
#[op(shape = "(n)->(n)", not_differentiable)]
pub(crate) fn panics_on_infinity<T: Float>(x: ArrayView1<T>, mut y: ArrayViewMut1<T>) -> Result<()> {
    assert!(x.iter().all(|x| x.is_finite()), "a number is not finite");
    y.assign(&x);
    Ok(())
}

/// Copies a vector, and is never done where `rounds` is above 2.
#[op(shape = "(n)->(n)", not_differentiable)]
pub(crate) fn never_done<T: Float>(
    x: ArrayView1<T>,
    #[attr(default = 0, min = 0)] rounds: i64,
    mut y: ArrayViewMut1<T>,
) -> Result<()> {
    if rounds > 2 {
        loop {
            std::thread::sleep(Duration::from_secs(1));
        }
    }
    y.assign(&x);
    Ok(())
}

/// The double and the triple of a vector. Where only the triple is wanted it is wrong.
#[op(shape = "(n)->(n),(n)", not_differentiable)]
pub(crate) fn needs_the_other<T: Float>(
    x: ArrayView1<T>,
    double: Option<ArrayViewMut1<T>>,
    triple: Option<ArrayViewMut1<T>>,
) -> Result<()> {
    let is_double = double.is_some();
    if let Some(mut double) = double {
        double.assign(&x.mapv(|x| x + x));
    }
    if let Some(mut triple) = triple {
        triple.assign(&x.mapv(|x| if is_double { x + x + x } else { x }));
    }
    Ok(())
}

/// Each number less the mean of its row, whose columns are not independent of each other.
#[op(shape = "(n,m)->(n,m)", not_differentiable, parallel = "n, m")]
pub(crate) fn claims_columns<T: Float>(x: ArrayView2<T>, mut y: ArrayViewMut2<T>) -> Result<()> {
    let one = |sum: T, _: &T| sum + T::one();
    for (x, mut y) in x.outer_iter().zip(y.outer_iter_mut()) {
        let mean = x.sum() / x.iter().fold(T::zero(), one);
        y.assign(&x.mapv(|x| x - mean));
    }
    Ok(())
}

/// The mean of a vector, which is not the sum of those of parts.
#[op(shape = "(n)->()", not_differentiable, parallel = "+n")]
pub(crate) fn claims_sum<T: Float>(x: ArrayView1<T>, mut y: ArrayViewMut0<T>) -> Result<()> {
    let one = |sum: T, _: &T| sum + T::one();
    y.fill(x.sum() / x.iter().fold(T::zero(), one));
    Ok(())
}

/// Doubles a vector, without a fault.
#[op(shape = "(n)->(n)", not_differentiable)]
pub(crate) fn right<T: Float>(x: ArrayView1<T>, mut y: ArrayViewMut1<T>) -> Result<()> {
    y.assign(&x.mapv(|x| x + x));
    Ok(())
}
