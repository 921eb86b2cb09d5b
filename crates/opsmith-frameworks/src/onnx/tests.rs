//! Ops as ONNX Runtime is told of them.

use std::ffi::CStr;

use opsmith_core::{KernelDef, OpDef};

use super::*;

/// A kernel that computes nothing.
pub(super) struct Nothing;

impl opsmith_core::OpKernel for Nothing {
    fn new(_: &mut opsmith_core::OpKernelConstruction<'_>) -> opsmith_core::Result<Self> {
        Ok(Nothing)
    }

    fn compute(&self, _: &mut opsmith_core::OpKernelContext<'_>) -> opsmith_core::Result<()> {
        Ok(())
    }
}

#[test]
fn a_card_has_the_op_once_more_behind_the_cpus() {
    let on_card = KernelDef::cuda::<Nothing>().type_constraint::<f64>("T").host_memory("size");
    let def = OpDef::new("Op").attr("T: {float, double}").input("x: T").input("size: int64");
    let def = def.output("y: T").kernel(KernelDef::cpu::<Nothing>()).kernel(on_card);
    let op: &Op = Box::leak(Box::new(def.build().unwrap()));
    let known = |on_card| -> Vec<(bool, c_int, c_int)> {
        let all = CustomOp::all_of(Api::played(32, &[]), "played", op, on_card).unwrap().unwrap();
        let tell = |custom: &CustomOp| {
            let (facts, op) = (facts(), std::ptr::from_ref(custom).cast());
            // SAFETY: it is one of ours, and the name of a provider a C string.
            unsafe {
                let provider = (facts.provider)(op);
                let is_on_card = !provider.is_null() && CStr::from_ptr(provider) == card::PROVIDER;
                (is_on_card, (facts.input_type)(op, 0), (facts.input_memory)(op, 1))
            }
        };
        all.iter().map(tell).collect()
    };
    assert_eq!(known(false), [(false, 1, 0), (false, 11, 0)]);
    assert_eq!(known(true), [(false, 1, 0), (false, 11, 0), (true, 11, HOST_MEMORY)]);
}
