//! A model that answers at once, so that only the engine and its store are timed. It can be made to hold every answer
//! back, for counting what many calls under way cost.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::{FutureExt, StreamExt, stream};
use segue_core::prompt::Failure;
use segue_models::{Chunk, ChunkStream, Description, Finish, Kind, Model, Request};
use tokio::sync::watch;

use crate::text;

const WINDOW_TOKENS: u32 = 128_000;

/// Answers at once, or when its gate opens.
#[derive(Debug)]
pub struct Instant {
    gate: watch::Sender<Gate>,
    waiting: Arc<AtomicUsize>,
}

/// Whether answers go out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    /// They go out at once.
    Open,
    /// They are held back.
    Closed,
}

impl Instant {
    /// A model with its gate as given.
    pub fn new(gate: Gate) -> Self {
        Self { gate: watch::Sender::new(gate), waiting: Arc::default() }
    }

    /// Opens or closes the gate.
    pub fn set(&self, gate: Gate) {
        self.gate.send_replace(gate);
    }

    /// How many calls wait at the gate.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Acquire)
    }
}

impl Model for Instant {
    fn stream(&self, _request: Request) -> ChunkStream {
        let answer = || stream::iter([Ok(Chunk::Text(text::reply())), Ok(Chunk::Finish(Finish::default()))]);
        if *self.gate.borrow() == Gate::Open {
            return answer().boxed();
        }
        let (mut gate, waiting) = (self.gate.subscribe(), self.waiting.clone());
        let held = async move {
            waiting.fetch_add(1, Ordering::AcqRel);
            // A gate that is gone holds nobody back.
            let _ = gate.wait_for(|gate| *gate == Gate::Open).await;
            waiting.fetch_sub(1, Ordering::AcqRel);
            Ok::<_, Failure>(())
        };
        held.into_stream().filter_map(|_| async { None }).chain(answer()).boxed()
    }

    fn describe(&self) -> Description {
        Description { kind: Kind::Scripted, label: "answers at once".to_owned(), window_tokens: WINDOW_TOKENS }
    }
}
