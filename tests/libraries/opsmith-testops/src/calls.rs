//! Calls: state, instances, threads.

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering};

use opsmith::ndarray::Ix1;
use opsmith::{KernelDef, OpDef, OpKernel, OpKernelConstruction, OpKernelContext, Result, shape_fns};

use crate::arguments::kernel;

kernel!(Counter, |context| {
    let count = context.resource("", "counter", || Ok(0i64))?;
    let mut count = count.lock()?;
    *count += 1;
    context.allocate_output(0, &[])?.as_slice_mut::<i64>()?[0] = *count;
    Ok(())
});

/// How often it has been called, in a resource of the library.
pub(crate) fn counter() -> OpDef {
    OpDef::new("Counter")
        .output("count: int64")
        .stateful()
        .shape_fn(shape_fns::scalar)
        .kernel(KernelDef::cpu::<Counter>())
}

kernel!(NumThreads, |context| {
    let seen = Mutex::new(HashSet::new());
    context.parallel_for(64, 1_000_000, |_| {
        std::thread::sleep(std::time::Duration::from_millis(1));
        if let Ok(mut seen) = seen.lock() {
            seen.insert(std::thread::current().id());
        }
    });
    let seen = seen.into_inner().map_or(0, |seen| seen.len());
    let mut output = context.allocate_output(0, &[2])?;
    output.as_slice_mut::<i64>()?.copy_from_slice(&[context.num_threads() as i64, seen as i64]);
    Ok(())
});

/// How many threads the caller offers, and how many took part in a long loop.
pub(crate) fn num_threads() -> OpDef {
    OpDef::new("NumThreads")
        .output("counts: int64")
        .stateful()
        .shape_fn(shape_fns::unknown)
        .kernel(KernelDef::cpu::<NumThreads>())
}

kernel!(Squares, |context| {
    let x = context.slice::<f64>(0)?;
    let output = context.allocate_output(0, &[x.len()])?.into_slice::<f64>()?;
    let cells: Vec<Mutex<&mut f64>> = output.iter_mut().map(Mutex::new).collect();
    context.parallel_for(x.len(), 10_000, |range| {
        for i in range {
            if let Ok(mut cell) = cells[i].lock() {
                **cell = x[i] * x[i];
            }
        }
    });
    Ok(())
});

/// The squares of a vector's elements, on all threads.
pub(crate) fn squares() -> OpDef {
    OpDef::new("Squares")
        .input("x: double")
        .output("y: double")
        .shape("(n)->(n)")
        .kernel(KernelDef::cpu::<Squares>())
}

/// Which instance this is.
struct Instances(i64);

impl OpKernel for Instances {
    fn new(_: &mut OpKernelConstruction<'_>) -> Result<Self> {
        static MADE: AtomicI64 = AtomicI64::new(0);
        Ok(Instances(MADE.fetch_add(1, Ordering::Relaxed)))
    }

    fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<()> {
        context.output_view::<i64, Ix1>(0, &[1])?[0] = self.0;
        Ok(())
    }
}

/// The number of the instance that runs: one for each distinct value of the attribute.
pub(crate) fn instances() -> OpDef {
    OpDef::new("Instances")
        .attr("a: float")
        .output("number: int64")
        .shape_fn(shape_fns::unknown)
        .kernel(KernelDef::cpu::<Instances>())
}
