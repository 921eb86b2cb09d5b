// What stands before a CUDA source so that a C++ compiler makes a library of it that runs a kernel on the processor. The threads
// of a block are fibers that take turns at barriers, forwards and backwards, so that a barrier that is missing shows. It shows
// what a kernel computes, and neither how fast it is nor what a card's own arithmetic rounds.
//
// Of C++'s own headers it has the one that sources use: the others take longer to compile than a kernel.
#include <cmath>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

struct Three {
    unsigned x, y, z;
};
typedef Three uint3;
typedef Three dim3;
static Three threadIdx, blockIdx, blockDim, gridDim;

namespace processor {
// A thread of a block, which is one of each block in turn.
struct Fiber {
    ucontext_t first;
    jmp_buf at;
    bool begun, done;
};

// What each thread of a block has one of, and what all of them share.
template <typename T> struct Each {
    T *items = nullptr;
    size_t count = 0;
    Each() = default;
    Each(const Each &) = delete;
    ~Each() { free(items); }
    void assign(size_t many) {
        free(items);
        items = (T *)calloc(many ? many : 1, sizeof(T));
        if (!items) abort();
        count = many;
    }
    T &operator[](size_t at) const { return items[at]; }
    T *begin() const { return items; }
    T *end() const { return items + count; }
};
static Each<Fiber> fibers;
static jmp_buf scheduler;
static Each<int> lines;
static Each<unsigned long long> words;
static Each<unsigned long long> dynamic;
static unsigned current;
static void (*body)(void *);
static void *body_context;

// Jumps leave the mask of signals alone, for which a switch of contexts asks the system twice.
static void leave() {
    if (!_setjmp(fibers[current].at)) _longjmp(scheduler, 1);
}

__attribute__((noinline)) static void resume(Fiber &fiber) {
    if (_setjmp(scheduler)) return;
    if (fiber.begun) _longjmp(fiber.at, 1);
    fiber.begun = true;
    setcontext(&fiber.first);
}

static void begin() {
    for (;;) {
        body(body_context);
        fibers[current].done = true;
        leave();
    }
}

static void barrier(int line) {
    lines[current] = line;
    leave();
}

// Runs the threads of a block: 0, or the line of a barrier that not all of them came to.
static int block(unsigned threads) {
    for (Fiber &fiber : fibers) fiber.done = false;
    for (unsigned round = 0, finished = 0; finished < threads; round++) {
        for (unsigned n = 0; n < threads; n++) {
            current = round % 2 ? threads - 1 - n : n;
            threadIdx = {current % blockDim.x, current / blockDim.x % blockDim.y, current / blockDim.x / blockDim.y};
            lines[current] = 0;
            resume(fibers[current]);
            finished += fibers[current].done;
        }
        for (unsigned t = 1; t < threads; t++)
            if (lines[t] != lines[0]) return lines[t] ? lines[t] : lines[0];
    }
    return 0;
}

template <typename T> T exchange(T x, unsigned from, int line) {
    static_assert(sizeof(T) <= sizeof(unsigned long long));
    memcpy(&words[current], &x, sizeof(T));
    barrier(line);
    if (from / 32 == current / 32) memcpy(&x, &words[from], sizeof(T));
    barrier(line);
    return x;
}

// Nobody comes between, as threads take turns at barriers only.
template <typename T> static T largest(T *at, T x) {
    const T before = *at;
    *at = before < x ? x : before;
    return before;
}

// Whether it is so for any thread of the block.
static inline int any(int x, int line) {
    static int found;
    barrier(line);
    found = 0;
    barrier(line);
    if (x) found = 1;
    barrier(line);
    return found;
}

// What 16-bit numbers and sums of a thread's part of matrices are in the instructions of tensor cores.
struct Parts {
    unsigned a[4], b[2];
};
static Each<Parts> parts;

static unsigned pair(unsigned first, unsigned second) { return first | second << 16; }

// Each thread of a warp names a row of 8 numbers of 16 bits, of `count` matrices of 8 rows, and gets two neighbours of each
// matrix, or of what that is turned.
static void load_matrices(unsigned *to, int count, bool turned, const void *row, int line) {
    memcpy(&words[current], &row, sizeof(row));
    barrier(line);
    const unsigned lane = current % 32, first = current - lane;
    for (int m = 0; m < count; m++) {
        auto at = [&](unsigned r, unsigned c) { return ((const unsigned short *)words[first + m * 8 + r])[c]; };
        const unsigned r = lane / 4, c = lane % 4 * 2;
        to[m] = turned ? pair(at(c, r), at(c + 1, r)) : pair(at(r, c), at(r, c + 1));
    }
    barrier(line);
}

// Adds the product of 16 × 16 and 16 × 8 numbers, which the threads of a warp have parts of.
template <typename Number>
static void add_product(float *sums, const unsigned *a, const unsigned *b, int line, Number number) {
    memcpy(parts[current].a, a, sizeof(Parts::a)), memcpy(parts[current].b, b, sizeof(Parts::b));
    barrier(line);
    const unsigned lane = current % 32, first = current - lane;
    auto half = [&](unsigned word, unsigned k) { return number((unsigned short)(word >> k % 2 * 16)); };
    for (unsigned n = 0; n < 4; n++) {
        const unsigned row = lane / 4, lower = n / 2, column = lane % 4 * 2 + n % 2;
        for (unsigned k = 0; k < 16; k++) {
            const Parts &left = parts[first + row * 4 + k % 8 / 2], &right = parts[first + column * 4 + k % 8 / 2];
            sums[n] += half(left.a[k / 8 * 2 + lower], k) * half(right.b[k / 8], k);
        }
    }
    barrier(line);
}

// The positions before one.
template <size_t... I> struct Positions {};
template <size_t N, size_t... I> struct Upto : Upto<N - 1, N - 1, I...> {};
template <size_t... I> struct Upto<0, I...> {
    typedef Positions<I...> All;
};

template <typename... P, size_t... I> void with(void (*kernel)(P...), void **arguments, Positions<I...>) {
    kernel(*(P *)arguments[I]...);
}

// 0; the line of a barrier that not all came to; or minus the position, from 1, of an argument of another size.
template <typename... P>
int launch(void (*kernel)(P...), void **arguments, const size_t *sizes, size_t count, const unsigned *grid,
           const unsigned *threads, unsigned shared) {
    if (count != sizeof...(P)) return -1000;
    const size_t expected[] = {sizeof(P)..., 0};
    for (size_t a = 0; a < count; a++)
        if (sizes[a] != expected[a]) return -1 - (int)a;
    auto call = [&] { with(kernel, arguments, typename Upto<sizeof...(P)>::All()); };
    body = [](void *context) { (*(decltype(call) *)context)(); };
    body_context = &call;
    gridDim = {grid[0], grid[1], grid[2]}, blockDim = {threads[0], threads[1], threads[2]};
    const unsigned all = threads[0] * threads[1] * threads[2];
    const size_t stack = 64 << 10;
    lines.assign(all), words.assign(all), parts.assign(all), dynamic.assign(shared / 8 + 1), fibers.assign(all);
    Each<char> stacks;
    stacks.assign(all * stack);
    for (unsigned t = 0; t < all; t++) {
        getcontext(&fibers[t].first);
        fibers[t].first.uc_stack = {&stacks[t * stack], 0, stack};
        fibers[t].first.uc_link = nullptr;
        makecontext(&fibers[t].first, begin, 0);
    }
    for (unsigned z = 0; z < grid[2]; z++)
        for (unsigned y = 0; y < grid[1]; y++)
            for (unsigned x = 0; x < grid[0]; x++) {
                blockIdx = {x, y, z};
                memset(dynamic.begin(), 0xFF, dynamic.count * sizeof(dynamic[0]));
                if (int line = block(all)) return line;
            }
    return 0;
}
}  // namespace processor

template <typename To, typename From> static To same_bits(From from) {
    To to;
    memcpy(&to, &from, sizeof(to));
    return to;
}
static inline double __longlong_as_double(long long x) { return same_bits<double>(x); }
static inline long long __double_as_longlong(double x) { return same_bits<long long>(x); }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline double __dmul_rn(double a, double b) { return a * b; }
static inline unsigned __float_as_uint(float x) { return same_bits<unsigned>(x); }
static inline float __uint_as_float(unsigned x) { return same_bits<float>(x); }
namespace processor {
// float16 by its bits, rounded to nearest, ties to even.
static inline float float_of(unsigned short half) {
    const int exponent = half >> 10 & 31, fraction = half & 1023;
    const float size = exponent == 31 ? (fraction ? NAN : INFINITY)
                                      : std::ldexp((float)(exponent ? 1024 + fraction : fraction), (exponent ? exponent : 1) - 25);
    return half >> 15 ? -size : size;
}
static inline unsigned short half_of(float x) {
    const unsigned short sign = __float_as_uint(x) >> 31 << 15;
    if (x != x) return 0x7fff;
    const float size = std::fabs(x);
    if (size >= 65520.0f) return sign | 31 << 10;
    int exponent = size < 0x1p-14f ? -14 : std::ilogb(size);
    // The sum carries over into the exponent where rounding does.
    const unsigned fraction = (unsigned)std::nearbyint(std::ldexp(size, 10 - exponent));
    return sign | (unsigned short)((exponent + 14) * 1024 + fraction);
}
}  // namespace processor
static inline double normcdf(double x) { return 0.5 * std::erfc(-x * 0.70710678118654752440); }
static inline float normcdff(float x) { return (float)normcdf((double)x); }
static inline double rsqrt(double x) { return 1 / std::sqrt(x); }
static inline float rsqrtf(float x) { return (float)rsqrt((double)x); }

#define __CUDACC_RTC__ 1
#define __device__
#define __global__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __restrict__
#define __shared__ static
#define __syncthreads() processor::barrier(__LINE__)
#define __syncthreads_or(x) processor::any(x, __LINE__)
#define atomicMax(at, x) processor::largest(at, x)
#define __shfl_down_sync(mask, x, offset) processor::exchange(x, processor::current + (offset), __LINE__)
#define __shfl_xor_sync(mask, x, bits) processor::exchange(x, processor::current ^ (bits), __LINE__)
#define OPSMITH_DYNAMIC_SHARED(T, name) T *const name = (T *)processor::dynamic.begin()
#define OPSMITH_TENSOR_CORES 1
#define OPSMITH_LOAD_MATRICES_4(to, turned, row) processor::load_matrices(to, 4, turned, row, __LINE__)
#define OPSMITH_LOAD_MATRICES_2(to, turned, row) processor::load_matrices(to, 2, turned, row, __LINE__)
#define OPSMITH_ADD_PRODUCT(T, sums, a, b)                                                             \
    processor::add_product(sums, a, b, __LINE__, [](unsigned short bits) {                              \
        T number;                                                                                      \
        number.bits = bits;                                                                            \
        return (float)number;                                                                          \
    })
#define OPSMITH_FLOAT_TO_HALF(bits, x) bits = processor::half_of(x)
#define OPSMITH_HALF_TO_FLOAT(x, bits) x = processor::float_of(bits)
