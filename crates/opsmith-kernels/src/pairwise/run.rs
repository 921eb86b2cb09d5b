//! Programs run on arrays: stage by stage, by compiled tiles where there are some.

use opsmith_body::{Fold, Interpreted, Tiles};
use opsmith_core::{Compute, Result};
use smallvec::SmallVec;

use super::convert::Room;
use super::differences::are_summed;
use super::elements::{Numbers, elements};
use super::panels::Folds;
use super::program::{Axes, Operand, Program, Role, Space, Stage, groups};
use super::shared::Sizes;
use super::strips::{Arrays, gradient};
use super::tiled::TileNumber;
use super::triples::{Pass, Source, Target};
use crate::stored::Stored;

/// With fewer elements a row, most of a compiled gradient's tile would be empty.
const FEW_ELEMENTS: usize = 16;

/// A program with what its stages are computed by.
pub(crate) struct Runner {
    pub(crate) program: Program,
    tiles: Box<dyn Tiles>,
    /// Whether the body's sum is that of `|x − y|`.
    differences: bool,
    /// For each stage the groups of its outputs.
    groups: Vec<Vec<Group>>,
}

/// Outputs of a stage that one pass gives.
struct Group {
    stage: Stage,
    blocks: Interpreted,
}

impl Sizes {
    /// How many elements a value has.
    pub(crate) fn count(self, axes: Axes) -> usize {
        match axes {
            Axes::X => self.n * self.p,
            Axes::Y => self.m * self.p,
            Axes::Pair => self.n * self.m,
        }
    }
}

impl Runner {
    pub(crate) fn new(program: Program, tiles: Box<dyn Tiles>) -> Runner {
        let of = |stage: &Stage| {
            let groups = groups(stage, &program.values).into_iter();
            groups.map(|stage| Group { blocks: Interpreted::new(&stage.graph), stage }).collect()
        };
        let groups = program.stages.iter().map(of).collect();
        let differences = are_summed(&tiles.graph(), tiles.fold());
        Runner { program, tiles, differences, groups }
    }

    /// Computes what the outputs that are wanted need. `values` begins with the inputs; an output is computed in the room
    /// that there is for it, which then is gone, if that is room for numbers.
    ///
    /// # Errors
    /// `ResourceExhausted` when there is no memory.
    pub(crate) fn run<'o, 'a: 'o, S>(
        &self,
        cx: &Compute<'a>,
        sizes: Sizes,
        values: &mut Vec<Option<&'o [S::Wide]>>,
        rooms: &mut [Option<Room<'o, S>>],
        wanted: &[bool],
    ) -> Result<()>
    where
        S: Stored,
        S::Wide: TileNumber,
    {
        let (live, axes) = (self.program.live(wanted), &self.program.values);
        values.resize(axes.len(), None);
        for (stage, groups) in self.program.stages.iter().zip(&self.groups) {
            let mut made: SmallVec<[Option<&'o mut [S::Wide]>; 4]> = SmallVec::new();
            for output in &stage.outputs {
                made.push(match output.filter(|value| live[*value]) {
                    Some(value) => Some(match self.room(value, rooms) {
                        Some(room) => room,
                        None => cx.temp(sizes.count(axes[value]))?,
                    }),
                    None => None,
                });
            }
            if made.iter().any(Option::is_some) {
                let call =
                    Call { cx, sizes, values, axes, tiles: &*self.tiles, differences: self.differences };
                call.stage(stage, groups, &mut made)?;
            }
            for (output, made) in stage.outputs.iter().zip(made) {
                if let (Some(value), Some(made)) = (output, made) {
                    values[*value] = Some(made);
                }
            }
        }
        Ok(())
    }

    /// Takes the room for numbers of the output that has this value.
    fn room<'o, S: Stored>(
        &self,
        value: usize,
        rooms: &mut [Option<Room<'o, S>>],
    ) -> Option<&'o mut [S::Wide]> {
        let mut outputs = self.program.outputs.iter().zip(rooms);
        let (_, room) =
            outputs.find(|(output, room)| **output == Some(value) && matches!(room, Some(Room::Wide(_))))?;
        match room.take() {
            Some(Room::Wide(room)) => Some(room),
            _ => None,
        }
    }
}

struct Call<'c, 'o, T> {
    cx: &'c Compute<'o>,
    sizes: Sizes,
    values: &'c [Option<&'o [T]>],
    axes: &'c [Axes],
    tiles: &'c dyn Tiles,
    differences: bool,
}

impl<'o, T: TileNumber> Call<'_, 'o, T> {
    fn value(&self, operand: Operand) -> &'o [T] {
        match operand {
            Operand::Value(value) => self.values[value].unwrap_or_default(),
            Operand::Depth => &[],
        }
    }

    fn stage(&self, stage: &Stage, groups: &[Group], made: &mut [Option<&mut [T]>]) -> Result<()> {
        // The gradient of a largest or smallest term is found by comparing it with the fold, so all of it comes from the
        // graph: compiled code may differ by a rounding, and then no term would be equal.
        let is_sum = stage.fold == Fold::Sum;
        match (stage.role, made) {
            (Role::Fold, [Some(z)]) if is_sum => {
                let (x, y) = (self.value(stage.operands[0]), self.value(stage.operands[1]));
                let (tiles, sizes, differences) = (self.tiles, self.sizes, self.differences);
                let folds = Folds { tiles, sizes, x, y, differences, divisor: None, finish: None };
                folds.run(self.cx, z)
            }
            (Role::Gradient, [x_grad, y_grad]) if self.sizes.p >= FEW_ELEMENTS => {
                let arrays = Arrays {
                    sizes: self.sizes,
                    x: self.value(stage.operands[0]),
                    y: self.value(stage.operands[1]),
                    weights: self.value(stage.operands[2]),
                };
                gradient(self.cx, self.tiles, arrays, x_grad.as_deref_mut(), y_grad.as_deref_mut())
            }
            (_, made) => groups.iter().try_for_each(|group| self.group(stage, group, made)),
        }
    }

    fn group(&self, whole: &Stage, group: &Group, made: &mut [Option<&mut [T]>]) -> Result<()> {
        let Group { stage, blocks } = group;
        let mut targets: SmallVec<[(Axes, &mut [T]); 4]> = SmallVec::new();
        for (output, made) in whole.outputs.iter().zip(made) {
            let Some(value) = output.filter(|value| stage.outputs.contains(&Some(*value))) else { continue };
            let axes = self.axes[value];
            targets.push(match made {
                Some(made) => (axes, made),
                // The group computes it whether it is wanted or not.
                None => (axes, self.cx.temp(self.sizes.count(axes))?),
            });
        }
        let nodes = stage.graph.nodes().len();
        let depth = T::of_double(self.sizes.p as f64);
        if let Space::Elements(_) = stage.space {
            let numbers = |operand: &Operand| match *operand {
                Operand::Value(_) => Numbers::Each(self.value(*operand)),
                Operand::Depth => Numbers::All(depth),
            };
            let sources: SmallVec<[Numbers<'_, T>; 8]> = stage.operands.iter().map(numbers).collect();
            let mut targets: SmallVec<[&mut [T]; 4]> = targets.into_iter().map(|(_, to)| to).collect();
            elements(self.cx, blocks, nodes, &sources, &mut targets);
            return Ok(());
        }
        let by_y = targets.iter().any(|(axes, _)| *axes == Axes::Y);
        let mut pass = Pass::new(blocks, nodes, stage.fold, self.sizes, by_y);
        pass.sources.extend(stage.operands.iter().map(|operand| {
            let numbers = self.value(*operand);
            match *operand {
                Operand::Depth => Source::Constant(depth),
                Operand::Value(value) => match self.axes[value] {
                    Axes::Pair => Source::Pair(numbers),
                    axes if (axes == Axes::Y) == by_y => Source::Outer(numbers),
                    _ => Source::Inner(numbers),
                },
            }
        }));
        let mut targets: SmallVec<[Target<'_, T>; 4]> = targets
            .into_iter()
            .map(|(axes, to)| if axes == Axes::Pair { Target::Pair(to) } else { Target::Outer(to) })
            .collect();
        pass.run(self.cx, &mut targets)
    }
}
