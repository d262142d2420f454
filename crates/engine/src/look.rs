//! What a flow says about a session that nobody changes: which conditions of its guards hold, what it puts on show. A flow
//! that reads texts is asked again once they are at hand.

use segue_core::event::PhaseKey;
use segue_core::flow::exhibit::Exhibit;
use segue_core::flow::{About, Rules, Sight, Texts};
use segue_core::ids::SessionId;
use segue_core::phase::guard::Conditions;
use segue_core::session::State;

use crate::engine::Engine;
use crate::error::Error;
use crate::shelf::Shelf;

impl Engine {
    /// What the guards of a graph ask about where it stands, judged by the flow.
    ///
    /// # Errors
    /// The session cannot be read.
    pub async fn conditions(
        &self,
        session: &SessionId,
        rules: &dyn Rules,
        state: &State,
        key: &PhaseKey,
    ) -> Result<Conditions, Error> {
        let Some(graph) = rules.spec().graphs.get(&key.graph) else { return Ok(Conditions::default()) };
        let stand = state.session.stand(graph, key);
        let judged = |sight: Sight<'_>| {
            let asked = graph.conditions_at(&stand.now.current).into_iter();
            asked.map(|name| (name.to_owned(), rules.holds(sight, key, name))).collect()
        };
        let holds = self.reading(session, state, judged).await?;
        Ok(Conditions { handovers: stand.handed.clone(), holds })
    }

    /// What the flow puts on show of a state.
    ///
    /// # Errors
    /// The session cannot be read.
    pub async fn exhibits(&self, session: &SessionId, rules: &dyn Rules, state: &State) -> Result<Vec<Exhibit>, Error> {
        self.reading(session, state, |sight| rules.exhibits(sight)).await
    }

    /// What `look` makes of a state with all the texts at hand that it asks for.
    async fn reading<T>(&self, session: &SessionId, state: &State, look: impl Fn(Sight<'_>) -> T) -> Result<T, Error> {
        let mut shelf = Shelf::default();
        loop {
            let missing = {
                let (texts, about) = (Texts::new(&shelf), About::default());
                let seen = look(Sight { session: &state.session, state: &state.flow, texts: &texts, about: &about });
                let missing = texts.missing();
                if missing.is_empty() {
                    return Ok(seen);
                }
                missing
            };
            let texts = self.texts(session, &missing).await?;
            missing.into_iter().zip(texts).for_each(|(id, text)| shelf.put(id, text));
        }
    }
}
