//! Graphs over axes, run over tensors: cut into [`Nests`] of loops for the sizes and strides of a call.

mod axes;
mod card;
mod cut;
mod machine;
mod made;
mod matrices;
mod memory;
mod native;
mod packed;
mod pages;
mod run;
mod settled;
mod slices;
mod stages;
#[cfg(test)]
mod tests;
mod widened;
mod work;

use std::sync::Arc;

use half::{bf16, f16};
use opsmith_body::{Axes, Axis, Graph, Kind, Nests};
use opsmith_core::space::Layout;
use opsmith_core::tensor::{Extents, Strides, TensorView};
use opsmith_core::{Compute, DType, DeviceKind, Error, OpKernelConstruction, OpKernelContext, Result, bail};
use smallvec::SmallVec;

use self::axes::Spread;
use self::card::OnCard;
use self::cut::Cut;
pub(crate) use self::native::is_possible;
pub(crate) use self::pages::Pages;
pub(crate) use self::settled::StandIns;
use self::stages::Shape;
use crate::kept::{Kept, Presence, bits};
use crate::stored::Stored;

/// A dim of the space in which a graph is computed.
pub(crate) struct Dim {
    pub(crate) size: usize,
    /// The axis of the graph that it is of, alone or with other dims; none of a batch.
    pub(crate) axis: Option<usize>,
}

/// A tensor of a call.
pub(crate) struct Placed {
    /// Where it begins; null if there are no elements.
    pub(crate) data: *mut u8,
    /// Whether the call does not have it.
    pub(crate) is_absent: bool,
    pub(crate) kind: Kind,
    /// Its strides along all dims of the space, 0 along those that it does not have.
    pub(crate) strides: Strides,
}

impl Placed {
    /// A tensor of this shape.
    pub(crate) fn new(data: *mut u8, shape: &[usize], kind: Kind, strides: Strides) -> Placed {
        let is_empty = shape.contains(&0);
        Placed { data: if is_empty { std::ptr::null_mut() } else { data }, is_absent: false, kind, strides }
    }

    /// What a call of a space with so many dims does not have.
    pub(crate) fn absent(kind: Kind, dims: usize) -> Placed {
        let strides = Strides::from_elem(0, dims);
        Placed { data: std::ptr::null_mut(), is_absent: true, kind, strides }
    }
}

/// Where a tensor begins, how many bytes an element has, and how it lies.
#[derive(Clone, Copy)]
pub(crate) struct Lying<'a> {
    pub(crate) data: *mut u8,
    pub(crate) size: usize,
    pub(crate) layout: Layout<'a>,
}

impl<'a> From<TensorView<'a>> for Lying<'a> {
    fn from(view: TensorView<'a>) -> Lying<'a> {
        Lying { data: view.data_ptr().cast_mut(), size: view.dtype().size(), layout: view.layout() }
    }
}

/// The arguments of a call that are there.
#[derive(Default)]
pub(crate) struct Arguments {
    pub(crate) placed: SmallVec<[Placed; 8]>,
    /// The outputs of the graph among them.
    pub(crate) wanted: SmallVec<[usize; 8]>,
    /// Which tensor of the call each is, or is a part of: the inputs, then the outputs that are made.
    pub(crate) tensors: SmallVec<[usize; 8]>,
}

/// Where an argument of a call begins, null if it has no elements, and what it is.
#[derive(Clone, Copy)]
pub(super) struct Argument {
    data: *mut u8,
    kind: Kind,
}

impl From<&Placed> for Argument {
    fn from(placed: &Placed) -> Argument {
        Argument { data: placed.data, kind: placed.kind }
    }
}

/// A graph, and how an instance of an op computes it.
pub(crate) enum Runner {
    Processor(Box<Programs>, DType),
    Card(Box<OnCard>),
}

impl Runner {
    /// For the device of an instance. What `has_rows` computes has a number for each element of the batch, of which there are many.
    pub(crate) fn new(
        construction: &OpKernelConstruction<'_>,
        graph: Graph,
        has_rows: bool,
    ) -> Result<Runner> {
        Ok(match construction.device() {
            DeviceKind::Cpu => Runner::Processor(Box::new(Programs::new(graph)), construction.attr("T")?),
            _ => Runner::Card(Box::new(OnCard::new(construction, graph, has_rows)?)),
        })
    }

    /// Computes the wanted outputs, which come after all inputs.
    ///
    /// # Safety
    /// The elements that the strides reach along the space must be readable for the call, those of outputs writable and nobody else's.
    pub(crate) unsafe fn run(
        &self,
        context: &OpKernelContext<'_>,
        space: &Space<'_>,
        wanted: &[usize],
        placed: &[Placed],
    ) -> Result<()> {
        let (programs, dtype) = match self {
            Runner::Processor(programs, dtype) => (programs, dtype),
            // SAFETY: promised by the caller.
            Runner::Card(card) => return unsafe { card.run(context, space, wanted, placed) },
        };
        // SAFETY: as above.
        unsafe {
            match dtype {
                DType::Float32 => programs.run::<f32>(context, space, wanted, placed),
                DType::Float64 => programs.run::<f64>(context, space, wanted, placed),
                DType::Float16 => programs.run::<f16>(context, space, wanted, placed),
                DType::BFloat16 => programs.run::<bf16>(context, space, wanted, placed),
                other => bail!(Internal, "no body computes with {other}"),
            }
        }
    }
}

/// What nests are made for.
#[derive(Clone, PartialEq)]
struct Variant {
    given: Presence,
    /// The sizes of the axes, and those of them that stand for an axis of the graph together.
    sizes: Extents,
    groups: SmallVec<[(usize, Axes); 2]>,
    /// The strides of each input, then of each wanted output, along all axes.
    strides: SmallVec<[isize; 24]>,
    /// The arguments that have no elements, as bits.
    empty: u64,
}

/// A graph, and the nests that it was cut into.
pub(crate) struct Programs {
    graph: Graph,
    known: Kept<Variant, Cut>,
    /// The nests of variants, which several of them share.
    nests: Kept<Shape, Nests>,
}

/// The shapes of a call: all dims, and how many axes the graph has.
pub(crate) struct Space<'a> {
    pub(crate) dims: &'a [Dim],
    pub(crate) axes: usize,
}

impl Programs {
    pub(crate) fn new(graph: Graph) -> Programs {
        Programs { graph, known: Kept::default(), nests: Kept::default() }
    }

    /// # Safety
    /// As [`Runner::run`].
    unsafe fn run<T: Stored>(
        &self,
        context: &OpKernelContext<'_>,
        space: &Space<'_>,
        wanted: &[usize],
        placed: &[Placed],
    ) -> Result<()> {
        // SAFETY: promised by the caller.
        unsafe { self.run_on::<T>(&context.compute(), space, wanted, placed, true) }
    }

    /// The same on some threads, as machine code only if that is allowed, for tests compare.
    ///
    /// # Safety
    /// As [`run`](Self::run).
    unsafe fn run_on<T: Stored>(
        &self,
        compute: &Compute<'_>,
        space: &Space<'_>,
        wanted: &[usize],
        placed: &[Placed],
        is_native: bool,
    ) -> Result<()> {
        let ready = self.ready::<T>(space, wanted, placed, Some(compute))?;
        let arguments: SmallVec<[Argument; 8]> = placed.iter().map(Argument::from).collect();
        // SAFETY: promised by the caller; it is ready for arguments that lie so.
        unsafe { ready.run::<T>(compute, &arguments, is_native) }
    }

    /// The nests for arguments that lie so, made by the threads of a call if it is one.
    fn ready<T: Stored>(
        &self,
        space: &Space<'_>,
        wanted: &[usize],
        placed: &[Placed],
        compute: Option<&Compute<'_>>,
    ) -> Result<Ready> {
        let Spread { sizes, groups, lies } = Spread::new(space, placed)?;
        let empty = placed.iter().enumerate().filter(|(_, placed)| placed.data.is_null());
        let key = Variant {
            given: Presence { wanted: bits(wanted.iter().copied()), absent: absent(placed) },
            strides: lies.iter().flat_map(|lie| &lie.along[..sizes.len()]).copied().collect(),
            empty: bits(empty.map(|(argument, _)| argument)),
            sizes: sizes.clone(),
            groups,
        };
        let inputs = placed.len() - wanted.len();
        let cut =
            self.known.get(key, |key| self.cut::<T>(key, (inputs, space.axes), (placed, &lies), compute));
        Ok(Ready { cut, sizes, own: space.axes, lies, inputs })
    }

    /// What a variant is cut into.
    fn cut<T: Stored>(
        &self,
        key: &Variant,
        (inputs, own): (usize, usize),
        (placed, lies): (&[Placed], &[axes::Lie]),
        compute: Option<&Compute<'_>>,
    ) -> Cut {
        let axes: Vec<Axes> = lies.iter().map(|lie| lie.axes).collect();
        let graph = key.given.part(&self.graph);
        let graph =
            key.groups.iter().fold(graph, |graph, (axis, group)| graph.spread(*axis, *group, &key.sizes));
        let of_groups = key.groups.iter().fold(Axes::NONE, |all, (_, group)| all.union(*group));
        let batch =
            (own..key.sizes.len()).map(|axis| Axes::of(Axis::new(axis))).fold(Axes::NONE, Axes::union);
        let graph = graph.lying_on(&axes[..inputs], &axes[inputs..], batch.minus(of_groups), &key.sizes);
        Cut::new::<T>(graph, (&key.sizes, own), (placed, lies), inputs, (&self.nests, compute))
    }
}

/// The nests for arguments that lie in some way.
struct Ready {
    cut: Arc<Cut>,
    sizes: Extents,
    /// How many of the axes are the graph's own.
    own: usize,
    lies: SmallVec<[axes::Lie; 8]>,
    inputs: usize,
}

impl Ready {
    /// # Safety
    /// As [`Runner::run`], for arguments that lie so.
    unsafe fn run<T: Stored>(
        &self,
        compute: &Compute<'_>,
        arguments: &[Argument],
        is_native: bool,
    ) -> Result<()> {
        let (sizes, lies, inputs) = ((&self.sizes[..], self.own), &self.lies[..], self.inputs);
        // SAFETY: promised by the caller; copies lie as the arguments do.
        unsafe {
            if !self.cut.is_widened {
                return self.cut.run::<T>(compute, sizes, (arguments, lies), inputs, is_native);
            }
            widened::with_copies::<T>(compute, sizes.0, (arguments, lies), inputs, |wide| {
                self.cut.run::<T::Wide>(compute, sizes, (wide, lies), inputs, is_native)
            })
        }
    }
}

/// The inputs that a call does not have, as bits.
fn absent(placed: &[Placed]) -> u64 {
    bits(placed.iter().enumerate().filter(|(_, placed)| placed.is_absent).map(|(argument, _)| argument))
}

/// How many bytes an element has.
fn bytes<T: Stored>(kind: Kind) -> usize {
    match kind {
        Kind::Number => size_of::<T>(),
        Kind::Index => size_of::<i64>(),
        Kind::Mask => size_of::<u8>(),
    }
}

/// How many bytes temporary memory of this shape takes.
///
/// # Errors
/// `ResourceExhausted` if no memory has so many.
pub(crate) fn bytes_of(shape: &[usize], element: usize) -> Result<usize> {
    let bytes = shape.iter().try_fold(element, |bytes, &dim| bytes.checked_mul(dim));
    bytes.ok_or_else(|| Error::resource_exhausted(format!("a temporary of {shape:?} is too large")))
}
