//! What cannot be traced does not compile, and the messages say so.

#[test]
fn what_cannot_be_traced_does_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
