//! The commented file with which users begin a flow of their own.

/// Returns the text of a starter file for a flow of this name.
#[must_use]
pub fn starter_definition(name: &str) -> String {
    include_str!("../../../prompts/project/starter.toml").replace("my-flow", name)
}
