//! An op with memory.

use opsmith::ndarray::arr0;
use opsmith::prelude::*;

/// `Counter`: how many times it has been called, this call included.
///
/// `stateful` tells frameworks never to fold, merge or drop calls. The state is a resource of the library: kernels share it
/// by name, behind a lock, for `compute` runs on several threads at once.
pub struct Counter {
    container: String,
    name: String,
}

impl OpDefinition for Counter {
    fn def() -> OpDef {
        OpDef::new("Counter")
            .attr("container: string = ''")
            .attr("name: string = 'counter'")
            .output("count: int64")
            .shape_fn(shape_fns::scalar)
            .stateful()
            .kernel(KernelDef::cpu::<Counter>())
            .not_differentiable()
            .doc(
                "Counts its calls.\n\
                 \n\
                 count: A scalar: the number of calls so far with the same `container` and `name`, this one included.\n\
                 container: A namespace for `name`.\n\
                 name: Which counter to count on.",
            )
    }
}

impl OpKernel for Counter {
    fn new(construction: &mut OpKernelConstruction<'_>) -> Result<Self> {
        Ok(Counter { container: construction.attr("container")?, name: construction.attr("name")? })
    }

    fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<()> {
        let counter = context.resource(&self.container, &self.name, || Ok(0i64))?;
        let mut counter = counter.lock()?;
        *counter += 1;
        context.output_view::<i64, Ix0>("count", &[])?.assign(&arr0(*counter));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use opsmith::{infer_ok, testing};

    use super::*;

    #[test]
    fn counts_from_one_in_a_library_of_its_own() {
        let outputs = testing::call::<Counter>().attr("name", "mine").run().unwrap();
        assert_eq!(outputs.array::<i64, Ix0>("count").unwrap(), arr0(1));
        assert!(Counter::def().build().unwrap().signature().stateful);
        infer_ok!(testing::shapes::<Counter>(), "", "[]");
    }
}
