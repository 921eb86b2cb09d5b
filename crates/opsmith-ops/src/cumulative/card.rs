//! Scans along a dim, on a card.

use std::ffi::c_void;
use std::ptr;

use opsmith::cuda::{BLOCK, CudaCall, Index, Source, Structure, index_of};
use opsmith::prelude::*;
use opsmith::space::IndexSpace;

use super::Order;
use crate::card::name;
use crate::parameters::axis_of;
use crate::positions::Extreme;

static SOURCE: Source = Source::new("scan.cu", include_str!("scan.cu")).beside(file!());

/// How many numbers a thread has at a time, as in the kernel.
const EACH: usize = 8;
/// The bytes of a total of a part of a lane.
const STATE: usize = 32;
/// How many lanes side by side in memory a block goes through at least.
const COLUMNS: usize = 32;
/// So many threads, and blocks, keep every card busy.
const BUSY: usize = 1 << 18;
const BLOCKS: usize = 512;
/// The most parts of a lane, and the least tiles that are worth one.
const PARTS: usize = 64;
const TILES: usize = 4;
/// The most blocks along lanes, which go on by so many.
const MOST_BLOCKS: usize = 1 << 16;

/// Scans of three tensors of one shape along a dim; one that is not there is another in its place.
struct Scans<'a> {
    context: &'a OpKernelContext<'a>,
    tensors: [TensorView<'a>; 3],
    lanes: IndexSpace,
    along: IndexSpace,
    /// How many lanes lie side by side in what is dense.
    inner: usize,
    order: Order,
    index: Index,
}

impl<'a> Scans<'a> {
    fn new(context: &'a OpKernelContext<'a>, tensors: [TensorView<'a>; 3], order: Order) -> Result<Self> {
        let shape = tensors[0].shape();
        let axis = axis_of(order.axis, shape.len())?;
        let layouts = tensors.map(|tensor| tensor.layout());
        let [lanes, along] = IndexSpace::split(shape, &layouts, |dim| usize::from(dim == axis))?;
        let index = index_of(&[&lanes, &along], 3, tensors[0].num_elements());
        let inner = shape[axis + 1..].iter().fold(1, |all: usize, &dim| all.saturating_mul(dim));
        Ok(Scans { context, tensors, lanes, along, inner, order, index })
    }

    /// The same, the other way round.
    fn turned(mut self) -> Self {
        self.order.reverse = !self.order.reverse;
        self
    }

    /// Makes an output.
    fn make(&self, output: usize, scan: &str, more: &str, kept: *const c_void) -> Result<()> {
        let to = self.context.allocate_output(output, self.tensors[0].shape())?;
        self.run(scan, more, kept, to.data_ptr().cast_const().cast())
    }

    /// What a scan leaves for another, in temporary memory: so many bytes for each number.
    fn left(&self, scan: &str, more: &str, bytes: usize) -> Result<*const c_void> {
        let bytes = self.tensors[0].num_elements().max(1).saturating_mul(bytes);
        let to = self.context.device_temp(bytes)?.as_ptr().cast_const().cast();
        self.run(scan, more, ptr::null(), to)?;
        Ok(to)
    }

    fn run(&self, scan: &str, more: &str, kept: *const c_void, to: *const c_void) -> Result<()> {
        let (index, [x, y, v]) = (self.index, self.tensors);
        if x.num_elements() == 0 {
            return Ok(());
        }
        let Spread { across, rows, threads, part, parts } = Spread::new(&self.lanes, &self.along);
        let mut along = Structure::new(index);
        for size in [self.along.len(), self.inner, part] {
            along.index(size as i128)?;
        }
        for step in self.along.steps([0, 1, 2]) {
            along.index(step as i128)?;
        }
        along.int(self.order.exclusive.into()).int(self.order.reverse.into());
        let along = along.finish_without_address();
        let kernel = format!("scanned<{scan}<{}, {1}{more}>, {1}>", name(x.dtype())?, index.name());
        let (call, count) = (CudaCall::new(self.context, &SOURCE), self.lanes.len());
        let [width, height] = if across { [rows, threads] } else { [threads, rows] };
        let launch = |left: *const c_void, totals: bool| {
            let launch = call.kernel(kernel.as_str()).block([width as u32, height as u32, 1]);
            let launch = launch.grid([count.div_ceil(rows).min(MOST_BLOCKS), parts, 1]);
            let launch = [x, y, v].iter().fold(launch, |launch, x| launch.address(x.data_ptr().cast()));
            let launch = launch.address(kept).address(to).address(left).raw(&along);
            let launch = launch.space(&self.lanes, 3, index).value(across).value(totals);
            // SAFETY: these are the kernel's parameters; the spaces stay in the tensors, what is kept and made has a place for each number
            // of them, and there is room for a total of each part, all on the call's card.
            unsafe { launch.launch() }
        };
        if parts == 1 {
            return launch(ptr::null(), false);
        }
        let bytes = count.saturating_mul(parts).saturating_mul(STATE);
        let left = self.context.device_temp(bytes)?.as_ptr().cast_const().cast();
        launch(left, true)?;
        launch(left, false)
    }
}

/// Whether the largest numbers are looked for, as scans of extremes are told.
pub(super) fn largest<E: Extreme>() -> &'static str {
    if E::OF_NO_FLOATS < 0.0 { ", true" } else { ", false" }
}

/// The outputs of a gradient of products that are asked for.
pub(super) fn products_gradient(context: &OpKernelContext<'_>, order: Order, second: bool) -> Result<()> {
    let inputs = ["x", "y_grad", if second { "x_grad_grad" } else { "x" }];
    let [x, y_grad, along] = inputs.map(|name| context.input(name));
    let tensors = [x?, y_grad?, along?];
    let (more, bytes) = if second { (", Dual", 16) } else { (", double", 8) };
    if context.output_wanted(0)? {
        let changes = Scans::new(context, tensors, order)?.turned().left("Changes", more, bytes)?;
        Scans::new(context, tensors, order)?.make(0, "OfFactors", more, changes)?;
    }
    if second && context.output_wanted(1)? {
        Scans::new(context, tensors, order)?.make(1, "OfProducts", "", ptr::null())?;
    }
    Ok(())
}

/// Makes output 0 by a scan of a tensor.
pub(super) fn scan(
    context: &OpKernelContext<'_>,
    x: TensorView<'_>,
    order: Order,
    (scan, more): (&str, &str),
) -> Result<()> {
    Scans::new(context, [x; 3], order)?.make(0, scan, more, ptr::null())
}

/// Makes output 0 of what the gradient of extremes, or its gradient, which `takes`, is given.
pub(super) fn extremes_gradient(
    context: &OpKernelContext<'_>,
    [x, given]: [TensorView<'_>; 2],
    (order, more, takes): (Order, &str, bool),
) -> Result<()> {
    let scans = Scans::new(context, [x, given, x], order)?;
    if takes {
        return scans.make(0, "Taken", more, ptr::null());
    }
    let bytes = if scans.index == Index::Bits64 { 8 } else { 4 };
    let found = scans.left("Position", more, bytes)?;
    scans.turned().make(0, "RunSum", "", found)
}

/// How lanes are spread over a card, as the sizes alone decide.
struct Spread {
    across: bool,
    /// The lanes of a block, and the threads that share each.
    rows: usize,
    threads: usize,
    /// How many numbers of a lane a block goes through, and how many blocks do.
    part: usize,
    parts: usize,
}

impl Spread {
    fn new(lanes: &IndexSpace, along: &IndexSpace) -> Spread {
        let (count, length) = (lanes.len(), along.len());
        let across = lanes.steps([0]) == [1] && along.steps([0]) != [1];
        let side = if across { count.next_power_of_two().min(COLUMNS) } else { 1 };
        let busy = if across { (BUSY / count).max(1).next_power_of_two() } else { BLOCK };
        let threads = length.div_ceil(EACH).next_power_of_two().min(BLOCK / side).min(busy);
        let (rows, tile) = (BLOCK / threads, threads * EACH);
        let parts = (BLOCKS / count.div_ceil(rows)).min(length / (tile * TILES)).clamp(1, PARTS);
        let part = length.div_ceil(parts).next_multiple_of(tile);
        Spread { across, rows, threads, part, parts: length.div_ceil(part) }
    }
}

#[cfg(test)]
mod tests {
    use opsmith::dtype::{bf16, f16};
    use opsmith::ndarray::{Array, Array2, Array3};
    use opsmith::testing::{Call, call};

    use super::*;
    use crate::card::tests::{compare, gradient};
    use crate::cumulative::{CumMax, CumMin, CumProd, CumSum};

    /// Calls a test with each order of the lanes of a call.
    fn in_each_order<'a, T: Element + std::fmt::Debug>(
        axis: i64,
        form: impl Fn() -> Call<'a>,
        output: &str,
    ) -> Result<()> {
        for (exclusive, reverse) in [(false, false), (true, false), (false, true), (true, true)] {
            let form = || form().attr("axis", axis).attr("exclusive", exclusive).attr("reverse", reverse);
            compare::<T>(form, output)?;
        }
        Ok(())
    }

    /// Shapes and dims with short and long lanes, side by side and not, with one number, and with none.
    const SHAPES: [([usize; 3], i64); 7] = [
        ([3, 4, 5], 1),
        ([2, 700, 40], 1),
        ([3, 2, 2500], -1),
        ([1, 1, 20_000], 2),
        ([9000, 1, 3], 0),
        ([3, 1, 5], 1),
        ([3, 0, 5], -2),
    ];

    fn numbers(shape: [usize; 3], of: impl Fn(usize) -> f32) -> Array3<f32> {
        Array::from_shape_fn(shape, |(i, j, k)| of(i * 31 + j * 7 + k * 13 + j * k % 5))
    }

    #[test]
    fn sums_and_extremes_are_those_of_the_cpu() -> Result<()> {
        for (shape, axis) in SHAPES {
            let (x, g) = (numbers(shape, |n| (n % 7) as f32 - 3.0), numbers(shape, |n| (n % 5) as f32));
            let (g, long) = (g.slice(s![..;-1, .., ..;-1]), x.mapv(|x| x as i64 * 1_000_003));
            in_each_order::<f32>(axis, || call::<CumSum>().input(&x), "y")?;
            in_each_order::<i64>(axis, || call::<CumSum>().input(&long), "y")?;
            compare::<f32>(|| gradient::<CumSum>(1).input(&x).input(&g).attr("axis", axis), "x_grad")?;
            in_each_order::<f32>(axis, || call::<CumMax>().input(&g), "y")?;
            in_each_order::<f32>(axis, || gradient::<CumMax>(1).input(&x).input(&g), "x_grad")?;
            in_each_order::<f32>(axis, || gradient::<CumMin>(2).input(&x).input(&g), "y_grad_grad")?;
        }
        Ok(())
    }

    #[test]
    fn products_and_their_gradients_are_those_of_the_cpu() -> Result<()> {
        for (shape, axis) in SHAPES {
            // Neighbours along each dim, whose products stay near 1.
            let x = Array::from_shape_fn(shape, |(i, j, k)| [2.0f64, 0.5][(i + j + k) % 2]);
            let ones = x.mapv(|x| if x > 1.0 { -1.0f32 } else { 1.0 });
            let (g, v) = (x.mapv(|x| 1.0 + x), x.slice(s![..;-1, .., ..]));
            in_each_order::<f32>(axis, || call::<CumProd>().input(&ones), "y")?;
            if shape[axis.rem_euclid(3) as usize] > 1000 {
                continue;
            }
            in_each_order::<f64>(axis, || gradient::<CumProd>(1).input(&x).input(&g), "x_grad")?;
            let second = || gradient::<CumProd>(2).input(&x).input(&g).input(&v);
            compare::<f64>(|| second().attr("axis", axis), "x_grad")?;
            compare::<f64>(|| second().attr("axis", axis).attr("exclusive", true), "y_grad_grad")?;
        }
        let (x, g) = (array![[1.5f32, -2.0, 0.0, 3.0, 0.5]], array![[1.0f32, 2.0, 3.0, 4.0, 5.0]]);
        in_each_order::<f32>(-1, || gradient::<CumProd>(1).input(&x).input(&g), "x_grad")?;
        in_each_order::<f32>(0, || gradient::<CumProd>(1).input(&x).input(&g), "x_grad")?;
        // The product of a part of the lane is beyond float32.
        let halves = Array::from_shape_fn(64, |at| f16::from_f32(if at == 0 { 0.0 } else { 100.0 }));
        compare::<f16>(|| call::<CumProd>().input(&halves), "y")
    }

    #[test]
    fn long_lanes_are_shared_by_blocks() -> Result<()> {
        let n = 40_000;
        let x = Array::from_shape_fn((2, n), |(i, j)| ((i * 31 + j * j) % 11) as f32 - 5.0);
        let ones = x.mapv(|x| if x > 0.0 { -1.0f64 } else { 1.0 });
        let (g, halves) = (ones.mapv(|_| 1.0), x.mapv(|x| f16::from_f32(x / 8.0)));
        assert_eq!(call::<CumSum>().input(&x).kernels_launched()?.len(), 2);
        in_each_order::<f32>(-1, || call::<CumSum>().input(&x), "y")?;
        in_each_order::<f64>(-1, || gradient::<CumProd>(1).input(&ones).input(&g), "x_grad")?;
        in_each_order::<f16>(-1, || gradient::<CumMin>(1).input(&halves).input(&halves), "x_grad")
    }

    #[test]
    fn odd_numbers_of_every_kind() -> Result<()> {
        let x = array![[-0.0f32, 0.0, f32::NEG_INFINITY, 2.0], [f32::NAN, 1.0, f32::INFINITY, -1.0]];
        let turned = x.t();
        for x in [x.view(), turned.view(), x.slice(s![..;-1, ..;-2])] {
            in_each_order::<f32>(-1, || call::<CumSum>().input(&x), "y")?;
            in_each_order::<f32>(0, || call::<CumMax>().input(&x), "y")?;
            in_each_order::<f32>(1, || call::<CumMin>().input(&x), "y")?;
        }
        let short = x.slice(s![.., ..;3]).mapv(bf16::from_f32);
        in_each_order::<bf16>(0, || call::<CumMin>().input(&short), "y")?;
        let (bytes, words) = (array![i8::MIN, 100, 100, -7], array![u16::MAX, 3, 5]);
        in_each_order::<i8>(0, || call::<CumSum>().input(&bytes), "y")?;
        in_each_order::<i8>(0, || call::<CumMax>().input(&bytes), "y")?;
        in_each_order::<u16>(0, || call::<CumProd>().input(&words), "y")?;
        in_each_order::<u16>(0, || call::<CumMin>().input(&words), "y")
    }

    #[test]
    fn kernels_compile() -> Result<()> {
        let x = Array2::<f32>::zeros((3, 20_000));
        let halves = x.slice(s![.., ..9]).mapv(bf16::from_f32);
        call::<CumSum>().input(&x).compile_for_cuda()?;
        call::<CumProd>().input(&halves).compile_for_cuda()?;
        gradient::<CumProd>(1).input(&halves).input(&halves).compile_for_cuda()?;
        gradient::<CumProd>(2).input(&x).input(&x).input(&x).compile_for_cuda()?;
        gradient::<CumMax>(1).input(&halves).input(&halves).compile_for_cuda()?;
        gradient::<CumMin>(2).input(&x).input(&x).compile_for_cuda()?;
        // Bytes that lie farther apart than 31 bits count, of memory that hardly anyone touches.
        let far = opsmith::ndarray::Array1::<u8>::zeros((1 << 31) + 1);
        let x = far.slice(s![..;1 << 30]);
        let names = call::<CumMax>().input(&x).kernels_launched()?;
        assert!(names.iter().all(|name| name.ends_with("long long>")), "{names:?}");
        call::<CumMax>().input(&x).compile_for_cuda()?;
        compare::<u8>(|| call::<CumMax>().input(&x), "y")
    }
}
