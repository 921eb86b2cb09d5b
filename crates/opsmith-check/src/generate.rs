//! Calls of an op, generated from its definition.
//!
//! proptest turns dials ([`Dials`]) that are independent of each other, so that each can be turned back when a failing
//! case is shrunk; [`Generator::build`] makes a call of where they stand.

use std::cell::RefCell;
use std::sync::Arc;

use opsmith_core::attr::TensorValue;
use opsmith_core::def::{ArgCount, ArgDef, ArgType, AttrDef};
use opsmith_core::{AttrValue, DType, Error, Result};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use crate::attrs;
use crate::case::{Case, Inputs};
use crate::layout::Layout;
use crate::ranks::Pattern;
use crate::subject::Subject;
use crate::values::{Values, from_numbers, is_float, mix, numbers};

/// How many sizes of dims are generated where no signature names them.
const FREE_DIMS: usize = 8;

/// As many sets of attributes are drawn to ask with which ranks there are.
const SAMPLES: usize = 12;

/// What an author brings along: each part replaces what would be generated.
#[derive(Default)]
pub struct Author<'a> {
    /// Makes the inputs of a call from a seed and a size from 0 to 8, the smaller the simpler.
    pub inputs: Option<&'a mut MakeInputs<'a>>,
    /// What the outputs ought to be.
    pub reference: Option<&'a mut Reference<'a>>,
    /// For some attributes, the values to choose from.
    pub attrs: Vec<(String, Vec<AttrValue>)>,
}

/// Makes inputs, see [`Author::inputs`].
pub type MakeInputs<'a> = dyn FnMut(u64, u64) -> Result<Inputs> + 'a;
/// Computes outputs from inputs and attributes, see [`Author::reference`]. `None` where it has nothing to say.
pub type Reference<'a> = dyn FnMut(&Inputs, &[(String, AttrValue)]) -> Result<Option<Vec<TensorValue>>> + 'a;

/// What a property wants of its cases.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Profile {
    /// The sizes of dims.
    pub(crate) dims: (usize, usize),
    /// Only kernels whose inputs are of dtypes that this says.
    pub(crate) dtypes: fn(DType) -> bool,
    /// Which numbers.
    pub(crate) numbers: Numbers,
    /// Whether tensors lie in memory in all ways.
    pub(crate) strided: bool,
    /// Only combinations of ranks with a 0 in them.
    pub(crate) scalars: bool,
    /// Whether integers are positions that every axis of the call has, as labels must be where a gradient is right.
    pub(crate) positions: bool,
}

/// Which numbers the tensors of a property have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Numbers {
    Plain,
    Extreme,
    Formula,
}

/// Where the dials stand.
#[derive(Debug, Clone)]
pub(crate) struct Dials {
    pub(crate) kernel: usize,
    /// Four for each attribute, one for each of the first elements of a list.
    pub(crate) types: Vec<usize>,
    attrs: Vec<Option<AttrValue>>,
    lengths: Vec<usize>,
    present: Vec<bool>,
    pub(crate) dims: Vec<usize>,
    batch: Vec<usize>,
    ranks: usize,
    mode: Mode,
    free: Vec<usize>,
    pub(crate) values: Values,
    layouts: Vec<Layout>,
    author: (u64, u64),
}

impl Dials {
    /// The same with dims of this size.
    pub(crate) fn resized(&self, size: usize) -> Dials {
        Dials { dims: vec![size; self.dims.len()], ..self.clone() }
    }

    /// The same with the attributes and the lengths of lists of others.
    fn with_attrs_of(&self, other: &Dials) -> Dials {
        Dials { attrs: other.attrs.clone(), lengths: other.lengths.clone(), ..self.clone() }
    }

    /// The same with other numbers.
    pub(crate) fn with_numbers(&self, values: Values) -> Dials {
        Dials { values, ..self.clone() }
    }

    /// How the tensor at a flat position lies.
    pub(crate) fn layout(&self, position: usize) -> Layout {
        self.layouts.get(position).copied().unwrap_or(Layout::Dense)
    }

    /// Bits for outputs, by which some are wanted.
    pub(crate) fn wanted(&self) -> u64 {
        mix(self.author.0, 0)
    }
}

/// The dtype and shape of each tensor of each input, `None` for one that is absent.
pub(crate) type Tensors = Vec<Vec<Option<(DType, Vec<usize>)>>>;

/// How the shapes of an op's inputs hang together where a function says it.
#[derive(Debug, Clone, Copy)]
enum Mode {
    /// Dims are equal that inference takes for equal.
    Linked,
    /// They are, but for some that are 1.
    Broadcast,
    /// Each dim is one of a few sizes.
    Free,
}

/// Makes cases of an op for a property.
pub(crate) struct Generator<'a, 'b> {
    pub(crate) subject: &'a Subject,
    pub(crate) profile: Profile,
    /// What the shapes may be, where no signature says it.
    pub(crate) patterns: &'a [Pattern],
    pub(crate) author: &'a RefCell<Author<'b>>,
}

impl Generator<'_, '_> {
    /// The dials, and how they are turned.
    pub(crate) fn dials(&self) -> BoxedStrategy<Dials> {
        let signature = &self.subject.signature;
        let attr = |def: &AttrDef| {
            let author = self.author.borrow();
            let chosen = author.attrs.iter().find(|(name, _)| *name == def.name);
            match chosen {
                Some((_, choices)) => proptest::sample::select(choices.clone()).prop_map(Some).boxed(),
                None => attrs::strategy(def),
            }
        };
        let attrs: Vec<_> = signature.attrs.iter().map(attr).collect();
        let (least, most) = self.profile.dims;
        let named = self.subject.shape.as_ref().map_or(0, |shape| shape.dim_names().len());
        let number = signature.attrs.len();
        let shapes = (
            proptest::collection::vec(least..=most, named.max(FREE_DIMS)),
            proptest::collection::vec(least..=most.min(3), 0..=2),
            0..64usize,
            prop_oneof![4 => Just(Mode::Linked), 1 => Just(Mode::Broadcast), 1 => Just(Mode::Free)],
            proptest::collection::vec(0..3usize, 32),
        );
        let layout = if self.profile.strided {
            proptest::sample::select(Layout::ALL.to_vec()).boxed()
        } else {
            Just(Layout::Dense).boxed()
        };
        let picks = (
            0..64usize,
            proptest::collection::vec(0..64usize, number * 4),
            attrs,
            proptest::collection::vec(0..3usize, number),
            proptest::collection::vec(any::<bool>(), signature.inputs.len()),
        );
        let author = (any::<u64>().no_shrink(), 0..=8u64);
        let rest = (self.numbers(), proptest::collection::vec(layout, 16), author);
        let ends = |def: &AttrDef| {
            let is_chosen = self.author.borrow().attrs.iter().any(|(name, _)| *name == def.name);
            if is_chosen { vec![] } else { attrs::ends(def) }
        };
        let ends: Vec<Vec<AttrValue>> = signature.attrs.iter().map(ends).collect();
        let dials = (picks, shapes, rest).prop_map(move |(picks, shapes, rest)| {
            let (kernel, types, mut attrs, lengths, present) = picks;
            let (dims, batch, ranks, mode, free) = shapes;
            let (values, layouts, author) = rest;
            // Where numbers are 0 and attributes at an end, formulas have their exceptions.
            if let Values::Coarse(seed) = values {
                for (at, (attr, ends)) in attrs.iter_mut().zip(&ends).enumerate() {
                    if let Some(end) = ends.get(mix(seed, at as u64) as usize % ends.len().max(1)) {
                        *attr = Some(end.clone());
                    }
                }
            }
            Dials {
                kernel,
                types,
                attrs,
                lengths,
                present,
                dims,
                batch,
                ranks,
                mode,
                free,
                values,
                layouts,
                author,
            }
        });
        dials.boxed()
    }

    fn numbers(&self) -> BoxedStrategy<Values> {
        // Where no attribute has an end, there are more kinks among them than exceptions.
        let has_ends = self.subject.signature.attrs.iter().any(|def| !attrs::ends(def).is_empty());
        let coarse = if has_ends { 4 } else { 0 };
        let seed = || any::<u64>().no_shrink();
        match self.profile.numbers {
            Numbers::Plain => prop_oneof![
                1 => Just(Values::Counting),
                3 => seed().prop_map(Values::Fractions),
                4 => seed().prop_map(Values::Small),
                coarse => seed().prop_map(Values::Coarse),
            ]
            .boxed(),
            Numbers::Extreme => seed().prop_map(Values::Extreme).boxed(),
            Numbers::Formula => Just(Values::Formula).boxed(),
        }
    }

    /// The call that the dials say; `Err` in words where they say none.
    ///
    /// # Errors
    /// What the author's own function says; `ResourceExhausted` when there is no memory for the inputs.
    pub(crate) fn build(&self, dials: &Dials) -> Result<Result<Case, &'static str>> {
        let case = self.build_with_all_layouts(dials)?;
        Ok(case.map(|mut case| {
            case.layouts.truncate(case.flat().count());
            case
        }))
    }

    fn build_with_all_layouts(&self, dials: &Dials) -> Result<Result<Case, &'static str>> {
        let Some(types) = self.types(dials) else { return Ok(Err("no kernel is for such dtypes")) };
        let layouts = dials.layouts.clone();
        if let Some(inputs) = self.author.borrow_mut().inputs.as_mut() {
            let mut inputs = inputs(dials.author.0, dials.author.1)?;
            if self.profile.numbers == Numbers::Extreme {
                make_extreme(&mut inputs, dials.values);
            }
            let attrs = self.attrs(dials, &types, true);
            return Ok(Ok(Case { inputs, attrs, layouts }));
        }
        let Some((tensors, attrs)) = self.tensors_of(dials, &types) else {
            return Ok(Err("no shapes were found that fit its shape function"));
        };
        let dims = tensors.iter().flatten().flatten().flat_map(|(_, shape)| shape);
        let least = dims.copied().min().unwrap_or(1).max(1);
        let mut position = 0;
        let mut value = |tensor: Option<(DType, Vec<usize>)>| {
            position += 1;
            let Some((dtype, shape)) = tensor else { return Ok(None) };
            let value = dials.values.large_tensor(dtype, &shape, position - 1)?;
            Ok(Some(Arc::new(if self.profile.positions { into_positions(value, least) } else { value })))
        };
        let lists = tensors.into_iter().map(|list| list.into_iter().map(&mut value).collect());
        let inputs = lists.collect::<Result<_>>()?;
        Ok(Ok(Case { inputs, attrs, layouts }))
    }

    /// The tensors of the call that the dials say, and its attributes; `None` where they say none.
    pub(crate) fn tensors(&self, dials: &Dials) -> Option<(Tensors, Vec<(String, AttrValue)>)> {
        self.tensors_of(dials, &self.types(dials)?)
    }

    fn tensors_of(&self, dials: &Dials, types: &Types) -> Option<(Tensors, Vec<(String, AttrValue)>)> {
        let attrs = self.attrs(dials, types, false);
        let shapes = self.shapes(dials, types, &attrs)?;
        let list = |(shapes, def): (Vec<Option<Vec<usize>>>, &ArgDef)| {
            let tensor =
                |(element, shape): (usize, Option<Vec<usize>>)| Some((types.dtype(def, element), shape?));
            shapes.into_iter().enumerate().map(tensor).collect()
        };
        let tensors = shapes.into_iter().zip(&self.subject.signature.inputs).map(list).collect();
        Some((tensors, attrs))
    }

    /// The values of type attributes and the lengths of lists; `None` where no kernel has allowed dtypes.
    fn types(&self, dials: &Dials) -> Option<Types> {
        let subject = self.subject;
        let kernels = subject.kernels_with(self.profile.dtypes);
        let kernel = &subject.kernels[*kernels.get(dials.kernel % kernels.len().max(1))?];
        let pick = |attr: usize, element: usize| {
            let dtypes = subject.dtypes(attr);
            let fitting: Vec<DType> =
                dtypes.iter().copied().filter(|dtype| (self.profile.dtypes)(*dtype)).collect();
            let dtypes = if fitting.is_empty() { dtypes } else { fitting };
            dtypes[dials.types[4 * attr + element % 4] % dtypes.len()]
        };
        let of_attr = |attr: usize| {
            let fixed = kernel.iter().find(|(other, _)| *other == attr).map(|(_, dtype)| *dtype);
            let length = subject.least_length(attr) + dials.lengths[attr];
            let dtypes = (0..length.max(1)).map(|element| fixed.unwrap_or_else(|| pick(attr, element)));
            (dtypes.collect::<Vec<DType>>(), length)
        };
        Some(Types((0..subject.signature.attrs.len()).map(of_attr).collect()))
    }

    /// The attributes that callers give.
    fn attrs(&self, dials: &Dials, types: &Types, types_are_chosen: bool) -> Vec<(String, AttrValue)> {
        use opsmith_core::attr::AttrBase;
        let defs = self.subject.signature.attrs.iter().enumerate();
        let given = defs.filter(|(_, def)| !def.inferred).filter_map(|(attr, def)| {
            let value = match (def.ty.base, def.ty.list) {
                (AttrBase::Type, false) if !types_are_chosen || def.default.is_none() => {
                    Some(AttrValue::Type(types.0[attr].0[0]))
                }
                (AttrBase::Type, true) => Some(AttrValue::Types(types.0[attr].0.clone())),
                _ => dials.attrs[attr].clone(),
            };
            Some((def.name.clone(), value?))
        });
        given.collect()
    }

    /// The shape of each tensor of each input, `None` for one that is absent.
    fn shapes(
        &self,
        dials: &Dials,
        types: &Types,
        attrs: &[(String, AttrValue)],
    ) -> Option<Vec<Vec<Option<Vec<usize>>>>> {
        let defs = &self.subject.signature.inputs;
        let values = self.all_attrs(types, attrs);
        let shape_of: Vec<Vec<usize>> = match &self.subject.shape {
            Some(signature) => {
                let sizes = dials.dims.get(..signature.dim_names().len())?;
                let batch = if self.profile.scalars { &[][..] } else { &dials.batch };
                let bound = signature.with_sizes(&self.subject.signature, sizes, batch, &values)?;
                (0..defs.len()).map(|input| bound.input_shape(input).to_vec()).collect()
            }
            None => vec![],
        };
        let pattern = self.pattern(dials)?;
        let mut position = 0;
        let mut shape = |input: usize| {
            position += 1;
            match shape_of.get(input) {
                Some(shape) => shape.clone(),
                None => free_shape(dials, (&pattern, input), &values, position - 1),
            }
        };
        let list = |(input, def): (usize, &ArgDef)| {
            if def.optional && !dials.present[input] {
                return vec![None];
            }
            (0..types.count(def)).map(|_| Some(shape(input))).collect()
        };
        Some(defs.iter().enumerate().map(list).collect())
    }

    /// What the shapes of the inputs are like, where no signature says it.
    fn pattern(&self, dials: &Dials) -> Option<Pattern> {
        if self.subject.shape.is_some() {
            return Some(Pattern::default());
        }
        let fits = |pattern: &&Pattern| !self.profile.scalars || pattern.ranks.contains(&0);
        let fitting: Vec<&Pattern> = self.patterns.iter().filter(fits).collect();
        let even: Vec<&Pattern> = fitting.iter().copied().filter(|pattern| pattern.is_even()).collect();
        // Half of the time all ranks are equal, where they may.
        let choice = if even.is_empty() || dials.ranks % 2 == 1 { fitting } else { even };
        choice.get(dials.ranks / 2 % choice.len().max(1)).map(|pattern| (*pattern).clone())
    }

    /// Every attribute's value, in the definition's order.
    fn all_attrs(&self, types: &Types, given: &[(String, AttrValue)]) -> Vec<AttrValue> {
        let value = |(attr, def): (usize, &AttrDef)| {
            let given = given.iter().find(|(name, _)| *name == def.name).map(|(_, value)| value.clone());
            let length = || AttrValue::Int(types.0[attr].1 as i64);
            given.or_else(|| def.default.clone().filter(|_| !def.inferred)).unwrap_or_else(length)
        };
        self.subject.signature.attrs.iter().enumerate().map(value).collect()
    }

    /// Cases with one tensor of rank 0 for each that there has to be, to ask with which ranks there are: the plainest one, and
    /// some with other attributes.
    pub(crate) fn samples(&self) -> impl Iterator<Item = Result<Case>> {
        let plain = self.plain_dials(1);
        let drawn = self.drawn(&plain, SAMPLES);
        [plain].into_iter().chain(drawn).filter_map(|dials| self.build(&dials).map(Result::ok).transpose())
    }

    /// The dials where they are plainest: the first kernel, attributes by default, all dims of one size.
    pub(crate) fn plain_dials(&self, size: usize) -> Dials {
        let signature = &self.subject.signature;
        let attr = |def: &AttrDef| {
            let author = self.author.borrow();
            let chosen = author.attrs.iter().find(|(name, _)| *name == def.name);
            chosen.and_then(|(_, choices)| choices.first().cloned()).or_else(|| attrs::simplest(def))
        };
        let named = self.subject.shape.as_ref().map_or(0, |shape| shape.dim_names().len());
        Dials {
            kernel: 0,
            types: vec![0; signature.attrs.len() * 4],
            attrs: signature.attrs.iter().map(attr).collect(),
            lengths: vec![0; signature.attrs.len()],
            present: vec![true; signature.inputs.len()],
            dims: vec![size; named.max(FREE_DIMS)],
            batch: vec![],
            ranks: 0,
            mode: Mode::Linked,
            free: vec![0; 32],
            values: Values::Counting,
            layouts: vec![],
            author: (0, 0),
        }
    }

    /// These dials with attributes and lengths of lists as a check draws them, the same ones each time.
    pub(crate) fn drawn(&self, plain: &Dials, count: usize) -> Vec<Dials> {
        let mut runner = TestRunner::deterministic();
        let strategy = self.dials();
        let draws = (0..count).filter_map(|_| strategy.new_tree(&mut runner).ok());
        draws.map(|tree| plain.with_attrs_of(&tree.current())).collect()
    }

    /// These dials where tensors of these shapes are given for some inputs, as far as a shape signature says what follows:
    /// dims have their sizes, but for those over `most`. `None` where they do not fit it.
    pub(crate) fn fitted(&self, dials: &Dials, given: &[Option<Vec<usize>>], most: usize) -> Option<Dials> {
        let Some(signature) = self.subject.shape.as_ref().filter(|_| given.iter().any(Option::is_some))
        else {
            return Some(dials.clone());
        };
        let types = self.types(dials)?;
        let attrs = self.all_attrs(&types, &self.attrs(dials, &types, false));
        let shapes: Vec<Option<&[usize]>> = given.iter().map(Option::as_deref).collect();
        let (sizes, batch) = signature.said_by(&self.subject.signature, &shapes, &attrs)?;
        let mut fitted = dials.clone();
        for (dim, size) in fitted.dims.iter_mut().zip(sizes) {
            *dim = size.map_or(*dim, |size| size.min(most));
        }
        fitted.batch = batch.iter().map(|size| *size.min(&most)).collect();
        Some(fitted)
    }
}

/// The dtypes and the length that each attribute stands for, should it be a type or a number of tensors.
struct Types(Vec<(Vec<DType>, usize)>);

impl Types {
    fn dtype(&self, def: &ArgDef, element: usize) -> DType {
        match def.dtype {
            ArgType::Fixed(dtype) => dtype,
            ArgType::Attr(attr) => self.0[attr].0[0],
            ArgType::List(attr) => self.0[attr].0[element],
        }
    }

    fn count(&self, def: &ArgDef) -> usize {
        match def.count {
            ArgCount::One => 1,
            ArgCount::Attr(attr) | ArgCount::Types(attr) => self.0[attr].1,
        }
    }
}

/// The shape of an input as a pattern has it; dims that must have one size have it, but where dims are free.
fn free_shape(
    dials: &Dials,
    (pattern, input): (&Pattern, usize),
    attrs: &[AttrValue],
    position: usize,
) -> Vec<usize> {
    let pick = |dim: usize| dials.free[(position * 4 + dim) % dials.free.len()];
    let size = |(dim, class): (usize, &usize)| match dials.mode {
        Mode::Broadcast if pick(dim) == 2 => 1,
        Mode::Linked | Mode::Broadcast => {
            pattern.size(*class, attrs).unwrap_or(dials.dims[class % dials.dims.len()])
        }
        Mode::Free => [dials.dims[0], dials.dims[1], 1][pick(dim)],
    };
    pattern.dims.get(input).into_iter().flatten().enumerate().map(size).collect()
}

/// The same tensor, with integers from 0 to below `size`.
fn into_positions(value: TensorValue, size: usize) -> TensorValue {
    if !matches!(value.dtype, DType::Int32 | DType::Int64) {
        return value;
    }
    let positions: Vec<f64> =
        numbers(&value).into_iter().map(|number| number.rem_euclid(size as f64)).collect();
    from_numbers(value.dtype, &value.shape, &positions)
}

/// Puts other numbers into the tensors of floats, and leaves the rest, which may be indices, as the author made it.
fn make_extreme(inputs: &mut Inputs, values: Values) {
    for (position, tensor) in inputs.iter_mut().flatten().flatten().enumerate() {
        if is_float(tensor.dtype) {
            *tensor = Arc::new(values.tensor(tensor.dtype, &tensor.shape, position));
        }
    }
}

/// An error of the author's own function, told as such.
pub(crate) fn of_author(what: &str, error: Error) -> Error {
    error.within(what)
}
