//! Evaluates an expression against an execution, or against an input alone. Changes nothing.

use std::collections::{BTreeMap, BTreeSet};

use axum::extract::State;
use axum::{Extension, Json as Reply};
use kernel::definition::plan::Plan;
use kernel::expression::template::{self, Template};
use kernel::expression::{Expression, Path, Root, Scope, type_name};
use kernel::ids::NodeKey;
use kernel::run::failure::Failure;
use serde_json::Value;
use store::execution::Execution;

use super::auth::Caller;
use super::body::Json;
use super::{Api, Code, Problem, executions, offload};
use crate::wire::{EvaluateExpression, ExpressionValue};

/// An expression, or a template.
enum Source {
    Expression(Expression),
    Template(Template, Vec<Path>),
}

/// Evaluates an expression, or a text with `${{ }}`, against the input and the outputs of an execution.
///
/// Without `executionId`, only an input can be used.
#[utoipa::path(post, path = "/workflow/expressions/evaluate", tag = "definitions", request_body = EvaluateExpression,
    responses((status = 200, body = ExpressionValue)))]
pub(crate) async fn evaluate(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Json(body): Json<EvaluateExpression>,
) -> Result<Reply<ExpressionValue>, Problem> {
    let text = body.expression;
    let source = offload::run(caller.workspace, move || read(&text)).await??;
    let scope = match body.execution_id {
        None => {
            refuse_nodes(&source)?;
            Scope { inputs: body.input.unwrap_or_default().into(), ..Scope::default() }
        }
        Some(id) => {
            let execution = executions::find(&api, &caller, id).await?;
            scope(&api, execution, body.input, &source).await?
        }
    };
    let work = move || match &source {
        Source::Expression(expression) => expression.eval(&scope).map_err(Failure::from),
        Source::Template(template, _) => template.resolve(&scope).map_err(Failure::from),
    };
    let value = offload::run(caller.workspace, work).await?.map_err(|failure| refused(&failure.message))?;
    Ok(Reply(ExpressionValue { kind: type_name(&value).to_owned(), value }))
}

fn refused(why: &str) -> Problem {
    Problem::new(Code::ValidationFailed, format!("expression: {why}"))
}

fn read(text: &str) -> Result<Source, Problem> {
    if !template::is_templated(text) {
        let expression = Expression::parse(text).map_err(|error| refused(&error.to_string()))?;
        return Ok(Source::Expression(expression));
    }
    let value = Value::String(text.to_owned());
    let template = Template::parse(&value).map_err(|errors| {
        let all: Vec<String> = errors.iter().map(|(_, error)| error.to_string()).collect();
        refused(&all.join("; "))
    })?;
    let paths = template::survey(&value).paths.into_iter().map(|(_, path)| path).collect();
    Ok(Source::Template(template, paths))
}

/// The nodes whose outputs the expression reads. A path that begins with an unknown name is refused.
fn nodes(source: &Source) -> Result<BTreeSet<NodeKey>, Problem> {
    let paths: Vec<&Path> = match source {
        Source::Expression(expression) => expression.references(),
        Source::Template(_, paths) => paths.iter().collect(),
    };
    let mut nodes = BTreeSet::new();
    for path in paths {
        match path.root().map_err(|why| refused(&why.to_string()))?.0 {
            Root::Node { key, .. } => {
                nodes.insert(NodeKey::new(key).map_err(|bad| refused(&bad.to_string()))?);
            }
            _ => continue,
        }
    }
    Ok(nodes)
}

fn refuse_nodes(source: &Source) -> Result<(), Problem> {
    match nodes(source)?.first() {
        None => Ok(()),
        Some(node) => Err(refused(&format!("nodes.{node} needs an execution: send executionId"))),
    }
}

/// The scope in which the expression is evaluated: everything that the execution stored so far.
async fn scope(api: &Api, execution: Execution, input: Option<Value>, source: &Source) -> Result<Scope, Problem> {
    let wanted = nodes(source)?;
    let graph = api.store.graphs(&[execution.version]).await?.pop().map(|(_, graph)| graph).unwrap_or_default();
    let known = offload::check_stored(Some(execution.workspace), graph).await?.ok();
    if let (Some((_, plan)), Some(missing)) = (&known, unknown(&wanted, known.as_ref().map(|(_, plan)| plan))) {
        let all: Vec<&str> = plan.nodes().iter().take(20).map(|node| node.key.as_str()).collect();
        return Err(refused(&format!("the execution has no node {missing}: use one of {}", all.join(", "))));
    }
    let (name, vars) = known.map(|(definition, _)| (definition.name, definition.vars)).unwrap_or_default();
    let mut nodes = BTreeMap::new();
    for row in api.store.node_states(execution.id).await?.into_iter().filter(|row| row.status.is_settled()) {
        nodes.insert(row.node, engine::scope::seen(row.status, Value::Null, None));
    }
    let names: Vec<&str> = wanted.iter().map(NodeKey::as_str).collect();
    for row in api.store.some_nodes(execution.id, &names).await?.into_iter().filter(|row| row.status.is_settled()) {
        let seen = engine::scope::seen(row.status, row.output.unwrap_or_default(), row.error.as_ref());
        nodes.insert(row.node, seen);
    }
    let start = engine::scope::ExecutionStart {
        execution: execution.id,
        workspace: execution.workspace,
        created_at: execution.created_at,
        workflow: name.as_deref(),
        vars: &vars,
        input: input.or(execution.input).unwrap_or_default(),
        trigger: execution.trigger,
    };
    Ok(Scope { nodes, ..engine::scope::at_start(start) })
}

fn unknown<'a>(wanted: &'a BTreeSet<NodeKey>, plan: Option<&Plan>) -> Option<&'a NodeKey> {
    wanted.iter().find(|key| plan.is_some_and(|plan| plan.index_of(key).is_none()))
}
