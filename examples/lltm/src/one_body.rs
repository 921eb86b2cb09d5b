//! The same step as one body, from which its gradients of every order follow.

use opsmith::prelude::*;

/// The step of `Lltm`, written once: its gradients are derived, of the first three orders.
#[body("(b,f),(3 * s,r + f),(3 * s),(b,r = s),(b,s)->(b,s),(b,s)", outputs = [new_h, new_cell])]
pub(crate) fn lltm_cell<S: Indexed>(
    /// What the step reads: `f` numbers for each element of the batch.
    input: S,
    /// The weights of the three parts of the gates, one below the other; the columns of the first `r` are for `old_h`.
    weights: [[S; 2]; 3],
    /// The bias of the three parts of the gates.
    bias: [S; 3],
    /// The output of the step before.
    old_h: S,
    /// The state after the step before.
    old_cell: S,
) -> (S, S) {
    let gate = |part: usize| {
        let [for_h, for_input] = weights[part];
        ((old_h * for_h).sum(r) + (input * for_input).sum(f) + bias[part]).saved()
    };
    let new_cell = old_cell + gate(2).elu() * gate(0).sigmoid();
    (new_cell.tanh() * gate(1).sigmoid(), new_cell)
}
