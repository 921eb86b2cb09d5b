/*
 * Calls ops on tensors in DLPack's form: what a program has that holds its tensors so already. With DLPack's own header, include
 * that before opsmith.h. docs/abi.md explains the interface.
 *
 *     cc -std=c99 -I include examples/zero_out/c/call_dlpack.c -ldl -o call_dlpack
 *     ./call_dlpack target/release/libzero_out.so
 */
#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "opsmith.h"

static const OpsmithLibrary *library;

static int failed(const char *what, OpsmithError *error)
{
    if (error == NULL) {
        return 0;
    }
    printf("%s\n    error %" PRId32 ": %s%s%s\n", what, error->code, error->op ? error->op : "",
           error->op ? ": " : "", error->text);
    library->error_free(error);
    return 1;
}

static size_t find_op(const char *name)
{
    OpsmithStr text = {name, strlen(name)};
    size_t op = 0;
    if (failed(name, library->find_op(text, &op))) {
        exit(EXIT_FAILURE);
    }
    return op;
}

static const DLDataType float32 = {kDLFloat, 32, 1}, int32 = {kDLInt, 32, 1};

static float numbers[] = {1, 2, 3, 4, 5, 6};
static int64_t two_by_three[] = {2, 3}, three_by_two[] = {3, 2}, transposed[] = {1, 3};

static DLTensor tensor(void *data, DLDataType dtype, int32_t ndim, int64_t *shape, int64_t *strides)
{
    DLTensor tensor = {data, {kDLCPU, 0}, ndim, dtype, shape, strides, 0};
    return tensor;
}

static void print(const char *what, const DLTensor *tensor)
{
    int64_t count = 1;
    printf("%s\n    shape [", what);
    for (int32_t i = 0; i < tensor->ndim; i++) {
        printf("%s%" PRId64, i > 0 ? ", " : "", tensor->shape[i]);
        count *= tensor->shape[i];
    }
    printf("]:");
    for (int64_t i = 0; i < count; i++) {
        const char *data = (const char *)tensor->data + tensor->byte_offset;
        if (tensor->dtype.code == kDLFloat) {
            printf(" %g", ((const float *)data)[i]);
        } else if (tensor->dtype.bits == 64) {
            printf(" %" PRId64, ((const int64_t *)data)[i]);
        } else {
            printf(" %" PRId32, ((const int32_t *)data)[i]);
        }
    }
    printf("\n");
}

/* A call of an op with one input and one output, which is given or is to be made. */
static OpsmithDLPackCall request(const char *op, const DLTensor *const *input, const OpsmithAttr *const *attr,
                                 const DLTensor *const *given, DLManagedTensorVersioned **made)
{
    OpsmithDLPackCall call = {0};
    call.size = sizeof call;
    call.op = find_op(op);
    call.tensors = input;
    call.num_tensors = 1;
    call.attrs = attr;
    call.num_attrs = attr != NULL;
    call.wanted = UINT64_MAX;
    call.given = given;
    call.made = made;
    call.num_outputs = 1;
    return call;
}

static void run(const char *what, const char *op, const DLTensor *input, const OpsmithAttr *attr)
{
    DLManagedTensorVersioned *made = NULL;
    OpsmithDLPackCall call = request(op, &input, attr ? &attr : NULL, NULL, &made);
    if (!failed(what, library->call_dlpack(&call))) {
        print(what, &made->dl_tensor);
        made->deleter(made);
    } else if (made != NULL) {
        printf("    and an output nonetheless\n");
    }
}

static void run_into(const char *what, const char *op, const DLTensor *input, const DLTensor *output)
{
    OpsmithDLPackCall call = request(op, &input, NULL, &output, NULL);
    if (!failed(what, library->call_dlpack(&call))) {
        print(what, output);
    }
}

static void calls(void)
{
    DLTensor dense = tensor(numbers, float32, 2, two_by_three, NULL);
    run("ZeroOutReal of a 2x3 matrix", "ZeroOutReal", &dense, NULL);

    const int64_t four = 4;
    OpsmithAttr preserve_index = {sizeof preserve_index, {"preserve_index", 14}, OPSMITH_ATTR_INT, 0, 1, &four};
    run("the same, element 4 preserved", "ZeroOutReal", &dense, &preserve_index);
    DLTensor strided = tensor(numbers, float32, 2, three_by_two, transposed);
    run("the same of its transpose", "ZeroOutReal", &strided, &preserve_index);
    run("NonZero, whose shape the data decides", "NonZero", &strided, NULL);

    int64_t four_elements[] = {4};
    DLTensor offset = tensor(numbers, float32, 1, four_elements, NULL);
    offset.byte_offset = 2 * sizeof *numbers;
    run("elements 2 to 5", "ZeroOutReal", &offset, NULL);

    /* Memory of any alignment is read. */
    char bytes[sizeof numbers + 1];
    memcpy(bytes + 1, numbers, sizeof numbers);
    DLTensor unaligned = tensor(bytes + 1, float32, 2, two_by_three, NULL);
    run("the matrix at an odd address", "ZeroOutReal", &unaligned, NULL);

    float result[7];
    DLTensor output = tensor(result, float32, 2, two_by_three, NULL);
    run_into("into memory of ours", "ZeroOutReal", &dense, &output);

    int64_t none[] = {0, INT64_MAX};
    DLTensor empty = tensor(NULL, int32, 2, none, NULL);
    run("ZeroOut of an empty matrix", "ZeroOut", &empty, NULL);
}

static void wrong_outputs(void)
{
    float result[7];
    DLTensor dense = tensor(numbers, float32, 2, two_by_three, NULL);
    DLTensor wrong = tensor(result, int32, 2, two_by_three, NULL);
    run_into("an output of another dtype", "ZeroOutReal", &dense, &wrong);
    wrong = tensor(result, float32, 2, three_by_two, NULL);
    run_into("an output of another shape", "ZeroOutReal", &dense, &wrong);
    wrong = tensor(result, float32, 2, two_by_three, transposed);
    run_into("an output that is not row-major", "ZeroOutReal", &dense, &wrong);
    wrong = tensor((char *)result + 1, float32, 2, two_by_three, NULL);
    run_into("an output at an odd address", "ZeroOutReal", &dense, &wrong);
    run_into("an output that is the input", "ZeroOutReal", &dense, &dense);
    run_into("no output, and no place for one", "ZeroOutReal", &dense, NULL);
}

static void mistakes(void)
{
    DLTensor dense = tensor(numbers, float32, 2, two_by_three, NULL), wrong;
    DLManagedTensorVersioned *made = NULL;
    const DLTensor *input = &dense;
    failed("no call at all", library->call_dlpack(NULL));
    OpsmithDLPackCall call = request("ZeroOutReal", &input, NULL, NULL, &made);
    call.size = 16;
    failed("a call of the wrong size", library->call_dlpack(&call));
    call = request("ZeroOutReal", NULL, NULL, NULL, &made);
    failed("a list that is null", library->call_dlpack(&call));
    call = request("ZeroOutReal", &input, NULL, NULL, &made);
    call.num_outputs = 0;
    failed("no room for outputs", library->call_dlpack(&call));
    const size_t two = 2;
    call.counts = &two;
    call.num_arguments = 1;
    failed("counts that do not fit", library->call_dlpack(&call));
    call.op = 1000;
    failed("position of no op", library->call_dlpack(&call));
    run("an input that is null", "ZeroOutReal", NULL, NULL);

    wrong = dense;
    wrong.ndim = -1;
    run("a negative ndim", "ZeroOutReal", &wrong, NULL);
    wrong = dense;
    wrong.ndim = 1 << 30;
    run("an ndim that is too large", "ZeroOutReal", &wrong, NULL);
    wrong = dense;
    wrong.shape = NULL;
    run("a shape that is null", "ZeroOutReal", &wrong, NULL);
    int64_t negative[] = {2, -3}, huge[] = {INT64_MAX, INT64_MAX}, far[] = {INT64_MAX, 1}, back[] = {INT64_MIN, 1};
    wrong = dense;
    wrong.shape = negative;
    run("a negative dim", "ZeroOutReal", &wrong, NULL);
    wrong = dense;
    wrong.shape = huge;
    run("more elements than there can be", "ZeroOutReal", &wrong, NULL);
    wrong = dense;
    wrong.strides = far;
    run("strides beyond all memory", "ZeroOutReal", &wrong, NULL);
    wrong = dense;
    wrong.strides = back;
    run("strides before all memory", "ZeroOutReal", &wrong, NULL);
    wrong = dense;
    wrong.byte_offset = UINT64_MAX;
    run("an offset beyond all memory", "ZeroOutReal", &wrong, NULL);
    wrong = dense;
    wrong.data = NULL;
    run("no data", "ZeroOutReal", &wrong, NULL);
    wrong = dense;
    wrong.dtype.lanes = 4;
    run("elements of four lanes", "ZeroOutReal", &wrong, NULL);
    wrong = dense;
    wrong.dtype.bits = 4;
    run("elements of four bits", "ZeroOutReal", &wrong, NULL);
    wrong = dense;
    wrong.dtype.code = 3;
    run("elements that are handles", "ZeroOutReal", &wrong, NULL);
    wrong = dense;
    wrong.device.device_type = 2;
    run("memory of a card", "ZeroOutReal", &wrong, NULL);
}

int main(int argc, char **argv)
{
    void *file = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    library = file ? (const OpsmithLibrary *)dlsym(file, OPSMITH_LIBRARY_SYMBOL) : NULL;
    if (library == NULL || library->size < sizeof(OpsmithLibrary) || failed("init", library->init())) {
        fprintf(stderr, "usage: %s LIBRARY\n", argv[0]);
        return EXIT_FAILURE;
    }
    calls();
    wrong_outputs();
    mistakes();
    return EXIT_SUCCESS;
}
