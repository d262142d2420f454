//! The texts of the flow, rendered from its templates. Texts of users, models and files are fenced.

use segue_core::body::TextRef;
use segue_core::ids::AgentName;
use segue_core::signal::wrap_in_code_fence;
use serde::Serialize;

use super::facts::{ArchitectDecisionOnRequest, CoderRequestKind, CoderTask, UndeliveredStory};
use super::product_spec::{ProductSpec, RequiredSpecField};
use super::requests::{count_review_parts, request_diff};
use super::state::{CoderRequest, StoryProgress};
use super::story::Story;
use super::team_context::TeamFlowContext;
use crate::limits::{BUDGET_REVIEWS_MAX, REVIEW_STREAK_MAX, REVIEW_STREAK_WARNING, TEST_OUTPUT_BYTES_MAX};
use crate::template::fill_template;

/// Renders a template of this flow.
macro_rules! render {
    ($file:literal, $arguments:expr) => {
        fill_template(include_str!(concat!("../../prompts/team/", $file)), $arguments)
    };
}

pub(super) fn render_architect_role(agent: &AgentName, is_coder: bool) -> String {
    #[derive(Serialize)]
    struct ArchitectRoleTemplateFields<'a> {
        agent: &'a str,
        is_coder: bool,
    }
    render!("role_architect.md", &ArchitectRoleTemplateFields { agent: agent.as_str(), is_coder })
}

pub(super) fn render_coder_role(agent: &AgentName) -> String {
    #[derive(Serialize)]
    struct CoderRoleTemplateFields<'a> {
        agent: &'a str,
    }
    render!("role_coder.md", &CoderRoleTemplateFields { agent: agent.as_str() })
}

pub(super) fn render_product_manager_role() -> String {
    render!("role_product_manager.md", &())
}

#[derive(Serialize)]
struct FencedTextTemplateFields {
    fenced: String,
}

fn fence(text: &str) -> FencedTextTemplateFields {
    FencedTextTemplateFields { fenced: wrap_in_code_fence(text) }
}

pub(super) fn render_spec(spec: &ProductSpec) -> String {
    render!("spec.md", &fence(&spec_lines(spec)))
}

fn spec_lines(spec: &ProductSpec) -> String {
    let list = |title: &str, items: &[String]| match items {
        [] => String::new(),
        items => format!("\n{title}:\n- {}", items.join("\n- ")),
    };
    format!(
        "{}\n{}{}{}{}",
        spec.title,
        spec.goal,
        list("Requirements", &spec.requirements),
        list("Acceptance", &spec.acceptance),
        list("Constraints", &spec.constraints)
    )
}

fn story_lines(story: &Story) -> String {
    format!("{}: {}\n{}\nAcceptance:\n- {}", story.id, story.title, story.description, story.acceptance.join("\n- "))
}

/// Renders the story of an assignment.
pub(super) fn render_story_prompt(story: &Story, attempt: u32) -> String {
    #[derive(Serialize)]
    struct StoryTemplateFields {
        fenced: String,
        attempt: u32,
        revision: u32,
        files: String,
    }
    let fenced = wrap_in_code_fence(&story_lines(story));
    let arguments = StoryTemplateFields { fenced, attempt, revision: story.revision, files: story.files.join(", ") };
    render!("story.md", &arguments)
}

/// Renders what is left of a context whose story cannot be loaded.
pub(super) fn render_unloadable_story(agent: &AgentName, work: &str, why: &str) -> String {
    #[derive(Serialize)]
    struct UnloadableStoryTemplateFields<'a> {
        agent: &'a str,
        work: &'a str,
        why: &'a str,
    }
    render!("minimal_story.md", &UnloadableStoryTemplateFields { agent: agent.as_str(), work, why })
}

pub(super) fn render_knowledge_prompt(lines: Vec<String>) -> String {
    #[derive(Serialize)]
    struct KnowledgeTemplateFields {
        lines: Vec<String>,
    }
    render!("knowledge.md", &KnowledgeTemplateFields { lines })
}

pub(super) fn render_project_instructions(text: &str) -> String {
    render!("project_instructions.md", &fence(text))
}

/// Renders the decisions about a story, for a new thread.
pub(super) fn render_story_history(progress: &StoryProgress) -> String {
    #[derive(Serialize)]
    struct PastReviewTemplateFields<'a> {
        attempt: u32,
        kind: &'a str,
        agent: &'a str,
        verdict: &'a str,
        feedback: String,
    }
    #[derive(Serialize)]
    struct StoryHistoryTemplateFields<'a> {
        reviews: Vec<PastReviewTemplateFields<'a>>,
        failure: &'a str,
    }
    let reviews = progress.reviews.iter().map(|given| PastReviewTemplateFields {
        attempt: given.attempt,
        kind: given.kind.as_str(),
        agent: given.agent.as_str(),
        verdict: given.verdict.as_str(),
        feedback: one_line(&given.review.feedback),
    });
    render!("history.md", &StoryHistoryTemplateFields { reviews: reviews.collect(), failure: &progress.reason })
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Renders the question for stories.
pub(super) fn render_stories_request(context: &TeamFlowContext<'_>) -> String {
    #[derive(Serialize)]
    struct AskForStoriesTemplateFields<'a> {
        fenced: String,
        existing: String,
        warnings: &'a [String],
    }
    let state = context.state();
    let existing: Vec<String> = state.ordered_stories().map(|progress| story_lines(&progress.story)).collect();
    let existing = if existing.is_empty() { String::new() } else { wrap_in_code_fence(&existing.join("\n\n")) };
    let spec = state.spec.clone().unwrap_or_default();
    let warnings = state.repository.as_ref().map_or(&[][..], |repository| &repository.warnings);
    render!(
        "stories.md",
        &AskForStoriesTemplateFields { fenced: wrap_in_code_fence(&spec_lines(&spec)), existing, warnings }
    )
}

pub(super) fn render_stories_repair(problems: &[String]) -> String {
    #[derive(Serialize)]
    struct RepairStoriesTemplateFields<'a> {
        problems: &'a [String],
    }
    render!("repair_stories.md", &RepairStoriesTemplateFields { problems })
}

pub(super) fn render_review_repair(why: &str) -> String {
    #[derive(Serialize)]
    struct RepairReviewTemplateFields<'a> {
        why: &'a str,
    }
    render!("repair_review.md", &RepairReviewTemplateFields { why })
}

#[derive(Serialize)]
struct CoderRequestTemplateFields {
    kind: &'static str,
    agent: String,
    fenced: String,
    diff: String,
    part: usize,
    parts: usize,
    phase: String,
    rounds: u32,
    reviews: u32,
    reviews_max: u32,
    tests: &'static str,
    warning: u32,
    streak_max: u32,
}

/// Renders a coder's request as a short message.
pub(super) fn render_coder_request(context: &TeamFlowContext<'_>, request: &CoderRequest) -> String {
    let coder = context.coder(&request.agent);
    let parts = count_review_parts(context, request);
    let diff = match request_diff(context, request) {
        Some(diff) if parts > 1 => {
            diff.files.get(request.parts.len()).map(|file| file.text.clone()).unwrap_or_default()
        }
        Some(_) => read_text_or_empty(context, request.diff),
        None => String::new(),
    };
    let streak = coder.streaks.get(&request.kind).copied().unwrap_or_default();
    let arguments = CoderRequestTemplateFields {
        kind: request.kind.as_str(),
        agent: request.agent.to_string(),
        fenced: wrap_in_code_fence(read_text_or_empty(context, request.text).trim()),
        diff: wrap_in_code_fence(&diff),
        part: if parts > 1 { request.parts.len() + 1 } else { 0 },
        parts,
        phase: coder.return_to.map(|phase| phase.to_string().to_lowercase()).unwrap_or_default(),
        rounds: coder.planning_rounds + coder.coding_rounds,
        reviews: coder.budget_reviews,
        reviews_max: BUDGET_REVIEWS_MAX,
        tests: match (&coder.green_commit, &coder.last_failure) {
            (_, Some(_)) => "failed",
            (Some(_), None) => "passed",
            (None, None) => "none yet",
        },
        warning: streak_to_warn_about(streak),
        streak_max: REVIEW_STREAK_MAX,
    };
    render!("request.md", &arguments)
}

/// Returns how many reviews in a row asked for changes, if it is time to warn.
fn streak_to_warn_about(streak: u32) -> u32 {
    if streak >= REVIEW_STREAK_WARNING { streak } else { 0 }
}

fn read_text_or_empty(context: &TeamFlowContext<'_>, text: Option<TextRef>) -> String {
    text.map(|text| context.view.read_text(text).to_string()).unwrap_or_default()
}

#[derive(Serialize, Default)]
struct CoderTaskTemplateFields<'a> {
    task: &'static str,
    verdict: &'static str,
    feedback: String,
    findings: &'a [super::review::ReviewFinding],
    problems: &'a [String],
    plan: String,
    output: String,
    diff: String,
    files: String,
    tool: &'a str,
    failed: bool,
    warning: u32,
    streak_max: u32,
}

/// Renders a coder's task.
pub(super) fn render_coder_task(context: &TeamFlowContext<'_>, agent: &AgentName) -> String {
    let coder = context.coder(agent);
    let mut arguments = CoderTaskTemplateFields { streak_max: REVIEW_STREAK_MAX, ..CoderTaskTemplateFields::default() };
    fn with_review<'a>(arguments: &mut CoderTaskTemplateFields<'a>, given: &'a ArchitectDecisionOnRequest) {
        arguments.verdict = given.verdict.as_str();
        arguments.feedback.clone_from(&given.review.feedback);
        arguments.findings = &given.review.findings;
        arguments.warning = streak_to_warn_about(given.streak);
    }
    let plan = read_text_or_empty(context, coder.plan);
    match &coder.task {
        None | Some(CoderTask::Plan) => arguments.task = "plan",
        Some(CoderTask::RevisePlan { review }) => {
            arguments.task = "revise_plan";
            with_review(&mut arguments, review);
        }
        Some(CoderTask::Code) => {
            arguments.task = "code";
            arguments.plan = if plan.is_empty() { plan } else { wrap_in_code_fence(plan.trim()) };
        }
        Some(CoderTask::FixProblems { problems }) => {
            arguments.task = "fix_problems";
            arguments.problems = problems;
        }
        Some(CoderTask::FixTests { output }) => {
            arguments.task = "fix_tests";
            let text = read_text_or_empty(context, Some(*output));
            let start = text.ceil_char_boundary(text.len().saturating_sub(TEST_OUTPUT_BYTES_MAX));
            arguments.output = wrap_in_code_fence(&text[start..]);
        }
        Some(CoderTask::FixReview { review }) => {
            arguments.task = "fix_review";
            with_review(&mut arguments, review);
        }
        Some(CoderTask::RedoOnNewBase { files }) => {
            arguments.task = "redo_on_new_base";
            arguments.files = files.join(", ");
            arguments.diff = wrap_in_code_fence(&read_text_or_empty(context, coder.diff));
        }
        Some(CoderTask::Continue { review }) => {
            arguments.task = "continue";
            with_review(&mut arguments, review);
        }
        Some(CoderTask::UseAnswer { answer }) => {
            arguments.task = "use_answer";
            arguments.feedback = wrap_in_code_fence(answer);
        }
        Some(CoderTask::UseResult { tool, failed, result }) => {
            arguments.task = "use_result";
            arguments.tool = tool;
            arguments.failed = *failed;
            arguments.output = wrap_in_code_fence(&read_text_or_empty(context, Some(*result)));
        }
        Some(CoderTask::RepeatCall { problem }) => {
            arguments.task = "repeat_call";
            arguments.feedback.clone_from(problem);
        }
        Some(CoderTask::Recheck | CoderTask::WriteKnowledge) => arguments.task = "other",
    }
    render!("task.md", &arguments)
}

pub(super) fn render_spec_draft(context: &TeamFlowContext<'_>) -> String {
    let state = context.state();
    let spec = if state.has_draft { Some(&state.draft) } else { state.spec.as_ref().filter(|_| state.spec_is_running) };
    let fenced = spec.map(|spec| wrap_in_code_fence(&spec_lines(spec))).unwrap_or_default();
    render!("draft.md", &FencedTextTemplateFields { fenced })
}

#[derive(Serialize)]
struct StoryStatusTemplateFields<'a> {
    id: &'a str,
    title: &'a str,
    status: &'a str,
    reason: &'a str,
}

pub(super) fn render_team_status(context: &TeamFlowContext<'_>) -> String {
    #[derive(Serialize)]
    struct TeamStatusTemplateFields<'a> {
        running: bool,
        paused: bool,
        title: &'a str,
        stories: Vec<StoryStatusTemplateFields<'a>>,
        needs: Vec<String>,
    }
    let state = context.state();
    let stories = state.ordered_stories().map(|progress| StoryStatusTemplateFields {
        id: &progress.story.id,
        title: &progress.story.title,
        status: progress.status.as_str(),
        reason: &progress.reason,
    });
    let needs = state.escalations.iter().map(|need| format!("{}: {}", need.subject, need.reason));
    let arguments = TeamStatusTemplateFields {
        running: state.spec_is_running,
        paused: state.is_paused,
        title: state.spec.as_ref().map_or("", |spec| &spec.title),
        stories: stories.collect(),
        needs: needs.collect(),
    };
    render!("status.md", &arguments)
}

pub(super) fn render_spec_preview(spec: &ProductSpec, said: &str) -> String {
    #[derive(Serialize)]
    struct SpecTemplateFields<'a> {
        title: &'a str,
        goal: &'a str,
        requirements: &'a [String],
        acceptance: &'a [String],
        constraints: &'a [String],
    }
    #[derive(Serialize)]
    struct SpecPreviewTemplateFields<'a> {
        spec: SpecTemplateFields<'a>,
        said: &'a str,
    }
    let spec = SpecTemplateFields {
        title: &spec.title,
        goal: &spec.goal,
        requirements: &spec.requirements,
        acceptance: &spec.acceptance,
        constraints: &spec.constraints,
    };
    render!("spec_preview.md", &SpecPreviewTemplateFields { spec, said })
}

pub(super) fn render_missing_field(said: &str, field: RequiredSpecField) -> String {
    #[derive(Serialize)]
    struct MissingSpecFieldTemplateFields<'a> {
        said: &'a str,
        question: &'a str,
    }
    render!("missing_field.md", &MissingSpecFieldTemplateFields { said, question: field.question() })
}

/// Renders the account of a delivery.
pub(super) fn render_delivery_account(context: &TeamFlowContext<'_>, missing: &[UndeliveredStory]) -> String {
    #[derive(Serialize)]
    struct UndeliveredStoryTemplateFields<'a> {
        story: &'a str,
        title: &'a str,
        status: &'a str,
        reason: &'a str,
    }
    #[derive(Serialize)]
    struct DeliveryAccountTemplateFields<'a> {
        missing: Vec<UndeliveredStoryTemplateFields<'a>>,
        merged: usize,
        total: usize,
        title: &'a str,
        branch: &'a str,
        base: &'a str,
    }
    let state = context.state();
    let is_counted = |progress: &&StoryProgress| progress.story.kind != super::story::StoryWorkflowKind::Knowledge;
    let total = state.ordered_stories().filter(is_counted).count();
    let left = missing.iter().map(|story| UndeliveredStoryTemplateFields {
        story: &story.story,
        title: &story.title,
        status: story.status.as_str(),
        reason: &story.reason,
    });
    let repository = state.repository.as_ref();
    let arguments = DeliveryAccountTemplateFields {
        missing: left.collect(),
        merged: total.saturating_sub(missing.len()),
        total,
        title: state.spec.as_ref().map_or("", |spec| &spec.title),
        branch: repository.map_or("", |repository| &repository.integration),
        base: repository.map_or("", |repository| repository.short_base()),
    };
    render!("account.md", &arguments)
}

/// Returns a short name of a request for receipts.
pub(super) fn describe_request_kind(kind: CoderRequestKind) -> String {
    format!("the {}", kind.as_str())
}
