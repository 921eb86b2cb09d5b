//! The rules, each with its verdict and the reason for it.

/// What a change means for those who use a library.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// Something that worked does not, or means something else.
    Breaking,
    /// Saved graphs of TensorFlow and JAX go on; exported PyTorch programs and calls in source must be changed.
    Caution,
    /// Everything that worked does, with the same meaning.
    Safe,
}

impl Verdict {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Breaking => "breaking",
            Verdict::Caution => "caution",
            Verdict::Safe => "safe",
        }
    }
}

macro_rules! rules {
    ($($variant:ident $id:literal $verdict:ident $reason:literal;)*) => {
        /// What kind of change one is.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Rule {
            $(#[doc = $reason] $variant,)*
        }

        impl Rule {
            /// Every rule.
            pub const ALL: &[Rule] = &[$(Rule::$variant),*];

            /// Its name, which does not change: `attr-default-changed`.
            pub fn id(self) -> &'static str {
                match self {
                    $(Rule::$variant => $id,)*
                }
            }

            /// What it says of a change.
            pub fn verdict(self) -> Verdict {
                match self {
                    $(Rule::$variant => Verdict::$verdict,)*
                }
            }

            /// Why.
            pub fn reason(self) -> &'static str {
                match self {
                    $(Rule::$variant => $reason,)*
                }
            }
        }
    };
}

rules! {
    LibraryRenamed "library-renamed" Breaking
        "every framework knows the ops under the library's name";
    OpAdded "op-added" Safe
        "nothing knows it yet";
    OpRemoved "op-removed" Breaking
        "calls and saved graphs find no op of this name";
    OpRenamed "op-renamed" Breaking
        "calls and saved graphs find no op of this name; give the op its old name by `name = \"…\"`, or keep it beside the new one";
    StatefulAdded "stateful-added" Breaking
        "graphs were saved on the promise that its calls may be merged, folded and dropped";
    StatefulRemoved "stateful-removed" Breaking
        "calls that have effects may now be merged, folded and dropped";

    InputRemoved "input-removed" Breaking
        "calls and saved graphs still give it";
    InputRenamed "input-renamed" Breaking
        "calls by keyword and exported PyTorch programs give it by its name";
    InputOrder "input-order" Breaking
        "calls and saved graphs give tensors by position";
    InputType "input-type" Breaking
        "calls and saved graphs give tensors of the old dtype and number";
    InputMixedList "input-mixed-list" Breaking
        "saved graphs say one dtype and a number of tensors, and have no list of dtypes";
    InputPolymorphic "input-polymorphic" Safe
        "calls and saved graphs that do not say the dtype mean the default, which is what it was";
    InputToList "input-to-list" Caution
        "graphs of TensorFlow and JAX mean a list of one; exported PyTorch programs and calls must give a list";
    InputListAdded "input-list-added" Caution
        "graphs of TensorFlow and JAX mean an empty list; exported PyTorch programs and calls must give it";
    InputListInserted "input-list-inserted" Breaking
        "calls give the inputs behind it by position: a new list must come last";
    InputAdded "input-added" Breaking
        "calls and saved graphs do not give it; only a list that is empty by default can be added";
    InputOptionalAdded "input-optional-added" Breaking
        "TensorFlow and JAX write into a graph whether an optional input is there, and saved ones do not say it; add a list that is empty by default";
    InputNowOptional "input-now-optional" Breaking
        "TensorFlow writes into a graph whether an optional input is there, and saved ones do not say it";
    InputNowRequired "input-now-required" Breaking
        "calls and saved graphs may leave it out";
    InputNowChanged "input-now-changed" Breaking
        "callers do not expect that their tensor is written to";
    InputNoLongerChanged "input-no-longer-changed" Breaking
        "callers read the result from the tensor that they gave";

    OutputAdded "output-added" Breaking
        "calls and saved graphs expect as many results as there were";
    OutputRemoved "output-removed" Breaking
        "calls and saved graphs use it";
    OutputRenamed "output-renamed" Breaking
        "TensorFlow's saved functions know outputs by name";
    OutputOrder "output-order" Breaking
        "calls and saved graphs take results by position";
    OutputType "output-type" Breaking
        "calls and saved graphs expect the old dtype and number";
    OutputMixedList "output-mixed-list" Breaking
        "saved graphs say one dtype and a number of tensors, and have no list of dtypes";
    OutputPolymorphic "output-polymorphic" Safe
        "calls and saved graphs that do not say the dtype mean the default, which is what it was";
    OutputToList "output-to-list" Breaking
        "TensorFlow's saved functions, exported PyTorch programs and calls take it as one tensor";
    OutputNowOptional "output-now-optional" Safe
        "every output is computed unless a call says that it is not wanted";
    OutputNowRequired "output-now-required" Breaking
        "calls and saved graphs may say that it is not wanted";
    OutputNowSaved "output-now-saved" Breaking
        "functions in Python give it back no longer";
    OutputNoLongerSaved "output-no-longer-saved" Breaking
        "functions in Python give back one result more";
    OutputShape "output-shape" Breaking
        "calls and saved graphs compute with the old shape";

    AttrAdded "attr-added" Safe
        "calls and saved graphs without it mean the default, which must do what the op did before; files of PyTorch and ONNX with it lose it in an older library";
    AttrAddedRequired "attr-added-required" Breaking
        "calls and saved graphs do not give it: it needs a default";
    AttrAddedBefore "attr-added-before" Breaking
        "calls give the attributes behind it by position: a new one must come last";
    AttrRemoved "attr-removed" Breaking
        "calls and saved graphs that give it are refused, but files of PyTorch and ONNX lose it without a message";
    AttrRenamed "attr-renamed" Breaking
        "calls and saved graphs give it by its name; keep that, and give Python another function that has the new one";
    AttrOrder "attr-order" Breaking
        "calls give attributes by position: required ones, then those with a default";
    AttrType "attr-type" Breaking
        "calls and saved graphs give values of the old type";
    AttrLoosened "attr-loosened" Safe
        "every value that was allowed still is";
    AttrTightened "attr-tightened" Breaking
        "calls and saved graphs may have values that are refused now";
    AttrDefaultAdded "attr-default-added" Safe
        "calls and saved graphs gave a value";
    AttrDefaultChanged "attr-default-changed" Breaking
        "calls and saved graphs that do not give a value mean another one now";
    AttrDefaultRemoved "attr-default-removed" Breaking
        "calls and saved graphs may give no value";

    ShapeChanged "shape-changed" Breaking
        "calls that were right are refused, or their outputs have other shapes";
    ShapeLoosened "shape-loosened" Safe
        "every call that was right still is, and its outputs have the same shapes";
    ShapeNotComparable "shape-not-comparable" Breaking
        "what a shape function accepts and infers cannot be seen in a definition";

    ParallelAdded "parallel-added" Safe
        "no call was cut along it";
    ParallelRemoved "parallel-removed" Breaking
        "calls that are cut along it and put together give something else, or nothing";

    GradientAdded "gradient-added" Safe
        "differentiating was an error";
    GradientRemoved "gradient-removed" Breaking
        "programs that differentiate through it fail";
    GradientZero "gradient-zero" Breaking
        "programs that differentiate through it get zeros";
    GradientNoLongerZero "gradient-no-longer-zero" Breaking
        "programs that differentiate through it get other gradients than before";
    GradientInputRemoved "gradient-input-removed" Breaking
        "programs that differentiate with respect to it get no gradient";
    GradientOpChanged "gradient-op-changed" Safe
        "gradients still flow to the same inputs; the op that computed them is judged by itself";

    KernelAdded "kernel-added" Safe
        "such calls were errors";
    KernelRemoved "kernel-removed" Breaking
        "such calls find no kernel";
}
