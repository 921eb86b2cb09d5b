//! One step of an optimiser for one variable, in one pass over its elements.

use opsmith::prelude::*;

/// A variable after a step of gradient descent: `value - learning_rate * gradient`.
#[pointwise(output = updated, orders = 0)]
pub fn gradient_descent_step<S: Scalar>(
    /// The variable.
    value: S,
    /// The gradient of the loss with respect to it.
    gradient: S,
    /// How far the step goes.
    #[attr]
    learning_rate: S,
) -> S {
    value - learning_rate * gradient
}

/// A variable and its velocity after a step of gradient descent with momentum.
#[pointwise(outputs = [updated, updated_velocity], orders = 0)]
pub fn momentum_step<S: Scalar>(
    /// The variable.
    value: S,
    /// The gradient of the loss with respect to it.
    gradient: S,
    /// The running sum of gradients.
    velocity: S,
    /// How far the step goes.
    #[attr]
    learning_rate: S,
    /// How much of the velocity is left.
    #[attr(min = 0.0)]
    momentum: S,
) -> (S, S) {
    let velocity = momentum * velocity + gradient;
    (value - learning_rate * velocity, velocity)
}

/// The number of steps that Adam has taken after this one, and what corrects its means for having begun at zero.
#[pointwise(outputs = [steps_taken, correction1, correction2], orders = 0)]
pub fn adam_corrections<S: Scalar>(
    /// How many steps it has taken.
    steps: S,
    /// How much of the mean gradient is left at each step.
    #[attr(min = 0.0, below = 1.0)]
    beta1: S,
    /// How much of the mean square is left at each step.
    #[attr(min = 0.0, below = 1.0)]
    beta2: S,
) -> (S, S, S) {
    let taken = steps + S::of(1.0);
    (taken, S::of(1.0) - beta1.pow(taken), S::of(1.0) - beta2.pow(taken))
}

/// A variable and its running means after a step of Adam (Kingma and Ba, 2015).
#[pointwise(outputs = [updated, updated_mean, updated_square], orders = 0)]
pub fn adam_step<S: Scalar>(
    /// The variable.
    value: S,
    /// The gradient of the loss with respect to it.
    gradient: S,
    /// The running mean of gradients.
    mean: S,
    /// The running mean of their squares.
    square: S,
    /// What the mean is divided by, from `AdamCorrections`.
    correction1: S,
    /// What the mean square is divided by.
    correction2: S,
    /// How far the step goes.
    #[attr]
    learning_rate: S,
    /// How much of the mean gradient is left.
    #[attr(min = 0.0, below = 1.0)]
    beta1: S,
    /// How much of the mean square is left.
    #[attr(min = 0.0, below = 1.0)]
    beta2: S,
    /// What is added to the root of the mean square.
    #[attr(above = 0.0)]
    epsilon: S,
) -> (S, S, S) {
    let mean = beta1 * mean + (S::of(1.0) - beta1) * gradient;
    let square = beta2 * square + (S::of(1.0) - beta2) * gradient * gradient;
    let denominator = (square / correction2).sqrt() + epsilon;
    (value - learning_rate * (mean / correction1) / denominator, mean, square)
}
