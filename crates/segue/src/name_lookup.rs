//! From what somebody wrote to what they meant: sessions by name, beginning or age; calls by number; flows by name.

use std::str::FromStr;

use anyhow::bail;
use segue_core::ids::{CallId, FlowName, Seq, SessionId};
use segue_engine::{Engine, Error};
use segue_store::SessionQuery;

use crate::limits::{NAMES_SHOWN_MAX, SESSIONS_PAGE_MAX};
use crate::suggest::{closest_name, format_name_list, suggestion_hint};

/// The word for the newest session.
const NEWEST_SESSION_ALIAS: &str = "last";

/// The session somebody means: its name, the beginning of its name if no other begins so, or `last`.
pub async fn resolve_session(engine: &Engine, given: &str) -> anyhow::Result<SessionId> {
    if let Some(session) = find_session(engine, given).await? {
        return Ok(session);
    }
    let mut begin_so = Vec::new();
    let mut all = Vec::new();
    let mut query = SessionQuery::newest(SESSIONS_PAGE_MAX);
    loop {
        let page = engine.list_sessions(&query).await?;
        for row in page.entries {
            if !given.is_empty() && row.session.as_str().starts_with(given) {
                begin_so.push(row.session);
            } else {
                all.push(row.session);
            }
        }
        query.after_cursor = page.next_cursor;
        if query.after_cursor.is_none() {
            break;
        }
    }
    match begin_so.as_slice() {
        [only] => Ok(only.clone()),
        [] => match closest_name(given, all.iter().map(SessionId::as_str)) {
            Some(name) => bail!("there is no session `{given}`; did you mean `{name}`?"),
            None => Err(Error::NoSuchSession(given.into()).into()),
        },
        several => bail!(
            "`{given}` could be any of {} sessions: {}; give more of its name",
            several.len(),
            format_name_list(several.iter().map(SessionId::as_str))
        ),
    }
}

/// The session of exactly this name, or the newest for `last`; nothing if there is none of that name.
pub async fn find_session(engine: &Engine, given: &str) -> anyhow::Result<Option<SessionId>> {
    let session = SessionId::from(given);
    match engine.read_events(&session, Seq(0), 1).await {
        Ok(_) => return Ok(Some(session)),
        Err(Error::NoSuchSession(_)) => {}
        Err(error) => return Err(error.into()),
    }
    if given != NEWEST_SESSION_ALIAS {
        return Ok(None);
    }
    match engine.list_sessions(&SessionQuery::newest(1)).await?.entries.pop() {
        Some(row) => Ok(Some(row.session)),
        None => bail!("there are no sessions yet, so there is no last one"),
    }
}

/// The flow of that name.
pub fn resolve_flow(engine: &Engine, given: &str) -> anyhow::Result<FlowName> {
    let names: Vec<&str> = engine.flows().map(|rules| rules.spec().name.as_str()).collect();
    if names.contains(&given) {
        return Ok(given.into());
    }
    bail!("there is no flow `{given}`{}", suggestion_hint(given, names))
}

/// A number such as `c3`.
pub fn parse_id<N: FromStr<Err = String>>(given: &str) -> anyhow::Result<N> {
    given.parse().map_err(|error: String| anyhow::anyhow!(error))
}

/// A session, the newest if none is named, and a call in it.
pub fn parse_session_and_call(words: &[String]) -> anyhow::Result<(&str, CallId)> {
    match words {
        [session, call] => Ok((session, parse_id(call)?)),
        [call] => Ok(("last", parse_id(call)?)),
        _ => bail!("which call? give it as `c3`"),
    }
}

/// Those of `numbers` that stand nearest to `wanted`, in order.
pub fn nearest_numbers(wanted: u32, mut numbers: Vec<u32>) -> Vec<u32> {
    numbers.sort_by_key(|number| number.abs_diff(wanted));
    numbers.truncate(NAMES_SHOWN_MAX);
    numbers.sort_unstable();
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_numbers_are_in_order() {
        assert_eq!(nearest_numbers(50, (1..=20).collect()), (13..=20).collect::<Vec<_>>());
        assert_eq!(nearest_numbers(3, vec![1, 2]), [1, 2]);
    }
}
