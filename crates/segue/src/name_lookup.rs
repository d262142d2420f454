//! Resolves names on the command line: sessions by name, prefix or `last`; calls by id; flows by name.

use std::str::FromStr;

use anyhow::bail;
use segue_core::ids::{CallId, FlowName, Seq, SessionId};
use segue_engine::{Engine, Error};
use segue_store::SessionQuery;

use crate::limits::{NAMES_SHOWN_MAX, SESSIONS_PAGE_MAX};
use crate::suggest::{closest_name, format_name_list, suggestion_hint};

/// The name that refers to the newest session.
const NEWEST_SESSION_ALIAS: &str = "last";

/// Returns the session with this name, with this unique prefix of a name, or the newest for `last`.
pub(crate) async fn resolve_session(engine: &Engine, given: &str) -> anyhow::Result<SessionId> {
    if let Some(session) = find_session(engine, given).await? {
        return Ok(session);
    }
    let mut with_prefix = Vec::new();
    let mut others = Vec::new();
    let mut query = SessionQuery::newest(SESSIONS_PAGE_MAX);
    loop {
        let page = engine.list_sessions(&query).await?;
        for row in page.entries {
            if !given.is_empty() && row.session.as_str().starts_with(given) {
                with_prefix.push(row.session);
            } else {
                others.push(row.session);
            }
        }
        query.after_cursor = page.next_cursor;
        if query.after_cursor.is_none() {
            break;
        }
    }
    match with_prefix.as_slice() {
        [only] => Ok(only.clone()),
        [] => match closest_name(given, others.iter().map(SessionId::as_str)) {
            Some(name) => bail!("there is no session `{given}`; did you mean `{name}`?"),
            None => Err(Error::NoSuchSession(given.into()).into()),
        },
        several => bail!(
            "`{given}` matches {} sessions: {}; write more of the name",
            several.len(),
            format_name_list(several.iter().map(SessionId::as_str))
        ),
    }
}

/// Returns the session with exactly this name, or the newest for `last`; `None` if there is no such session.
pub(crate) async fn find_session(engine: &Engine, given: &str) -> anyhow::Result<Option<SessionId>> {
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
        None => bail!("there is no last session, because there are no sessions yet"),
    }
}

/// Returns the flow with this name, or an error with a suggestion.
pub(crate) fn resolve_flow(engine: &Engine, given: &str) -> anyhow::Result<FlowName> {
    let names: Vec<&str> = engine.flows().map(|flow| flow.spec().name.as_str()).collect();
    if names.contains(&given) {
        return Ok(given.into());
    }
    bail!("there is no flow `{given}`{}", suggestion_hint(given, names))
}

/// Parses the id of a call, such as `c3`.
pub(crate) fn parse_call_id(given: &str) -> anyhow::Result<CallId> {
    CallId::from_str(given).map_err(|_| anyhow::anyhow!("`{given}` is not a call id (like c3)"))
}

/// Parses `[SESSION] CALL`; the session is `last` if it is left out.
pub(crate) fn parse_session_and_call(words: &[String]) -> anyhow::Result<(&str, CallId)> {
    match words {
        [session, call] => match parse_call_id(call) {
            Ok(call) => Ok((session, call)),
            // The arguments may be in the wrong order.
            Err(error) if parse_call_id(session).is_ok() => bail!("{error}; the session comes first"),
            Err(error) => Err(error),
        },
        [call] => Ok((NEWEST_SESSION_ALIAS, parse_call_id(call)?)),
        _ => bail!("the call is missing; write its id, like c3"),
    }
}

/// Returns the `numbers` closest to `wanted`, in ascending order.
pub(crate) fn nearest_numbers(wanted: u32, mut numbers: Vec<u32>) -> Vec<u32> {
    numbers.sort_by_key(|number| number.abs_diff(wanted));
    numbers.truncate(NAMES_SHOWN_MAX);
    numbers.sort_unstable();
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_and_a_call_in_the_wrong_order_are_explained() {
        let parse = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(ToString::to_string).collect();
            parse_session_and_call(&words).map(|(session, call)| (session.to_owned(), call)).map_err(|e| e.to_string())
        };
        assert_eq!(parse(&["home", "c3"]), Ok(("home".to_owned(), CallId(3))));
        assert_eq!(parse(&["c3"]), Ok(("last".to_owned(), CallId(3))));
        assert_eq!(
            parse(&["c3", "hitabade"]),
            Err("`hitabade` is not a call id (like c3); the session comes first".to_owned())
        );
        assert_eq!(parse(&["home", "three"]), Err("`three` is not a call id (like c3)".to_owned()));
    }

    #[test]
    fn the_nearest_numbers_are_in_order() {
        assert_eq!(nearest_numbers(50, (1..=20).collect()), (13..=20).collect::<Vec<_>>());
        assert_eq!(nearest_numbers(3, vec![1, 2]), [1, 2]);
    }
}
