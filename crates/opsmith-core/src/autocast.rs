//! Autocast: in which precision an op computes where a framework chooses it.

use crate::def::{Allowed, ArgType};
use crate::{DType, Result, Signature, bail};

/// What PyTorch's autocast does with an op's inputs that are floats of at most 32 bits, and have their dtype from an
/// attribute. An op that says nothing gets its inputs as they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Autocast {
    /// They become float32: for sums of many terms, powers and logarithms.
    Float32,
    /// They become what autocast is set to, float16 or bfloat16, where the op has it: for products of matrices.
    Lower,
    /// They become the widest of what they are: for inputs that have to agree.
    Widest,
}

impl Autocast {
    /// All there are.
    pub const ALL: [Autocast; 3] = [Autocast::Float32, Autocast::Lower, Autocast::Widest];

    /// Its name, as options and descriptions have it: `"float32"`.
    pub fn name(self) -> &'static str {
        match self {
            Autocast::Float32 => "float32",
            Autocast::Lower => "lower",
            Autocast::Widest => "widest",
        }
    }

    /// The one of this name.
    pub fn parse(name: &str) -> Option<Autocast> {
        Autocast::ALL.into_iter().find(|policy| policy.name() == name)
    }

    /// Checks that an op can have it.
    ///
    /// # Errors
    /// `InvalidArgument` where no input could change its dtype so, or one is changed in place: that would change a copy.
    pub fn check(self, signature: &Signature) -> Result<()> {
        let name = self.name();
        if let Some(changed) = signature.inputs.iter().find(|input| input.is_ref) {
            let changed = &changed.name;
            bail!(
                InvalidArgument for changed,
                "has autocast `{name}`, but changes its input `{changed}` in place"
            );
        }
        let wanted: &[DType] = match self {
            Autocast::Float32 => &[DType::Float32],
            Autocast::Lower => &[DType::Float16, DType::BFloat16],
            Autocast::Widest => &[DType::Float16, DType::BFloat16, DType::Float32],
        };
        let has_any = signature.inputs.iter().any(|input| match input.dtype {
            ArgType::Fixed(_) => false,
            ArgType::Attr(attr) | ArgType::List(attr) => match &signature.attrs[attr].allowed {
                Some(Allowed::Types(allowed)) => wanted.iter().any(|dtype| allowed.contains(dtype)),
                _ => true,
            },
        });
        if !has_any {
            let wanted: Vec<&str> = wanted.iter().map(|dtype| dtype.name()).collect();
            let wanted = wanted.join(" or ");
            bail!(InvalidArgument, "has autocast `{name}`, but no input whose dtype may be {wanted}");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Library, OpDef};

    fn def(dtypes: &str, input: &str, policy: Autocast) -> OpDef {
        OpDef::new("Cast").attr(&format!("T: {{{dtypes}}}")).input(input).output("y: T").autocast(policy)
    }

    #[test]
    fn a_policy_is_described_by_its_name() -> Result<()> {
        for policy in Autocast::ALL {
            assert_eq!(Autocast::parse(policy.name()), Some(policy));
            let library = Library::new("casts", "1.0", vec![def("half, float", "x: T", policy)])?;
            assert_eq!(library.ops()[0].autocast(), Some(policy));
            assert_eq!(library.to_json()["ops"][0]["autocast"], policy.name());
        }
        let plain = Library::new("plain", "1.0", vec![OpDef::new("Plain").output("y: float")])?;
        assert!(plain.to_json()["ops"][0]["autocast"].is_null());
        assert_eq!(Autocast::parse("half"), None);
        Ok(())
    }

    #[test]
    fn a_policy_that_an_op_cannot_have_is_refused() {
        let why = |def: OpDef| def.build().err().map(|error| error.message().to_owned());
        assert_eq!(why(def("bfloat16, float", "x: T", Autocast::Lower)), None);
        assert_eq!(
            why(def("float, double", "x: T", Autocast::Lower)).as_deref(),
            Some("Cast: has autocast `lower`, but no input whose dtype may be float16 or bfloat16")
        );
        assert_eq!(
            why(def("double", "x: T", Autocast::Float32)).as_deref(),
            Some("Cast: has autocast `float32`, but no input whose dtype may be float32")
        );
        assert_eq!(
            why(def("float", "x: Ref(T)", Autocast::Float32)).as_deref(),
            Some("Cast: has autocast `float32`, but changes its input `x` in place")
        );
        let fixed = OpDef::new("Fixed").input("x: float").output("y: float").autocast(Autocast::Widest);
        assert!(why(fixed).is_some_and(|why| why.contains("no input whose dtype may be")));
    }
}
