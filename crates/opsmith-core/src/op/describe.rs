//! What an op's kernel is made of and computes, asked for some attributes.

use super::Op;
use crate::attr::AttrValue;
use crate::def::{Allowed, ArgCount, ArgType};
use crate::explain::Explanation;
use crate::kernel::OpKernelConstruction;
use crate::program::Program;
use crate::{ArgDTypes, DType, DeviceKind, Error, Result, Signature};

impl Op {
    /// What the op's kernel is made of, for these attributes in the definition's order; those not given have their
    /// defaults, and dtypes are `float32` where the definition allows it.
    ///
    /// # Errors
    /// `Unimplemented` for an op whose kernel was written by hand; `InvalidArgument` for attributes that do not fit.
    pub fn explain(&self, attrs: &[Option<AttrValue>]) -> Result<Explanation> {
        let signature = self.signature();
        let Some(explain) = &self.explain else {
            let error = Error::unimplemented("its kernel is written by hand, so there is no formula to show");
            return Err(error.with_op(&signature.name));
        };
        self.construct(attrs, |construction| explain(construction))
    }

    /// Calls `body` with what a kernel for these attributes is made from.
    fn construct<R>(
        &self,
        attrs: &[Option<AttrValue>],
        body: impl FnOnce(&OpKernelConstruction<'_>) -> Result<R>,
    ) -> Result<R> {
        let signature = self.signature();
        let dtypes: Vec<DType> =
            signature.inputs.iter().map(|arg| dtype(signature, arg.dtype, attrs)).collect();
        let inputs = signature.inputs.iter().zip(&dtypes).map(|(arg, dtype)| match arg.count {
            ArgCount::One => ArgDTypes::One(*dtype),
            _ => ArgDTypes::List(std::slice::from_ref(dtype)),
        });
        let resolved = signature.resolve(&inputs.collect::<Vec<_>>(), attrs)?;
        let construction = OpKernelConstruction::new(signature, &resolved.attrs, DeviceKind::Cpu);
        crate::panic::catch(|| body(&construction)).map_err(|error| error.with_op(&signature.name))
    }

    /// What the op computes of each element, for these attributes in the definition's order, as for
    /// [`explain`](Self::explain); none of an op that is more than that, or does not tell.
    ///
    /// # Errors
    /// `InvalidArgument` for attributes that do not fit.
    pub fn program(&self, attrs: &[Option<AttrValue>]) -> Result<Option<Program>> {
        let Some(function) = &self.program else { return Ok(None) };
        self.construct(attrs, |construction| function(construction))
    }
}

/// The dtype that an argument is explained for.
fn dtype(signature: &Signature, ty: ArgType, attrs: &[Option<AttrValue>]) -> DType {
    let attr = match ty {
        ArgType::Fixed(dtype) => return dtype,
        ArgType::Attr(attr) | ArgType::List(attr) => attr,
    };
    match (attrs.get(attr), &signature.attrs[attr].allowed) {
        (Some(Some(AttrValue::Type(dtype))), _) => *dtype,
        (_, Some(Allowed::Types(allowed))) if !allowed.contains(&DType::Float32) => {
            allowed.first().copied().unwrap_or(DType::Float32)
        }
        _ => DType::Float32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Library, OpDef};

    fn library() -> Library {
        let explain = |construction: &OpKernelConstruction<'_>| {
            let (dtype, slope) = (construction.attr::<DType>("T")?, construction.attr::<f64>("slope")?);
            Ok(Explanation {
                formula: format!("y = {slope} * x"),
                vectors: dtype.to_string(),
                ..Default::default()
            })
        };
        let scale = OpDef::new("Scale").attr("slope: float = 2.0").attr("T: {half, float, double}");
        let scale = scale.input("x: T").output("y: T").explain(explain);
        let by_hand = OpDef::new("ByHand").input("x: float").output("y: float");
        Library::new("explained", "0.1.0", vec![scale, by_hand]).unwrap()
    }

    #[test]
    fn an_op_is_explained_for_its_attributes() {
        let library = library();
        let scale = library.op("scale").unwrap();
        let plain = scale.explain(&[None, None]).unwrap();
        assert_eq!((plain.formula.as_str(), plain.vectors.as_str()), ("y = 2 * x", "float32"));
        let given = [Some(AttrValue::Float(3.0)), Some(AttrValue::Type(DType::Float64))];
        let other = scale.explain(&given).unwrap();
        assert_eq!((other.formula.as_str(), other.vectors.as_str()), ("y = 3 * x", "float64"));
    }

    #[test]
    fn what_cannot_be_explained_is_told() {
        let library = library();
        let error = library.op("by_hand").unwrap().explain(&[]).unwrap_err();
        assert_eq!(error.message(), "ByHand: its kernel is written by hand, so there is no formula to show");
        let wrong = [None, Some(AttrValue::Type(DType::Int32))];
        let error = library.op("scale").unwrap().explain(&wrong).unwrap_err();
        assert!(error.message().starts_with("Scale: attribute `T` must be"), "{}", error.message());
    }
}
