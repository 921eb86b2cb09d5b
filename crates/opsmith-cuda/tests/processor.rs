//! Kernels run on the processor, and what that finds; where there is no C++ compiler, these tests say so and pass.

use opsmith_cuda::testing::processor;
use opsmith_cuda::{Arguments, Launch, Source};

const TEXT: &str = r#"#include "opsmith.cuh"

// Sums of rows, one block for each.
template <typename T> __global__ void sums(const T *x, T *sums, int length) {
    T sum = 0;
    for (int k = threadIdx.x; k < length; k += blockDim.x) sum += x[blockIdx.x * length + k];
    sum = opsmith::block_sum(sum);
    T most = opsmith::block_fold(x[blockIdx.x * length + threadIdx.x % length], opsmith::Larger());
    if (threadIdx.x == 0) sums[2 * blockIdx.x] = sum, sums[2 * blockIdx.x + 1] = most;
}

__global__ void apart(int *x) {
    if (threadIdx.x < 32)
        __syncthreads();
    x[0] = 1;
}

// Each thread reads what its neighbour on either side has written; the barrier between is left out.
__global__ void racing(int *x) {
    __shared__ int all[64];
    all[threadIdx.x] = threadIdx.x;
    x[threadIdx.x] = all[(threadIdx.x + 1) % 64];
}

__global__ void reversed(float *x) {
    OPSMITH_DYNAMIC_SHARED(float, all);
    all[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = all[blockDim.x - 1 - threadIdx.x];
}
"#;

fn launch<'a>(source: &'a Source, kernel: &str, blocks: u32, threads: u32) -> Launch<'a> {
    let (grid, block) = ([blocks, 1, 1], [threads, 1, 1]);
    Launch {
        source,
        kernel: kernel.to_owned(),
        grid,
        block,
        shared: 4 * threads,
        arguments: Arguments::default(),
    }
}

fn run(mut launch: Launch<'_>) -> Result<(), String> {
    // SAFETY: the tests give arrays that are as long as the kernels write and read.
    unsafe { processor::run(&mut launch) }.map_err(|error| error.message().to_owned())
}

#[test]
fn blocks_fold_with_barriers_and_shuffles() {
    if !processor::can_run() {
        return;
    }
    let source = Source::generated("kernels.cu", TEXT);
    let x: Vec<f64> = (0..3 * 1000).map(f64::from).collect();
    let mut sums = [0.0; 6];
    let mut all = launch(&source, "sums<double>", 3, 96);
    all.arguments.address(x.as_ptr().cast()).address(sums.as_mut_ptr().cast()).value(1000i32);
    run(all).unwrap();
    let expected = |row: f64| [row * 1e6 + 499_500.0, row * 1e3 + 95.0];
    assert_eq!(sums, [expected(0.0), expected(1.0), expected(2.0)].concat()[..]);
    let mut x = [1f32, 2.0, 3.0];
    let mut reversed = launch(&source, "reversed", 1, 3);
    reversed.arguments.address(x.as_mut_ptr().cast());
    run(reversed).unwrap();
    assert_eq!(x, [3.0, 2.0, 1.0]);
}

#[test]
fn what_is_wrong_with_a_kernel_or_its_arguments_is_found() {
    if !processor::can_run() {
        return;
    }
    let source = Source::generated("kernels.cu", TEXT);
    let mut x = [0i32; 64];
    let mut apart = launch(&source, "apart", 1, 64);
    apart.arguments.address(x.as_mut_ptr().cast());
    assert_eq!(
        run(apart).unwrap_err(),
        "kernel `apart`: not all threads of a block come to the barrier in line 14"
    );

    let mut racing = launch(&source, "racing", 1, 64);
    racing.arguments.address(x.as_mut_ptr().cast());
    run(racing).unwrap();
    assert_ne!(x[0], 1, "the neighbour's number is not there yet");

    let mut small = launch(&source, "sums<double>", 1, 32);
    small.arguments.address(x.as_ptr().cast()).address(x.as_mut_ptr().cast()).value(8i64);
    assert_eq!(
        run(small).unwrap_err(),
        "kernel `sums<double>`: argument 3 has 8 bytes, its parameter has not"
    );
    let few = launch(&source, "apart", 1, 32);
    assert_eq!(run(few).unwrap_err(), "kernel `apart` is given 0 arguments, and has another number");
    let error = run(launch(&source, "nothing", 1, 32)).unwrap_err();
    assert!(error.contains("does not compile as C++") && error.contains("nothing"), "{error}");
}
