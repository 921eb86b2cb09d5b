//! What a call is computed in: nests, and products of matrices between them.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use opsmith_body::code::{Held, Lies, Vectors};
use opsmith_body::{Axes, Axis, Graph, Kind, Nest, Nests, Part, Place, Product, Products};
use opsmith_core::tensor::Extents;
use opsmith_core::{Compute, Result};

use super::axes::Lie;
use super::made::{Made, Native};
use super::memory::{Address, Operand, Task};
use super::{Argument, bytes, bytes_of, is_possible, matrices};
use crate::kept::Kept;
use crate::stored::Stored;

/// How stages are run.
#[derive(Clone, Copy)]
pub(super) struct Way {
    /// Whether machine code is allowed.
    pub(super) is_native: bool,
    /// Products that sum along this axis add to what there is.
    pub(super) adds: Option<Axis>,
    /// How many multiplications there are in a part of a product, each of which a thread computes.
    pub(super) of_a_part: usize,
}

/// What is computed, one after another.
pub(super) struct Stages {
    /// The axes of each array of temporary memory that stages share.
    temporaries: Vec<Axes>,
    stages: Vec<Stage>,
}

/// What is computed at once.
enum Stage {
    /// Nests that read the inputs and all temporaries, and as machine code those that can be.
    Nests { nests: Arc<Nests>, natives: Vec<Option<Native>>, outputs: Vec<Place> },
    /// A product of matrices.
    Product(Product),
}

/// What nests are the same for: the classes of sizes, which numbers lie one after another, and the graph.
#[derive(PartialEq)]
pub(super) struct Shape {
    sizes: Vec<usize>,
    dense: Vec<Axes>,
    graph: Graph,
}

impl Stages {
    /// Of a graph that was cut at products, whose arguments lie so, the inputs first; `known` are nests that were made for other sizes,
    /// and the threads of `compute` make code.
    pub(super) fn new<T: Stored>(
        Products { temporaries, parts }: Products,
        (sizes, own): (&[usize], usize),
        (given, inputs): (&[Lies], usize),
        (known, compute): (&Kept<Shape, Nests>, Option<&Compute<'_>>),
    ) -> Stages {
        let temporary = |axes: &Axes| Lie::dense(*axes, sizes, own).held(Held::Same, size_of::<T::Wide>());
        let stage = |part: Part| match part {
            Part::Product(product) => Stage::Product(product),
            Part::Graph(graph, outputs) => {
                let made = outputs.iter().map(|place| match *place {
                    Place::Input(input) => given[input],
                    Place::Output(output) => given[inputs + output],
                    Place::Temporary(array) => temporary(&temporaries[array]),
                });
                let read = given[..inputs].iter().copied().chain(temporaries.iter().map(temporary));
                let mut lies: Vec<Lies> = read.chain(made).collect();
                let dense: Vec<Axes> = lies.iter().map(|lies| lies.dense).collect();
                let shape = Shape { sizes: Nests::classes(sizes), dense, graph };
                let nests = known.get(shape, |shape| Nests::new(&shape.graph, &shape.sizes, &shape.dense));
                lies.extend(nests.temporaries.iter().map(temporary));
                let counts = (inputs + temporaries.len(), outputs.len());
                let natives = natives::<T>(sizes, &nests, counts, &lies, compute);
                Stage::Nests { nests, natives, outputs }
            }
        };
        let stages = parts.into_iter().map(stage).collect();
        Stages { temporaries, stages }
    }

    /// Computes the outputs, which come after all inputs.
    ///
    /// # Safety
    /// As [`Runner::run`](super::Runner::run), for arguments that lie as those that this was made for.
    pub(super) unsafe fn run<T: Stored>(
        &self,
        compute: &Compute<'_>,
        (sizes, own): (&[usize], usize),
        (arguments, lies): (&[Argument], &[Lie]),
        inputs: usize,
        way: Way,
    ) -> Result<()> {
        let room = Room { compute, sizes, own };
        let mut arrays = Arrays::<T>::default();
        let read = inputs + self.temporaries.len();
        arguments[..inputs].iter().zip(lies).for_each(|(argument, lie)| arrays.push(*argument, lie));
        self.temporaries.iter().try_for_each(|axes| room.add(&mut arrays, *axes))?;
        arguments.iter().zip(lies).skip(inputs).for_each(|(argument, lie)| arrays.push(*argument, lie));
        let index = |place: &Place| match *place {
            Place::Input(input) => input,
            Place::Temporary(array) => inputs + array,
            Place::Output(output) => read + output,
        };
        for stage in &self.stages {
            match stage {
                Stage::Product(product) => {
                    let [a, b] = product.factors;
                    let all = [a, b, product.to].map(|place| &arrays.addresses[index(&place)]);
                    let adds = way.adds.is_some_and(|axis| product.summed.has(axis));
                    let product = Product { adds: product.adds || adds, ..*product };
                    // SAFETY: the graph was cut at products whose arrays are such numbers, or temporary memory.
                    unsafe { matrices::run::<T::Wide>(&product, sizes, all, (compute, way.of_a_part))? };
                }
                Stage::Nests { nests, natives, outputs } => {
                    let mut own = match self.stages.len() {
                        1 => std::mem::take(&mut arrays),
                        _ => arrays.of((0..read).chain(outputs.iter().map(index))),
                    };
                    nests.temporaries.iter().try_for_each(|axes| room.add(&mut own, *axes))?;
                    let Arrays { operands, addresses } = own;
                    let task = Task { nests, sizes, operands, addresses, counts: (read, outputs.len()) };
                    task.run(compute, if way.is_native { natives } else { &[] })?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
impl Stages {
    /// The nests of all stages, as machine code those that can be.
    pub(super) fn natives(&self) -> impl Iterator<Item = &Option<Native>> {
        self.stages.iter().flat_map(|stage| match stage {
            Stage::Nests { natives, .. } => natives.as_slice(),
            Stage::Product(_) => &[],
        })
    }
}

/// Arguments of a call and temporary memory, for the interpreter and for machine code.
struct Arrays<T: Stored> {
    operands: Vec<Operand<T>>,
    addresses: Vec<Address>,
}

impl<T: Stored> Default for Arrays<T> {
    fn default() -> Self {
        Arrays { operands: Vec::new(), addresses: Vec::new() }
    }
}

impl<T: Stored> Arrays<T> {
    fn push(&mut self, Argument { data, kind }: Argument, lie: &Lie) {
        self.operands.push(match data.is_null() {
            true => Operand::absent(),
            false => Operand::new(data, kind, lie),
        });
        self.addresses.push(Address::new(data, lie, bytes::<T>(kind)));
    }

    /// Some of them.
    fn of(&self, positions: impl Iterator<Item = usize> + Clone) -> Self {
        Arrays {
            operands: positions.clone().map(|position| self.operands[position].clone()).collect(),
            addresses: positions.map(|position| self.addresses[position].clone()).collect(),
        }
    }
}

/// Where temporary memory of a call comes from.
struct Room<'a, 'c> {
    compute: &'a Compute<'c>,
    sizes: &'a [usize],
    own: usize,
}

impl Room<'_, '_> {
    /// Adds temporary memory on some axes.
    fn add<T: Stored>(&self, arrays: &mut Arrays<T>, axes: Axes) -> Result<()> {
        let shape: Extents = axes.iter().map(|axis| self.sizes[axis.index()]).collect();
        let bytes = bytes_of(&shape, size_of::<T::Wide>())?;
        // What reads it does so after what writes all of it.
        let memory = self.compute.temp_bytes(bytes)?.cast::<T::Wide>().as_ptr();
        let lie = Lie::dense(axes, self.sizes, self.own);
        arrays.addresses.push(Address::new(memory.cast(), &lie, size_of::<T::Wide>()));
        arrays.operands.push(Operand::temporary(memory, &lie));
        Ok(())
    }
}

/// What there is, of this kind.
pub(super) fn held<T: Stored>(kind: Kind) -> Held {
    match kind {
        Kind::Number => T::HELD,
        Kind::Index => Held::Position,
        Kind::Mask => Held::Truth,
    }
}

/// Rows of so many long vectors are short.
const FEW_VECTORS: usize = 2;

/// The nests as machine code, for arguments and temporaries that lie so.
fn natives<T: Stored>(
    sizes: &[usize],
    nests: &Nests,
    counts: (usize, usize),
    lies: &[Lies],
    compute: Option<&Compute<'_>>,
) -> Vec<Option<Native>> {
    /// Roughly the nanoseconds that the code of a nest takes to make.
    const COST: usize = 200_000;
    if !is_possible(lies.iter().map(|lies| lies.held)) {
        return nests.nests.iter().map(|_| None).collect();
    }
    let best = Vectors::best(size_of::<T::Wide>() == 8);
    let is_short = |nest: &Nest| folds_few(nest, best, sizes);
    let is_one = nests.folds_again();
    let is_any_short = nests.nests.iter().any(is_short);
    let made = |nest: &Nest| {
        let wide = best.wide && !(if is_one { is_any_short } else { is_short(nest) });
        let vectors = Vectors { wide, ..best };
        Made { sizes, lies, counts, vectors }.native(nest)
    };
    let slots: Vec<OnceLock<Option<Native>>> = nests.nests.iter().map(|_| OnceLock::new()).collect();
    let make = |range: Range<usize>| {
        for nest in range {
            slots[nest].get_or_init(|| made(&nests.nests[nest]));
        }
    };
    match compute {
        Some(compute) => compute.parallel_for(slots.len(), COST, make),
        None => make(0..slots.len()),
    }
    slots.into_iter().map(|slot| slot.into_inner().flatten()).collect()
}

/// Whether a nest folds rows as short as a few vectors, for which shorter ones take less time.
fn folds_few(nest: &Nest, vectors: Vectors, sizes: &[usize]) -> bool {
    let folded = nest.lanes.filter(|lanes| !nest.free.has(*lanes));
    folded.is_some_and(|axis| sizes[axis.index()] <= FEW_VECTORS * vectors.width())
}
