//! Poolings: the largest number and the mean of each window.

mod card;
#[cfg(test)]
mod tests;

use opsmith::dtype::sets;
use opsmith::memory;
use opsmith::prelude::*;
use opsmith::space::Extents;
use opsmith::{Dim, Shape};

use crate::along::{self, Near, by_lanes, of_real_numbers};
use crate::define::ops;
use crate::linear::{self, FLOATS, Facts, Linear, floats_with, is_float, last_input};
use crate::positions::{Compared, Extreme, Greatest};
use crate::windows::{self, ATTRS, ATTRS_DOC, Along, Lists, MOST, each_tap, runs};

ops! {
    /// The op `MaxPool`: the largest number of each window.
    MaxPool = max_pool(), with &[max_pool_gradient, max_pool_second_gradient];
    /// The op `AvgPool`: the mean of each window.
    AvgPool = linear::forward::<Means>(), with &[linear::gradient::<Means>, linear::second::<Means>];
}

const SIZE: &str = "ksize: list(int) >= 1";
/// The dims of images and of what is made of them.
const DIMS: &str = "(..., _*ksize)";

/// The windows of an op.
struct Pool {
    size: Vec<i64>,
    lists: Lists,
}

/// The windows of a call: those over the last dims, and the shape of what is made of images.
struct Planes {
    along: [Along; 3],
    /// How many dims these are.
    dims: usize,
    /// How many images there are.
    count: usize,
    shape: Extents,
}

impl Pool {
    fn new(construction: &OpKernelConstruction<'_>) -> Result<Pool> {
        Ok(Pool { size: construction.attr("ksize")?, lists: Lists::new(construction)? })
    }

    fn planes(&self, x: &[usize]) -> Result<Planes> {
        let sizes = sizes(&self.size)?;
        ensure!(
            x.len() >= sizes.len(),
            InvalidArgument for "x",
            "input `x` must have a dim for each number of `ksize`, {sizes:?}, got shape {x:?}"
        );
        let (front, dims) = x.split_at(x.len() - sizes.len());
        let along = self.lists.over(dims, &sizes)?;
        let mut shape = Extents::from_slice(front);
        shape.extend(along[3 - dims.len()..].iter().map(|along| along.count));
        Ok(Planes { along, dims: dims.len(), count: front.iter().product(), shape })
    }
}

/// The sizes of windows.
fn sizes(size: &[i64]) -> Result<Extents> {
    let sizes = size.iter().map(|&size| usize::try_from(size).ok().filter(|_| (1..=MOST).contains(&size)));
    sizes.collect::<Option<Extents>>().ok_or_else(|| {
        Error::invalid_argument(format!("`ksize` must be numbers from 1 to {MOST}, got {size:?}"))
            .naming("ksize")
    })
}

fn pooled(c: &mut InferenceContext<'_>) -> Result<Shape> {
    let size = c.get_ints("ksize")?.to_vec();
    let known = sizes(&size)?;
    let shape = c.with_rank_at_least(c.input(0)?, known.len())?;
    let Some(dims) = shape.dims() else { return Ok(Shape::unknown()) };
    let (front, dims) = dims.split_at(dims.len() - known.len());
    let known: Vec<Dim> = known.iter().map(|&size| Dim::Known(size as u64)).collect();
    let found = windows::inferred(c, dims, &known)?;
    Ok(front.iter().cloned().chain(found).collect())
}

/// How many windows are gone through at once: their results stay in the innermost cache.
const BLOCK: usize = 2048;

/// Blocks of windows.
fn blocks(along: &[Along; 3]) -> impl Iterator<Item = std::ops::Range<usize>> {
    let count = windows::count(along);
    (0..count).step_by(BLOCK).map(move |first| first..count.min(first + BLOCK))
}

fn matrix<'a, T>(shape: [usize; 2], elements: &'a [T]) -> Result<ArrayView2<'a, T>> {
    ArrayView2::from_shape(shape, elements).map_err(|error| Error::internal(error.to_string()))
}

fn matrix_mut<'a, T>(shape: [usize; 2], elements: &'a mut [T]) -> Result<ArrayViewMut2<'a, T>> {
    ArrayViewMut2::from_shape(shape, elements).map_err(|error| Error::internal(error.to_string()))
}

/// The elements of a row, which lie one after another.
fn row<'a, T>(row: ArrayView1<'a, T>) -> Result<&'a [T]> {
    row.to_slice().ok_or_else(|| Error::internal("a row is dense"))
}

fn row_mut<'a, T>(row: ArrayViewMut1<'a, T>) -> Result<&'a mut [T]> {
    row.into_slice().ok_or_else(|| Error::internal("a row is dense"))
}

/// Makes each row of `to` from that of `from`, on the threads of the call.
fn by_planes<T: Element, Z: Element>(
    cx: &Compute<'_>,
    planes: &Planes,
    (from, to): (&[T], &mut [Z]),
    (read, written): (usize, usize),
    make: impl Fn(&[T], &mut [Z]) -> Result<()> + Sync,
) -> Result<()> {
    if to.is_empty() {
        return Ok(());
    }
    let (from, to) = (matrix([planes.count, read], from)?, matrix_mut([planes.count, written], to)?);
    let all = windows::window(&planes.along).saturating_mul(windows::count(&planes.along));
    let cost = (all / written).saturating_add(1);
    by_lanes(cx, to, Axis(1), cost, |part, mut to| {
        let from = part.of(&from);
        let mut rows = from.outer_iter().zip(to.outer_iter_mut());
        rows.try_for_each(|(from, to)| make(row(from)?, row_mut(to)?))
    })
}

/// Calls `act` with each window's result and the element, for each element of a block of windows.
fn each<T: Copy, A>(
    along: &[Along; 3],
    block: std::ops::Range<usize>,
    (x, found): (&[T], &mut [A]),
    mut act: impl FnMut(&mut A, usize, T),
) -> Result<()> {
    let stride = along[2].stride;
    each_tap(along, |taps| {
        runs(along, taps, block.clone(), |to, from, count| {
            let found = &mut found[to..to + count];
            if stride == 1 {
                let x = &x[from..from + count];
                found.iter_mut().zip(x).enumerate().for_each(|(i, (found, &x))| act(found, from + i, x));
            } else {
                let x = x[from..].iter().step_by(stride);
                let x = found.iter_mut().zip(x).enumerate();
                x.for_each(|(i, (found, &x))| act(found, from + i * stride, x));
            }
        });
    })
}

struct Largest(Pool);

impl OpKernel for Largest {
    fn new(construction: &mut OpKernelConstruction<'_>) -> Result<Self> {
        Pool::new(construction).map(Largest)
    }

    fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<()> {
        let tensor = context.input(0)?;
        let planes = self.0.planes(tensor.shape())?;
        if crate::card::is_on_card(context) {
            return match sets::INTEGER.contains(&tensor.dtype()) {
                true => dispatch!(tensor.dtype(), Integer, |T| {
                    card::largest::<T>(context, &planes, [tensor; 2], Greatest::of_no_integers())
                }),
                false => dispatch!(tensor.dtype(), AnyFloat, |T| {
                    card::largest(context, &planes, [tensor; 2], T::near(Greatest::OF_NO_FLOATS))
                }),
            };
        }
        let mut output = context.allocate_output(0, &planes.shape)?;
        let cx = context.compute();
        if sets::INTEGER.contains(&tensor.dtype()) {
            return dispatch!(tensor.dtype(), Integer, |T| {
                let arrays = (tensor.as_slice::<T>()?, output.as_slice_mut::<T>()?);
                largest(&cx, &planes, arrays, Greatest::of_no_integers())
            });
        }
        dispatch!(tensor.dtype(), AnyFloat, |T| {
            let arrays = (tensor.as_slice::<T>()?, output.as_slice_mut::<T>()?);
            largest(&cx, &planes, arrays, T::near(Greatest::OF_NO_FLOATS))
        })
    }
}

fn largest<T: Compared>(cx: &Compute<'_>, planes: &Planes, arrays: (&[T], &mut [T]), none: T) -> Result<()> {
    let along = &planes.along;
    by_planes(cx, planes, arrays, (windows::plane(along), windows::count(along)), |x, y| {
        y.fill(none);
        for block in blocks(along) {
            each(along, block.clone(), (x, &mut y[block]), |found, _, x| {
                *found = if Greatest::takes(x, *found) { x } else { *found };
            })?;
        }
        Ok(())
    })
}

/// The gradient goes to where the largest number is, the first of equal ones; the gradient's gradient `TAKES` what is there.
struct LargestGradient<const TAKES: bool>(Pool);

impl<const TAKES: bool> OpKernel for LargestGradient<TAKES> {
    fn new(construction: &mut OpKernelConstruction<'_>) -> Result<Self> {
        Pool::new(construction).map(LargestGradient)
    }

    fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<()> {
        let tensor = context.input("x")?;
        let planes = self.0.planes(tensor.shape())?;
        let (shape, given) = match TAKES {
            true => (&planes.shape[..], last_input(context, tensor.shape())?),
            false => (tensor.shape(), last_input(context, &planes.shape)?),
        };
        if crate::card::is_on_card(context) {
            return match TAKES {
                true => dispatch!(tensor.dtype(), AnyFloat, |T| {
                    card::largest(context, &planes, [tensor, given], T::default())
                }),
                false => card::put_back(context, &planes, tensor, given),
            };
        }
        let (large, small) = (windows::plane(&planes.along), windows::count(&planes.along));
        let (length, written) = if TAKES { (large, small) } else { (small, large) };
        let mut output = context.allocate_output(0, shape)?;
        let cx = context.compute();
        let positions = cx.temp::<i64>(planes.count * small)?;
        dispatch!(tensor.dtype(), AnyFloat, |T| {
            let x = tensor.as_slice::<T>()?;
            by_planes(&cx, &planes, (x, &mut *positions), (large, small), |x, positions| {
                find_largest(&planes.along, x, positions)
            })?;
            let given = matrix([planes.count, length], given.as_slice::<T>()?)?;
            let positions = matrix([planes.count, small], positions)?;
            let output = matrix_mut([planes.count, written], output.as_slice_mut::<T>()?)?;
            match TAKES {
                true => along::take(&cx, given, positions, output, (Axis(1), T::default())),
                false => along::add(&cx, given, positions, output, Axis(1)),
            }
        })
    }
}

/// The position in a plane of the largest number of each window; -1 where no element is in the plane.
fn find_largest<T: Compared>(along: &[Along; 3], x: &[T], positions: &mut [i64]) -> Result<()> {
    let mut best = memory::filled((-1, T::zero()), BLOCK.min(positions.len()), "the largest of windows")?;
    for block in blocks(along) {
        let best = &mut best[..block.len()];
        best.fill((-1, T::zero()));
        each(along, block.clone(), (x, &mut *best), |(found, largest), at, x| {
            if *found < 0 || Greatest::takes(x, *largest) {
                (*found, *largest) = (at as i64, x);
            }
        })?;
        positions[block].iter_mut().zip(best).for_each(|(to, (found, _))| *to = *found);
    }
    Ok(())
}

fn begin(name: &str, dtypes: &str) -> OpDef {
    let def = ATTRS.iter().fold(OpDef::new(name).attr(SIZE), |def, attr| def.attr(attr));
    def.attr(&format!("T: {dtypes}")).input("x: T")
}

fn max_pool() -> OpDef {
    begin("MaxPool", "realnumbertype")
        .output("y: T")
        .parallel(&format!("{DIMS} -> {DIMS}"))
        .doc(&format!(
            "The largest number of each window; NaN if one is NaN. What is beyond the ends does not count: of a window with nothing else \
             it is −∞, of integers the least there is. The gradient of equal numbers goes to the first.\n\n\
             x: One to three dims of images, behind any others.\n\
             ksize: The elements of a window along each dim of the images.\n{ATTRS_DOC}\
             y: Of the same rank, with a number for each window."
        ))
        .shape_fn(|c| {
            let shape = pooled(c)?;
            c.set_output(0, shape)
        })
        .gradient("MaxPoolGrad")
        .kernels(of_real_numbers::<Largest>())
        .kernels(crate::card::kernels::<Largest>(|dtype| sets::REAL_NUMBER.contains(&dtype)))
}

fn max_pool_gradient() -> OpDef {
    begin("MaxPoolGrad", FLOATS)
        .input("y_grad: T")
        .output("x_grad: T")
        .parallel(&format!("{DIMS}, {DIMS} -> {DIMS}"))
        .doc("The gradient of `MaxPool`.")
        .shape_fn(|c| {
            let (shape, given, own) = (pooled(c)?, c.input(1)?, c.input(0)?);
            c.merge_shapes(&shape, &given)?;
            c.set_output(0, own)
        })
        .gradient("MaxPoolGradGrad")
        .kernels(floats_with::<LargestGradient<false>>(false))
        .kernels(crate::card::kernels::<LargestGradient<false>>(is_float))
}

fn max_pool_second_gradient() -> OpDef {
    begin("MaxPoolGradGrad", FLOATS)
        .input("x_grad_grad: T")
        .output("y_grad_grad: T")
        .parallel(&format!("{DIMS}, {DIMS} -> {DIMS}"))
        .doc("The gradient of `MaxPoolGrad`.")
        .shape_fn(|c| {
            let (own, given) = (c.input(0)?, c.input(1)?);
            c.merge_shapes(&own, &given)?;
            let shape = pooled(c)?;
            c.set_output(0, shape)
        })
        .kernels(floats_with::<LargestGradient<true>>(false))
        .kernels(crate::card::kernels::<LargestGradient<true>>(is_float))
}

struct Means {
    pool: Pool,
    count_padding: bool,
    /// Whether it is for a gradient, to which a window of nothing gives nothing.
    is_for_gradient: bool,
}

/// What each window's sum is divided by.
enum Divisors {
    One(f64),
    Each(Vec<f64>),
}

impl Divisors {
    fn of(&self, window: usize) -> f64 {
        match self {
            Divisors::One(divisor) => *divisor,
            Divisors::Each(divisors) => divisors[window],
        }
    }
}

impl Means {
    /// What the kernels on a card divide by: a number for all, or what is there, at least 1 where it is negative.
    fn divisor(&self, along: &[Along; 3]) -> f64 {
        match self.count_padding {
            true => windows::window(along) as f64,
            false if self.is_for_gradient => -1.0,
            false => 0.0,
        }
    }

    fn divisors(&self, along: &[Along; 3]) -> Result<Divisors> {
        if self.count_padding {
            return Ok(Divisors::One(windows::window(along) as f64));
        }
        let count = windows::count(along);
        let mut divisors = memory::filled(0.0, count, "the divisors of windows")?;
        each_tap(along, |taps| {
            runs(along, taps, 0..count, |first, _, count| {
                divisors[first..first + count].iter_mut().for_each(|divisor| *divisor += 1.0);
            });
        })?;
        if self.is_for_gradient {
            divisors.iter_mut().for_each(|divisor| *divisor = f64::max(*divisor, 1.0));
        }
        Ok(Divisors::Each(divisors))
    }
}

impl Linear for Means {
    const FACTS: Facts = Facts {
        name: "AvgPool",
        x: "x",
        attrs: &[SIZE, ATTRS[0], ATTRS[1], ATTRS[2], "count_padding: bool = true"],
        dtypes: FLOATS,
        parameters: &[],
        host: &[],
        dims: &[DIMS, DIMS],
        doc: "The mean of each window, added up in float64.\n\n\
              x: One to three dims of images, behind any others.\n\
              ksize: The elements of a window along each dim of the images.\n\
              strides: How far one window is from the next, along each dim; empty for 1.\n\
              padding: How far windows reach beyond the ends: a number for each dim, or for each one in front and one behind; empty \
              for 0.\n\
              dilations: How far the elements of a window are from each other, along each dim; empty for 1.\n\
              count_padding: Whether what is beyond the ends counts as zeros. Else a mean is that of what is there, NaN of nothing.\n\
              y: Of the same rank, with a number for each window.",
        shape: pooled,
    };
    const STRIDED: bool = false;
    const ON_CARD: [fn(DType) -> bool; 2] = [is_float; 2];

    fn new(construction: &OpKernelConstruction<'_>) -> Result<Self> {
        let is_for_gradient = construction.signature().name != Self::FACTS.name;
        Ok(Means {
            pool: Pool::new(construction)?,
            count_padding: construction.attr("count_padding")?,
            is_for_gradient,
        })
    }

    fn forward(&self, context: &OpKernelContext<'_>) -> Result<()> {
        let tensor = context.input(0)?;
        let planes = self.pool.planes(tensor.shape())?;
        if crate::card::is_on_card(context) {
            let kernel = ("means", self.divisor(&planes.along));
            return card::means(context, &planes, kernel, tensor, &planes.shape);
        }
        let mut output = context.allocate_output(0, &planes.shape)?;
        if output.num_elements() == 0 {
            return Ok(());
        }
        let (along, divisors) = (&planes.along, self.divisors(&planes.along)?);
        dispatch!(tensor.dtype(), AnyFloat, |T| {
            let arrays = (tensor.as_slice::<T>()?, output.as_slice_mut::<T>()?);
            let lengths = (windows::plane(along), windows::count(along));
            by_planes(&context.compute(), &planes, arrays, lengths, |x, y| {
                let mut sums = memory::filled(0.0, BLOCK.min(y.len()), "the sums of windows")?;
                for block in blocks(along) {
                    let sums = &mut sums[..block.len()];
                    sums.fill(0.0);
                    each(along, block.clone(), (x, &mut *sums), |sum, _, x: T| *sum += wide(x))?;
                    let means = sums.iter().zip(block.clone()).map(|(sum, window)| sum / divisors.of(window));
                    y[block].iter_mut().zip(means).for_each(|(y, mean)| *y = T::near(mean));
                }
                Ok(())
            })
        })
    }

    fn backward(&self, context: &OpKernelContext<'_>) -> Result<()> {
        let shape = context.input_shape(0)?;
        let planes = self.pool.planes(shape)?;
        let gradient = last_input(context, &planes.shape)?;
        if crate::card::is_on_card(context) {
            let kernel = ("means_back", self.divisor(&planes.along));
            return card::means(context, &planes, kernel, gradient, shape);
        }
        let mut output = context.allocate_output(0, shape)?;
        if output.num_elements() == 0 {
            return Ok(());
        }
        let (along, divisors) = (&planes.along, self.divisors(&planes.along)?);
        dispatch!(gradient.dtype(), AnyFloat, |T| {
            let arrays = (gradient.as_slice::<T>()?, output.as_slice_mut::<T>()?);
            let lengths = (windows::count(along), windows::plane(along));
            by_planes(&context.compute(), &planes, arrays, lengths, |gradient, x| {
                let mut sums = memory::filled(0f64, x.len(), "the sums of a gradient")?;
                let shares = gradient.iter().enumerate();
                let shares = shares.map(|(window, &gradient)| wide(gradient) / divisors.of(window));
                let shares = memory::collected(shares, "the shares of a gradient")?;
                each_tap(along, |taps| {
                    runs(along, taps, 0..shares.len(), |first, to, count| {
                        let to = sums[to..].iter_mut().step_by(along[2].stride);
                        to.zip(&shares[first..first + count]).for_each(|(sum, share)| *sum += share);
                    });
                })?;
                x.iter_mut().zip(&sums).for_each(|(x, &sum)| *x = T::near(sum));
                Ok(())
            })
        })
    }

    fn kernels() -> Vec<KernelDef> {
        floats_with::<linear::Forward<Self>>(false).collect()
    }
}

/// A number in double precision.
fn wide<T: AnyFloat>(number: T) -> f64 {
    number.to_f64().unwrap_or(f64::NAN)
}
