//! What a flow says about a session that nobody changes: which conditions of its guards hold, what it puts on show. A flow
//! that reads texts is asked again once they are at hand.

use segue_core::event::PhaseGraphKey;
use segue_core::flow::artifact::Artifact;
use segue_core::flow::{DynFlow, DynFlowContext, EventSubject, TextResolver};
use segue_core::ids::SessionId;
use segue_core::phase::guard::GuardConditions;
use segue_core::session::SessionState;

use crate::engine::Engine;
use crate::error::Error;
use crate::text_cache::TextCache;

impl Engine {
    /// What the guards of a graph ask about where it stands, judged by the flow.
    ///
    /// # Errors
    /// The session cannot be read.
    pub async fn evaluate_guard_conditions(
        &self,
        session: &SessionId,
        flow: &dyn DynFlow,
        state: &SessionState,
        key: &PhaseGraphKey,
    ) -> Result<GuardConditions, Error> {
        let Some(graph) = flow.spec().graphs.get(&key.graph) else { return Ok(GuardConditions::default()) };
        let stand = state.session.phase_graph_status(graph, key);
        let judged = |sight: DynFlowContext<'_>| {
            let asked = graph.condition_names_from(&stand.state.current).into_iter();
            asked.map(|name| (name.to_owned(), flow.evaluate_condition(sight, key, name))).collect()
        };
        let holds = self.evaluate_with_texts(session, state, judged).await?;
        Ok(GuardConditions { handovers: stand.handover_kinds.clone(), verdicts: holds })
    }

    /// What the flow puts on show of a state.
    ///
    /// # Errors
    /// The session cannot be read.
    pub async fn artifacts(
        &self,
        session: &SessionId,
        flow: &dyn DynFlow,
        state: &SessionState,
    ) -> Result<Vec<Artifact>, Error> {
        self.evaluate_with_texts(session, state, |sight| flow.artifacts(sight)).await
    }

    /// What `look` makes of a state with all the texts at hand that it asks for.
    async fn evaluate_with_texts<T>(
        &self,
        session: &SessionId,
        state: &SessionState,
        look: impl Fn(DynFlowContext<'_>) -> T,
    ) -> Result<T, Error> {
        let mut shelf = TextCache::default();
        loop {
            let missing = {
                let (texts, about) = (TextResolver::new(&shelf), EventSubject::default());
                let seen = look(DynFlowContext {
                    session: &state.session,
                    state: &state.flow,
                    texts: &texts,
                    subject: &about,
                });
                let missing = texts.missing_ids();
                if missing.is_empty() {
                    return Ok(seen);
                }
                missing
            };
            let texts = self.read_texts(session, &missing).await?;
            missing.into_iter().zip(texts).for_each(|(id, text)| shelf.insert(id, text));
        }
    }
}
