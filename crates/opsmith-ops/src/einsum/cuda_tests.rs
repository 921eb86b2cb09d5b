//! Products along named dims on a card without one: run on the processor against the kernels of the CPU, and compiled.

use opsmith::dtype::{bf16, f16};
use opsmith::ndarray::{Array, ArrayD, Dimension};
use opsmith::testing::{Call, call, view};

use super::*;
use crate::card::tests::compare;

/// Small integers, of which products and sums are exact in every dtype.
fn numbers<T: RealNumber>(shape: &[usize], seed: usize) -> ArrayD<T> {
    Array::from_shape_fn(shape.to_vec(), |i| {
        let number: usize = i.slice().iter().fold(7 + seed, |n, i| n * 31 + i) % 4;
        <T as num_traits::NumCast>::from(number as f64).unwrap_or_else(T::zero)
    })
}

const EQUATIONS: [(&str, &[&[usize]]); 17] = [
    ("ij,jk->ik", &[&[3, 4], &[4, 5]]),
    ("ij,jk->ki", &[&[33, 4], &[4, 70]]),
    ("bqhd,bkhd->bhqk", &[&[2, 3, 2, 4], &[2, 5, 2, 4]]),
    ("bhqk,bkhd->bqhd", &[&[2, 2, 3, 5], &[2, 5, 2, 4]]),
    ("abi,ij->abj", &[&[2, 3, 4], &[4, 5]]),
    ("abij,jia->b", &[&[2, 3, 4, 2], &[2, 4, 2]]),
    ("i,j->ji", &[&[3], &[4]]),
    ("i,i->", &[&[70], &[70]]),
    ("bij,bij->b", &[&[2, 3, 3], &[2, 3, 3]]),
    ("...ii->...i", &[&[2, 3, 3]]),
    ("bii,b->i", &[&[2, 3, 3], &[2]]),
    ("ij,k->i", &[&[3, 4], &[2]]),
    ("ij->ji", &[&[3, 4]]),
    ("ij,ij->ij", &[&[3, 4], &[1, 4]]),
    ("...a,...a,a->...", &[&[2, 1, 3], &[4, 3], &[1]]),
    ("bij,ik,kl->bl", &[&[2, 3, 2], &[3, 4], &[4, 2]]),
    ("abi,ij->abj", &[&[2, 0, 4], &[4, 5]]),
];

/// Compares the outputs of both kernels of a call, of which the first is a list of so many.
fn compare_all<'a, T: Element>(form: impl Fn() -> Call<'a>, count: usize, last: Option<&str>) -> Result<()> {
    let Some(own) = form().run_cuda_on_processor()? else { return Ok(()) };
    let expected = form().run()?;
    for index in 0..count {
        let [own, expected] = [&own, &expected].map(|all| all.element::<T, IxDyn>("inputs_grad", index));
        assert_eq!(own?, expected?, "{index}");
    }
    if let Some(name) = last {
        assert_eq!(own.array::<T, IxDyn>(name)?, expected.array::<T, IxDyn>(name)?);
    }
    Ok(())
}

fn list<T: Element>(all: &[ArrayD<T>]) -> Vec<TensorView<'_>> {
    all.iter().map(view).collect()
}

fn all_orders<T: AnyFloat>() -> Result<()> {
    for (equation, shapes) in EQUATIONS {
        let seeds = |first: usize| shapes.iter().enumerate().map(move |(n, shape)| (first + n, *shape));
        let inputs: Vec<ArrayD<T>> = seeds(0).map(|(seed, shape)| numbers(shape, seed)).collect();
        let changes: Vec<ArrayD<T>> = seeds(9).map(|(seed, shape)| numbers(shape, seed)).collect();
        let with = |def: OpDef| Call::new(def).attr("equation", equation).input_list(list(&inputs));
        compare::<T>(|| with(forward()), "y")?;
        let y = with(forward()).run()?.array::<T, IxDyn>("y")?;
        let y_grad = numbers::<T>(y.shape(), 5);
        compare_all::<T>(|| with(gradient()).input(&y_grad), inputs.len(), None)?;
        let second = || with(second_gradient()).input(&y_grad).input_list(list(&changes));
        compare_all::<T>(second, inputs.len(), Some("y_grad_grad"))?;
    }
    Ok(())
}

#[test]
fn products_and_gradients_are_those_of_the_cpu() -> Result<()> {
    all_orders::<f32>()?;
    all_orders::<f64>()?;
    all_orders::<f16>()?;
    all_orders::<bf16>()
}

#[test]
fn integers_wrap_around() -> Result<()> {
    fn with<T: Integer>() -> Result<()> {
        for (equation, shapes) in EQUATIONS {
            let large = T::max_value() / <T as num_traits::NumCast>::from(3).unwrap_or_else(T::one);
            let input = |(seed, shape): (usize, &&[usize])| numbers::<T>(shape, seed).mapv(|n| n * large);
            let inputs: Vec<ArrayD<T>> = shapes.iter().enumerate().map(input).collect();
            let form = || call::<Einsum>().input_list(inputs.iter().map(view)).attr("equation", equation);
            compare::<T>(form, "y")?;
        }
        Ok(())
    }
    with::<i8>()?;
    with::<u16>()?;
    with::<i32>()?;
    with::<u64>()
}

#[test]
fn half_precision_is_added_up_in_single() -> Result<()> {
    let ones = ArrayD::from_elem(vec![2, 4096], f16::ONE);
    for equation in ["bi,bi->b", "bi,bi->", "bi,ci->bc", "bi,ci,bi->c"] {
        let inputs = || vec![view(&ones); equation.matches(',').count() + 1];
        compare::<f16>(|| call::<Einsum>().input_list(inputs()).attr("equation", equation), "y")?;
    }
    compare::<f16>(|| call::<Einsum>().input_list([view(&ones)]).attr("equation", "bi->b"), "y")
}

#[test]
fn strided_tensors_are_multiplied_as_they_lie() -> Result<()> {
    let (x, y) = (numbers::<f32>(&[9, 8, 7], 0), numbers::<f32>(&[7, 6, 9], 1));
    let (turned, part) = (x.slice(s![..;-2, 1.., ..;3]), y.slice(s![..;3, ..4, ..;2]));
    // Dims that lie one behind the other are one; others are copied.
    for (equation, launches) in [("abc,cda->abd", 1), ("abc,cda->bd", 3)] {
        let list = || [view(&turned), view(&part)];
        let form = || call::<Einsum>().input_list(list()).attr("equation", equation);
        assert_eq!(form().kernels_launched()?.len(), launches, "{equation}");
        compare::<f32>(form, "y")?;
    }
    let (q, k) = (numbers::<f16>(&[2, 3, 2, 4], 0), numbers::<f16>(&[2, 5, 2, 4], 1));
    let form = call::<Einsum>().input_list([view(&q), view(&k)]).attr("equation", "bqhd,bkhd->bhqk");
    assert_eq!(form.kernels_launched()?, ["gemm<opsmith::half, int, 2, false, false>"]);
    Ok(())
}

#[test]
fn elements_far_apart_have_wide_indices() -> Result<()> {
    let far = Array::<u8, _>::zeros((1 << 31) + 1);
    let far = far.slice(s![..;1 << 30]);
    let form = || call::<Einsum>().input_list([view(&far), view(&far)]).attr("equation", "i,j->ij");
    let names = form().kernels_launched()?;
    assert!(names.iter().all(|name| name.ends_with("long long>")), "{names:?}");
    form().compile_for_cuda()?;
    compare::<u8>(form, "y")
}

#[test]
fn kernels_compile_and_errors_are_those_of_the_cpu() -> Result<()> {
    let (x, y) = (numbers::<bf16>(&[2, 3, 3], 0), numbers::<bf16>(&[2, 3], 1));
    let list = || [view(&x), view(&y)];
    let with =
        |def: OpDef, equation: &'static str| Call::new(def).input_list(list()).attr("equation", equation);
    with(forward(), "bij,bk->ik").compile_for_cuda()?;
    let y_grad = numbers::<bf16>(&[3, 3], 2);
    with(gradient(), "bii,bk->ik").input(&y_grad).compile_for_cuda()?;
    with(second_gradient(), "bii,bk->ik").input(&y_grad).input_list(list()).compile_for_cuda()?;
    let whole = x.mapv(|x| x.to_f32() as i8);
    call::<Einsum>().input_list([view(&whole)]).attr("equation", "bij->j").compile_for_cuda()?;
    let wrong = || with(forward(), "bij,jb->i");
    assert_eq!(wrong().launches(&mut |_| Ok(())).unwrap_err(), wrong().run().unwrap_err());
    Ok(())
}
