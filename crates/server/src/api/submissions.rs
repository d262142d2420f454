//! Serves what became of a submission to a session that another process holds.

use axum::Json;
use axum::extract::Path;
use segue_core::ids::SubmissionId;
use segue_engine::InboxSubmissionProgress;
use serde::Serialize;
use utoipa::ToSchema;

use super::SessionPathParamDocs;
use crate::extract::CallerSessionRef;
use crate::problem::HttpProblem;

/// What became of a submission.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct InboxSubmissionStatusView {
    pub submission: String,
    /// `waiting` or `accepted`. A refused submission is an error response.
    pub status: String,
    /// The message that was received, if the submission was one.
    pub message: Option<String>,
}

/// Get the outcome of a submission
///
/// A request for a session that another process holds is answered with status 202 and an id if that process does not
/// handle it in time. Outcomes are kept for 24 hours.
#[utoipa::path(get, path = "/v1/sessions/{session}/submissions/{submission}", tag = "messages", params(SessionPathParamDocs, ("submission" = String, Path, description = "The id from the response with status 202.")), responses((status = 200, body = InboxSubmissionStatusView)))]
pub(crate) async fn get_submission(
    session_ref: CallerSessionRef,
    Path((_, submission)): Path<(String, String)>,
) -> Result<Json<InboxSubmissionStatusView>, HttpProblem> {
    let id = u64::from_str_radix(&submission, 16).map(SubmissionId).map_err(|_| {
        HttpProblem::bad_request(format!(
            "`{submission}` is not the id of a submission, which has 16 hexadecimal digits"
        ))
    })?;
    let result = session_ref.app.engine.submission_result(&session_ref.session, id).await;
    let (status, message) = match result.map_err(|error| session_ref.to_problem(error))? {
        InboxSubmissionProgress::Waiting => ("waiting", None),
        InboxSubmissionProgress::Accepted(message) => ("accepted", message),
    };
    Ok(Json(InboxSubmissionStatusView {
        submission: id.to_string(),
        status: status.to_owned(),
        message: message.map(|message| message.to_string()),
    }))
}
