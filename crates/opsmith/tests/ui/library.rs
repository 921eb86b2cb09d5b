#![allow(unused_variables)]

use opsmith::prelude::*;

#[op(shape = "(n)->(n)")]
fn copy<T: Float>(x: ArrayView1<T>, z: ArrayViewMut1<T>) {}

fn plain() {}

mod twice {
    opsmith::library! { name = "twice", ops = [super::copy, super::copy] }
}

mod name {
    opsmith::library! { name = "Copies", ops = [super::copy] }
}

mod option {
    opsmith::library! { name = "copies", operators = [super::copy] }
}

mod missing {
    opsmith::library! { name = "copies" }
}

mod not_an_op {
    opsmith::library! { name = "copies", ops = [super::plain] }
}

fn main() {}
