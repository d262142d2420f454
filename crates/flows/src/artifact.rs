//! Creates artifacts.

use segue_core::flow::{FlowArtifact, TypedArtifactContent};

pub(crate) fn new_artifact(name: &str, title: &str, content: TypedArtifactContent) -> FlowArtifact {
    FlowArtifact { name: name.to_owned(), title: title.to_owned(), content }
}
