// The LLTM as PyTorch's tutorial on C++ extensions writes it, with ATen, and with a torch::autograd::Function in C++
// rather than in Python, which is quicker.

#include <torch/extension.h>

#include <vector>

namespace {

using at::Tensor;

Tensor d_sigmoid(const Tensor& z) {
  const Tensor s = at::sigmoid(z);
  return (1 - s) * s;
}

Tensor d_tanh(const Tensor& z) { return 1 - z.tanh().pow(2); }

Tensor d_elu(const Tensor& z, const at::Scalar& alpha = 1.0) {
  const Tensor e = z.exp();
  const Tensor mask = (alpha * (e - 1)) < 0;
  return (z > 0).type_as(z) + mask.type_as(z) * (alpha * e);
}

class Lltm : public torch::autograd::Function<Lltm> {
 public:
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* ctx, const Tensor& input,
                                                const Tensor& weights, const Tensor& bias, const Tensor& old_h,
                                                const Tensor& old_cell) {
    at::AutoDispatchBelowADInplaceOrView guard;
    const Tensor X = at::cat({old_h, input}, /*dim=*/1);
    const Tensor gate_weights = at::addmm(bias, X, weights.transpose(0, 1));
    const std::vector<Tensor> gates = gate_weights.chunk(3, /*dim=*/1);
    const Tensor input_gate = at::sigmoid(gates[0]);
    const Tensor output_gate = at::sigmoid(gates[1]);
    const Tensor candidate_cell = at::elu(gates[2], /*alpha=*/1.0);
    const Tensor new_cell = old_cell + candidate_cell * input_gate;
    const Tensor new_h = at::tanh(new_cell) * output_gate;
    ctx->save_for_backward({new_cell, input_gate, output_gate, candidate_cell, X, gate_weights, weights});
    return {new_h, new_cell};
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 const torch::autograd::variable_list& grads) {
    at::AutoDispatchBelowADInplaceOrView guard;
    const auto saved = ctx->get_saved_variables();
    const Tensor &new_cell = saved[0], &input_gate = saved[1], &output_gate = saved[2];
    const Tensor &candidate_cell = saved[3], &X = saved[4], &gate_weights = saved[5], &weights = saved[6];
    const Tensor &grad_h = grads[0], &grad_cell = grads[1];
    const Tensor d_output_gate = at::tanh(new_cell) * grad_h;
    const Tensor d_tanh_new_cell = output_gate * grad_h;
    const Tensor d_new_cell = d_tanh(new_cell) * d_tanh_new_cell + grad_cell;
    const Tensor d_candidate_cell = input_gate * d_new_cell;
    const Tensor d_input_gate = candidate_cell * d_new_cell;
    const std::vector<Tensor> gates = gate_weights.chunk(3, /*dim=*/1);
    const Tensor d_gates = at::cat(
        {d_input_gate * d_sigmoid(gates[0]), d_output_gate * d_sigmoid(gates[1]), d_candidate_cell * d_elu(gates[2])},
        /*dim=*/1);
    const Tensor d_weights = d_gates.t().mm(X);
    const Tensor d_bias = d_gates.sum(/*dim=*/0);
    const Tensor d_X = d_gates.mm(weights);
    const int64_t state_size = grad_h.size(1);
    return {d_X.slice(/*dim=*/1, state_size), d_weights, d_bias, d_X.slice(/*dim=*/1, 0, state_size), d_new_cell};
  }
};

std::tuple<Tensor, Tensor> lltm(const Tensor& input, const Tensor& weights, const Tensor& bias, const Tensor& old_h,
                                const Tensor& old_cell) {
  auto outputs = Lltm::apply(input, weights, bias, old_h, old_cell);
  return {outputs[0], outputs[1]};
}

}  // namespace

TORCH_LIBRARY(peer_lltm, m) {
  m.def("lltm(Tensor input, Tensor weights, Tensor bias, Tensor old_h, Tensor old_cell) -> (Tensor, Tensor)");
}
TORCH_LIBRARY_IMPL(peer_lltm, Autograd, m) { m.impl("lltm", &lltm); }
