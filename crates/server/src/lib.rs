//! The engine over HTTP. Nothing stands here yet: the crate keeps the place, and the edges it may have, in the map.
