//! From a syntax tree to what it touches.
//!
//! The tree is walked in its generic form, in which every node says its kind. So a table or a
//! function is found wherever the grammar allows one, and only the statements that do something to
//! tables, and the names that are no tables, need rules of their own.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use serde_json::{Map, Value};

use super::{ANY_COLUMN, Effects, Name, Statement};

type Object = Map<String, Value>;

/// What the statements of a text touch together.
pub(super) fn statements(tree: &Value) -> Statement {
    let mut walk = Walk::default();
    for raw in list(tree, "stmts") {
        if let Some((tag, body)) = tagged(raw.get("stmt").unwrap_or(&Value::Null)) {
            walk.statement(tag, body);
        }
    }
    walk.found
}

/// What a function's body touches that is part of its definition.
pub(super) fn body(tree: &Value) -> Statement {
    let mut walk = Walk::default();
    for raw in list(tree, "stmts") {
        if let Some((_, definition)) = tagged(raw.get("stmt").unwrap_or(&Value::Null)) {
            walk.value(definition.get("sql_body").unwrap_or(&Value::Null));
        }
    }
    walk.found
}

#[derive(Default)]
struct Walk {
    found: Statement,
    /// Names of the common table expressions that can be seen, innermost last.
    scopes: Vec<HashSet<String>>,
}

impl Walk {
    /// A whole statement; the other kinds are only found inside of these.
    fn statement(&mut self, tag: &str, body: &Object) {
        match tag {
            "SelectStmt" | "InsertStmt" | "UpdateStmt" | "DeleteStmt" | "MergeStmt"
            | "TruncateStmt" | "LockStmt" | "CopyStmt" | "RefreshMatViewStmt" | "CallStmt"
            | "PlassignStmt" => {
                self.node(tag, body);
            }
            "DeclareCursorStmt" | "ExplainStmt" | "PrepareStmt" => {
                match tagged(body.get("query").unwrap_or(&Value::Null)) {
                    Some((tag, body)) => self.statement(tag, body),
                    None => self.cannot_tell("it is incomplete"),
                }
            }
            "CreateTableAsStmt" | "CreateStmt" => self.create_table(body),
            "VariableSetStmt" => self.variable(body),
            "TransactionStmt" | "VariableShowStmt" | "DiscardStmt" | "DeallocateStmt"
            | "ListenStmt" | "UnlistenStmt" | "NotifyStmt" | "FetchStmt" | "ClosePortalStmt"
            | "ConstraintsSetStmt" | "CheckPointStmt" | "VacuumStmt" | "ReindexStmt"
            | "ClusterStmt" => {}
            "DoStmt" => {
                self.cannot_tell("DO runs code that is not part of its recorded text");
            }
            "ExecuteStmt" => {
                self.cannot_tell("EXECUTE runs a statement that was prepared elsewhere");
            }
            other => {
                for object in list_of(body, "objects").iter().filter_map(tagged) {
                    self.found.reads.extend(qualified_name(object.1, "items"));
                }
                self.mentioned(body);
                self.cannot_tell(format!("{} changes the schema", words(other)));
            }
        }
    }

    fn cannot_tell(&mut self, reason: impl Into<String>) {
        self.found.undetermined.get_or_insert(reason.into());
    }

    /// All tables that a statement names count as read and written: that is of use where it is
    /// known to change only the schema.
    fn mentioned(&mut self, body: &Object) {
        self.children(body);
        for name in self.found.reads.clone() {
            self.effects(name).lock = true;
        }
    }

    fn create_table(&mut self, body: &Object) {
        let into = body
            .get("into")
            .and_then(|into| into.get("rel"))
            .or(body.get("relation"))
            .and_then(Value::as_object);
        let Some(relation) = into else {
            return self.cannot_tell("it is incomplete");
        };
        if text(relation, "relpersistence") == "t" {
            self.found.temporary.insert(relation_name(relation));
            for key in ["query", "table_elts"] {
                self.value(body.get(key).unwrap_or(&Value::Null));
            }
        } else {
            self.mentioned(body);
            let name = relation_name(relation);
            self.cannot_tell(format!("it creates the table {name}"));
        }
    }

    fn variable(&mut self, body: &Object) {
        if text(body, "name") != "search_path" {
            return;
        }
        let mut schemas = Vec::new();
        for argument in list_of(body, "args") {
            let constant = tagged(argument).and_then(|(_, constant)| {
                let value = constant.get("val")?;
                let text = value.get("Sval")?.get("sval")?.as_str()?;
                Some(text.to_owned())
            });
            match constant {
                Some(schema) => schemas.push(schema),
                None => return self.cannot_tell("it sets search_path"),
            }
        }
        self.found.search_path = Some(schemas);
    }

    fn value(&mut self, value: &Value) {
        match value {
            Value::Array(all) => all.iter().for_each(|each| self.value(each)),
            Value::Object(object) => match tagged(value) {
                Some((tag, body)) => self.node(tag, body),
                // Fields of a fixed kind do not say it.
                None if object.contains_key("relname") => self.node("RangeVar", object),
                None if object.contains_key("values_lists") => self.node("SelectStmt", object),
                None if object.contains_key("funcname") && object.contains_key("args") => {
                    self.node("FuncCall", object)
                }
                None => self.children(object),
            },
            _ => {}
        }
    }

    fn children(&mut self, body: &Object) {
        body.values().for_each(|value| self.value(value));
    }

    fn node(&mut self, tag: &str, body: &Object) {
        match tag {
            "RangeVar" => {
                if !self.is_common_table_expression(body) {
                    self.found.reads.insert(relation_name(body));
                }
            }
            "FuncCall" => {
                self.found
                    .functions
                    .extend(qualified_name(body, "funcname"));
                self.children(body);
            }
            "SelectStmt" => self.scoped(body, Self::select),
            "InsertStmt" => self.scoped(body, Self::insert),
            "UpdateStmt" => self.scoped(body, |walk, body| {
                if let Some(target) = walk.target(body) {
                    walk.updates(&target, columns(body, "target_list"));
                    walk.found.reads.insert(target);
                }
                walk.all_but_target(body);
            }),
            "DeleteStmt" => self.scoped(body, |walk, body| {
                if let Some(target) = walk.target(body) {
                    walk.effects(target.clone()).delete = true;
                    walk.found.reads.insert(target);
                }
                walk.all_but_target(body);
            }),
            "MergeStmt" => self.scoped(body, Self::merge),
            "TruncateStmt" => {
                // DROP_CASCADE; the protobuf numbers begin at 1.
                let cascade = body.get("behavior").and_then(Value::as_i64) == Some(2);
                for name in relations(body, "relations") {
                    let effects = self.effects(name);
                    effects.truncate = true;
                    effects.cascade |= cascade;
                }
            }
            "LockStmt" => {
                for name in relations(body, "relations") {
                    self.effects(name).lock = true;
                }
            }
            "RefreshMatViewStmt" => {
                if let Some(name) = self.target(body) {
                    self.effects(name).refresh = true;
                }
            }
            "CopyStmt" => {
                if body.get("is_program").and_then(Value::as_bool) == Some(true) {
                    self.cannot_tell("COPY runs a program");
                }
                let from = body.get("is_from").and_then(Value::as_bool) == Some(true);
                match self.target(body) {
                    Some(name) if from => self.effects(name).insert = true,
                    Some(name) => drop(self.found.reads.insert(name)),
                    None => {}
                }
                self.all_but_target(body);
            }
            _ => self.children(body),
        }
    }

    /// Walks a statement with the names of its WITH clause.
    fn scoped(&mut self, body: &Object, walk: impl FnOnce(&mut Self, &Object)) {
        let Some(with) = body.get("with_clause").and_then(Value::as_object) else {
            return walk(self, body);
        };
        let expressions: Vec<&Object> = list_of(with, "ctes")
            .iter()
            .filter_map(tagged)
            .map(|(_, expression)| expression)
            .collect();
        let mut scope = HashSet::new();
        if with.get("recursive").and_then(Value::as_bool) == Some(true) {
            scope.extend(expressions.iter().map(|it| text(it, "ctename").to_owned()));
        }
        self.scopes.push(scope);
        for expression in expressions {
            self.children(expression);
            if let Some(scope) = self.scopes.last_mut() {
                scope.insert(text(expression, "ctename").to_owned());
            }
        }
        walk(self, body);
        self.scopes.pop();
    }

    fn select(&mut self, body: &Object) {
        for (key, value) in body {
            match key.as_str() {
                "with_clause" | "into_clause" | "locking_clause" => {}
                _ => self.value(value),
            }
        }
        let into = body.get("into_clause").and_then(|into| into.get("rel"));
        if let Some(relation) = into.and_then(Value::as_object) {
            let name = relation_name(relation);
            if text(relation, "relpersistence") == "t" {
                self.found.temporary.insert(name);
            } else {
                self.cannot_tell(format!("it creates the table {name}"));
            }
        }
        for clause in list_of(body, "locking_clause") {
            let named: BTreeSet<String> = tagged(clause)
                .map(|(_, clause)| relations(clause, "locked_rels"))
                .unwrap_or_default()
                .into_iter()
                .map(|name| name.name)
                .collect();
            for item in list_of(body, "from_clause") {
                self.lock(item, &named);
            }
        }
    }

    /// Locks what a FROM clause names: with `named`, only what is called so.
    fn lock(&mut self, item: &Value, named: &BTreeSet<String>) {
        let Some((tag, body)) = tagged(item) else {
            return;
        };
        let alias = body.get("alias").and_then(Value::as_object);
        let alias = alias.map(|alias| text(alias, "aliasname"));
        match tag {
            "RangeVar" => {
                let name = relation_name(body);
                let called = alias.unwrap_or(&name.name);
                if (named.is_empty() || named.contains(called))
                    && !self.is_common_table_expression(body)
                {
                    self.effects(name).lock = true;
                }
            }
            "JoinExpr" => {
                for side in ["larg", "rarg"] {
                    self.lock(body.get(side).unwrap_or(&Value::Null), named);
                }
            }
            "RangeSubselect" if named.is_empty() || alias.is_some_and(|it| named.contains(it)) => {
                if let Some((_, select)) = body.get("subquery").and_then(tagged) {
                    for item in list_of(select, "from_clause") {
                        self.lock(item, &BTreeSet::new());
                    }
                }
            }
            _ => {}
        }
    }

    fn insert(&mut self, body: &Object) {
        let Some(target) = self.target(body) else {
            return;
        };
        let effects = self.effects(target.clone());
        effects.insert = true;
        effects.insert_columns(inserted(body));
        let conflict = body.get("on_conflict_clause").and_then(Value::as_object);
        if let Some(conflict) = conflict
            && !list_of(conflict, "target_list").is_empty()
        {
            self.updates(&target, columns(conflict, "target_list"));
            self.found.reads.insert(target);
        }
        self.all_but_target(body);
    }

    fn merge(&mut self, body: &Object) {
        if let Some(target) = self.target(body) {
            for clause in list_of(body, "merge_when_clauses") {
                let Some((_, clause)) = tagged(clause) else {
                    continue;
                };
                // CMD_UPDATE, CMD_INSERT, CMD_DELETE; CMD_NOTHING is another.
                match clause.get("command_type").and_then(Value::as_i64) {
                    Some(3) => self.updates(&target, columns(clause, "target_list")),
                    Some(4) => self.effects(target.clone()).insert = true,
                    Some(5) => self.effects(target.clone()).delete = true,
                    _ => {}
                }
            }
            self.found.reads.insert(target);
        }
        self.all_but_target(body);
    }

    /// The table that a statement is about. Common table expressions cannot be.
    fn target(&self, body: &Object) -> Option<Name> {
        let relation = body.get("relation")?.as_object()?;
        Some(relation_name(relation))
    }

    fn all_but_target(&mut self, body: &Object) {
        for (key, value) in body {
            if key != "relation" && key != "with_clause" {
                self.value(value);
            }
        }
    }

    fn updates(&mut self, target: &Name, columns: BTreeSet<String>) {
        let update = &mut self.effects(target.clone()).update;
        update.get_or_insert_default().extend(columns);
    }

    fn effects(&mut self, name: Name) -> &mut Effects {
        self.found.writes.entry(name).or_default()
    }

    fn is_common_table_expression(&self, relation: &Object) -> bool {
        text(relation, "schemaname").is_empty()
            && self
                .scopes
                .iter()
                .any(|scope| scope.contains(text(relation, "relname")))
    }
}

/// `{"node": {"RangeVar": {…}}}`
fn tagged(value: &Value) -> Option<(&str, &Object)> {
    let (tag, body) = value.get("node")?.as_object()?.iter().next()?;
    Some((tag, body.as_object()?))
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value.as_object().map_or(&[], |object| list_of(object, key))
}

fn list_of<'a>(object: &'a Object, key: &str) -> &'a [Value] {
    object
        .get(key)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

fn text<'a>(object: &'a Object, key: &str) -> &'a str {
    object.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn relation_name(relation: &Object) -> Name {
    Name::new(text(relation, "schemaname"), text(relation, "relname"))
}

fn relations(object: &Object, key: &str) -> Vec<Name> {
    list_of(object, key)
        .iter()
        .filter_map(tagged)
        .map(|(_, relation)| relation_name(relation))
        .collect()
}

/// `schema.name`, from a list of strings.
fn qualified_name(object: &Object, key: &str) -> Option<Name> {
    let parts: Vec<&str> = list_of(object, key)
        .iter()
        .filter_map(tagged)
        .filter(|(tag, _)| *tag == "String")
        .map(|(_, part)| text(part, "sval"))
        .collect();
    let (name, qualifiers) = parts.split_last()?;
    let schema = qualifiers.last().copied().unwrap_or_default();
    Some(Name::new(schema, name))
}

/// What `INSERT INTO t (a, b) VALUES …` gives columns: the function that each has its value from.
fn inserted(insert: &Object) -> BTreeMap<String, Option<String>> {
    let rows = || {
        let (_, select) = tagged(insert.get("select_stmt")?)?;
        let rows = list_of(select, "values_lists").iter().filter_map(tagged);
        Some(
            rows.map(|(_, row)| list_of(row, "items"))
                .collect::<Vec<_>>(),
        )
    };
    let rows = rows().unwrap_or_default();
    let named = list_of(insert, "cols").iter().filter_map(tagged);
    let of = |(at, (_, column)): (usize, (&str, &Object))| {
        let mut functions = rows.iter().map(|row| function_alone(row.get(at)?));
        let first = functions.next().flatten();
        let first = first.filter(|first| functions.all(|other| other.as_ref() == Some(first)));
        (text(column, "name").to_owned(), first)
    };
    let columns: BTreeMap<_, _> = named.enumerate().map(of).collect();
    match columns.is_empty() {
        true => BTreeMap::from([(ANY_COLUMN.to_owned(), None)]),
        false => columns,
    }
}

/// `f` of `f()`.
fn function_alone(value: &Value) -> Option<String> {
    let (_, call) = tagged(value).filter(|(tag, _)| *tag == "FuncCall")?;
    let plain = list_of(call, "args").is_empty();
    let name = qualified_name(call, "funcname").filter(|_| plain)?;
    Some(name.name)
}

/// The columns that `SET a = …, (b, c) = …` assigns to.
fn columns(object: &Object, key: &str) -> BTreeSet<String> {
    list_of(object, key)
        .iter()
        .filter_map(tagged)
        .map(|(_, target)| text(target, "name").to_owned())
        .collect()
}

/// `ALTER TABLE` for `AlterTableStmt`.
fn words(tag: &str) -> String {
    let mut words = String::new();
    for letter in tag.strip_suffix("Stmt").unwrap_or(tag).chars() {
        if letter.is_ascii_uppercase() && !words.is_empty() {
            words.push(' ');
        }
        words.push(letter.to_ascii_uppercase());
    }
    match words.as_str() {
        "INDEX" => "CREATE INDEX".to_owned(),
        "VIEW" => "CREATE VIEW".to_owned(),
        "RULE" => "CREATE RULE".to_owned(),
        _ => words,
    }
}
