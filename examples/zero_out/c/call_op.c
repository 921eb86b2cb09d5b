/*
 * Calls ops of an Opsmith library from C: loads it, looks ops up, lends memory, passes tensors and attributes,
 * infers shapes, and shows what comes of mistakes. docs/abi.md explains the interface.
 *
 *     cc -std=c99 -I include examples/zero_out/c/call_op.c -ldl -o call_op
 *     ./call_op target/release/libzero_out.so
 */
#define _POSIX_C_SOURCE 200112L /* posix_memalign */

#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "opsmith.h"

static const OpsmithLibrary *library;

/* ---- Loading ---------------------------------------------------------------------------------------------- */

/* Prints and frees an error. Every function of a library returns one, or null when it succeeded. */
static int failed(const char *what, OpsmithError *error)
{
    if (error == NULL) {
        return 0;
    }
    const char *op = error->op ? error->op : "";
    const char *colon = error->op ? ": " : "";
    printf("%s\n    error %" PRId32 ": %s%s%s\n", what, error->code, op, colon, error->text);
    library->error_free(error);
    return 1;
}

static int load(const char *path)
{
    void *file = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (file == NULL) {
        fprintf(stderr, "cannot open %s: %s\n", path, dlerror());
        return 0;
    }
    library = (const OpsmithLibrary *)dlsym(file, OPSMITH_LIBRARY_SYMBOL);
    if (library == NULL) {
        fprintf(stderr, "%s is not an Opsmith library\n", path);
        return 0;
    }
    /* Look at the size and the version before anything else: an older library has fewer fields. */
    if (library->size < sizeof(OpsmithLibrary) || library->abi_version != OPSMITH_ABI_VERSION) {
        fprintf(stderr, "%s has ABI version %" PRIu32 ", not %d\n", path, library->abi_version, OPSMITH_ABI_VERSION);
        return 0;
    }
    return !failed("init", library->init());
}

static OpsmithStr text(const char *bytes)
{
    OpsmithStr str = {bytes, strlen(bytes)};
    return str;
}

static size_t find_op(const char *name)
{
    size_t op = 0;
    if (failed(name, library->find_op(text(name), &op))) {
        exit(EXIT_FAILURE);
    }
    return op;
}

/* ---- What the caller lends: memory for outputs ------------------------------------------------------------ */

enum { MAX_OUTPUTS = 4, MAX_RANK = 6 };

typedef struct Output {
    void *data;
    int32_t dtype;
    int32_t rank;
    int64_t shape[MAX_RANK];
} Output;

typedef struct Outputs {
    Output made[MAX_OUTPUTS];
} Outputs;

static size_t element_size(int32_t dtype)
{
    return dtype == OPSMITH_FLOAT32 || dtype == OPSMITH_INT32 ? 4 : 8;
}

/* The library calls this for each output, once it knows the shape. Null means: no memory. */
static void *allocate_output(void *context, size_t index, int32_t dtype, int32_t rank, const int64_t *shape)
{
    Outputs *outputs = (Outputs *)context;
    size_t bytes = element_size(dtype);
    void *data = NULL;
    if (index >= MAX_OUTPUTS || rank > MAX_RANK) {
        return NULL;
    }
    Output *output = &outputs->made[index];
    for (int32_t i = 0; i < rank; i++) {
        output->shape[i] = shape[i];
        bytes *= (size_t)shape[i];
    }
    if (posix_memalign(&data, 64, bytes > 0 ? bytes : 1) != 0) {
        return NULL;
    }
    output->data = data;
    output->dtype = dtype;
    output->rank = rank;
    return data;
}

/* Whatever the call came to, the outputs that were made are the caller's. */
static void free_outputs(Outputs *outputs)
{
    for (size_t i = 0; i < MAX_OUTPUTS; i++) {
        free(outputs->made[i].data);
        outputs->made[i].data = NULL;
    }
}

/* ---- Calling ---------------------------------------------------------------------------------------------- */

static OpsmithTensor tensor(void *data, int32_t dtype, int32_t rank, const int64_t *shape, const int64_t *strides)
{
    OpsmithTensor tensor = {sizeof tensor, data, dtype, OPSMITH_DEVICE_CPU, 0, rank, shape, strides};
    return tensor;
}

static OpsmithAttr int_attr(const char *name, const int64_t *value)
{
    OpsmithAttr attr = {sizeof attr, text(name), OPSMITH_ATTR_INT, 0, 1, value};
    return attr;
}

/*
 * Calls an op with at most one tensor and at most one attribute, by a plan if there is one; or only works the call out,
 * where there is a place for its plan.
 */
static OpsmithError *request(size_t op, const OpsmithTensor *input, const OpsmithAttr *attr, Outputs *outputs,
                             const OpsmithPlan *plan, OpsmithPlan **new_plan)
{
    OpsmithServices services = {0};
    services.size = sizeof services;
    services.context = outputs;
    services.allocate_output = allocate_output;
    /* No threads are lent: the library uses its own pool. */

    OpsmithCall request = {0};
    request.size = sizeof request;
    request.op = op;
    request.tensors = &input;
    request.num_tensors = input != NULL;
    request.attrs = &attr;
    request.num_attrs = attr != NULL;
    request.wanted = UINT64_MAX;
    request.services = &services;
    request.plan = plan;
    return new_plan != NULL ? library->plan(&request, new_plan) : library->call(&request);
}

static OpsmithError *call(size_t op, const OpsmithTensor *input, const OpsmithAttr *attr, Outputs *outputs)
{
    return request(op, input, attr, outputs, NULL, NULL);
}

static void print(const char *what, const Output *output)
{
    int64_t count = 1;
    printf("%s\n    shape [", what);
    for (int32_t i = 0; i < output->rank; i++) {
        printf("%s%" PRId64, i > 0 ? ", " : "", output->shape[i]);
        count *= output->shape[i];
    }
    printf("]:");
    for (int64_t i = 0; i < count; i++) {
        switch (output->dtype) {
        case OPSMITH_FLOAT32: printf(" %g", ((const float *)output->data)[i]); break;
        case OPSMITH_INT32: printf(" %" PRId32, ((const int32_t *)output->data)[i]); break;
        case OPSMITH_INT64: printf(" %" PRId64, ((const int64_t *)output->data)[i]); break;
        default: printf(" ?");
        }
    }
    printf("\n");
}

static void call_and_print(const char *what, size_t op, const OpsmithTensor *input, const OpsmithAttr *attr)
{
    Outputs outputs = {0};
    if (!failed(what, call(op, input, attr, &outputs))) {
        print(what, &outputs.made[0]);
    }
    free_outputs(&outputs);
}

/* ---- Shapes ----------------------------------------------------------------------------------------------- */

/* Prints a dim: what it is computed from lies before it in the list. */
static void print_dim(const OpsmithDim *dims, uint32_t at)
{
    static const char *const signs[] = {"+", "-", "*", "//", "min", "max"};
    const OpsmithDim *dim = &dims[at];
    switch (dim->kind) {
    case OPSMITH_DIM_UNKNOWN: printf("?"); break;
    case OPSMITH_DIM_KNOWN: printf("%" PRId64, dim->value); break;
    case OPSMITH_DIM_SYMBOL: printf("%.*s", (int)dim->name.len, dim->name.data); break;
    default:
        printf("(");
        print_dim(dims, dim->operands[0]);
        printf(" %s ", signs[dim->kind - OPSMITH_DIM_ADD]);
        print_dim(dims, dim->operands[1]);
        printf(")");
    }
}

static void print_shapes(const char *what, const OpsmithShapes *shapes)
{
    printf("%s\n    ", what);
    for (size_t i = 0; i < shapes->num_tensors; i++) {
        const OpsmithArgument *output = shapes->tensors[i];
        printf("dtype %" PRId32 " [", output->dtype);
        for (int32_t j = 0; j < output->rank; j++) {
            printf("%s", j > 0 ? ", " : "");
            print_dim(shapes->dims, output->dims[j]);
        }
        printf("]\n");
    }
    for (size_t i = 0; i < shapes->num_constraints; i++) {
        const OpsmithConstraint *constraint = shapes->constraints[i];
        printf("    ");
        print_dim(shapes->dims, constraint->left);
        printf(constraint->relation == OPSMITH_RELATION_EQUAL ? " == " : " >= ");
        print_dim(shapes->dims, constraint->right);
        printf("\n");
    }
}

/* Infers the shape that an op with one input gives. */
static void infer(const char *what, const char *op, const OpsmithArgument *input, const OpsmithAttr *attr,
                  const OpsmithDim *dims, size_t num_dims)
{
    OpsmithShapeQuery query = {0};
    query.size = sizeof query;
    query.op = find_op(op);
    query.tensors = &input;
    query.num_tensors = 1;
    query.attrs = &attr;
    query.num_attrs = attr != NULL;
    query.dims = dims;
    query.num_dims = num_dims;
    const OpsmithShapes *shapes = NULL;
    if (!failed(what, library->infer_shapes(&query, &shapes))) {
        print_shapes(what, shapes);
        library->shapes_free(shapes);
    }
}

/* ---- The tour --------------------------------------------------------------------------------------------- */

static float matrix[] = {1, 2, 3, 4, 5, 6};
static const int64_t two_by_three[] = {2, 3};

static void calls(void)
{
    OpsmithTensor dense = tensor(matrix, OPSMITH_FLOAT32, 2, two_by_three, NULL);
    call_and_print("ZeroOutReal of a 2x3 matrix", find_op("ZeroOutReal"), &dense, NULL);

    /* Names work in snake_case too. */
    const int64_t four = 4;
    OpsmithAttr preserve_index = int_attr("preserve_index", &four);
    call_and_print("the same, element 4 preserved", find_op("zero_out_real"), &dense, &preserve_index);

    /* The transpose of the same memory: strides are in elements. */
    const int64_t three_by_two[] = {3, 2}, strides[] = {1, 3};
    OpsmithTensor transposed = tensor(matrix, OPSMITH_FLOAT32, 2, three_by_two, strides);
    call_and_print("the same of its transpose", find_op("ZeroOutReal"), &transposed, &preserve_index);

    const int64_t zero_by_three[] = {0, 3};
    OpsmithTensor empty = tensor(NULL, OPSMITH_INT32, 2, zero_by_three, NULL);
    call_and_print("ZeroOut of an empty matrix", find_op("ZeroOut"), &empty, NULL);

    OpsmithStr words[] = {text("7"), text(" -12 ")};
    const int64_t two[] = {2};
    OpsmithTensor strings = tensor(words, OPSMITH_STRING, 1, two, NULL);
    call_and_print("StringToNumber of two strings", find_op("StringToNumber"), &strings, NULL);
    const int32_t int32 = OPSMITH_INT32;
    OpsmithAttr out_type = {sizeof out_type, text("out_type"), OPSMITH_ATTR_TYPE, 0, 1, &int32};
    call_and_print("the same, read as int32", find_op("StringToNumber"), &strings, &out_type);

    call_and_print("NonZero, whose shape the data decides", find_op("NonZero"), &transposed, NULL);

    call_and_print("Counter, which has no inputs", find_op("Counter"), NULL, NULL);
    call_and_print("Counter again", find_op("Counter"), NULL, NULL);
}

/* A call that is made often is worked out once: its attributes then need not be given again. */
static void plans(void)
{
    const int64_t four = 4, three_by_two[] = {3, 2};
    size_t op = find_op("ZeroOutReal");
    OpsmithTensor dense = tensor(matrix, OPSMITH_FLOAT32, 2, two_by_three, NULL);
    OpsmithAttr preserve_index = int_attr("preserve_index", &four);
    OpsmithPlan *plan = NULL;
    if (failed("a plan", request(op, &dense, &preserve_index, NULL, NULL, &plan))) {
        return;
    }
    for (int i = 0; i < 2; i++) {
        Outputs outputs = {0};
        dense.shape = i == 0 ? two_by_three : three_by_two;
        if (!failed("by a plan", request(op, &dense, NULL, &outputs, plan, NULL))) {
            print(i == 0 ? "by a plan, element 4 preserved" : "by the same plan, a 3x2 matrix", &outputs.made[0]);
        }
        free_outputs(&outputs);
    }
    Outputs outputs = {0};
    OpsmithTensor doubles = tensor(matrix, OPSMITH_FLOAT64, 0, NULL, NULL);
    failed("a plan for another dtype", request(op, &doubles, NULL, &outputs, plan, NULL));
    failed("a plan for another op", request(find_op("NonZero"), &dense, NULL, &outputs, plan, NULL));
    library->plan_free(plan);
    OpsmithAttr unknown = int_attr("preserve_indx", &four);
    failed("a plan for an unknown attribute", request(op, &dense, &unknown, NULL, NULL, &plan));
}

static void shapes(void)
{
    const OpsmithDim n = {OPSMITH_DIM_SYMBOL, {0, 0}, 0, text("n")};
    const OpsmithDim two = {OPSMITH_DIM_KNOWN, {0, 0}, 2, {NULL, 0}};
    const OpsmithDim n_plus_two = {OPSMITH_DIM_ADD, {0, 1}, 0, {NULL, 0}};
    OpsmithDim dims[] = {n, two, n_plus_two};
    const uint32_t positions[] = {2, 1};
    OpsmithArgument vector = {sizeof vector, OPSMITH_INT32, 1, positions, NULL};
    const int64_t three = 3;
    OpsmithAttr times = int_attr("times", &three);
    infer("Repeat of n + 2 elements, 3 times", "Repeat", &vector, &times, dims, 3);

    OpsmithArgument matrix = vector;
    matrix.rank = 2;
    infer("ZeroOutVector of a matrix", "ZeroOutVector", &matrix, NULL, dims, 3);
    infer("an input that is absent", "ZeroOut", NULL, NULL, dims, 3);
    infer("dims that are not there", "ZeroOut", &vector, NULL, dims, 2);
    dims[2].operands[1] = 2;
    infer("a dim that is computed from itself", "ZeroOut", &vector, NULL, dims, 3);
    dims[2].kind = 99;
    infer("a dim of no kind", "ZeroOut", &vector, NULL, dims, 3);
    vector.rank = -2;
    infer("a rank below -1", "ZeroOut", &vector, NULL, dims, 2);
    vector.rank = 255;
    infer("a rank that is too large", "ZeroOut", &vector, NULL, dims, 2);
    vector.size = 8;
    infer("an argument of the wrong size", "ZeroOut", &vector, NULL, dims, 2);
    vector = matrix;
    vector.rank = 1;
    vector.dims = &positions[1];
    int64_t count[] = {3};
    OpsmithTensor value = tensor(count, OPSMITH_INT64, 0, NULL, NULL);
    vector.value = &value;
    infer("a value of another dtype", "ZeroOut", &vector, NULL, dims, 2);
    value.dtype = OPSMITH_INT32;
    infer("a value of another shape", "ZeroOut", &vector, NULL, dims, 2);
    value.rank = 1;
    value.shape = count;
    infer("a value of another size", "ZeroOut", &vector, NULL, dims, 2);
    count[0] = INT64_MAX;
    infer("a value that is too large", "ZeroOut", &vector, NULL, dims, 2);

    const size_t none = 0;
    const OpsmithShapes *inferred = NULL;
    OpsmithShapeQuery query = {0};
    query.size = sizeof query;
    query.op = find_op("ZeroOut");
    failed("a query of no input", library->infer_shapes(&query, &inferred));
    const OpsmithArgument *input = &vector;
    query.tensors = &input;
    query.num_tensors = 1;
    query.counts = &none;
    query.num_arguments = 1;
    failed("counts that do not fit", library->infer_shapes(&query, &inferred));
    failed("no query at all", library->infer_shapes(NULL, NULL));
    const OpsmithShapes *answer = NULL;
    failed("a query that is null", library->infer_shapes(NULL, &answer));
}

static void mistakes(void)
{
    size_t op = find_op("ZeroOutVector");
    int32_t numbers[] = {1, 2, 3, 4, 5, 6};
    OpsmithTensor ints = tensor(numbers, OPSMITH_INT32, 2, two_by_three, NULL);
    OpsmithTensor floats = tensor(matrix, OPSMITH_FLOAT32, 2, two_by_three, NULL);
    call_and_print("wrong rank", op, &ints, NULL);
    call_and_print("wrong dtype", op, &floats, NULL);
    call_and_print("missing input", op, NULL, NULL);

    const int64_t six = 6;
    OpsmithAttr unknown = int_attr("preserve_indx", &six), outside = int_attr("preserve_index", &six);
    call_and_print("unknown attribute", find_op("ZeroOutReal"), &floats, &unknown);
    call_and_print("attribute out of range", find_op("ZeroOutReal"), &floats, &outside);
    outside.kind = OPSMITH_ATTR_FLOAT;
    call_and_print("attribute of the wrong type", find_op("ZeroOutReal"), &floats, &outside);
    outside.kind = 99;
    call_and_print("attribute of no type", find_op("ZeroOutReal"), &floats, &outside);
    outside.name = text("\xff");
    call_and_print("attribute whose name is no text", find_op("ZeroOutReal"), &floats, &outside);

    size_t none = 0;
    failed("unknown op", library->find_op(text("ZeroOot"), &none));
    call_and_print("position of no op", 1000, &ints, NULL);
    OpsmithStr nothing = {NULL, 3};
    failed("a name that is null", library->find_op(nothing, &none));
    failed("nowhere to write to", library->find_op(text("ZeroOut"), NULL));

    OpsmithTensor small = ints;
    small.size = 8;
    call_and_print("tensor of the wrong size", op, &small, NULL);
    OpsmithCall request = {0};
    request.size = 16;
    failed("call of the wrong size", library->call(&request));
    failed("no call at all", library->call(NULL));
    request.size = sizeof request;
    failed("call without a services", library->call(&request));

    OpsmithTensor strange = ints;
    strange.dtype = 99;
    call_and_print("dtype of no number", op, &strange, NULL);
    strange = ints;
    strange.rank = -1;
    call_and_print("negative rank", op, &strange, NULL);
    strange.rank = 255;
    call_and_print("a rank that is too large", op, &strange, NULL);
    const int64_t wrapping[] = {INT64_C(1) << 61, 1 << 10};
    strange = ints;
    strange.shape = wrapping;
    call_and_print("more elements than fit", op, &strange, NULL);
    strange = ints;
    strange.data = NULL;
    call_and_print("no data", op, &strange, NULL);
    strange = ints;
    strange.device_kind = OPSMITH_DEVICE_CUDA;
    call_and_print("a device without a kernel", op, &strange, NULL);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: %s LIBRARY\n", argv[0]);
        return EXIT_FAILURE;
    }
    if (!load(argv[1])) {
        return EXIT_FAILURE;
    }
    printf("library %.*s\n", (int)library->name.len, library->name.data);
    calls();
    plans();
    shapes();
    mistakes();
    return EXIT_SUCCESS;
}
