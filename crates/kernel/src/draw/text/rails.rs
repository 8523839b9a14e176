//! Rails: one column for each node that is not drawn yet and has a source that is drawn.
//!
//! Invariants
//! - A node has at most one column. After the node is drawn, its first successor may use the column.
//! - A horizontal line that crosses a rail does not connect to it.

use super::targets;
use crate::draw::Drawing;

/// The content of one cell beside the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rail {
    None,
    Node,
    Line { up: bool, down: bool, left: bool, right: bool },
}

const PASSES: Rail = Rail::Line { up: true, down: true, left: false, right: false };
const ACROSS: Rail = Rail::Line { up: false, down: false, left: true, right: true };

/// The rails of every line, and the node of the line; `None` for a line that only joins rails. Returns `None` if a line
/// would be wider than `widest`.
pub(super) fn rails(drawing: &Drawing, widest: usize) -> Option<Vec<(Vec<Rail>, Option<usize>)>> {
    let mut lines = Vec::new();
    let mut columns: Vec<Option<usize>> = Vec::new();
    for (at, targets) in targets(drawing).into_iter().enumerate() {
        let column = columns.iter().position(|waiting| *waiting == Some(at)).unwrap_or_else(|| free(&mut columns, 0));
        columns[column] = Some(at);
        let of = |(here, waiting): (usize, &Option<usize>)| match waiting {
            _ if here == column => Rail::Node,
            Some(_) => PASSES,
            None => Rail::None,
        };
        lines.push((spaced(columns.iter().enumerate().map(of).collect(), None), Some(at)));
        let before = columns.clone();
        columns[column] = None;
        let led: Vec<usize> = targets.iter().map(|target| lead(&mut columns, column, *target)).collect();
        if led.iter().any(|to| *to != column) {
            lines.push((joint(column, &led, &before, &columns), None));
        }
        if columns.len() * 2 > widest + 1 {
            return None;
        }
        while columns.last() == Some(&None) {
            columns.pop();
        }
    }
    Some(lines)
}

/// The column of a target: the column that it has already, else the source's column if that is free, else the next free
/// column.
fn lead(columns: &mut Vec<Option<usize>>, from: usize, target: usize) -> usize {
    let known = columns.iter().position(|waiting| *waiting == Some(target));
    let column = known.unwrap_or_else(|| free(columns, from));
    columns[column] = Some(target);
    column
}

/// The first free column at or after `from`; a new column if none is free.
fn free(columns: &mut Vec<Option<usize>>, from: usize) -> usize {
    let found = columns.iter().skip(from).position(Option::is_none).map(|at| at + from);
    found.unwrap_or_else(|| {
        columns.push(None);
        columns.len() - 1
    })
}

/// The line below a node, from its column to those of its targets.
fn joint(column: usize, led: &[usize], before: &[Option<usize>], after: &[Option<usize>]) -> Vec<Rail> {
    let all = || led.iter().copied().chain([column]);
    let (first, last) = (all().min().unwrap_or(column), all().max().unwrap_or(column));
    let is_open = |columns: &[Option<usize>], at: usize| columns.get(at).is_some_and(Option::is_some);
    let rail = |at: usize| {
        let (up, down) = (is_open(before, at), is_open(after, at));
        match all().any(|end| end == at) {
            true => Rail::Line { up, down, left: at > first, right: at < last },
            false if up && down => PASSES,
            false if (first..=last).contains(&at) => ACROSS,
            false => Rail::None,
        }
    };
    let rails = (0..before.len().max(after.len())).map(rail).collect();
    spaced(rails, Some((first, last)))
}

/// The same rails with a cell between columns, through which a joint continues.
fn spaced(rails: Vec<Rail>, joint: Option<(usize, usize)>) -> Vec<Rail> {
    let between = |at: usize| joint.is_some_and(|(first, last)| (first..last).contains(&at));
    let count = rails.len();
    let spaced = rails.into_iter().enumerate().flat_map(|(at, rail)| {
        let gap = if between(at) { ACROSS } else { Rail::None };
        [Some(rail), (at + 1 < count).then_some(gap)]
    });
    spaced.flatten().collect()
}
