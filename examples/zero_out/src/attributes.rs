//! Attributes of every type: defaults, sets of values, bounds, lists.

use std::sync::Arc;

use opsmith::attr::{PartialShape, TensorValue};
use opsmith::ndarray::ArrayView1;
use opsmith::prelude::*;

/// `AttrDefaults`: an attribute of each type that PyTorch has too, with its default.
///
/// The output shows what arrived: a number for each attribute.
pub struct AttrDefaults {
    seen: Vec<f64>,
}

impl OpDefinition for AttrDefaults {
    fn def() -> OpDef {
        OpDef::new("AttrDefaults")
            .attr("s: string = 'foo'")
            .attr("i: int = 0")
            .attr("f: float = 1.0")
            .attr("b: bool = true")
            .attr("ty: type = DT_INT32")
            .attr("l_empty: list(int) = []")
            .attr("l_int: list(int) = [2, 3, 5, 7]")
            .attr("l_float: list(float) = [0.5, 0.25]")
            .attr("l_bool: list(bool) = [true, false]")
            .attr("l_string: list(string) = ['a', 'bc']")
            .attr("l_type: list(type) = [DT_FLOAT, DT_INT32]")
            .output("seen: double")
            .shape("->(11)")
            .kernel(KernelDef::cpu::<AttrDefaults>())
            .not_differentiable()
            .doc(
                "What arrives in attributes of every type.\n\
                 \n\
                 seen: For each attribute a number: of a string its length, of a type its size in bytes, of a list \
                 the sum over its elements, and of any other its value.",
            )
    }
}

impl OpKernel for AttrDefaults {
    fn new(construction: &mut OpKernelConstruction<'_>) -> Result<Self> {
        let texts: Vec<String> = construction.attr("l_string")?;
        let types: Vec<DType> = construction.attr("l_type")?;
        let seen = vec![
            construction.attr::<String>("s")?.len() as f64,
            construction.attr::<i64>("i")? as f64,
            construction.attr("f")?,
            f64::from(u8::from(construction.attr::<bool>("b")?)),
            construction.attr::<DType>("ty")?.size() as f64,
            construction.attr::<Vec<i64>>("l_empty")?.iter().sum::<i64>() as f64,
            construction.attr::<Vec<i64>>("l_int")?.iter().sum::<i64>() as f64,
            construction.attr::<Vec<f64>>("l_float")?.iter().sum(),
            construction.attr::<Vec<bool>>("l_bool")?.iter().filter(|&&yes| yes).count() as f64,
            texts.iter().map(String::len).sum::<usize>() as f64,
            types.iter().map(|dtype| dtype.size()).sum::<usize>() as f64,
        ];
        Ok(AttrDefaults { seen })
    }

    fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<()> {
        set_vector(context, &self.seen)
    }
}

/// `AttrDefaultsOfTensors`: the types that not every framework has, `shape` and `tensor`.
///
/// Where a framework lacks them this op is missing there, and calling it says why; the rest of the library works.
pub struct AttrDefaultsOfTensors {
    seen: Vec<f64>,
}

impl OpDefinition for AttrDefaultsOfTensors {
    fn def() -> OpDef {
        OpDef::new("AttrDefaultsOfTensors")
            .attr("sh: shape = { dim { size: 1 } dim { size: 2 } }")
            .attr("te: tensor = { dtype: DT_INT32 int_val: 5 }")
            .attr("l_shape: list(shape) = [{ dim { size: 3 } }, { unknown_rank: true }]")
            .attr("l_tensor: list(tensor) = [{ dtype: DT_INT32 int_val: 7 }]")
            .output("seen: double")
            .shape("->(4)")
            .kernel(KernelDef::cpu::<AttrDefaultsOfTensors>())
            .not_differentiable()
            .doc(
                "What arrives in attributes that are shapes and tensors.\n\
                 \n\
                 seen: For each attribute a number: of a shape its number of elements, -1 where it is not known, of \
                 an int32 tensor its sum, and of a list the sum over its elements.",
            )
    }
}

impl OpKernel for AttrDefaultsOfTensors {
    fn new(construction: &mut OpKernelConstruction<'_>) -> Result<Self> {
        let shapes: Vec<PartialShape> = construction.attr("l_shape")?;
        let tensor: Arc<TensorValue> = construction.attr("te")?;
        let tensors: Vec<Arc<TensorValue>> = construction.attr("l_tensor")?;
        let seen = vec![
            num_elements(&construction.attr("sh")?),
            sum(&tensor)?,
            shapes.iter().map(num_elements).sum(),
            tensors.iter().map(|tensor| sum(tensor)).sum::<Result<f64>>()?,
        ];
        Ok(AttrDefaultsOfTensors { seen })
    }

    fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<()> {
        set_vector(context, &self.seen)
    }
}

fn num_elements(shape: &PartialShape) -> f64 {
    let known: Option<Vec<u64>> = shape.as_ref().and_then(|dims| dims.iter().copied().collect());
    known.map_or(-1.0, |dims| dims.iter().map(|&dim| dim as f64).product())
}

fn sum(tensor: &TensorValue) -> Result<f64> {
    ensure!(tensor.dtype == DType::Int32, InvalidArgument, "a tensor is {}, but must be int32", tensor.dtype);
    let elements = tensor.bytes.as_chunks().0.iter().map(|&bytes| f64::from(i32::from_ne_bytes(bytes)));
    Ok(elements.sum())
}

fn set_vector(context: &OpKernelContext<'_>, values: &[f64]) -> Result<()> {
    context.output_view::<f64, Ix1>(0, &[values.len()])?.assign(&ArrayView1::from(values));
    Ok(())
}

/// `FruitPrice`: a string that is one of a few.
pub struct FruitPrice {
    price: f32,
}

impl OpDefinition for FruitPrice {
    fn def() -> OpDef {
        OpDef::new("FruitPrice")
            .attr("fruit: {'apple', 'orange'}")
            .output("price: float")
            .shape_fn(shape_fns::scalar)
            .kernel(KernelDef::cpu::<FruitPrice>())
            .not_differentiable()
            .doc("The price of a fruit.\n\nfruit: What to buy.\nprice: A scalar.")
    }
}

impl OpKernel for FruitPrice {
    fn new(construction: &mut OpKernelConstruction<'_>) -> Result<Self> {
        // The definition lets no other value through.
        let price = if construction.attr::<String>("fruit")? == "apple" { 0.5 } else { 0.75 };
        Ok(FruitPrice { price })
    }

    fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<()> {
        context.output_view::<f32, Ix0>("price", &[])?.fill(self.price);
        Ok(())
    }
}

/// `Repeat`: an int with a lower bound, on which the output's shape depends.
pub struct Repeat;

impl OpDefinition for Repeat {
    fn def() -> OpDef {
        OpDef::new("Repeat")
            .attr("times: int >= 2")
            .input("x: int32")
            .output("repeated: int32")
            .shape("(n)->(times * n)")
            .kernel(KernelDef::cpu::<Repeat>())
            .not_differentiable()
            .doc(
                "A vector several times over.\n\
                 \n\
                 x: A vector.\n\
                 repeated: A vector `times` as long.\n\
                 times: How often.",
            )
    }
}

impl OpKernel for Repeat {
    fn new(_: &mut OpKernelConstruction<'_>) -> Result<Self> {
        Ok(Repeat)
    }

    fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<()> {
        // The shape signature serves the kernel too: it checks the rank and gives the output's shape.
        let shape = context.bind_shapes()?.output_shape(0);
        let x = context.slice::<i32>("x")?;
        let repeated = context.allocate_output("repeated", &shape)?.into_slice::<i32>()?;
        if !x.is_empty() {
            repeated.chunks_exact_mut(x.len()).for_each(|chunk| chunk.copy_from_slice(x));
        }
        Ok(())
    }
}

/// `ZerosOfTypes`: a list of dtypes with a bound on its length decides how many outputs there are, and of what dtype.
pub struct ZerosOfTypes {
    types: Vec<DType>,
}

impl OpDefinition for ZerosOfTypes {
    fn def() -> OpDef {
        OpDef::new("ZerosOfTypes")
            .attr("types: list({int32, float}) >= 3")
            .output("zeros: types")
            .shape_fn(shape_fns::scalar)
            .kernel(KernelDef::cpu::<ZerosOfTypes>())
            .not_differentiable()
            .doc("A zero of each dtype.\n\ntypes: The dtypes, at least three.\nzeros: A scalar for each.")
    }
}

impl OpKernel for ZerosOfTypes {
    fn new(construction: &mut OpKernelConstruction<'_>) -> Result<Self> {
        Ok(ZerosOfTypes { types: construction.attr("types")? })
    }

    fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<()> {
        for (element, &dtype) in self.types.iter().enumerate() {
            let zero = context.allocate_output_at("zeros", element, &[])?;
            dispatch!(dtype, [i32, f32], |T| zero_fill::<T>(zero))?;
        }
        Ok(())
    }
}

fn zero_fill<T: Number>(tensor: TensorViewMut<'_>) -> Result<()> {
    tensor.into_slice::<T>()?.fill(T::zero());
    Ok(())
}

#[cfg(test)]
mod tests {
    use opsmith::AttrValue;
    use opsmith::ndarray::{Array1, arr0};
    use opsmith::{infer_error, infer_ok, testing};

    use super::*;

    #[test]
    fn every_type_has_its_default() {
        let seen = |call: testing::Call<'_>| call.run().unwrap().array::<f64, Ix1>("seen").unwrap();
        let defaults = seen(testing::call::<AttrDefaults>());
        assert_eq!(defaults, array![3., 0., 1., 1., 4., 0., 17., 0.75, 1., 3., 8.]);
        assert_eq!(seen(testing::call::<AttrDefaultsOfTensors>()), array![2., 5., 2., 7.]);
    }

    #[test]
    fn every_default_can_be_overridden() {
        let call = testing::call::<AttrDefaults>()
            .attr("s", "")
            .attr("i", -4)
            .attr("f", f64::INFINITY)
            .attr("b", false)
            .attr("ty", DType::Float64)
            .attr("l_empty", vec![1i64, 2])
            .attr("l_int", AttrValue::Ints(vec![]))
            .attr("l_float", vec![-1.5])
            .attr("l_bool", vec![true, true, true])
            .attr("l_string", AttrValue::Strings(vec!["four".into()]))
            .attr("l_type", vec![DType::Int8]);
        let seen: Array1<f64> = call.run().unwrap().array("seen").unwrap();
        assert_eq!(seen, array![0., -4., f64::INFINITY, 0., 8., 3., 0., -1.5, 3., 4., 1.]);
        let call = testing::call::<AttrDefaultsOfTensors>().attr("sh", AttrValue::Shape(Some(vec![None])));
        assert_eq!(call.run().unwrap().array::<f64, Ix1>("seen").unwrap()[0], -1.);
    }

    #[test]
    fn a_string_outside_its_set_is_refused() {
        let call = |fruit: &str| testing::call::<FruitPrice>().attr("fruit", fruit).run();
        assert_eq!(call("orange").unwrap().array::<f32, Ix0>("price").unwrap(), arr0(0.75));
        let error = call("pear").unwrap_err();
        assert!(error.message().starts_with("FruitPrice: attribute `fruit` must be"), "{error}");
        assert!(error.message().contains("pear"), "{error}");
    }

    #[test]
    fn bounds_hold_and_shapes_follow_the_attribute() {
        let x = array![1, 2];
        let call = |times: i64| testing::call::<Repeat>().input(&x).attr("times", times).run();
        assert_eq!(call(2).unwrap().array::<i32, Ix1>("repeated").unwrap(), array![1, 2, 1, 2]);
        assert_eq!(call(1).unwrap_err().message(), "Repeat: attribute `times` must be at least 2, got 1");
        let empty = Array1::<i32>::zeros(0);
        assert!(testing::call::<Repeat>().input(&empty).attr("times", 3).run().is_ok());
        let op = testing::shapes::<Repeat>().attr("times", AttrValue::Int(3));
        infer_ok!(op, "[4]", "[12]");
        infer_ok!(op, "[n]", "[3 * n]");
        infer_error!(op, "must have rank 1", "[1,2]");
    }

    #[test]
    fn a_list_of_types_decides_the_outputs() {
        let call = |types: Vec<DType>| testing::call::<ZerosOfTypes>().attr("types", types).run();
        let zeros = call(vec![DType::Int32, DType::Float32, DType::Int32]).unwrap();
        assert_eq!(zeros.count("zeros"), 3);
        assert_eq!(zeros.element::<f32, Ix0>("zeros", 1).unwrap(), arr0(0.0));
        assert_eq!(zeros.element::<i32, Ix0>("zeros", 2).unwrap(), arr0(0));
        assert!(call(vec![DType::Int32; 2]).unwrap_err().message().contains("attribute `types`"));
        assert!(call(vec![DType::Float64; 3]).unwrap_err().message().contains("float64"));
    }
}
