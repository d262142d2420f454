//! The assistant flow: its parts as plain functions, and the whole of it played on a stage.

mod broken;
mod declarations;
mod drawn;
mod layers;
mod page;
mod play;
mod reuse;
mod rows;
mod samples;
mod served;
mod undoing;
