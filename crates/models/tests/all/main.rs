//! The models as their callers see them.

mod rehearsal;
mod rehearsal_schema;
mod scripted;
mod scripted_doc;
mod support;
