// The op of the benchmark of just-in-time builds, as PyTorch's tutorials write one: functions for Python, which wraps
// them in a torch.autograd.Function.

#include <torch/extension.h>

#include <cmath>

at::Tensor distance(const at::Tensor& x_any, const at::Tensor& y_any) {
  const at::Tensor x = x_any.contiguous(), y = y_any.contiguous();
  const int64_t n = x.size(0), m = y.size(0), p = x.size(1);
  at::Tensor z = at::empty({n, m}, x.options());
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "distance", [&] {
    const scalar_t *xs = x.const_data_ptr<scalar_t>(), *ys = y.const_data_ptr<scalar_t>();
    scalar_t* zs = z.mutable_data_ptr<scalar_t>();
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < m; ++j) {
        scalar_t sum = SHIFT;
        for (int64_t k = 0; k < p; ++k) sum += std::abs(xs[i * p + k] - ys[j * p + k]);
        zs[i * m + j] = sum;
      }
  });
  return z;
}

std::vector<at::Tensor> distance_grad(const at::Tensor& x_any, const at::Tensor& y_any, const at::Tensor& g_any) {
  const at::Tensor x = x_any.contiguous(), y = y_any.contiguous(), g = g_any.contiguous();
  const int64_t n = x.size(0), m = y.size(0), p = x.size(1);
  at::Tensor x_grad = at::zeros_like(x), y_grad = at::zeros_like(y);
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "distance_grad", [&] {
    const scalar_t *xs = x.const_data_ptr<scalar_t>(), *ys = y.const_data_ptr<scalar_t>();
    const scalar_t* gs = g.const_data_ptr<scalar_t>();
    scalar_t *xg = x_grad.mutable_data_ptr<scalar_t>(), *yg = y_grad.mutable_data_ptr<scalar_t>();
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < m; ++j)
        for (int64_t k = 0; k < p; ++k) {
          const scalar_t d = xs[i * p + k] - ys[j * p + k];
          const scalar_t s = gs[i * m + j] * scalar_t((d > 0) - (d < 0));
          xg[i * p + k] += s;
          yg[j * p + k] -= s;
        }
  });
  return {x_grad, y_grad};
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("distance", &distance);
  m.def("distance_grad", &distance_grad);
}
