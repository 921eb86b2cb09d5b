//! The arguments of a call: their tensors, and how a kernel names one.

use crate::Signature;
use crate::tensor::TensorView;

/// The tensors of a call: flat, with the number that each argument holds.
#[derive(Clone, Copy)]
pub struct CallInputs<'a> {
    /// Every tensor, argument after argument; `None` stands for an absent optional one.
    pub flat: &'a [Option<TensorView<'a>>],
    /// How many of them each input of the definition holds: 1 unless it is a list.
    pub counts: &'a [usize],
}

/// A tensor of a call that lies row-major without gaps, where the kernel takes it.
#[derive(Clone, Copy)]
pub struct Dense<'a> {
    /// Where its elements are.
    pub data: *const u8,
    /// Its dims.
    pub shape: &'a [usize],
}

/// A position or a name of an argument.
pub trait ArgKey: Copy {
    /// The position among the `inputs` of the definition.
    fn input_of(self, signature: &Signature) -> Option<usize>;
    /// The position among the `outputs` of the definition.
    fn output_of(self, signature: &Signature) -> Option<usize>;
    /// How to say it in a message.
    fn text(self) -> String;
}

impl ArgKey for usize {
    fn input_of(self, signature: &Signature) -> Option<usize> {
        (self < signature.inputs.len()).then_some(self)
    }

    fn output_of(self, signature: &Signature) -> Option<usize> {
        (self < signature.outputs.len()).then_some(self)
    }

    fn text(self) -> String {
        self.to_string()
    }
}

impl ArgKey for &str {
    fn input_of(self, signature: &Signature) -> Option<usize> {
        signature.input_index(self)
    }

    fn output_of(self, signature: &Signature) -> Option<usize> {
        signature.output_index(self)
    }

    fn text(self) -> String {
        format!("`{self}`")
    }
}
