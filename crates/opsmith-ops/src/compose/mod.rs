//! Ops, and gradients of ops, that are stated as compositions of other ops.
//!
//! A [`Composition`] calls ops by their Rust types on symbolic [`Value`]s. It is traced once for each set of attributes and of
//! inputs that are present, into a list of steps; calls run the steps, each by the kernel that a call of its op gets. Its
//! gradients are compositions too: those of the gradients of its steps.
//!
//! ```
//! use opsmith::prelude::*;
//! use opsmith::testing::call;
//! use opsmith_ops::arithmetic::{Add, Mul};
//! use opsmith_ops::compose::{self, Composer, Composition, Value};
//!
//! /// `x · y + x`.
//! struct Affine;
//!
//! impl OpDefinition for Affine {
//!     const COMPANIONS: &'static [fn() -> OpDef] = compose::gradients::<Affine>();
//!
//!     fn def() -> OpDef {
//!         let def = OpDef::new("Affine").attr("T: {float, double}").input("x: T").input("y: T").output("z: T");
//!         compose::define::<Affine>(def)
//!     }
//! }
//!
//! impl Composition for Affine {
//!     fn compose(c: &Composer<'_>) -> Result<Vec<Value>> {
//!         let (x, y) = (c.input("x")?, c.input("y")?);
//!         let product = c.apply::<Mul>(&[x, y])?;
//!         Ok(vec![c.apply::<Add>(&[product, x])?])
//!     }
//! }
//!
//! let outputs = call::<Affine>().input(&array![2.0, 3.0]).input(&array![4.0, 5.0]).run()?;
//! assert_eq!(outputs.array::<f64, Ix1>("z")?, array![10.0, 18.0]);
//! # Ok::<(), Error>(())
//! ```

mod entered;
mod gradient;
mod infer;
mod program;
mod reverse;
mod run;
#[cfg(test)]
mod tests;
mod trace;

use std::marker::PhantomData;

use opsmith::prelude::*;
use opsmith_core::family::op_name;

use self::gradient::GradientOf;
use self::run::Kernel;
pub use self::trace::{Call, Composer, Value};

/// An op that is a composition of ops.
pub trait Composition: OpDefinition + Sized + 'static {
    /// How many gradients are derived: 2 are that of the op and that of its gradient. 0 for an op whose statement names a
    /// gradient of its own, or says that it has none.
    const ORDERS: usize = 2;

    /// The statements of gradient ops that called ops name and that do not come with them, as those of `#[op(gradient = …)]`.
    const GRADIENT_OPS: &'static [fn() -> OpDef] = &[];

    /// Calls ops on the inputs, and gives a value for each output, those of a list one by one.
    ///
    /// # Errors
    /// What calls say, and whatever is wrong with the attributes.
    fn compose(c: &Composer<'_>) -> Result<Vec<Value>>;
}

/// Completes the statement of a composition: its kernel, its shapes and the name of its gradient. A shape function, or a shape
/// signature, that is set afterwards counts.
///
/// It has a kernel for the CPU. Called ops may have no state and change no input.
pub fn define<C: Composition>(def: OpDef) -> OpDef {
    let def = def.shape_fn(infer::outputs::<C>).kernel(KernelDef::cpu::<Kernel<C>>().strided());
    match def.signature() {
        Ok(signature) if C::ORDERS > 0 => def.gradient(&op_name(&signature.name, 1)),
        // What is wrong with it is found when the library is made.
        _ => def,
    }
}

/// The derived gradients of a composition, of the [`Composition::ORDERS`] that it says: its companions.
pub const fn gradients<C: Composition>() -> &'static [fn() -> OpDef] {
    const { Orders::<C>::ALL.split_at(C::ORDERS).0 }
}

struct Orders<C>(PhantomData<C>);

impl<C: Composition> Orders<C> {
    const ALL: &'static [fn() -> OpDef] = &[
        <GradientOf<C> as OpDefinition>::def,
        <GradientOf<GradientOf<C>> as OpDefinition>::def,
        <GradientOf<GradientOf<GradientOf<C>>> as OpDefinition>::def,
    ];
}
