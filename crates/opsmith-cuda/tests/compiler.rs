//! Sources through NVRTC, which needs no card; where it is not to be had, these tests say so and pass.

use opsmith_core::Code;
use opsmith_cuda::testing::{ARCHITECTURES, nvrtc, resources, skipped};
use opsmith_cuda::{Architecture, Source, Target};

/// Structures of the header have the sizes and places that `Arguments` packs.
const LAYOUT: &str = r#"
#include "opsmith.cuh"
using namespace opsmith;

// The compiler's own `offsetof`, which NVRTC lacks.
#define OFFSET(member) __INTADDR__(&(((A *)0)->member))

template <int N, typename Index> __device__ constexpr bool packed() {
    typedef PackedAccessor<const float, N, Index> A;
    constexpr int indices = 2 * N * sizeof(Index), words = (8 + indices + 7) / 8;
    return sizeof(A) == 8 * words && OFFSET(data_) == 0 && OFFSET(sizes_) == 8
        && OFFSET(strides_) == 8 + N * sizeof(Index);
}
template <typename Index> __device__ constexpr bool flat() {
    typedef FlatAccessor<double, Index> A;
    constexpr int rank = 8 + sizeof(Index), sizes = sizeof(Index) == 4 ? 16 : 24, strides = sizes + 8 * sizeof(Index);
    return OFFSET(data_) == 0 && OFFSET(count_) == 8 && OFFSET(rank_) == rank
        && OFFSET(sizes_) == sizes && OFFSET(strides_) == strides
        && sizeof(A) == strides + 8 * sizeof(Index);
}
static_assert(packed<1, int>() && packed<2, int>() && packed<3, int>() && packed<4, int>() && packed<5, int>());
static_assert(packed<6, int>() && packed<7, int>() && packed<8, int>());
static_assert(packed<1, long long>() && packed<2, long long>() && packed<3, long long>() && packed<4, long long>());
static_assert(packed<5, long long>() && packed<6, long long>() && packed<7, long long>() && packed<8, long long>());
static_assert(sizeof(PackedAccessor<float, 0, int>) == 8 && sizeof(PackedAccessor<float, 0, long long>) == 8);
static_assert(flat<int>() && flat<long long>());
static_assert(sizeof(half) == 2 && sizeof(bfloat16) == 2 && sizeof(bool) == 1);
static_assert(sizeof(PackedAccessor32<float, 3>) == 32 && sizeof(PackedAccessor64<float, 3>) == 56);

__global__ void layout() {}
"#;

#[test]
fn accessors_lie_in_memory_as_they_are_packed() {
    let Some(nvrtc) = nvrtc() else { return };
    let source = Source::generated("layout.cu", LAYOUT);
    for architecture in ARCHITECTURES {
        nvrtc.compile(&source, "layout", Target::Machine(architecture), &[]).unwrap();
    }
    let wrong = LAYOUT.replace("sizeof(half) == 2", "sizeof(half) == 4");
    let error = nvrtc.compile(
        &Source::generated("layout.cu", wrong),
        "layout",
        Target::Machine(Architecture(90)),
        &[],
    );
    assert!(error.unwrap_err().message().contains("static assertion failed"), "the assertions are looked at");
}

/// All that the header has, in one kernel.
const ALL: &str = r#"
#include "opsmith.cuh"

template <typename T, typename Index>
__global__ void rows(opsmith::PackedAccessor<const T, 2, Index> x, opsmith::PackedAccessor<T, 1, Index> sums,
                     opsmith::FlatAccessor<T, Index> all, opsmith::PackedAccessor<T, 0, Index> last) {
    OPSMITH_DYNAMIC_SHARED(T, shared);
    typedef opsmith::wide<T> Number;
    for (Index i = blockIdx.x; i < x.size(0); i += gridDim.x) {
        Number sum = 0;
        for (Index k = threadIdx.x; k < x.size(1); k += blockDim.x) sum += Number(x[i][k]) * Number(x[i].stride(0));
        sum = opsmith::block_sum(sum);
        sum = opsmith::block_fold(sum, opsmith::Larger());
        if (threadIdx.x == 0) sums[i] = T(sum), shared[0] = T(sum), *last = T(sum);
    }
    OPSMITH_GRID_LOOP(Index, count, all.count()) all[count] = T(Number(opsmith::ceil_div<Index>(count, 2)));
}
"#;

#[test]
fn the_header_compiles_for_every_type_and_generation() {
    let Some(nvrtc) = nvrtc() else { return };
    let source = Source::generated("rows.cu", ALL);
    let types = ["float", "double", "int", "long long", "opsmith::half", "opsmith::bfloat16"];
    for (number, name) in types.into_iter().enumerate() {
        for index in ["int", "long long"] {
            let architecture = ARCHITECTURES[number % ARCHITECTURES.len()];
            let kernel = format!("rows<{name}, {index}>");
            let compiled = nvrtc.compile(&source, &kernel, Target::Machine(architecture), &[]).unwrap();
            assert!(compiled.symbol.starts_with("_Z4rowsI"), "{}", compiled.symbol);
            assert_eq!(&compiled.image[1..4], b"ELF");
        }
    }
    let compiled =
        nvrtc.compile(&source, "rows<float, int>", Target::Portable(Architecture(80)), &[]).unwrap();
    let text = String::from_utf8(compiled.image).unwrap();
    assert!(text.contains(".target sm_80") && text.contains(&compiled.symbol) && text.ends_with('\0'));
    match resources(nvrtc, &source, "rows<float, int>", Architecture(90)).unwrap() {
        Some(resources) => {
            assert!(resources.registers > 0 && resources.spilled == (0, 0), "{resources}");
            eprintln!("rows<float, int> for sm_90: {resources}");
        }
        None => skipped("there is no ptxas: what the kernels take of a card"),
    }
}

#[test]
fn messages_name_the_authors_file_and_line() {
    let Some(nvrtc) = nvrtc() else { return };
    let text = "#include \"opsmith.cuh\"\n\n__global__ void wrong() {\n    undeclared = 1;\n}\n";
    let source = Source::generated("wrong.cu", text).beside("examples/wrong/src/lib.rs").first_line(11);
    let error = nvrtc.compile(&source, "wrong", Target::Machine(Architecture(80)), &[]).unwrap_err();
    assert_eq!(error.code(), Code::Internal);
    let message = error.message();
    assert!(message.contains("kernel `wrong` of examples/wrong/src/wrong.cu does not compile"), "{message}");
    assert!(
        message.contains("examples/wrong/src/wrong.cu(14): error: identifier \"undeclared\""),
        "{message}"
    );
    let error = nvrtc.compile(&source, "other", Target::Machine(Architecture(80)), &[]).unwrap_err();
    assert!(error.message().contains("kernel `other`"), "{error}");
}

#[test]
fn cards_that_the_compiler_does_not_know_get_what_it_can_make() {
    let Some(nvrtc) = nvrtc() else { return };
    assert_eq!(nvrtc.target_for(Architecture(90)).unwrap(), Target::Machine(Architecture(90)));
    assert!(matches!(nvrtc.target_for(Architecture(999)).unwrap(), Target::Portable(_)));
    let error = nvrtc.target_for(Architecture(20)).unwrap_err();
    assert_eq!(error.code(), Code::FailedPrecondition);
    assert!(error.message().contains("no longer compiles for cards of sm_20"), "{error}");
}
