/* Runs a SavedModel of TensorFlow with the ops of a library: saved_model DIRECTORY LIBRARY.so INPUT OUTPUT
 *
 * INPUT and OUTPUT are names of operations (`saved_model_cli show` tells them: `serving_default_x`, `StatefulPartitionedCall`). Reads
 * a matrix of float32 from standard input, its rows and columns first, and writes the output. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tensorflow/c/c_api.h>

static TF_Status *status;

static void check(const char *what) {
    if (TF_GetCode(status) != TF_OK) {
        fprintf(stderr, "%s: %s\n", what, TF_Message(status));
        exit(1);
    }
}

static TF_Output named(TF_Graph *graph, const char *name) {
    TF_Output output = {TF_GraphOperationByName(graph, name), 0};
    if (!output.oper) {
        fprintf(stderr, "the model has no operation %s\n", name);
        exit(1);
    }
    return output;
}

static TF_Tensor *matrix(void) {
    long long rows, columns;
    if (scanf("%lld %lld", &rows, &columns) != 2 || rows < 0 || columns < 0 || rows > 1 << 20 || columns > 1 << 10) {
        fprintf(stderr, "expected the numbers of rows and columns\n");
        exit(2);
    }
    int64_t dims[] = {rows, columns};
    TF_Tensor *tensor = TF_AllocateTensor(TF_FLOAT, dims, 2, sizeof(float) * (size_t)(rows * columns));
    if (!tensor) {
        fprintf(stderr, "no memory for %lld numbers\n", rows * columns);
        exit(1);
    }
    float *numbers = TF_TensorData(tensor);
    for (long long i = 0; i < rows * columns; i++) {
        if (scanf("%f", &numbers[i]) != 1) {
            fprintf(stderr, "expected %lld numbers\n", rows * columns);
            exit(2);
        }
    }
    return tensor;
}

int main(int argc, char **argv) {
    if (argc != 5) {
        fprintf(stderr, "usage: %s DIRECTORY LIBRARY.so INPUT OUTPUT < MATRIX\n", argv[0]);
        return 2;
    }
    status = TF_NewStatus();
    TF_Library *library = NULL;
    if (strcmp(argv[2], "-") != 0) { /* before the model, whose ops are looked up when it is loaded */
        library = TF_LoadLibrary(argv[2], status);
        check(argv[2]);
    }
    TF_Graph *graph = TF_NewGraph();
    TF_SessionOptions *options = TF_NewSessionOptions();
    const char *tags[] = {"serve"};
    TF_Session *session = TF_LoadSessionFromSavedModel(options, NULL, argv[1], tags, 1, graph, NULL, status);
    check(argv[1]);
    TF_Output input = named(graph, argv[3]), output = named(graph, argv[4]);
    TF_Tensor *x = matrix(), *y = NULL;
    TF_SessionRun(session, NULL, &input, &x, 1, &output, &y, 1, NULL, 0, NULL, status);
    check("the run");
    if (TF_TensorType(y) != TF_FLOAT) {
        fprintf(stderr, "%s is no float32\n", argv[4]);
        return 1;
    }
    size_t count = 1;
    for (int dim = 0; dim < TF_NumDims(y); dim++) {
        count *= (size_t)TF_Dim(y, dim);
        printf("%lld ", (long long)TF_Dim(y, dim));
    }
    printf("\n");
    for (size_t i = 0; i < count; i++) printf("%.9g\n", ((float *)TF_TensorData(y))[i]);
    TF_DeleteTensor(x);
    TF_DeleteTensor(y);
    TF_DeleteSession(session, status);
    TF_DeleteSessionOptions(options);
    TF_DeleteGraph(graph);
    if (library) TF_DeleteLibraryHandle(library);
    TF_DeleteStatus(status);
    return 0;
}
