// Sums of what gradients of repeated inputs are made of.
#include "opsmith_fold.cuh"
