//! Functions of elements on a card without one: run on the processor, against the kernels of the CPU.

use opsmith::dtype::{bf16, f16};
use opsmith::ndarray::Array2;
use opsmith::prelude::*;
use opsmith::testing::{Call, call};

use crate::arithmetic::{Add, Maximum, Mul, Sub};
use crate::compare::{Equal, Greater, Less, LessEqual, LogicalAnd, LogicalNot, LogicalOr, NotEqual};
use crate::functions::{Abs, Neg, Sign, Square};
use crate::select::Select;

/// Runs both kernels of a call, if that can be done here, and compares the output.
fn compare<'a, T: Element>(form: impl Fn() -> Call<'a>, output: &str) -> Result<()> {
    let Some(own) = form().run_cuda_on_processor()? else { return Ok(()) };
    assert_eq!(own.array::<T, IxDyn>(output)?, form().run()?.array::<T, IxDyn>(output)?);
    Ok(())
}

#[test]
fn comparisons_and_logic() -> Result<()> {
    let x = array![[1.0f32, f32::NAN, -0.0], [2.0, 5.0, f32::INFINITY]];
    let (y, row) = (array![[1.0f32, 2.0], [f32::NAN, 5.0], [0.0, -1.0]], array![0.0f32]);
    compare::<bool>(|| call::<Equal>().input(&x).input(&row), "z")?;
    let turned = y.t();
    compare::<bool>(|| call::<NotEqual>().input(&x).input(&turned), "z")?;
    compare::<bool>(|| call::<Less>().input(&turned).input(&x), "z")?;
    let (a, b) = (x.mapv(f16::from_f32), y.t().mapv(f16::from_f32));
    compare::<bool>(|| call::<LessEqual>().input(&a).input(&b), "z")?;
    let (a, b) = (x.mapv(bf16::from_f32), y.t().mapv(bf16::from_f32));
    compare::<bool>(|| call::<Greater>().input(&a).input(&b), "z")?;
    let (a, b) = (array![[true], [false]], array![true, false]);
    compare::<bool>(|| call::<LogicalAnd>().input(&a).input(&b), "z")?;
    compare::<bool>(|| call::<LogicalOr>().input(&a).input(&b), "z")?;
    compare::<bool>(|| call::<LogicalNot>().input(&b), "y")?;
    let none = Array2::<f32>::zeros((0, 3));
    compare::<bool>(|| call::<Less>().input(&none).input(&row), "z")
}

#[test]
fn one_of_two() -> Result<()> {
    let (condition, x) = (array![[true], [false]], array![[1.5f64, f64::INFINITY], [3.0, 4.0]]);
    let y = opsmith::ndarray::arr0(-1.0f64);
    let turned = x.slice(s![..;-1, ..]);
    compare::<f64>(|| call::<Select>().input(&condition).input(&y).input(&turned), "z")?;
    let (x, y) = (array![1u8, 2], array![3u8]);
    compare::<u8>(|| call::<Select>().input(&condition).input(&x).input(&y), "z")?;
    let second = || Call::new(Select::COMPANIONS[1]()).input(&condition);
    let (x, y) = (array![f16::ONE, f16::ZERO], array![f16::NEG_ONE]);
    compare::<f16>(|| second().input(&x).input(&y), "z_grad_grad")
}

#[test]
fn integers_wrap_around() -> Result<()> {
    let (x, y) = (array![i8::MIN, -1, 0, 7, i8::MAX], array![i8::MAX]);
    compare::<i8>(|| call::<Add>().input(&x).input(&y), "z")?;
    compare::<i8>(|| call::<Sub>().input(&x).input(&y), "z")?;
    compare::<i8>(|| call::<Mul>().input(&x).input(&y), "z")?;
    compare::<i8>(|| call::<Neg>().input(&x), "y")?;
    compare::<i8>(|| call::<Abs>().input(&x), "y")?;
    compare::<i8>(|| call::<Sign>().input(&x), "y")?;
    let wide = array![u64::MAX, 1 << 40];
    compare::<u64>(|| call::<Square>().input(&wide), "y")?;
    let turned = wide.slice(s![..;-1]);
    compare::<u64>(|| call::<Maximum>().input(&wide).input(&turned), "z")?;
    compare::<u64>(|| call::<Abs>().input(&wide), "y")
}
