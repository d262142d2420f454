//! The server as its clients know it: over a socket on this machine, with stand-ins for models.

mod description;
mod doc;
mod door;
mod doors;
mod keys;
mod lab;
mod late;
mod limits;
mod messages;
mod sessions;
mod streams;
mod views;
mod webhooks;
