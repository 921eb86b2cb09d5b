//! Calls of random graphs.

use opsmith_body::{Axes, Axis, Kind};
use opsmith_core::kernel::Compute;
use opsmith_core::tensor::Strides;

use super::graphs::{self, Made, Random};
use super::guarded::{FILL, Guarded, Threads};
use super::naive::{Array, each_position, evaluate};
use crate::nests::{Dim, Placed, Programs, Space};
use crate::stored::{Stored, Wide};

const SIZES: [usize; 17] = [0, 1, 1, 2, 2, 3, 3, 7, 8, 9, 15, 16, 17, 31, 33, 40, 70];
const LARGE: [usize; 6] = [130, 300, 257, 2100, 4099, 5000];
const WIDE_SIZES: [usize; 24] =
    [0, 1, 1, 2, 2, 3, 4, 4, 5, 7, 8, 8, 9, 15, 16, 16, 17, 31, 32, 33, 64, 64, 80, 128];
const WIDE_LARGE: [usize; 8] = [130, 256, 300, 257, 1024, 2100, 4096, 5000];
/// The most positions of all axes together, but for some graphs.
const MOST: usize = 12_000;

/// A tensor of a call.
struct Tensor {
    kind: Kind,
    /// Along all dims of the space.
    strides: Vec<isize>,
    /// Its own dims: those along which it does not stay where it is, or has one position.
    shape: Vec<usize>,
    /// How many elements are before its first, and all.
    before: usize,
    count: usize,
    is_absent: bool,
}

/// What came out.
#[derive(Default)]
pub(super) struct Outcome {
    pub(super) sliced: usize,
    pub(super) nests: usize,
    pub(super) natives: usize,
    /// How many of them have tiles, and copies.
    pub(super) tiled: usize,
    pub(super) packed: usize,
    pub(super) is_odd: bool,
    pub(super) failures: Vec<String>,
}

pub(super) struct Call {
    made: Made,
    /// Of each dim its size and axis.
    dims: Vec<(usize, Option<usize>)>,
    sizes: Vec<usize>,
    inputs: Vec<Tensor>,
    outputs: Vec<Tensor>,
    wanted: Vec<usize>,
    pub(super) has_specials: bool,
}

impl Call {
    pub(super) fn new(random: &mut Random) -> Self {
        let dims = dims(random);
        Call::of(random, dims, graphs::graph)
    }

    /// A call of what is made for the sizes of the axes, in a space of these dims.
    pub(super) fn of(
        random: &mut Random,
        dims: Vec<(usize, Option<usize>)>,
        make: impl FnOnce(&mut Random, &[usize]) -> Made,
    ) -> Self {
        let count = dims.iter().filter_map(|(_, axis)| *axis).max().unwrap_or(0) + 1;
        let size_of =
            |axis: usize| dims.iter().filter(|(_, own)| *own == Some(axis)).map(|(size, _)| size).product();
        let sizes: Vec<usize> = (0..count).map(size_of).collect();
        let made = make(random, &sizes);
        let mut tensors = |arguments: &[(Axes, Kind)], is_output: bool| -> Vec<Tensor> {
            arguments.iter().map(|(axes, kind)| Tensor::new(random, &dims, *axes, *kind, is_output)).collect()
        };
        let (inputs, outputs) = (tensors(&made.inputs, false), tensors(&made.outputs, true));
        let mut wanted: Vec<usize> = (0..outputs.len()).filter(|_| !random.one_in(4)).collect();
        if wanted.is_empty() {
            wanted.push(0);
        }
        let has_specials = random.one_in(if random.is_wide { 2 } else { 5 });
        Call { made, dims, sizes, inputs, outputs, wanted, has_specials }
    }

    pub(super) fn describe(&self) -> String {
        let of = |tensors: &[Tensor]| {
            let each = |own: &Tensor| format!("{:?}{:?}", own.kind, own.strides);
            tensors.iter().map(each).collect::<Vec<_>>().join(" ")
        };
        format!(
            "dims {:?} inputs {} outputs {} wanted {:?}\n{}",
            self.dims,
            of(&self.inputs),
            of(&self.outputs),
            self.wanted,
            self.made.graph.formula()
        )
    }

    /// Runs it in all ways.
    pub(super) fn compare<T: Stored>(&self, random: &mut Random) -> Outcome {
        let at_end = random.one_in(2);
        let inputs: Vec<Guarded> =
            self.inputs.iter().map(|own| self.filled::<T>(own, random, at_end)).collect();
        let programs = Programs::new(self.made.graph.clone());
        let mut outcome = Outcome::default();
        let run =
            |threads: usize, is_native: bool| self.run::<T>(&programs, &inputs, at_end, threads, is_native);
        let (native, is_clean) = run(1, true);
        if !is_clean {
            outcome.failures.push("code wrote around an output".into());
        }
        if run(3, true).0 != native {
            outcome.failures.push("other bits with other threads".into());
        }
        let (interpreted, _) = run(1, false);
        for cut in programs.known.all() {
            outcome.sliced += usize::from(cut.is_sliced());
            outcome.nests += cut.natives().len();
            outcome.natives += cut.natives().into_iter().flatten().count();
            outcome.tiled += cut.natives().into_iter().flatten().filter(|native| native.has().0).count();
            outcome.packed += cut.natives().into_iter().flatten().filter(|native| native.has().1).count();
        }
        let expected = self.expected::<T>(&inputs);
        for (index, &output) in self.wanted.iter().enumerate() {
            let tensor = &self.outputs[output];
            let read = |bytes: &[u8]| tensor.numbers::<T>(bytes);
            let (code, other) = (read(&native[index]), read(&interpreted[index]));
            // What rounding decides, as where two distances are all but equal, is not the same for the reference either.
            let is_odd = self.differs::<T>(tensor, &other, &expected[index], &expected[index]).is_some();
            outcome.is_odd |= is_odd;
            if let Some(failure) = self.differs::<T>(tensor, &code, &other, &expected[index])
                && !is_odd
            {
                outcome
                    .failures
                    .push(format!("output {output} of {}: {failure}", std::any::type_name::<T>()));
            }
        }
        if !outcome.failures.is_empty() {
            outcome.failures.push(self.describe());
        }
        outcome
    }

    /// What differs between two arrays, if something does; `None` is where nothing was to be written.
    fn differs<T: Stored>(
        &self,
        tensor: &Tensor,
        ours: &[Option<f64>],
        theirs: &[Option<f64>],
        expected: &[Option<f64>],
    ) -> Option<String> {
        let finite = |number: &Option<f64>| number.filter(|number| number.is_finite()).map_or(0.0, f64::abs);
        let scale =
            1.0 + expected.iter().zip(theirs).map(|(a, b)| finite(a).max(finite(b))).fold(0.0, f64::max);
        let epsilon = match (size_of::<T>(), size_of::<T::Wide>()) {
            (8, _) => 1e-9,
            (4, _) => 2e-4,
            _ => 2e-2,
        };
        let tolerance = if tensor.kind == Kind::Number { epsilon * scale } else { 0.0 };
        for (index, ((a, b), exact)) in ours.iter().zip(theirs).zip(expected).enumerate() {
            if exact.is_none() {
                if a.is_some() {
                    return Some(format!("{a:?} was written at {index}, where nothing belongs"));
                }
                continue;
            }
            let (Some(a), Some(b)) = (a, b) else { return Some(format!("nothing was written at {index}")) };
            let is_no_position = tensor.kind == Kind::Index && exact.is_some_and(|exact| !exact.is_finite());
            let is_same =
                a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= tolerance || is_no_position;
            if !is_same {
                return Some(format!("{a} is not {b} at {index}, {exact:?} expected, scale {scale}"));
            }
        }
        None
    }

    /// The bytes of the wanted outputs, and whether nothing was written around them.
    fn run<T: Stored>(
        &self,
        programs: &Programs,
        inputs: &[Guarded],
        at_end: bool,
        threads: usize,
        is_native: bool,
    ) -> (Vec<Vec<u8>>, bool) {
        let memory: Vec<Guarded> =
            self.wanted.iter().map(|output| self.outputs[*output].room::<T>(at_end)).collect();
        let outputs = self.wanted.iter().map(|output| &self.outputs[*output]);
        let placed: Vec<Placed> = (self.inputs.iter().zip(inputs))
            .chain(outputs.zip(&memory))
            .map(|(tensor, memory)| tensor.placed::<T>(memory))
            .collect();
        let dims: Vec<Dim> = self.dims.iter().map(|(size, axis)| Dim { size: *size, axis: *axis }).collect();
        let space = Space { dims: &dims, axes: self.sizes.len() };
        let services = Threads::new(threads);
        let compute = Compute::new(&services);
        // SAFETY: there is memory for all elements.
        let done = unsafe { programs.run_on::<T>(&compute, &space, &self.wanted, &placed, is_native) };
        done.unwrap();
        let is_clean = memory.iter().all(Guarded::is_clean_around);
        (memory.iter().map(Guarded::bytes).collect(), is_clean)
    }

    /// An input with random elements.
    fn filled<T: Stored>(&self, tensor: &Tensor, random: &mut Random, at_end: bool) -> Guarded {
        let memory = tensor.room::<T>(at_end);
        let specials =
            [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, 1e-40, -1e-42, 5e-324, 6e-8, 1e-310];
        let specials = if random.is_wide { &specials[..] } else { &specials[..5] };
        for index in 0..tensor.count {
            // SAFETY: there are so many elements.
            unsafe {
                match tensor.kind {
                    Kind::Number => {
                        let number = match self.made.is_exact {
                            _ if self.has_specials && random.one_in(12) => random.of(specials),
                            true => random.below(7) as f64 - 3.0,
                            false => random.number(),
                        };
                        let wide = T::Wide::of_double(number);
                        let mut block = opsmith_body::Block::default();
                        block.0[0] = wide;
                        let to = memory.data().cast::<T>().add(index);
                        T::narrow(
                            opsmith_body::Level::best(),
                            &block.0,
                            std::slice::from_raw_parts_mut(to, 1),
                        );
                    }
                    Kind::Index => memory.data().cast::<i64>().add(index).write(random.below(9) as i64 - 1),
                    Kind::Mask => memory.data().add(index).write(random.of(&[0, 1, 1, 2, 255])),
                }
            }
        }
        memory
    }

    /// What the reference gives for the wanted outputs, where they are.
    fn expected<T: Stored>(&self, inputs: &[Guarded]) -> Vec<Vec<Option<f64>>> {
        let arrays: Vec<Vec<Option<f64>>> =
            self.inputs.iter().zip(inputs).map(|(own, memory)| own.numbers::<T>(&memory.bytes())).collect();
        // What is not there counts as nothing: what it would be multiplied by may be infinite.
        let is_absent = |input: usize| self.inputs[input].is_absent;
        let graph = self.made.graph.with_outputs(&self.wanted).without_inputs(is_absent);
        let mut expected: Vec<Vec<Option<f64>>> =
            self.wanted.iter().map(|output| self.outputs[*output].zeros(&self.dims)).collect();
        let batch: Vec<usize> =
            self.dims.iter().filter(|(_, axis)| axis.is_none()).map(|(size, _)| *size).collect();
        let axes = |count: usize| Axes::at(&(0..count).collect::<Vec<_>>());
        each_position(axes(batch.len()), &batch, |outer| {
            let given: Vec<Array> = (self.inputs.iter().zip(&arrays).zip(&self.made.inputs))
                .map(|((tensor, numbers), (axes, _))| {
                    let mut own = Vec::new();
                    each_position(*axes, &self.sizes, |at| {
                        let place = || numbers[self.place(tensor, outer, at, *axes)].unwrap_or(f64::NAN);
                        own.push(match tensor.kind {
                            _ if tensor.is_absent => 0.0,
                            Kind::Mask => place().min(1.0),
                            _ => place(),
                        });
                    });
                    Array { axes: *axes, numbers: own }
                })
                .collect();
            let results = evaluate(&graph, &self.sizes, &given);
            for ((result, output), expected) in results.iter().zip(&self.wanted).zip(&mut expected) {
                let axes = self.made.outputs[*output].0;
                each_position(axes, &self.sizes, |at| {
                    let place = self.place(&self.outputs[*output], outer, at, axes);
                    let number = result.numbers[result.index(&self.sizes, at)];
                    expected[place] = expected[place].map(|sum| sum + number);
                });
            }
        });
        expected
    }

    /// Where the element for a position of the batch and of axes is.
    fn place(&self, tensor: &Tensor, outer: &[usize], at: &[usize], axes: Axes) -> usize {
        let (mut rest, mut outer) = (at.to_vec(), outer.iter().rev());
        let mut place = tensor.before as isize;
        for ((size, axis), stride) in self.dims.iter().zip(&tensor.strides).rev() {
            let position = match axis {
                None => *outer.next().unwrap_or(&0),
                Some(axis) if !axes.has(Axis::new(*axis)) => 0,
                Some(axis) => {
                    let own = &mut rest[*axis];
                    let position = *own % size;
                    *own /= size;
                    position
                }
            };
            place += position as isize * stride;
        }
        place as usize
    }
}

/// Sizes and axes: one to four axes, some of two dims, and a batch.
fn dims(random: &mut Random) -> Vec<(usize, Option<usize>)> {
    let axes = 1 + random.below(4);
    let most = if random.one_in(12) { 8 * MOST } else { MOST };
    loop {
        let mut dims = Vec::new();
        if random.one_in(3) {
            (0..1 + random.below(2)).for_each(|_| dims.push((random.of(&[0, 1, 2, 3, 5, 17]), None)));
        }
        for axis in 0..axes {
            let size = match (random.one_in(8), random.is_wide) {
                (true, false) => random.of(&LARGE),
                (false, false) => random.of(&SIZES),
                (true, true) => random.of(&WIDE_LARGE),
                (false, true) => random.of(&WIDE_SIZES),
            };
            if random.one_in(10) {
                dims.push((random.of(&[1, 2, 3, 4]), Some(axis)));
            }
            dims.push((size, Some(axis)));
        }
        let empty = dims.iter().filter(|(size, _)| *size == 0).count();
        if dims.iter().map(|(size, _)| (*size).max(1)).product::<usize>() <= most
            && (empty == 0 || random.one_in(6))
        {
            return dims;
        }
    }
}

impl Tensor {
    fn new(
        random: &mut Random,
        dims: &[(usize, Option<usize>)],
        axes: Axes,
        kind: Kind,
        is_output: bool,
    ) -> Self {
        let has_batch = !random.one_in(3);
        let mut own: Vec<usize> = (0..dims.len())
            .filter(|dim| dims[*dim].1.map_or(has_batch, |axis| axes.has(Axis::new(axis))))
            .filter(|dim| dims[*dim].1.is_some() || !random.one_in(5))
            .collect();
        let stays = if is_output { if kind == Kind::Number { 30 } else { usize::MAX } } else { 12 };
        if is_output && kind != Kind::Number {
            // What is no number cannot be summed.
            own = (0..dims.len())
                .filter(|dim| dims[*dim].1.is_none_or(|axis| axes.has(Axis::new(axis))))
                .collect();
        }
        own.retain(|_| !random.one_in(stays));
        let shape: Vec<usize> = own.iter().map(|dim| dims[*dim].0).collect();
        if random.one_in(3) {
            for index in (1..own.len()).rev() {
                own.swap(index, random.below(index + 1));
            }
        }
        let mut strides = vec![0; dims.len()];
        let mut next = if random.one_in(5) { 2 } else { 1 };
        let (mut before, mut count) = (0, 1);
        for dim in own.iter().rev() {
            let size = dims[*dim].0.max(1);
            strides[*dim] = next as isize;
            count += (size - 1) * next;
            if random.one_in(8) {
                strides[*dim] = -strides[*dim];
                before += (size - 1) * next;
            }
            next *= size;
            if random.one_in(10) {
                next += 1;
            }
        }
        let is_empty = shape.contains(&0);
        if is_empty {
            own.iter().for_each(|dim| strides[*dim] = 1);
            (before, count) = (0, 0);
        }
        let is_absent = !is_output && random.one_in(25);
        if is_absent {
            strides.fill(0);
        }
        Tensor { kind, strides, shape, before, count, is_absent }
    }

    fn element<T>(&self) -> usize {
        match self.kind {
            Kind::Number => size_of::<T>(),
            Kind::Index => 8,
            Kind::Mask => 1,
        }
    }

    fn room<T>(&self, at_end: bool) -> Guarded {
        Guarded::new(self.count * self.element::<T>(), at_end)
    }

    fn placed<T>(&self, memory: &Guarded) -> Placed {
        let strides = Strides::from_slice(&self.strides);
        if self.is_absent {
            return Placed::absent(self.kind, strides.len());
        }
        Placed::new(
            memory.data().wrapping_add(self.before * self.element::<T>()),
            &self.shape,
            self.kind,
            strides,
        )
    }

    /// 0 where it has an element.
    fn zeros(&self, dims: &[(usize, Option<usize>)]) -> Vec<Option<f64>> {
        let mut numbers = vec![None; self.count];
        if self.count > 0 {
            let sizes: Vec<usize> = dims
                .iter()
                .zip(&self.strides)
                .map(|((size, _), stride)| if *stride == 0 { 1 } else { *size })
                .collect();
            let all = Axes::at(&(0..sizes.len()).collect::<Vec<_>>());
            each_position(all, &sizes, |at| {
                let place: isize =
                    at.iter().zip(&self.strides).map(|(at, stride)| *at as isize * stride).sum();
                numbers[(self.before as isize + place) as usize] = Some(0.0);
            });
        }
        numbers
    }

    /// Its elements; none where nothing was written.
    fn numbers<T: Stored>(&self, bytes: &[u8]) -> Vec<Option<f64>> {
        let element = self.element::<T>();
        let of = |bytes: &[u8]| {
            if bytes.iter().all(|byte| *byte == FILL) {
                return None;
            }
            // SAFETY: an element is there, and all bits are a number.
            Some(unsafe {
                match self.kind {
                    Kind::Number => {
                        let mut block = opsmith_body::Block::default();
                        T::widen_few(
                            opsmith_body::Level::best(),
                            &[bytes.as_ptr().cast::<T>().read_unaligned()],
                            &mut block,
                        );
                        block.0[0].double()
                    }
                    Kind::Index => bytes.as_ptr().cast::<i64>().read_unaligned() as f64,
                    Kind::Mask => f64::from(bytes[0]),
                }
            })
        };
        bytes.chunks_exact(element).map(of).collect()
    }
}
