//! Creates artifacts.

use segue_core::flow::{Artifact, TypedArtifactContent};

pub(crate) fn new_artifact(name: &str, title: &str, content: TypedArtifactContent) -> Artifact {
    Artifact { name: name.to_owned(), title: title.to_owned(), content }
}
