//! Read-only questions to a flow about a session: which phases can be entered, and which artifacts it shows. A flow
//! that needs texts is asked again after they have been loaded.

use segue_core::event::PhaseGraphKey;
use segue_core::flow::{DecisionTextResolver, DynFlow, DynFlowState, EventSubject, FlowArtifact, FlowContext};
use segue_core::ids::{PhaseName, SessionId};
use segue_core::phase::PhaseTransitionProposer;
use segue_core::session::SessionState;

use crate::engine::Engine;
use crate::error::Error;
use crate::text_cache::TextCache;

impl Engine {
    /// Returns the phases of a graph that `by` may enter now, in the graph's order.
    ///
    /// # Errors
    /// The session cannot be read.
    pub async fn allowed_phases(
        &self,
        session: &SessionId,
        flow: &dyn DynFlow,
        state: &SessionState,
        key: &PhaseGraphKey,
        by: &PhaseTransitionProposer,
    ) -> Result<Vec<PhaseName>, Error> {
        self.evaluate_with_texts(session, state, |context| {
            let evaluate = |condition: &str| flow.evaluate_condition(context, key, condition);
            context.session.allowed_phases(flow.spec(), key, by, evaluate)
        })
        .await
    }

    /// Returns the artifacts that the flow shows for a state.
    ///
    /// # Errors
    /// The session cannot be read.
    pub async fn artifacts(
        &self,
        session: &SessionId,
        flow: &dyn DynFlow,
        state: &SessionState,
    ) -> Result<Vec<FlowArtifact>, Error> {
        self.evaluate_with_texts(session, state, |context| flow.artifacts(context)).await
    }

    /// Evaluates `question`, loading the texts it asks for and repeating it until none is missing.
    async fn evaluate_with_texts<T>(
        &self,
        session: &SessionId,
        state: &SessionState,
        question: impl Fn(FlowContext<'_, DynFlowState>) -> T,
    ) -> Result<T, Error> {
        let mut cache = TextCache::default();
        loop {
            let missing = {
                let (texts, subject) = (DecisionTextResolver::new(&cache), EventSubject::default());
                let answer = question(FlowContext {
                    session: &state.session,
                    state: &state.flow,
                    texts: &texts,
                    subject: &subject,
                });
                let missing = texts.missing_ids();
                if missing.is_empty() {
                    return Ok(answer);
                }
                missing
            };
            let texts = self.read_texts(session, &missing).await?;
            missing.into_iter().zip(texts).for_each(|(id, text)| cache.insert(id, text));
        }
    }
}
