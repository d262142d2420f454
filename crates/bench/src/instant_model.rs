//! A model that answers at once, so that only the engine and its store are timed. It can also hold back all answers, to
//! measure the cost of calls in flight.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::{FutureExt, StreamExt, stream};
use segue_core::prompt::CallFailure;
use segue_models::{
    LanguageModel, ModelBackendKind, ModelDescription, ModelRequest, ReplyChunk, ReplyChunkStream, ReplyFinish,
};
use tokio::sync::watch;

use crate::sample_text;

const WINDOW_TOKENS: u32 = 128_000;

/// A model that answers at once, or when its gate opens.
#[derive(Debug)]
pub(crate) struct InstantModel {
    gate: watch::Sender<InstantModelGate>,
    waiting: Arc<AtomicUsize>,
}

/// Whether answers are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InstantModelGate {
    Open,
    /// Answers are held back.
    Closed,
}

impl InstantModel {
    pub(crate) fn new(gate: InstantModelGate) -> Self {
        Self { gate: watch::Sender::new(gate), waiting: Arc::default() }
    }

    pub(crate) fn set_gate(&self, gate: InstantModelGate) {
        self.gate.send_replace(gate);
    }

    /// Returns how many calls wait for the gate to open.
    pub(crate) fn waiting_calls(&self) -> usize {
        self.waiting.load(Ordering::Acquire)
    }
}

impl LanguageModel for InstantModel {
    fn stream(&self, _request: ModelRequest) -> ReplyChunkStream {
        let answer = || {
            stream::iter([
                Ok(ReplyChunk::Text(sample_text::next_model_reply())),
                Ok(ReplyChunk::Finish(ReplyFinish::default())),
            ])
        };
        if *self.gate.borrow() == InstantModelGate::Open {
            return answer().boxed();
        }
        let (mut gate, waiting) = (self.gate.subscribe(), self.waiting.clone());
        let wait_for_gate = async move {
            waiting.fetch_add(1, Ordering::AcqRel);
            // If the gate was dropped, the answer is sent.
            let _ = gate.wait_for(|gate| *gate == InstantModelGate::Open).await;
            waiting.fetch_sub(1, Ordering::AcqRel);
            Ok::<_, CallFailure>(())
        };
        wait_for_gate.into_stream().filter_map(|_| async { None }).chain(answer()).boxed()
    }

    fn describe(&self) -> ModelDescription {
        ModelDescription {
            kind: ModelBackendKind::Scripted,
            label: "answers at once".to_owned(),
            window_tokens: WINDOW_TOKENS,
        }
    }
}
