//! Attributes of every kind, with and without defaults.

use opsmith::attr::{AttrValue, TensorValue};
use opsmith::ndarray::Ix1;
use opsmith::{
    DType, Element, KernelDef, OpDef, OpKernel, OpKernelConstruction, OpKernelContext, Result, bail,
    shape_fns,
};

/// What each attribute is, as text.
struct Show(String);

impl OpKernel for Show {
    fn new(construction: &mut OpKernelConstruction<'_>) -> Result<Self> {
        let attrs = construction.signature().attrs.iter();
        let lines = attrs
            .map(|def| Ok(format!("{} = {}", def.name, text(&construction.attr::<AttrValue>(&def.name)?))));
        Ok(Show(lines.collect::<Result<Vec<_>>>()?.join("\n")))
    }

    fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<()> {
        let mut output = context.allocate_output(0, &[self.0.len()])?;
        output.as_slice_mut::<u8>()?.copy_from_slice(self.0.as_bytes());
        Ok(())
    }
}

fn text(value: &AttrValue) -> String {
    match value {
        AttrValue::Tensor(tensor) => tensor_text(tensor),
        AttrValue::Tensors(tensors) => {
            let texts: Vec<String> = tensors.iter().map(|tensor| tensor_text(tensor)).collect();
            format!("[{}]", texts.join(", "))
        }
        other => other.to_string(),
    }
}

fn tensor_text(tensor: &TensorValue) -> String {
    format!("{} {:?} {:?}", tensor.dtype, tensor.shape, tensor.bytes)
}

const KINDS: [&str; 6] = ["string", "int", "float", "bool", "type", "shape"];

/// Attributes of every kind, all required; the output is what they are, as bytes of text.
pub(crate) fn show_attrs() -> OpDef {
    let mut def = OpDef::new("ShowAttrs");
    for kind in KINDS {
        def = def.attr(&format!("a_{kind}: {kind}")).attr(&format!("some_{kind}: list({kind})"));
    }
    def.attr("a_tensor: tensor")
        .attr("some_tensor: list(tensor)")
        .output("text: uint8")
        .shape_fn(shape_fns::unknown)
        .kernel(KernelDef::cpu::<Show>())
}

/// Attributes of every kind, all with defaults; the output is what they are, as bytes of text.
pub(crate) fn show_defaults() -> OpDef {
    OpDef::new("ShowDefaults")
        .attr("s: string = 'foo'")
        .attr("quoted: string = 'it\\'s'")
        .attr("fruit: {'apple', 'orange'} = 'orange'")
        .attr("i: int >= 2 = 7")
        .attr("least: int = -9223372036854775808")
        .attr("f: float = 1e-300")
        .attr("endless: float = inf")
        .attr("b: bool = true")
        .attr("t: type = DT_INT32")
        .attr("sh: shape = { dim { size: 1 } dim { size: -1 } }")
        .attr("unknown: shape = { unknown_rank: true }")
        .attr("te: tensor = { dtype: DT_INT32 int_val: 5 }")
        .attr("ss: list(string) = ['a', 'b']")
        .attr("is: list(int) = [2, 3, 5, 7]")
        .attr("fs: list(float) = [0.5, -1e30]")
        .attr("bs: list(bool) = [true, false]")
        .attr("ts: list(type) = [DT_FLOAT, DT_BOOL]")
        .attr("shs: list(shape) = [{ dim { size: 4 } }]")
        .attr("none: list(int) = []")
        .output("text: uint8")
        .shape_fn(shape_fns::unknown)
        .kernel(KernelDef::cpu::<Show>())
}

/// The constant to add.
struct AddConstant(f32);

impl OpKernel for AddConstant {
    fn new(construction: &mut OpKernelConstruction<'_>) -> Result<Self> {
        let value: std::sync::Arc<TensorValue> = construction.attr("value")?;
        match value.bytes.first_chunk() {
            Some(bytes) => Ok(AddConstant(f32::from_ne_bytes(*bytes))),
            None => bail!(InvalidArgument, "attribute `value` must have a number"),
        }
    }

    fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<()> {
        let x = context.view::<f32, Ix1>(0)?;
        context.output_view::<f32, Ix1>(0, &[x.len()])?.assign(&x.mapv(|x| x + self.0));
        Ok(())
    }
}

/// A tensor as an attribute.
pub(crate) fn add_constant() -> OpDef {
    OpDef::new("AddConstant")
        .attr("value: tensor = { dtype: DT_FLOAT float_val: 2.5 }")
        .input("x: float")
        .output("y: float")
        .shape_fn(shape_fns::unchanged)
        .kernel(KernelDef::cpu::<AddConstant>())
}

struct Make<T> {
    shape: Vec<usize>,
    value: T,
}

impl<T: Element + From<u8>> OpKernel for Make<T> {
    fn new(construction: &mut OpKernelConstruction<'_>) -> Result<Self> {
        let shape: Vec<usize> = construction.attr("shape")?;
        Ok(Make { shape, value: T::from(3) })
    }

    fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<()> {
        context.allocate_output(0, &self.shape)?.as_slice_mut::<T>()?.fill(self.value);
        Ok(())
    }
}

/// A tensor full of threes whose dtype an attribute gives; there is no input.
pub(crate) fn make() -> OpDef {
    OpDef::new("Make")
        .attr("T: {float, int32} = DT_FLOAT")
        .attr("shape: list(int) = [2]")
        .output("y: T")
        .shape_fn(shape_fns::unknown)
        .kernel(KernelDef::cpu::<Make<f32>>().dtype_constraint("T", DType::Float32))
        .kernel(KernelDef::cpu::<Make<i32>>().dtype_constraint("T", DType::Int32))
}
