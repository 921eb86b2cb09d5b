//! Several operators as one: pointwise ones in one pass over memory, and with folds of rows.

use opsmith::prelude::*;
use opsmith::{InferenceContext, ProgramKernel, RowsKernel, Shape};

use crate::define::ops;
use crate::elementwise::broadcast_shape;

ops! {
    /// The op `Pointwise`: a function that is given as a program, of every element.
    Pointwise = pointwise();
    /// The op `RowWise`: a function that is given as a program, of every row.
    RowWise = row_wise();
}

fn pointwise() -> OpDef {
    OpDef::new("Pointwise")
        .attr("program: string")
        .attr("N: int >= 1")
        .attr("M: int >= 1")
        .attr("T: {half, bfloat16, float, double}")
        .input("inputs: N * T")
        .output("outputs: M * T")
        .parallel("(...) -> (...)")
        .doc(
            "A function of each element of inputs that broadcast by NumPy's rules: several pointwise operators in one pass \
             over memory. A session puts it in the place of operators that follow each other.\n\n\
             program: What is computed, a line for each step: `inputs 1 1`, a 1 for each input, then `input 0`, `constant` with the bits of a \
             float64 in hexadecimal, or an operation with the numbers of the steps that it takes, as in `add 0 1`; \
             last, for each output, `output` with the number of a step and 1.\n\
             N: How many inputs there are.\n\
             M: How many outputs there are.\n\
             inputs: Any numbers.\n\
             outputs: Each of the shape that all inputs broadcast to.",
        )
        .shape_fn(infer)
        .kernels([DType::Float16, DType::BFloat16, DType::Float32, DType::Float64].map(|dtype| {
            KernelDef::cpu::<ProgramKernel>().strided().dtype_constraint("T", dtype)
        }))
}

fn row_wise() -> OpDef {
    OpDef::new("RowWise")
        .attr("program: string")
        .attr("rank: int >= 0")
        .attr("row: list(int)")
        .attr("lacking: list(int)")
        .attr("N: int >= 1")
        .attr("M: int >= 1")
        .attr("T: {half, bfloat16, float, double}")
        .input("inputs: N * T")
        .output("outputs: M * T")
        .doc(
            "A function of each row of inputs that broadcast: folds and pointwise operators before and after them as one. A \
             session puts it in the place of operators that follow each other.\n\n\
             program: As that of `Pointwise`, with 0 in the place of 1 for what there is one of for each row, and with folds, as \
             in `fold_sum 1 0`, and `count 0`, the length of a row.\n\
             rank: How many dims the inputs have together.\n\
             row: Which of these dims are a row, by positions from 0.\n\
             lacking: Which arguments, inputs and then outputs, lack the dims of a row, by positions. Others that there are one of \
             for each row have them as dims of 1.\n\
             N: How many inputs there are.\n\
             M: How many outputs there are.\n\
             inputs: Any numbers. They broadcast by NumPy's rules; those that lack the dims of a row along the other dims.\n\
             outputs: Of the shape that all inputs broadcast to, or one number for each row.",
        )
        .shape_fn(infer_rows)
        .kernels([DType::Float16, DType::BFloat16, DType::Float32, DType::Float64].map(|dtype| {
            KernelDef::cpu::<RowsKernel>().strided().dtype_constraint("T", dtype)
        }))
}

/// How many dims outputs have depends on the program, which is not read here.
fn infer_rows(c: &mut InferenceContext<'_>) -> Result<()> {
    (0..c.num_outputs()).try_for_each(|output| c.set_output(output, Shape::unknown()))
}

/// Every output has the shape that all inputs broadcast to.
fn infer(c: &mut InferenceContext<'_>) -> Result<()> {
    let shape = broadcast_shape(c)?;
    (0..c.num_outputs()).try_for_each(|output| c.set_output(output, shape.clone()))
}

#[cfg(test)]
mod tests {
    use opsmith::infer_ok;
    use opsmith::ndarray::ArrayD;
    use opsmith::testing;

    use super::*;

    const NORM: &str =
        "inputs 1 1\ninput 0\nmul 0 0\ninput 1\nmul 2 2\nadd 1 3\nsqrt 4\noutput 5 1\noutput 1 1";

    fn call<'a>(program: &str, outputs: i64, x: &'a ArrayD<f64>, y: &'a ArrayD<f64>) -> testing::Call<'a> {
        let call = testing::call::<Pointwise>().attr("program", program).attr("M", outputs);
        call.input_list([testing::view(x), testing::view(y)])
    }

    #[test]
    fn a_program_is_run_on_every_element() -> Result<()> {
        let (x, y) = (array![[3.0], [5.0]].into_dyn(), array![4.0, 12.0].into_dyn());
        let outputs = call(NORM, 2, &x, &y).run()?;
        let expected = array![[5.0, 153f64.sqrt()], [41f64.sqrt(), 13.0]];
        assert_eq!(outputs.element::<f64, Ix2>("outputs", 0)?, expected);
        assert_eq!(outputs.element::<f64, Ix2>("outputs", 1)?, array![[9.0, 9.0], [25.0, 25.0]]);
        Ok(())
    }

    // `opsmith check` makes no programs.
    #[test]
    fn a_program_on_parts_is_that_on_the_whole() -> Result<()> {
        let (x, y) = (array![[3.0, 1.0], [5.0, 2.0]], array![4.0, 12.0].into_dyn());
        let run = |x: ArrayD<f64>| call(NORM, 2, &x, &y).run()?.element::<f64, Ix2>("outputs", 0);
        let whole = run(x.clone().into_dyn())?;
        for row in 0..2 {
            let part = run(x.slice(s![row..=row, ..]).to_owned().into_dyn())?;
            assert_eq!(part, whole.slice(s![row..=row, ..]));
        }
        assert_eq!(
            pointwise().build()?.parallel().map(ToString::to_string).as_deref(),
            Some("(...) -> (...)")
        );
        Ok(())
    }

    /// x · y less its sum, which is the second output; y has one number for each row.
    const ROWS: &str = "inputs 1 0\ninput 0\ninput 1\nmul 0 1\nfold_sum 2 0\nsub 2 3\noutput 4 1\noutput 3 0";

    fn rows<'a>(lacking: Vec<i64>, x: &'a ArrayD<f64>, y: &'a ArrayD<f64>) -> testing::Call<'a> {
        let call = testing::call::<RowWise>().attr("program", ROWS).attr("M", 2).attr("rank", 2);
        let call = call.attr("row", vec![1]).attr("lacking", lacking);
        call.input_list([testing::view(x), testing::view(y)])
    }

    #[test]
    fn a_program_is_run_on_every_row() -> Result<()> {
        let x = array![[1.0, 2.0], [3.0, 4.0]].into_dyn();
        let expected = array![[-20.0, -10.0], [-400.0, -300.0]];
        let outputs = rows(vec![1, 3], &x, &array![10.0, 100.0].into_dyn()).run()?;
        assert_eq!(outputs.element::<f64, Ix2>("outputs", 0)?, expected);
        assert_eq!(outputs.element::<f64, Ix1>("outputs", 1)?, array![30.0, 700.0]);
        let outputs = rows(vec![], &x, &array![[10.0], [100.0]].into_dyn()).run()?;
        assert_eq!(outputs.element::<f64, Ix2>("outputs", 0)?, expected);
        assert_eq!(outputs.element::<f64, Ix2>("outputs", 1)?, array![[30.0], [700.0]]);
        Ok(())
    }

    #[test]
    fn rows_that_do_not_fit_are_told() {
        let (x, y) = (array![[1.0, 2.0], [3.0, 4.0]].into_dyn(), array![1.0, 2.0, 3.0].into_dyn());
        let message = |call: testing::Call<'_>| call.run().unwrap_err().message().to_owned();
        let shapes = "RowWise: expected inputs that broadcast to one shape of rank 2, got";
        assert_eq!(message(rows(vec![1], &x, &y)), format!("{shapes} [2, 2], [3]"));
        // It has more than one number for each row.
        assert_eq!(message(rows(vec![], &x, &x)), format!("{shapes} [2, 2], [2, 2]"));
        assert_eq!(message(rows(vec![1], &x, &x)), format!("{shapes} [2, 2], [2, 2]"));
        let lacking = "RowWise: attribute `lacking` must have numbers from 0 to below 4, got";
        assert_eq!(message(rows(vec![4], &x, &y)), format!("{lacking} 4"));
        assert_eq!(message(rows(vec![-1], &x, &y)), format!("{lacking} -1"));
        let rank = message(rows(vec![], &x, &y).attr("rank", i64::MAX));
        assert_eq!(rank, format!("RowWise: attribute `rank` must be at most 64, got {}", i64::MAX));
        let axes = message(rows(vec![], &x, &y).attr("program", "inputs 2 0\ninput 0\noutput 0 2"));
        assert_eq!(
            axes,
            "RowWise: attribute `program` must have one axis, and at most 64 inputs and outputs"
        );
    }

    #[test]
    fn what_does_not_fit_is_told() {
        let (x, y) = (array![1.0, 2.0].into_dyn(), array![1.0, 2.0, 3.0].into_dyn());
        let message = |call: testing::Call<'_>| call.run().unwrap_err().message().to_owned();
        assert_eq!(
            message(call("inputs 1 1\nfrob 1", 1, &x, &x)),
            "Pointwise: attribute `program` is no program: line 2, `frob 1`: there is no such operation"
        );
        for rows in ["inputs 1 1\ninput 0\nfold_sum 0 0\noutput 1 1", "inputs 1 0\ninput 0\noutput 0 1"] {
            let what =
                "must be a function of each element: without folds, and with 1 for each input and output";
            assert_eq!(message(call(rows, 1, &x, &x)), format!("Pointwise: attribute `program` {what}"));
        }
        assert_eq!(
            message(call(NORM, 1, &x, &x)),
            "Pointwise: the program has 2 inputs and 2 outputs, got 2 and 1"
        );
        let error = message(call(NORM, 2, &x, &y));
        assert_eq!(error, "Pointwise: expected inputs that broadcast to one shape, got [2], [3]");
        let shapes = || testing::shapes::<Pointwise>().attr("program", NORM.into()).attr("M", 2.into());
        infer_ok!(shapes(), "[?,1];[3]", "[?,3];[?,3]");
    }
}
