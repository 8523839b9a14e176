//! Macros, such as `has` and `map`. The parser expands them, and this file recognises the expansions.
//!
//! Invariants
//! - A variable hides a root or an outer variable of the same name. A use of the variable is not a path.

use cel::IdedExpr;
use cel::common::ast::{ComprehensionExpr, Expr, LiteralValue, operators};

use super::{Converter, ParseError};
use crate::expression::ast::{Goal, Kind, Loop};

/// How a macro is written.
pub(super) fn usage(name: &str) -> Option<&'static str> {
    Some(match name {
        "has" => "has(inputs.field)",
        "all" => "list.all(x, x > 0)",
        "exists" => "list.exists(x, x > 0)",
        "exists_one" | "existsOne" => "list.exists_one(x, x > 0)",
        "map" => "list.map(x, x.name) or list.map(x, x.ok, x.name)",
        "filter" => "list.filter(x, x > 0)",
        _ => return None,
    })
}

impl Converter<'_> {
    pub(super) fn comprehension(&mut self, tree: &IdedExpr, made: &ComprehensionExpr) -> Result<Kind, ParseError> {
        let (goal, filter, body) = recognise(made).ok_or_else(|| self.fail(tree, "this macro is not supported"))?;
        let over = self.node(&made.iter_range)?;
        self.variables.push(made.iter_var.clone());
        let filter = filter.map(|filter| self.node(filter)).transpose()?;
        let body = self.node(body)?;
        self.variables.pop();
        Ok(Kind::Loop(Box::new(Loop { over, goal, filter, body })))
    }
}

type Recognised<'t> = (Goal, Option<&'t IdedExpr>, &'t IdedExpr);

fn recognise(made: &ComprehensionExpr) -> Option<Recognised<'_>> {
    let (name, args) = call(&made.loop_step)?;
    Some(match (&made.accu_init.expr, name, args) {
        (Expr::Literal(LiteralValue::Boolean(_)), operators::LOGICAL_AND, [_, body]) => (Goal::All, None, body),
        (Expr::Literal(LiteralValue::Boolean(_)), operators::LOGICAL_OR, [_, body]) => (Goal::Exists, None, body),
        (Expr::Literal(LiteralValue::Int(_)), operators::CONDITIONAL, [body, ..]) => (Goal::ExistsOne, None, body),
        (Expr::List(_), operators::ADD, [_, item]) => (Goal::Map, None, only(item)?),
        (Expr::List(_), operators::CONDITIONAL, [filter, step, _]) => {
            let (_, [_, item]) = call(step)? else { return None };
            (Goal::Map, Some(filter), only(item)?)
        }
        _ => return None,
    })
}

fn call(tree: &IdedExpr) -> Option<(&str, &[IdedExpr])> {
    let Expr::Call(call) = &tree.expr else { return None };
    Some((&call.func_name, &call.args))
}

fn only(tree: &IdedExpr) -> Option<&IdedExpr> {
    let Expr::List(list) = &tree.expr else { return None };
    list.elements.first()
}
