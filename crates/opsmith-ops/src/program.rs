//! Several operators as one: pointwise ones in one pass over memory, and with folds along axes.

use opsmith::prelude::*;
use opsmith::{AxesKernel, InferenceContext, ProgramKernel, Shape};

use crate::define::ops;
use crate::elementwise::broadcast_shape;

ops! {
    /// The op `Pointwise`: a function that is given as a program, of every element.
    Pointwise = pointwise();
    /// The op `OverAxes`: a function that is given as a program, over axes.
    OverAxes = over_axes();
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

fn over_axes() -> OpDef {
    OpDef::new("OverAxes")
        .attr("program: string")
        .attr("space: list(int)")
        .attr("dims: list(int)")
        .attr("N: int >= 1")
        .attr("M: int >= 0")
        .attr("P: int >= 0 = 0")
        .attr("T: {half, bfloat16, float, double}")
        .input("inputs: N * T")
        .output("outputs: M * T")
        .output("positions: P * int64")
        .doc(
            "A function over axes of inputs that broadcast: folds, functions over several named axes, and pointwise operators before \
             and after them as one. A session puts it in the place of operators that follow each other.\n\n\
             program: As that of `Pointwise`, with the axes of each input and output as bits in the place of 1, and with folds along an \
             axis, as in `fold_sum 1 0`, `count 0`, the size of an axis, and `index 0`, the position along it.\n\
             space: For each dim of a space the axis that it is of, alone or with other dims; -1 of a batch.\n\
             dims: For each argument, inputs and then outputs, how many dims it has, and then which of the space these are, -1 for one \
             of size 1.\n\
             N: How many inputs there are.\n\
             M: How many outputs there are.\n\
             P: How many there are of the program's last outputs, which are whole numbers.\n\
             inputs: Any numbers. They broadcast to the dims that are theirs, of which there may be fewer, the last ones.\n\
             outputs: Of the sizes that all inputs broadcast to.\n\
             positions: The last ones, of such sizes too.",
        )
        .shape_fn(infer_axes)
        .kernels([DType::Float16, DType::BFloat16, DType::Float32, DType::Float64].map(|dtype| {
            KernelDef::cpu::<AxesKernel>().strided().dtype_constraint("T", dtype)
        }))
}

/// How many dims outputs have depends on the program, which is not read here.
fn infer_axes(c: &mut InferenceContext<'_>) -> Result<()> {
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
    /// What has one number for each row lacks the dim of a row, or has it as one of 1.
    const LACKING: [i64; 10] = [2, 0, 1, 1, 0, 2, 0, 1, 1, 0];
    const KEPT: [i64; 12] = [2, 0, 1, 2, 0, -1, 2, 0, 1, 2, 0, -1];

    fn rows<'a>(dims: &[i64], x: &'a ArrayD<f64>, y: &'a ArrayD<f64>) -> testing::Call<'a> {
        let call = testing::call::<OverAxes>().attr("program", ROWS).attr("M", 2);
        let call = call.attr("space", vec![-1, 0]).attr("dims", dims.to_vec());
        call.input_list([testing::view(x), testing::view(y)])
    }

    #[test]
    fn a_program_is_run_on_every_row() -> Result<()> {
        let x = array![[1.0, 2.0], [3.0, 4.0]].into_dyn();
        let expected = array![[-20.0, -10.0], [-400.0, -300.0]];
        let outputs = rows(&LACKING, &x, &array![10.0, 100.0].into_dyn()).run()?;
        assert_eq!(outputs.element::<f64, Ix2>("outputs", 0)?, expected);
        assert_eq!(outputs.element::<f64, Ix1>("outputs", 1)?, array![30.0, 700.0]);
        let outputs = rows(&KEPT, &x, &array![[10.0], [100.0]].into_dyn()).run()?;
        assert_eq!(outputs.element::<f64, Ix2>("outputs", 0)?, expected);
        assert_eq!(outputs.element::<f64, Ix2>("outputs", 1)?, array![[30.0], [700.0]]);
        Ok(())
    }

    /// The largest along j of the sum along k of x(i,k) · y(j,k), and each of x, which broadcasts.
    #[test]
    fn a_program_is_run_over_several_axes() -> Result<()> {
        let program =
            "inputs 5 6\ninput 0\ninput 1\nmul 0 1\nfold_sum 2 2\nfold_max 3 1\noutput 4 1\noutput 0 5";
        let (x, y) = (array![[1.0, 2.0], [3.0, -4.0]].into_dyn(), array![1.0, 2.0].into_dyn());
        let call = testing::call::<OverAxes>().attr("program", program).attr("M", 2);
        let call = call
            .attr("space", vec![-1, 0, 1, 2])
            .attr("dims", vec![3, 0, 1, 3, 3, 0, 2, 3, 2, 0, 1, 3, 0, 1, 3]);
        let outputs = call.input_list([testing::view(&x), testing::view(&y)]).run()?;
        assert_eq!(outputs.element::<f64, Ix2>("outputs", 0)?, array![[5.0, -5.0]]);
        assert_eq!(outputs.element::<f64, Ix3>("outputs", 1)?, array![[[1.0, 2.0], [3.0, -4.0]]]);
        Ok(())
    }

    /// The least of each row, and where it is.
    #[test]
    fn a_program_may_give_positions() -> Result<()> {
        let program = "inputs 1\ninput 0\nfold_min 0 0\neq 0 1\nindex 0\nconstant 7ff0000000000000\nselect 2 3 4\n\
                       fold_min 5 0\noutput 1 0\noutput 6 0";
        let x = array![[3.0, 1.0, 1.0], [4.0, 5.0, -6.0]].into_dyn();
        let call = testing::call::<OverAxes>().attr("program", program).attr("M", 1).attr("P", 1);
        let call = call.attr("space", vec![-1, 0]).attr("dims", vec![2, 0, 1, 1, 0, 1, 0]);
        let outputs = call.input_list([testing::view(&x)]).run()?;
        assert_eq!(outputs.element::<f64, Ix1>("outputs", 0)?, array![1.0, -6.0]);
        assert_eq!(outputs.element::<i64, Ix1>("positions", 0)?, array![1, 2]);
        Ok(())
    }

    #[test]
    fn arguments_that_do_not_fit_are_told() {
        let (x, y) = (array![[1.0, 2.0], [3.0, 4.0]].into_dyn(), array![1.0, 2.0, 3.0].into_dyn());
        let message = |call: testing::Call<'_>| call.run().unwrap_err().message().to_owned();
        let shapes = "OverAxes: expected inputs that broadcast to one shape of rank 2, got";
        assert_eq!(message(rows(&LACKING, &x, &y)), format!("{shapes} [2, 2], [3]"));
        // It has more than one number for each row.
        assert_eq!(message(rows(&KEPT, &x, &x)), format!("{shapes} [2, 2], [2, 2]"));
        assert_eq!(message(rows(&LACKING, &x, &x)), format!("{shapes} [2, 2], [2, 2]"));
        let expected = "OverAxes: attribute `dims` must have for each of 4 arguments how many dims it has, and then these, each once \
                        and from -1 to below 2, got";
        let wrong: [&[i64]; 6] = [
            &[],
            &[2, 0, 1, 1, 0, 2, 0, 1],
            &[2, 0, 2, 1, 0, 2, 0, 1, 1, 0],
            &[2, 0, 0, 1, 0, 2, 0, 1, 1, 0],
            &[i64::MAX, 0, 1],
            &[2, 0, 1, 1, 0, 2, 0, 1, 1, 0, 0],
        ];
        for dims in wrong {
            assert_eq!(message(rows(dims, &x, &y)), format!("{expected} {dims:?}"));
        }
        let own = message(rows(&[2, 0, 1, 2, 0, 1, 2, 0, 1, 1, 0], &x, &y));
        let own = own.strip_prefix(
            "OverAxes: argument 1, inputs and then outputs, has dims of the axes {0} by attribute `dims`, ",
        );
        assert_eq!(own, Some("and is on {} by `program`"));
        let space = message(rows(&LACKING, &x, &y).attr("space", vec![-1, 16]));
        assert_eq!(space, "OverAxes: attribute `space` must have numbers from -1 to below 16");
        let space = message(rows(&LACKING, &x, &y).attr("space", vec![0; 65]));
        assert_eq!(space, "OverAxes: attribute `space` must have at most 64 numbers, got 65");
        let axes = message(rows(&LACKING, &x, &y).attr("program", "inputs 2 0\ninput 0\noutput 0 2"));
        let expected = "must be over axes that `space` has, and with at most 64 inputs and outputs";
        assert_eq!(axes, format!("OverAxes: attribute `program` {expected}"));
    }

    #[test]
    fn what_does_not_fit_is_told() {
        let (x, y) = (array![1.0, 2.0].into_dyn(), array![1.0, 2.0, 3.0].into_dyn());
        let message = |call: testing::Call<'_>| call.run().unwrap_err().message().to_owned();
        assert_eq!(
            message(call("inputs 1 1\nfrob 1", 1, &x, &x)),
            "Pointwise: attribute `program` is not a program: line 2, `frob 1`: this is not an operation"
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
