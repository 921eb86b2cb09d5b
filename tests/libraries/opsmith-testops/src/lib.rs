//! One op for each feature, for the tests of the frameworks. Nothing here is meant to be useful.

mod arguments;
mod attributes;
mod calls;
mod devices;
mod failures;

/// A type for each definition, so that `library!` can list it.
mod ops {
    macro_rules! ops {
        ($($name:ident: $def:path,)*) => {
            $(
                pub(super) struct $name;

                impl opsmith::OpDefinition for $name {
                    fn def() -> opsmith::OpDef {
                        $def()
                    }
                }
            )*
        };
    }

    ops! {
        Echo: crate::arguments::echo,
        Pairwise: crate::arguments::pairwise,
        DoubleAll: crate::arguments::double_all,
        PassAll: crate::arguments::pass_all,
        AddOptional: crate::arguments::add_optional,
        Extremes: crate::arguments::extremes,
        NonZero: crate::arguments::non_zero,
        Strides: crate::arguments::strides,
        Increment: crate::arguments::increment,
        AddInto: crate::arguments::add_into,
        Lambda: crate::arguments::lambda,
        ShowAttrs: crate::attributes::show_attrs,
        ShowDefaults: crate::attributes::show_defaults,
        AddConstant: crate::attributes::add_constant,
        Make: crate::attributes::make,
        Counter: crate::calls::counter,
        NumThreads: crate::calls::num_threads,
        Squares: crate::calls::squares,
        Instances: crate::calls::instances,
        Panics: crate::failures::panics,
        Fails: crate::failures::fails,
        Max: crate::failures::max,
        Allocates: crate::failures::allocates,
        StringLength: crate::failures::string_length,
        Quote: crate::failures::quote,
        Forgets: crate::failures::forgets,
    }
}

opsmith::library! {
    name = "testops",
    ops = [
        ops::Echo,
        ops::Pairwise,
        ops::DoubleAll,
        ops::PassAll,
        ops::AddOptional,
        ops::Extremes,
        ops::NonZero,
        ops::Strides,
        ops::Increment,
        ops::AddInto,
        ops::Lambda,
        ops::ShowAttrs,
        ops::ShowDefaults,
        ops::AddConstant,
        ops::Make,
        ops::Counter,
        ops::NumThreads,
        ops::Squares,
        ops::Instances,
        ops::Panics,
        ops::Fails,
        ops::Max,
        ops::Allocates,
        ops::StringLength,
        ops::Quote,
        ops::Forgets,
        devices::scaled,
        devices::scaled_grad,
        devices::square_sum,
        devices::square_sum_grad,
        devices::power,
        devices::product_lower,
        devices::product_widest,
    ]
}
