//! Graphs over axes on a card: a kernel for each nest, one after another.

use opsmith_body::{Axes, Axis, CudaType, Graph, Kind, Nest, Nests, Step, Tile};
use opsmith_core::space::{Extents, IndexSpace, Strides, row_major_strides};
use opsmith_core::{DType, OpKernelConstruction, OpKernelContext, Result, bail, ensure};
use opsmith_cuda::{CudaCall, Index, KernelCall, Source, Structure};
use smallvec::SmallVec;

use super::axes::merged;
use super::{Placed, Space, absent, bytes_of};
use crate::cuda::{are_wider, attributes, operands, size_of_terms, sum_to};
use crate::explain::cuda_type;
use crate::kept::{Kept, Presence, bits};

/// From how many elements of the batch on there are rows enough for a card.
const MANY: usize = 16;
/// So many positions keep a card busy with a thread for each.
const BUSY: usize = 1 << 16;
/// The most bytes of a kernel's parameters, from CUDA 12.1 on. Before that, NVRTC and the driver refuse more than 4,096.
const MOST_PARAMETERS: usize = 32_764;
/// The least turns of a loop that threads share, and the least of each that are worth a thread of another block.
const LEAST_SHARED: usize = 32;
const LEAST_SPLIT: usize = 16;
/// The threads of a block that shares loops: as many have room for all registers that a kernel may use.
const SHARING: usize = 256;
/// So many blocks keep every card busy.
const BLOCKS: usize = 1024;
/// So many tiles keep a card busy; fewer take less time too where they save folds that would be computed again for each position.
const MANY_TILES: usize = 32;
const FEW_TILES: usize = 4;
/// Tiles along fewer positions than this are mostly empty.
const LEAST_TILED: usize = 16;

/// A graph, and what it was cut into for a card.
pub(crate) struct OnCard {
    graph: Graph,
    name: String,
    dtype: DType,
    element: CudaType,
    has_rows: bool,
    /// For what is given, the outputs that are terms of sums, and what else tells kernels apart.
    sources: Kept<(Presence, u64, usize), Source>,
    /// For what is given, and whether there are many rows.
    nests: Kept<(Presence, bool), Nests>,
}

/// Numbers that are summed up for an output which is the same along some dims.
struct Repeated {
    from: *mut u8,
    all: Extents,
    to: *mut u8,
    own: Extents,
}

/// The axes of a call and the batch, as kernels go through them.
struct Dims {
    /// Of each axis, then of the batch, its dims and how many of them kernels have: of an axis one at least.
    groups: Vec<(IndexSpace, usize)>,
    /// Whether each axis has one dim.
    is_flat: bool,
}

/// The grid of a launch whose loops threads share, and the structure `Split`.
type SharedGrid = ([usize; 3], Vec<u8>);

impl OnCard {
    pub(super) fn new(
        construction: &OpKernelConstruction<'_>,
        graph: Graph,
        has_rows: bool,
    ) -> Result<OnCard> {
        let signature = construction.signature();
        let dtype: DType = construction.attr("T")?;
        let Some(element) = cuda_type(dtype) else {
            bail!(Internal, "no body computes with {dtype}");
        };
        let name = signature.snake_name();
        let (sources, nests) = (Kept::default(), Kept::default());
        Ok(OnCard { graph, name, dtype, element, has_rows, sources, nests })
    }

    /// Computes the wanted outputs, which come after all inputs.
    ///
    /// # Safety
    /// As [`Programs::run`](super::Programs::run), on the card.
    pub(super) unsafe fn run(
        &self,
        context: &OpKernelContext<'_>,
        space: &Space<'_>,
        wanted: &[usize],
        placed: &[Placed],
    ) -> Result<()> {
        let inputs = placed.len() - wanted.len();
        let kinds: Vec<Kind> = placed.iter().map(|placed| placed.kind).collect();
        let mut operands: Vec<Placed> = Vec::with_capacity(placed.len());
        let mut sums: Vec<Repeated> = Vec::new();
        let axes: Vec<Axes> = self.graph.output_axes().collect();
        let mut terms = 0;
        for (position, own) in placed.iter().enumerate() {
            let (mut data, mut strides) = (own.data, own.strides.clone());
            if position >= inputs
                && let Some(sum) = self.repeated(context, space, axes[wanted[position - inputs]], own)?
            {
                terms |= are_wider(self.dtype) << (position - inputs);
                (data, strides) = (sum.0.from, sum.1);
                sums.push(sum.0);
            }
            operands.push(Placed { data, strides, ..*own });
        }
        let batch = space.dims.iter().filter(|dim| dim.axis.is_none()).map(|dim| dim.size).product::<usize>();
        let many = self.has_rows || batch >= MANY;
        let given = Presence { wanted: bits(wanted.iter().copied()), absent: absent(placed) };
        let nests = self.nests.get((given, many), |(given, many)| {
            Nests::for_card(&given.part(&self.graph), self.element, *many)
        });
        for &axes in &nests.temporaries {
            let is_own = |axis: Option<usize>| axis.is_none_or(|axis| axes.has(Axis::new(axis)));
            let own: Vec<usize> = (0..space.dims.len()).filter(|dim| is_own(space.dims[*dim].axis)).collect();
            let shape: Extents = own.iter().map(|dim| space.dims[*dim].size).collect();
            let bytes = bytes_of(&shape, size_of_terms(self.dtype))?;
            let data = context.device_temp(bytes.max(1))?.as_ptr();
            let strides = dense(space, &own);
            operands.push(Placed { data, is_absent: false, kind: Kind::Number, strides });
        }
        let kinds = (&kinds[..inputs], &kinds[inputs..]);
        self.launch(context, space, (&nests, given, many), (&operands, kinds, terms))?;
        sums.iter().try_for_each(|sum| sum_to(context, self.dtype, sum.from, &sum.all, sum.to, &sum.own))
    }

    /// Where the numbers of an output go that is the same along dims of what is computed, and their strides.
    fn repeated(
        &self,
        context: &OpKernelContext<'_>,
        space: &Space<'_>,
        axes: Axes,
        output: &Placed,
    ) -> Result<Option<(Repeated, Strides)>> {
        let is_own = |dim: &usize| space.dims[*dim].axis.is_none_or(|axis| axes.has(Axis::new(axis)));
        let all = (0..space.dims.len()).filter(is_own);
        let (summed, mut kept): (Vec<usize>, Vec<usize>) =
            all.partition(|dim| output.strides[*dim] == 0 && space.dims[*dim].size != 1);
        if summed.is_empty() || output.data.is_null() {
            return Ok(None);
        }
        // As the output lies, which is dense.
        kept.sort_by_key(|dim| std::cmp::Reverse(output.strides[*dim]));
        let size = |dim: &usize| space.dims[*dim].size;
        let order: Vec<usize> = summed.iter().chain(&kept).copied().collect();
        let all: Extents = order.iter().map(size).collect();
        let bytes = bytes_of(&all, size_of_terms(self.dtype))?;
        let from = context.device_temp(bytes.max(1))?.as_ptr();
        let own = kept.iter().map(size).collect();
        Ok(Some((Repeated { from, all, to: output.data, own }, dense(space, &order))))
    }

    fn launch(
        &self,
        context: &OpKernelContext<'_>,
        space: &Space<'_>,
        (nests, given, many): (&Nests, Presence, bool),
        (placed, kinds, terms): (&[Placed], (&[Kind], &[Kind]), u64),
    ) -> Result<()> {
        let dims = Dims::new(space, placed);
        let sizes: Extents = (0..space.axes.max(1)).map(|axis| size_of_axis(space, axis)).collect();
        let batch = space.dims.iter().filter(|dim| dim.axis.is_none()).map(|dim| dim.size);
        let batch = batch.fold(1, usize::saturating_mul);
        let index = dims.index(space, placed.len());
        let data: SmallVec<[*mut u8; 8]> = placed.iter().map(|placed| placed.data).collect();
        for (number, (nest, tile)) in nests.nests.iter().zip(&nests.tiles).enumerate() {
            let units = nest.free.iter().map(|axis| sizes[axis.index()]).fold(batch, usize::saturating_mul);
            if units == 0 {
                continue;
            }
            // Threads that share a sum add it up in another order.
            let way = match nests.folds_again() {
                true => Way::Alone,
                false => Way::of((nest, tile.as_ref()), &sizes, units, dims.is_across(nest, kinds)),
            };
            let is_wide = index == Index::Bits64;
            let (first, suffix) = way.variant();
            let variant = first + usize::from(is_wide);
            let ways = [dims.is_flat, dims.is_small(sizes.len()), many];
            let key = ways.iter().fold(number, |key, way| 2 * key + usize::from(*way)) * 6 + variant;
            let source = self.sources.get((given, terms, key), |_| {
                let graph = given.part(&self.graph);
                let text = graph.nests_cuda_source(&self.name, self.element, kinds, terms, many);
                let flat = if dims.is_flat { "#define FLAT\n" } else { "" };
                let most = dims.most(sizes.len());
                let defined =
                    format!("#define ONLY {variant}\n#define NEST {number}\n#define MAX_DIMS {most}\n");
                let text = format!("{defined}{flat}{text}");
                Source::generated(format!("{}.cu", self.name), text)
            });
            let cuda = CudaCall::new(context, &source);
            let kernel = || {
                let launch =
                    cuda.kernel(format!("{}_{number}{suffix}_{}", self.name, if is_wide { 64 } else { 32 }));
                match way {
                    Way::Alone => launch.for_each(units),
                    Way::Shared { columns, threads, .. } => launch.block([columns as u32, threads as u32, 1]),
                    Way::Tiled { tiles } => {
                        let threads = (Tile::SIDE * Tile::SIDE) as u32;
                        launch.grid([tiles.min(BUSY), 1, 1]).block([threads, 1, 1])
                    }
                }
            };
            let rounds = if let Way::Tiled { tiles } = way { tiles } else { units };
            let layout = dims.layout(rounds, &sizes, placed.len(), index)?;
            let parameters = [operands(&data), attributes(self.graph.attributes()), layout];
            let bytes = parameters.iter().map(Vec::len).sum::<usize>();
            ensure!(
                bytes <= MOST_PARAMETERS,
                Unimplemented,
                "{} tensors take {bytes} bytes of a CUDA kernel's parameters, which have room for {MOST_PARAMETERS}",
                placed.len()
            );
            let given =
                |launch| parameters.iter().fold(launch, |launch: KernelCall<'_>, bytes| launch.raw(bytes));
            let launches = match way {
                Way::Shared { columns, parts, .. } => {
                    self.shared(context, nest, (units, units.div_ceil(columns).min(BUSY)), parts)?
                }
                _ => vec![None],
            };
            for shared in launches {
                let launch = given(kernel());
                let launch = match shared {
                    Some((grid, split)) => launch.grid(grid).raw(&split),
                    None => launch,
                };
                // SAFETY: these are the parameters of the kernels that `Graph::nests_cuda_source` has; every operand is as large as
                // its axes and the batch, and its strides reach; partial folds have room for all blocks.
                unsafe { launch.launch()? };
            }
        }
        Ok(())
    }

    /// The grid, and the structure `Split`, of each launch of a nest whose loops threads share, in so many parts.
    fn shared(
        &self,
        context: &OpKernelContext<'_>,
        nest: &Nest,
        (units, blocks): (usize, usize),
        parts: usize,
    ) -> Result<Vec<Option<SharedGrid>>> {
        let split = |partial: *mut u8, at: i32| {
            let mut structure = Structure::new(Index::Bits64);
            structure.address(partial.cast()).int(at).int(parts as i32);
            structure.finish()
        };
        if parts == 1 {
            return Ok(vec![Some(([blocks, 1, 1], split(std::ptr::null_mut(), -1)))]);
        }
        let (loops, folds, goes_on) = nest.shared_loops();
        let bytes = bytes_of(&[folds, parts, units], size_of_terms(self.dtype))?;
        let partial = context.device_temp(bytes.max(1))?.as_ptr();
        let launch = |at: usize| {
            let parts = if at < loops { parts } else { 1 };
            Some(([blocks, parts, 1], split(partial, at as i32)))
        };
        Ok((0..loops + usize::from(goes_on)).map(launch).collect())
    }
}

fn size_of_axis(space: &Space<'_>, axis: usize) -> usize {
    space.dims.iter().filter(|dim| dim.axis == Some(axis)).map(|dim| dim.size).product()
}

/// The strides along all dims of what is dense along some, in this order.
fn dense(space: &Space<'_>, order: &[usize]) -> Strides {
    let sizes: Extents = order.iter().map(|dim| space.dims[*dim].size).collect();
    let mut strides = Strides::from_elem(0, space.dims.len());
    for (dim, stride) in order.iter().zip(row_major_strides(&sizes)) {
        strides[*dim] = stride;
    }
    strides
}

/// How a nest is computed.
#[derive(Clone, Copy)]
enum Way {
    /// A thread computes a position.
    Alone,
    /// So many threads share the loops of each of some positions of a block, with those of other blocks where there are more parts.
    Shared { columns: usize, threads: usize, parts: usize },
    /// A block computes a tile of positions, of which there are so many.
    Tiled { tiles: usize },
}

impl Way {
    /// By tiles where there are enough of them, mostly full; shared by threads where loops are long, and there are rows of the batch that
    /// lie along memory, or few positions.
    fn of((nest, tile): (&Nest, Option<&Tile>), sizes: &[usize], units: usize, is_across: bool) -> Way {
        if let Some(tile) = tile {
            let span = Tile::SIDE * tile.edge;
            let [a, b] = tile.axes.map(|axis| sizes[axis.index()]);
            let tiles = units / a / b * a.div_ceil(span) * b.div_ceil(span);
            let enough = if tile.saves_folds { FEW_TILES } else { MANY_TILES };
            if tiles >= enough && a.min(b) >= LEAST_TILED {
                return Way::Tiled { tiles };
            }
        }
        let turns = |step: &Step| match step {
            Step::Loop { axis, .. } => sizes[axis.index()],
            _ => 0,
        };
        let longest = nest.steps.iter().map(turns).max().unwrap_or(0);
        let is_few = units < BUSY || nest.free.is_empty() && !is_across;
        if longest < LEAST_SHARED || !is_few || !nest.is_shared() {
            return Way::Alone;
        }
        let columns = if is_across { units.next_power_of_two().min(32) } else { 1 };
        let threads = if columns > 1 { SHARING / columns } else { longest.next_multiple_of(32).min(SHARING) };
        // What threads have found is read by as many of one block; of sums that follow a number, by one each.
        let most = if nest.follows() { threads } else { BLOCKS };
        let parts = (BLOCKS / units.div_ceil(columns)).min(longest / (threads * LEAST_SPLIT)).min(most);
        Way::Shared { columns, threads, parts: parts.max(1) }
    }

    /// The number of its kernel of 32 bits among those of a nest, and what the name has of it.
    fn variant(self) -> (usize, &'static str) {
        match self {
            Way::Alone => (0, ""),
            Way::Shared { .. } => (2, "_rows"),
            Way::Tiled { .. } => (4, "_tiled"),
        }
    }
}

impl Dims {
    fn new(space: &Space<'_>, placed: &[Placed]) -> Dims {
        let group = |axis: Option<usize>| {
            let group = merged(space, placed, axis);
            let count = group.dims().len().max(axis.is_some().into());
            (group, count)
        };
        let mut groups: Vec<_> = (0..space.axes.max(1)).map(|axis| group(Some(axis))).collect();
        let is_flat = groups.iter().all(|(_, count)| *count == 1);
        groups.push(group(None));
        Dims { groups, is_flat }
    }

    fn count(&self) -> usize {
        self.groups.iter().map(|(_, count)| count).sum()
    }

    /// What `of` says of the dims of each group, with `rest` for those that are not there, up to `most` in all.
    fn padded<T: Copy + 'static>(
        &self,
        of: impl Fn(&IndexSpace) -> &[T],
        rest: T,
        most: usize,
    ) -> impl Iterator<Item = T> {
        let own = self.groups.iter().flat_map(move |(group, count)| {
            of(group).iter().copied().chain(std::iter::repeat(rest)).take(*count)
        });
        own.chain(std::iter::repeat(rest)).take(most)
    }

    /// Whether the axes and the batch have one dim each, at most.
    fn is_small(&self, axes: usize) -> bool {
        self.count() <= axes + 1
    }

    /// For how many dims a kernel's parameters have room.
    fn most(&self, axes: usize) -> usize {
        axes + if self.is_small(axes) { 1 } else { Nests::BATCH_DIMS }
    }

    /// Whether most of what the loops of a nest read lies side by side for positions that do, and not along the loops.
    fn is_across(&self, nest: &Nest, (inputs, outputs): (&[Kind], &[Kind])) -> bool {
        let step = |group: usize, operand: usize| {
            self.groups[group].0.strides(operand).first().is_some_and(|stride| *stride == 1)
        };
        let own = nest.free.iter().next_back().map_or(self.groups.len() - 1, Axis::index);
        let (mut along, mut across) = (0, 0);
        nest.for_each_load(&mut |axis, from| {
            let operand = from.argument((inputs.len(), outputs.len()));
            along += usize::from(step(axis.index(), operand));
            across += usize::from(step(own, operand));
        });
        across > along
    }

    /// The indices that all operands fit.
    fn index(&self, space: &Space<'_>, operands: usize) -> Index {
        let most = i32::MAX as usize;
        let reach = |operand: usize| {
            self.groups.iter().fold(0usize, |far, (group, _)| far.saturating_add(group.span(operand)))
        };
        let all = space.dims.iter().fold(1usize, |all, dim| all.saturating_mul(dim.size.max(1)));
        let fits = all <= most && (0..operands).all(|operand| reach(operand) <= most);
        if fits { Index::Bits32 } else { Index::Bits64 }
    }

    /// The structure `Layout` of kernels of nests.
    fn layout(&self, units: usize, sizes: &[usize], operands: usize, index: Index) -> Result<Vec<u8>> {
        let (count, most) = (self.count(), self.most(sizes.len()));
        ensure!(
            count <= most,
            Unimplemented,
            "tensors that lie in {count} dims have no CUDA kernel, which goes through {most}; make them contiguous"
        );
        let mut structure = Structure::new(index);
        structure.index(units as i128)?;
        for &size in sizes {
            structure.index(size as i128)?;
        }
        let mut first = 0;
        structure.int(0);
        for (_, count) in &self.groups {
            first += count;
            structure.int(first as i32);
        }
        for size in self.padded(IndexSpace::dims, 1, most) {
            structure.index(size as i128)?;
        }
        for operand in 0..operands {
            for stride in self.padded(|group| group.strides(operand), 0, most) {
                structure.index(stride as i128)?;
            }
        }
        Ok(structure.finish_without_address())
    }
}
