//! Read-only questions to a flow about a session: which guard conditions hold, and which artifacts it shows. A flow
//! that needs texts is asked again after they have been loaded.

use segue_core::event::PhaseGraphKey;
use segue_core::flow::Artifact;
use segue_core::flow::{DynFlow, DynFlowContext, EventSubject, TextResolver};
use segue_core::ids::SessionId;
use segue_core::phase::GuardInputs;
use segue_core::session::SessionState;

use crate::engine::Engine;
use crate::error::Error;
use crate::text_cache::TextCache;

impl Engine {
    /// Asks the flow which guard conditions of a graph hold in its current phase.
    ///
    /// # Errors
    /// The session cannot be read.
    pub async fn evaluate_guard_conditions(
        &self,
        session: &SessionId,
        flow: &dyn DynFlow,
        state: &SessionState,
        key: &PhaseGraphKey,
    ) -> Result<GuardInputs, Error> {
        let Some(graph) = flow.spec().graphs.get(&key.graph) else { return Ok(GuardInputs::default()) };
        let status = state.session.phase_graph_status(graph, key);
        let evaluate_conditions = |context: DynFlowContext<'_>| {
            let names = graph.condition_names_from(&status.state.current).into_iter();
            names.map(|name| (name.to_owned(), flow.evaluate_condition(context, key, name))).collect()
        };
        let verdicts = self.evaluate_with_texts(session, state, evaluate_conditions).await?;
        Ok(GuardInputs { handovers: status.handover_kinds.clone(), verdicts })
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
    ) -> Result<Vec<Artifact>, Error> {
        self.evaluate_with_texts(session, state, |context| flow.artifacts(context)).await
    }

    /// Evaluates `question`, loading the texts it asks for and repeating it until none is missing.
    async fn evaluate_with_texts<T>(
        &self,
        session: &SessionId,
        state: &SessionState,
        question: impl Fn(DynFlowContext<'_>) -> T,
    ) -> Result<T, Error> {
        let mut cache = TextCache::default();
        loop {
            let missing = {
                let (texts, subject) = (TextResolver::new(&cache), EventSubject::default());
                let answer = question(DynFlowContext {
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
