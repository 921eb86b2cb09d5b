//! Misuse of the macros is a compile error at its place: `ui/*.stderr` pin the messages. After a change that is
//! meant, `TRYBUILD=overwrite cargo test -p opsmith --test ui` writes them anew.

#[test]
fn misuse_is_told_at_its_place() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
