//! An op and its gradients of all orders as one family, for ops whose gradients are derived and not written.

use std::collections::HashSet;

/// An argument of an op of the family, and the argument of the forward op whose shape it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FamilyArgument {
    /// Its name.
    pub name: String,
    /// Whose shape it has.
    pub like: Like,
    /// Whether there is a gradient of it; there is none of positions, of truth values, and of what is saved for gradients.
    pub is_number: bool,
}

/// An argument of the forward op.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Like {
    /// The input at this position.
    Input(usize),
    /// The output at this position.
    Output(usize),
}

/// The outputs of an op that its gradient reads.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Read {
    /// The outputs, by position.
    pub outputs: Vec<usize>,
    /// The one of them that is read in the place of the only input, whose shape it has.
    pub in_place: Option<usize>,
}

/// The arguments of one op of the family.
///
/// A gradient op takes what its forward op takes, perhaps some of its outputs, and a gradient for each of its outputs, and gives a gradient
/// for each input that is a number. So every argument of every order has the shape of an input or output of the forward op.
///
/// ```
/// use opsmith_core::family::Family;
///
/// let forward = Family::new(&["x"], &["y"]);
/// let second = forward.gradient().gradient();
/// let names: Vec<&str> = second.inputs.iter().map(|input| input.name.as_str()).collect();
/// assert_eq!(names, ["x", "y_grad", "x_grad_grad"]);
/// let names: Vec<&str> = second.outputs.iter().map(|output| output.name.as_str()).collect();
/// assert_eq!(names, ["x_grad", "y_grad_grad"]);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Family {
    /// The inputs, those of the forward op first.
    pub inputs: Vec<FamilyArgument>,
    /// The outputs.
    pub outputs: Vec<FamilyArgument>,
}

impl Family {
    /// The forward op, with arguments of these names.
    pub fn new<S: AsRef<str>>(inputs: &[S], outputs: &[S]) -> Family {
        let arguments = |names: &[S], like: fn(usize) -> Like| {
            let named = names.iter().enumerate();
            named
                .map(|(position, name)| FamilyArgument {
                    name: name.as_ref().into(),
                    like: like(position),
                    is_number: true,
                })
                .collect()
        };
        Family { inputs: arguments(inputs, Like::Input), outputs: arguments(outputs, Like::Output) }
    }

    /// The forward op, of which some inputs are no numbers.
    #[must_use]
    pub fn with_numbers(mut self, is_number: impl Fn(usize) -> bool) -> Family {
        for (position, input) in self.inputs.iter_mut().enumerate() {
            input.is_number = is_number(position);
        }
        self
    }

    /// The op with further outputs of these names, which serve the gradient only.
    #[must_use]
    pub fn saving(mut self, names: impl IntoIterator<Item = String>) -> Family {
        for name in names {
            let like = Like::Output(self.outputs.len());
            self.outputs.push(FamilyArgument { name, like, is_number: false });
        }
        self
    }

    /// The gradient of this op.
    #[must_use]
    pub fn gradient(&self) -> Family {
        self.gradient_reading(&Read::default())
    }

    /// The gradient of this op, which reads some of its outputs.
    ///
    /// The name of a gradient may be that of an input already; a number then tells them apart.
    #[must_use]
    pub fn gradient_reading(&self, read: &Read) -> Family {
        let mut inputs = self.inputs.clone();
        for &output in &read.outputs {
            let given = &self.outputs[output];
            if read.in_place == Some(output) {
                inputs[0].name.clone_from(&given.name);
            } else {
                inputs.push(given.clone());
            }
        }
        let mut taken: HashSet<String> = inputs.iter().map(|input| input.name.clone()).collect();
        let numbers = self.inputs.iter().filter(|input| input.is_number);
        let outputs: Vec<FamilyArgument> = numbers.map(|input| gradient_of(input, &mut taken)).collect();
        // A name of the forward op's would be wired to it.
        let all = self.inputs.iter().chain(&self.outputs);
        taken.extend(all.map(|argument| argument.name.clone()));
        let numbers = self.outputs.iter().filter(|output| output.is_number);
        inputs.extend(numbers.map(|output| gradient_of(output, &mut taken)));
        Family { inputs, outputs }
    }

    /// The gradient of this order; the op itself is of order 0.
    #[must_use]
    pub fn order(&self, order: usize) -> Family {
        (0..order).fold(self.clone(), |family, _| family.gradient())
    }
}

/// The gradient of an argument, with a name that is not taken.
fn gradient_of(argument: &FamilyArgument, taken: &mut HashSet<String>) -> FamilyArgument {
    let plain = format!("{}_grad", argument.name);
    let numbered = (2..).map(|number| format!("{plain}_{number}"));
    let name = std::iter::once(plain.clone()).chain(numbered).find(|name| !taken.contains(name));
    let name = name.unwrap_or(plain);
    taken.insert(name.clone());
    FamilyArgument { name, like: argument.like, is_number: true }
}

/// The name of the op of this order, of which the forward op's is `name`: `Gelu`, `GeluGrad`, `GeluGradGrad`.
pub fn op_name(name: &str, order: usize) -> String {
    format!("{name}{}", "Grad".repeat(order))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{GradientWiring, SignatureBuilder};

    fn signature(family: &Family) -> crate::Signature {
        let mut builder = SignatureBuilder::new("Op").attr("T: {float}");
        for input in &family.inputs {
            builder = builder.input(format!("{}: T", input.name));
        }
        for output in &family.outputs {
            builder = builder.output(format!("{}: T", output.name));
        }
        builder.build().unwrap()
    }

    #[test]
    fn every_order_is_wired_to_the_one_before() {
        use crate::GradientInput::*;
        let mut family = Family::new(&["x", "w"], &["y", "z"]);
        for order in 0..4 {
            let gradient = family.gradient();
            let wiring = GradientWiring::new(&signature(&family), &signature(&gradient)).unwrap();
            let inputs = (0..family.inputs.len()).map(Input);
            let expected: Vec<_> = inputs.chain((0..family.outputs.len()).map(OutputGradient)).collect();
            assert_eq!(wiring.inputs, expected, "order {order}");
            assert_eq!(wiring.outputs, (0..family.inputs.len()).collect::<Vec<_>>());
            family = gradient;
        }
    }

    #[test]
    fn gradients_that_read_outputs_are_wired() {
        use crate::GradientInput::*;
        let forward = Family::new(&["x", "w"], &["y", "z"]);
        let mut family = forward.gradient_reading(&Read { outputs: vec![1], in_place: None });
        let wiring = GradientWiring::new(&signature(&forward), &signature(&family)).unwrap();
        assert_eq!(wiring.inputs, [Input(0), Input(1), Output(1), OutputGradient(0), OutputGradient(1)]);
        for order in 2..5 {
            let gradient = family.gradient();
            let wiring = GradientWiring::new(&signature(&family), &signature(&gradient)).unwrap();
            assert_eq!(wiring.outputs, (0..family.inputs.len()).collect::<Vec<_>>(), "order {order}");
            family = gradient;
        }
    }

    #[test]
    fn what_is_saved_has_no_gradients() {
        let forward = Family::new(&["x"], &["y"]).saving(["saved".to_owned()]);
        let first = forward.gradient_reading(&Read { outputs: vec![1], in_place: None });
        let names = |arguments: &[FamilyArgument]| -> Vec<String> {
            arguments.iter().map(|argument| argument.name.clone()).collect()
        };
        assert_eq!(names(&forward.outputs), ["y", "saved"]);
        assert_eq!(
            (names(&first.inputs), names(&first.outputs)),
            (vec!["x".into(), "saved".into(), "y_grad".into()], vec!["x_grad".into()])
        );
        let second = first.gradient();
        assert_eq!(names(&second.inputs), ["x", "saved", "y_grad", "x_grad_grad"]);
        assert_eq!(names(&second.outputs), ["x_grad", "y_grad_grad"]);
        let wiring = GradientWiring::new(&signature(&first), &signature(&second)).unwrap();
        assert_eq!(wiring.outputs, [0, 2]);
    }

    #[test]
    fn an_output_may_stand_for_the_only_input() {
        let forward = Family::new(&["x"], &["y"]);
        let first = forward.gradient_reading(&Read { outputs: vec![0], in_place: Some(0) });
        let names = |arguments: &[FamilyArgument]| -> Vec<String> {
            arguments.iter().map(|argument| argument.name.clone()).collect()
        };
        assert_eq!(
            (names(&first.inputs), names(&first.outputs)),
            (vec!["y".to_owned(), "y_grad".to_owned()], vec!["x_grad".to_owned()])
        );
        assert_eq!(first.inputs[0].like, Like::Input(0));
        let second = first.gradient();
        assert_eq!(names(&second.inputs), ["y", "y_grad", "x_grad_grad"]);
        assert_eq!(names(&second.outputs), ["y_grad_2", "y_grad_grad"]);
        let wiring = GradientWiring::new(&signature(&first), &signature(&second)).unwrap();
        assert_eq!(wiring.outputs, [0, 1]);
    }

    #[test]
    fn arguments_have_the_shapes_of_the_forward_op() {
        let second = Family::new(&["x", "w"], &["y"]).order(2);
        let likes: Vec<Like> = second.inputs.iter().map(|input| input.like).collect();
        assert_eq!(likes, [Like::Input(0), Like::Input(1), Like::Output(0), Like::Input(0), Like::Input(1)]);
        assert_eq!(second.outputs[2].like, Like::Output(0));
        assert_eq!(op_name("Gelu", 2), "GeluGradGrad");
    }
}
