//! Runs what was understood against a snapshot.

use std::collections::HashMap;
use std::ops::Bound as Limit;

use hindcast_store::{RowRef, Snapshot};

use crate::catalog::Table;

use super::aggregate::State;
use super::predicate::{Bound, Comparison, Operand, Predicate, Row, encoded};
use super::select::{Order, OrderBy, Output, Select, Source};
use super::{Plan, SqlError, Statement, View};

/// After how many rows it is asked whether to go on.
const ROWS_PER_LOOK: usize = 1024;

type Values = Vec<Option<Vec<u8>>>;
type Emit<'e> = &'e mut dyn FnMut(&[Option<&[u8]>]) -> Result<(), SqlError>;

/// Hands over the statement's rows, values in text form; says how many there were.
pub fn execute(
    statement: &Statement,
    parameters: &[Option<Vec<u8>>],
    view: &View<'_>,
    emit: Emit<'_>,
) -> Result<u64, SqlError> {
    if parameters.len() < statement.parameters.len() {
        return Err(SqlError::new(
            "08P01",
            format!(
                "bind message supplies {} parameters, but the statement requires {}",
                parameters.len(),
                statement.parameters.len()
            ),
        ));
    }
    match &statement.plan {
        Plan::Nothing => Ok(0),
        Plan::Show(name) => {
            let shown = (view.status)();
            let value = shown
                .iter()
                .find(|(known, _)| known.eq_ignore_ascii_case(name));
            let (_, value) = value.ok_or_else(|| {
                SqlError::new(
                    "42704",
                    format!("unrecognized configuration parameter \"{name}\""),
                )
            })?;
            emit(&[Some(value.as_bytes())])?;
            Ok(1)
        }
        Plan::Status(columns) => {
            let shown = (view.status)();
            let values: Vec<Option<&[u8]>> = columns
                .iter()
                .map(|column| {
                    let known = shown.iter().find(|(name, _)| {
                        name.strip_prefix("hindcast.")
                            .is_some_and(|name| name == column)
                    });
                    known.map(|(_, value)| value.as_bytes())
                })
                .collect();
            emit(&values)?;
            Ok(1)
        }
        Plan::Asked(asked) => {
            let Some(row) = asked.row(&(view.status)(), view.catalog, parameters)? else {
                return Ok(0);
            };
            let row: Vec<_> = row.iter().map(|value| Some(value.as_bytes())).collect();
            emit(&row)?;
            Ok(1)
        }
        Plan::Explain(select) => {
            let bound = Bound { parameters };
            let lines = explain(select, &bound)?;
            for line in &lines {
                emit(&[Some(line.as_bytes())])?;
            }
            Ok(lines.len() as u64)
        }
        Plan::Select(select) => run(select, &Bound { parameters }, view, emit),
    }
}

/// The rows of all tables that are looked at together.
struct Joined<'s, 'p> {
    select: &'p Select,
    rows: Vec<RowRef<'s>>,
}

impl Row for Joined<'_, '_> {
    fn column(&self, number: usize) -> Option<&[u8]> {
        let at = self
            .select
            .tables
            .iter()
            .rposition(|source| source.first <= number)?;
        let row = self.rows.get(at)?;
        row.cell(number - self.select.tables[at].first)
    }
}

fn run(
    select: &Select,
    bound: &Bound<'_>,
    view: &View<'_>,
    emit: Emit<'_>,
) -> Result<u64, SqlError> {
    let limit = number(select.limit.as_ref(), bound, "LIMIT")?.unwrap_or(u64::MAX);
    let mut skip = number(select.offset.as_ref(), bound, "OFFSET")?.unwrap_or(0);
    let mut sent = 0;
    let mut send = |values: &[Option<&[u8]>]| -> Result<bool, SqlError> {
        if skip > 0 {
            skip -= 1;
            return Ok(true);
        }
        if sent == limit {
            return Ok(false);
        }
        emit(values)?;
        sent += 1;
        Ok(sent < limit)
    };
    if limit == 0 {
        return Ok(0);
    }
    let path = Path::choose(select, bound)?;
    if let Some(group) = &select.group {
        for values in grouped(select, group, bound, view, &path)? {
            let values: Vec<Option<&[u8]>> = values.iter().map(Option::as_deref).collect();
            if !send(&values)? {
                break;
            }
        }
        return Ok(sent);
    }
    if select.order.is_empty() || path.in_order {
        scan(select, bound, view, &path, &mut |row| {
            let values: Vec<Option<&[u8]>> = select
                .output
                .iter()
                .map(|output| match output {
                    Output::Value(operand) => bound.value(operand, row),
                    Output::Aggregate(_) => None,
                })
                .collect();
            send(&values)
        })?;
        return Ok(sent);
    }
    let mut rows: Vec<(Vec<SortKey>, Values)> = Vec::new();
    scan(select, bound, view, &path, &mut |row| {
        let values: Values = select
            .output
            .iter()
            .map(|output| match output {
                Output::Value(operand) => bound.value(operand, row).map(<[u8]>::to_vec),
                Output::Aggregate(_) => None,
            })
            .collect();
        let key = sort_key(&select.order, |by| match by {
            OrderBy::Column(number) => row.column(*number).map(<[u8]>::to_vec),
            OrderBy::Output(at) => values[*at].clone(),
        })?;
        rows.push((key, values));
        Ok(true)
    })?;
    rows.sort_by(|(one, _), (other, _)| one.cmp(other));
    for (_, values) in &rows {
        let values: Vec<Option<&[u8]>> = values.iter().map(Option::as_deref).collect();
        if !send(&values)? {
            break;
        }
    }
    Ok(sent)
}

/// One part of a sort key, such that plain order is the wanted one: NULLs first or last, and bytes
/// turned over to descend.
type SortKey = (u8, Vec<u8>);

fn sort_key(
    order: &[Order],
    value: impl Fn(&OrderBy) -> Option<Vec<u8>>,
) -> Result<Vec<SortKey>, SqlError> {
    order
        .iter()
        .map(|order| {
            let Some(value) = value(&order.by) else {
                return Ok((if order.nulls_first { 0 } else { 2 }, Vec::new()));
            };
            let mut key = Vec::new();
            encoded(order.kind, &value, &mut key)?;
            if order.descending {
                key.iter_mut().for_each(|byte| *byte = !*byte);
                // No encoding is the beginning of another, so that what follows does not matter.
            }
            Ok((1, key))
        })
        .collect()
}

fn number(
    operand: Option<&Operand>,
    bound: &Bound<'_>,
    what: &str,
) -> Result<Option<u64>, SqlError> {
    struct NoRow;
    impl Row for NoRow {
        fn column(&self, _: usize) -> Option<&[u8]> {
            None
        }
    }
    let Some(operand) = operand else {
        return Ok(None);
    };
    let Some(text) = bound.value(operand, &NoRow) else {
        return Ok(None);
    };
    let number: i64 = std::str::from_utf8(text)
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .ok_or_else(|| SqlError::new("22P02", format!("{what} is not a whole number")))?;
    u64::try_from(number)
        .map(Some)
        .map_err(|_| SqlError::new("2201W", format!("{what} must not be negative")))
}

/// One row for each group: the groups in the order asked for, else in that of their keys.
fn grouped(
    select: &Select,
    group: &[usize],
    bound: &Bound<'_>,
    view: &View<'_>,
    path: &Path,
) -> Result<Vec<Values>, SqlError> {
    struct Group {
        /// Of the columns that are grouped by.
        values: Values,
        states: Vec<Option<State>>,
    }
    let begin = |values: Values| Group {
        values,
        states: select
            .output
            .iter()
            .map(|output| match output {
                Output::Aggregate(aggregate) => Some(State::new(aggregate)),
                Output::Value(_) => None,
            })
            .collect(),
    };
    let mut groups: HashMap<Vec<u8>, Group> = HashMap::new();
    if group.is_empty() {
        // There is one even without rows.
        groups.insert(Vec::new(), begin(Vec::new()));
    }
    scan(select, bound, view, path, &mut |row| {
        let mut key = Vec::new();
        for &number in group {
            match row.column(number) {
                None => key.push(0),
                Some(value) => {
                    key.push(1);
                    encoded(select.column(number).kind, value, &mut key)?;
                }
            }
        }
        let group = groups.entry(key).or_insert_with(|| {
            let values = group
                .iter()
                .map(|&number| row.column(number).map(<[u8]>::to_vec));
            begin(values.collect())
        });
        for (state, output) in group.states.iter_mut().zip(&select.output) {
            if let (Some(state), Output::Aggregate(aggregate)) = (state, output) {
                let column = aggregate.column.map(|number| select.column(number));
                let value = aggregate.column.and_then(|number| row.column(number));
                state.add(aggregate, column, value)?;
            }
        }
        Ok(true)
    })?;
    let mut groups: Vec<(Vec<u8>, Group)> = groups.into_iter().collect();
    groups.sort_by(|(one, _), (other, _)| one.cmp(other));
    let mut rows: Vec<(Vec<SortKey>, Values)> = Vec::new();
    for (_, found) in &groups {
        let of_column = |number: usize| {
            let at = group.iter().position(|&grouped| grouped == number)?;
            found.values[at].clone()
        };
        let mut values = Values::new();
        for (output, state) in select.output.iter().zip(&found.states) {
            values.push(match (output, state) {
                (Output::Aggregate(aggregate), Some(state)) => {
                    let column = aggregate.column.map(|number| select.column(number));
                    state.result(aggregate, column)?
                }
                (Output::Value(Operand::Column(number)), _) => of_column(*number),
                (Output::Value(Operand::Constant(text)), _) => text.clone().map(String::into_bytes),
                (Output::Value(Operand::Parameter(at)), _) => {
                    bound.parameters.get(*at).cloned().flatten()
                }
                (Output::Aggregate(_), None) => None,
            });
        }
        let key = sort_key(&select.order, |by| match by {
            OrderBy::Column(number) => of_column(*number),
            OrderBy::Output(at) => values[*at].clone(),
        })?;
        rows.push((key, values));
    }
    rows.sort_by(|(one, _), (other, _)| one.cmp(other));
    Ok(rows.into_iter().map(|(_, values)| values).collect())
}

/// How the rows of the first table are found.
struct Path {
    from: Limit<Vec<u8>>,
    to: Limit<Vec<u8>>,
    /// One key, at most one row.
    point: bool,
    /// From the end.
    backward: bool,
    /// Rows come in the order asked for.
    in_order: bool,
    /// Nothing can fit.
    empty: bool,
}

impl Path {
    /// By the conditions on the first columns of the key: equal to something, and the next one
    /// within bounds.
    fn choose(select: &Select, bound: &Bound<'_>) -> Result<Self, SqlError> {
        let mut path = Path {
            from: Limit::Unbounded,
            to: Limit::Unbounded,
            point: false,
            backward: false,
            in_order: false,
            empty: false,
        };
        let Some(first) = select.tables.first() else {
            return Ok(path);
        };
        let table = &first.table;
        let mut prefix = Vec::new();
        let mut fixed = 0;
        for &place in &table.key {
            let Some(value) = known(&select.filter, place, Comparison::Equal, table, bound) else {
                break;
            };
            let Some(value) = value else {
                // Equal to NULL is never true.
                path.empty = true;
                return Ok(path);
            };
            encoded(table.columns[place].kind, &value, &mut prefix)?;
            fixed += 1;
        }
        path.point = fixed > 0 && fixed == table.key.len();
        if fixed > 0 {
            path.from = Limit::Included(prefix.clone());
            path.to = successor(&prefix).map_or(Limit::Unbounded, Limit::Excluded);
        }
        if let Some(&place) = table.key.get(fixed) {
            path.narrow(select, table, place, &prefix, bound)?;
        }
        path.in_order = path.point || fits_order(select, first, fixed, &mut path.backward);
        Ok(path)
    }

    /// Bounds on the first column of the key that is not fixed.
    fn narrow(
        &mut self,
        select: &Select,
        table: &Table,
        place: usize,
        prefix: &[u8],
        bound: &Bound<'_>,
    ) -> Result<(), SqlError> {
        use Comparison::{Greater, GreaterOrEqual, Less, LessOrEqual};
        let kind = table.columns[place].kind;
        let key = |value: &[u8]| -> Result<Vec<u8>, SqlError> {
            let mut key = prefix.to_vec();
            encoded(kind, value, &mut key)?;
            Ok(key)
        };
        let after = |key: Vec<u8>| successor(&key);
        for comparison in [Greater, GreaterOrEqual, Less, LessOrEqual] {
            let Some(Some(value)) = known(&select.filter, place, comparison, table, bound) else {
                continue;
            };
            let key = key(&value)?;
            match comparison {
                Greater => {
                    self.from = after(key).map_or(self.from.clone(), Limit::Included);
                }
                GreaterOrEqual => self.from = Limit::Included(key),
                Less => self.to = Limit::Excluded(key),
                _ => self.to = after(key).map_or(self.to.clone(), Limit::Excluded),
            }
        }
        Ok(())
    }
}

/// What a column of the first table is compared with, if that is the same for all rows. The outer
/// `None`: nothing says so.
fn known(
    filter: &[Predicate],
    place: usize,
    wanted: Comparison,
    table: &Table,
    bound: &Bound<'_>,
) -> Option<Option<Vec<u8>>> {
    filter.iter().find_map(|predicate| {
        let Predicate::Compare {
            comparison,
            left,
            right,
            kinds,
        } = predicate
        else {
            return None;
        };
        // Otherwise the value is no part of a key.
        let kind = table.columns[place].kind;
        if *kinds != (kind, kind) {
            return None;
        }
        let value = match (left, right) {
            (Operand::Column(number), other) if *number == place && *comparison == wanted => other,
            (other, Operand::Column(number))
                if *number == place && comparison.turned() == wanted =>
            {
                other
            }
            _ => return None,
        };
        match value {
            Operand::Column(_) => None,
            Operand::Constant(text) => Some(text.clone().map(String::into_bytes)),
            Operand::Parameter(at) => Some(bound.parameters.get(*at).cloned().flatten()),
        }
    })
}

/// The least key that is greater than all that begin like this one.
fn successor(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&byte| byte != 0xFF)?;
    let mut next = prefix[..=last].to_vec();
    next[last] += 1;
    Some(next)
}

/// Whether the key's own order, forward or backward, is the one asked for.
fn fits_order(select: &Select, first: &Source, fixed: usize, backward: &mut bool) -> bool {
    let Some(descending) = select.order.first().map(|order| order.descending) else {
        return true;
    };
    let free = &first.table.key[fixed..];
    let fits = select.order.len() <= free.len()
        && select.order.iter().zip(free).all(|(order, &place)| {
            order.by == OrderBy::Column(place)
                && order.descending == descending
                && order.kind == first.table.columns[place].kind
        });
    *backward = fits && descending;
    fits
}

/// Calls `each` for the rows that fit, until it has enough.
fn scan(
    select: &Select,
    bound: &Bound<'_>,
    view: &View<'_>,
    path: &Path,
    each: &mut dyn FnMut(&Joined<'_, '_>) -> Result<bool, SqlError>,
) -> Result<(), SqlError> {
    let snapshot = view.snapshot;
    let mut joined = Joined {
        select,
        rows: Vec::with_capacity(select.tables.len()),
    };
    let Some(first) = select.tables.first() else {
        if fits(select, bound, &joined)? {
            each(&joined)?;
        }
        return Ok(());
    };
    if path.empty {
        return Ok(());
    }
    if path.point
        && let Limit::Included(key) = &path.from
    {
        if let Some(row) = snapshot.get(first.table.id, key) {
            joined.rows.push(row);
            look_up(bound, snapshot, &mut joined, each)?;
        }
        return Ok(());
    }
    let mut rows = snapshot.scan(
        first.table.id,
        path.from.as_ref().map(Vec::as_slice),
        path.to.as_ref().map(Vec::as_slice),
    );
    for looked_at in 0_usize.. {
        if looked_at % ROWS_PER_LOOK == 0 {
            (view.interrupted)()?;
        }
        let next = match path.backward {
            true => rows.next_back(),
            false => rows.next(),
        };
        let Some((_, row)) = next else {
            return Ok(());
        };
        joined.rows.clear();
        joined.rows.push(row);
        if !look_up(bound, snapshot, &mut joined, each)? {
            return Ok(());
        }
    }
    Ok(())
}

/// Adds the rows of the other tables, if there are all of them. False when no more are wanted.
fn look_up<'s>(
    bound: &Bound<'_>,
    snapshot: &'s Snapshot,
    joined: &mut Joined<'s, '_>,
    each: &mut dyn FnMut(&Joined<'_, '_>) -> Result<bool, SqlError>,
) -> Result<bool, SqlError> {
    let select = joined.select;
    let mut key = Vec::new();
    for source in select.tables.iter().skip(1) {
        key.clear();
        for (operand, &place) in source.key.iter().zip(&source.table.key) {
            match bound.value(operand, joined) {
                None => return Ok(true),
                Some(value) => encoded(source.table.columns[place].kind, value, &mut key)?,
            }
        }
        match snapshot.get(source.table.id, &key) {
            None => return Ok(true),
            Some(row) => joined.rows.push(row),
        }
    }
    match fits(select, bound, joined)? {
        true => each(joined),
        false => Ok(true),
    }
}

fn fits(select: &Select, bound: &Bound<'_>, row: &dyn Row) -> Result<bool, SqlError> {
    for predicate in &select.filter {
        if bound.test(predicate, row)? != Some(true) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn explain(select: &Select, bound: &Bound<'_>) -> Result<Vec<String>, SqlError> {
    let path = Path::choose(select, bound)?;
    let mut lines = Vec::new();
    if select.group.is_some() {
        lines.push("Group".to_owned());
    }
    if !select.order.is_empty() && (select.group.is_some() || !path.in_order) {
        lines.push("Sort".to_owned());
    }
    if let Some(first) = select.tables.first() {
        let bounded = !matches!((&path.from, &path.to), (Limit::Unbounded, Limit::Unbounded));
        let how = match (path.empty, path.point, bounded) {
            (true, ..) => "Nothing",
            (_, true, _) => "Point",
            (_, _, true) => "Range",
            _ => "Scan",
        };
        let backward = if path.backward { " backward" } else { "" };
        lines.push(format!("{how}{backward} on {}", first.table));
    }
    for source in select.tables.iter().skip(1) {
        lines.push(format!("  Lookup in {} by primary key", source.table));
    }
    if !select.filter.is_empty() {
        lines.push(format!("  Filter: {} conditions", select.filter.len()));
    }
    Ok(lines)
}
