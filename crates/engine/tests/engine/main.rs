//! The engine by topic: a store in memory, time that passes when nothing else happens, and a model that each test plays
//! itself, call by call.

mod alarms;
mod busy;
mod calls;
mod disk;
mod faults;
mod lab;
mod late;
mod listening;
mod pace;
mod repeating;
mod resting;
mod stopping;
mod tools;
mod transfer;
mod unknown;
mod vendors;
