//! How the kernels of `lltm.cu` are launched.

use opsmith::cuda::{CudaCall, CudaElement, DeviceArray, DeviceTensor, DeviceView, DeviceViewMut, Index};
use opsmith::prelude::*;

/// A block has so many threads along either side.
const SIDE: usize = 16;

/// Up to so many large tiles leave most of a card idle, which small ones do not.
const FEW: usize = 64;

/// The tiles of a product: what a thread computes along either side, terms in shared memory at a time, and how many blocks.
struct Tiles {
    edges: [usize; 2],
    depth: usize,
    blocks: usize,
}

impl Tiles {
    /// Large tiles, which read less, unless there are few; at least one along the columns.
    fn new<T>(rows: usize, columns: usize, large: [usize; 2], gates: usize) -> Tiles {
        let blocks = |[down, across]: [usize; 2]| {
            rows.div_ceil(SIDE * down).saturating_mul(columns.div_ceil(SIDE * across).max(1))
        };
        // As much as shared memory holds of what a card has without being asked.
        let deep = if gates * size_of::<T>() > 12 { 32 } else { 64 };
        match blocks(large) > FEW {
            true => Tiles { edges: large, depth: 16, blocks: blocks(large) },
            false => Tiles { edges: [1, 1], depth: deep, blocks: blocks([1, 1]) },
        }
    }
}

/// The inputs of a step, and its outputs.
pub(crate) struct Step<'a, T> {
    pub(crate) input: DeviceView<'a, T>,
    pub(crate) weights: DeviceView<'a, T>,
    pub(crate) bias: DeviceView<'a, T>,
    pub(crate) old: [DeviceView<'a, T>; 2],
    pub(crate) made: [DeviceViewMut<'a, T>; 7],
}

impl<T: CudaElement> Step<'_, T> {
    pub(crate) fn launch(&self, call: &CudaCall) -> Result<()> {
        let Step { input, weights, bias, old, made } = self;
        let inputs = [input as &dyn DeviceTensor, weights, bias];
        let others = old.iter().map(|old| old as &dyn DeviceTensor);
        let outputs = made.iter().map(|made| made as &dyn DeviceTensor);
        let all: Vec<&dyn DeviceTensor> = inputs.into_iter().chain(others).chain(outputs).collect();
        let index = Index::of(&all);
        let [rows, columns] = old[0].dims()?;
        let large = if size_of::<T>() == 4 { [4, 4] } else { [2, 2] };
        let Tiles { edges: [down, across], depth, blocks } = Tiles::new::<T>(rows, columns, large, 3);
        let kernel = format!("forward<{}, {}, {down}, {across}, {depth}>", T::NAME, index.name());
        let mut launch = call.kernel(kernel).grid([blocks, 1, 1]).block([SIDE as u32, SIDE as u32, 1]);
        launch = launch.tensor::<2>(input, index).tensor::<2>(weights, index).tensor::<1>(bias, index);
        for tensor in &all[3..] {
            launch = launch.tensor::<2>(*tensor, index);
        }
        // SAFETY: these are the kernel's parameters, and it stays within the tensors, whose dims have been checked.
        unsafe { launch.launch() }
    }
}

/// What the way back reads: the gradients that arrive and what the forward call made, of which the last are the gates; `x`, and
/// the weights.
pub(crate) struct Backward<'a, T> {
    pub(crate) elements: [DeviceView<'a, T>; 7],
    pub(crate) x: DeviceView<'a, T>,
    pub(crate) weights: DeviceView<'a, T>,
}

/// What it makes, where it is wanted.
pub(crate) struct Wanted<'a, T> {
    pub(crate) old_h: Option<DeviceViewMut<'a, T>>,
    pub(crate) input: Option<DeviceViewMut<'a, T>>,
    pub(crate) weights: Option<DeviceViewMut<'a, T>>,
    pub(crate) bias: Option<DeviceViewMut<'a, T>>,
    pub(crate) old_cell: Option<DeviceViewMut<'a, T>>,
}

impl<T: CudaElement> Backward<'_, T> {
    pub(crate) fn launch(&self, call: &CudaCall, wanted: &Wanted<'_, T>) -> Result<()> {
        let Wanted { old_h, input, weights, bias, old_cell } = wanted;
        let [rows, size] = self.elements[2].dims()?;
        let [_, width] = self.x.dims()?;
        let of_x = [old_h, input];
        let of_parameters = [weights, bias];
        let products = of_x.iter().chain(&of_parameters).any(|wanted| wanted.is_some());
        let gates = products.then(|| call.temp::<T>(rows * 3 * size)).transpose()?;
        let gates = gates.as_ref().map(|gates| gates.array(&[rows, 3 * size])).transpose()?;
        self.launch_elements(call, rows * size, gates.as_ref(), old_cell.as_ref())?;
        let Some(gates) = &gates else { return Ok(()) };
        // Columns of `weights`, and of `x` with one of ones behind it.
        let window = |[first, second]: [&Option<DeviceViewMut<'_, T>>; 2], edge: usize, end: usize| {
            (if first.is_some() { 0 } else { edge }, if second.is_some() { end } else { edge })
        };
        let (begin, end) = window(of_x, size, width);
        Product { gates, other: &self.weights, rows, window: (begin, end), outputs: of_x }
            .launch(call, "inputs")?;
        let (begin, end) = window(of_parameters, width, width + 1);
        let (rows, window) = (3 * size, (begin, end));
        Product { gates, other: &self.x, rows, window, outputs: of_parameters }.launch(call, "parameters")
    }

    fn launch_elements(
        &self,
        call: &CudaCall,
        count: usize,
        gates: Option<&DeviceArray<'_, T>>,
        old_cell: Option<&DeviceViewMut<'_, T>>,
    ) -> Result<()> {
        let all: Vec<&dyn DeviceTensor> = self.elements.iter().map(|own| own as &dyn DeviceTensor).collect();
        let index = Index::of(&all);
        let mut launch = call.kernel(format!("elements<{}, {}>", T::NAME, index.name())).for_each(count);
        for tensor in all {
            launch = launch.tensor::<2>(tensor, index);
        }
        let launch = launch.optional_pointer(gates.map(|gates| gates as &dyn DeviceTensor));
        let launch = launch.optional_pointer(old_cell.map(|grad| grad as &dyn DeviceTensor));
        // SAFETY: as above; the two outputs are dense, and null where nobody wants them.
        unsafe { launch.launch() }
    }
}

/// A product of the gates' gradients with another matrix, of which the columns in a window are wanted.
struct Product<'a, T> {
    gates: &'a DeviceArray<'a, T>,
    other: &'a DeviceView<'a, T>,
    rows: usize,
    window: (usize, usize),
    outputs: [&'a Option<DeviceViewMut<'a, T>>; 2],
}

impl<T: CudaElement> Product<'_, T> {
    fn launch(&self, call: &CudaCall, kernel: &str) -> Result<()> {
        let (begin, end) = self.window;
        if end <= begin {
            return Ok(());
        }
        let outputs = self.outputs.map(|output| output.as_ref().map(|output| output as &dyn DeviceTensor));
        let both = [self.gates as &dyn DeviceTensor, self.other];
        let all: Vec<&dyn DeviceTensor> = both.into_iter().chain(outputs.into_iter().flatten()).collect();
        let index = Index::of(&all);
        let Tiles { edges: [edge, _], depth, blocks } = Tiles::new::<T>(self.rows, end - begin, [4, 4], 1);
        let kernel = format!("{kernel}<{}, {}, {edge}, {depth}>", T::NAME, index.name());
        let launch = call.kernel(kernel).grid([blocks, 1, 1]).block([SIDE as u32, SIDE as u32, 1]);
        let launch = launch.tensor::<2>(self.gates, index).tensor::<2>(self.other, index);
        let mut launch = launch.index(begin, index).index(end, index);
        for output in outputs {
            launch = launch.optional_pointer(output);
        }
        // SAFETY: as above; of the outputs, those columns are written that are in the window, which leaves out what is absent.
        unsafe { launch.launch() }
    }
}
