//! Files of one crate that need each other.
//!
//! An arrow goes from a file to the file that defines what it names with a path. What a parent only
//! re-exports counts as the child's. A child that names what its parent defines is part of the
//! parent's concept and draws no arrow.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use syn::visit::Visit;

use crate::exceptions::{Found, expect};
use crate::sources::{self, Source, is_for_tests};

/// A module's path within its crate: `["hold", "batch"]`.
type Module = Vec<String>;

#[derive(Default)]
struct Uses {
    /// Paths as written, with the names of inline modules around them.
    paths: Vec<Vec<String>>,
    /// Names that a file gives on, and where it has them from.
    given_on: BTreeMap<String, Vec<String>>,
}

impl<'ast> Visit<'ast> for Uses {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if !is_for_tests(&module.attrs) {
            syn::visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let mut paths = Vec::new();
        flatten(&item.tree, &mut Vec::new(), &mut paths);
        for (path, name) in paths {
            match item.vis {
                syn::Visibility::Inherited => self.paths.push(path),
                _ => drop(self.given_on.insert(name, path)),
            }
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names = path
            .segments
            .iter()
            .map(|segment| segment.ident.to_string());
        self.paths.push(names.collect());
        syn::visit::visit_path(self, path);
    }
}

/// Each name that a `use` brings, with its path.
fn flatten(tree: &syn::UseTree, path: &mut Vec<String>, out: &mut Vec<(Vec<String>, String)>) {
    match tree {
        syn::UseTree::Path(part) => {
            path.push(part.ident.to_string());
            flatten(&part.tree, path, out);
            path.pop();
        }
        syn::UseTree::Group(group) => {
            group.items.iter().for_each(|tree| flatten(tree, path, out));
        }
        syn::UseTree::Name(part) if part.ident == "self" => {
            out.push((path.clone(), path.last().cloned().unwrap_or_default()));
        }
        syn::UseTree::Name(part) => {
            let name = part.ident.to_string();
            out.push((
                [path.as_slice(), std::slice::from_ref(&name)].concat(),
                name,
            ));
        }
        syn::UseTree::Rename(part) => {
            let whole = [path.as_slice(), &[part.ident.to_string()]].concat();
            out.push((whole, part.rename.to_string()));
        }
        syn::UseTree::Glob(_) => out.push((path.clone(), "*".to_owned())),
    }
}

struct Graph {
    files: BTreeMap<Module, Uses>,
}

impl Graph {
    fn of(folder: &Path) -> Self {
        let root = folder
            .strip_prefix(sources::root())
            .expect("below the root");
        let product = sources::rust_files(folder)
            .into_iter()
            .filter(|file| !file.is_test());
        let file = |source: Source| {
            let path = Path::new(&source.path)
                .strip_prefix(root)
                .expect("below the crate");
            let mut module: Module = path
                .with_extension("")
                .iter()
                .map(|part| part.to_string_lossy().into())
                .collect();
            if module
                .last()
                .is_some_and(|last| ["lib", "main", "mod"].contains(&last.as_str()))
            {
                module.pop();
            }
            let mut uses = Uses::default();
            uses.visit_file(&source.syntax);
            (module, uses)
        };
        Self {
            files: product.map(file).collect(),
        }
    }

    /// The file that defines what `path` names where it is written in `module`.
    fn defines(&self, module: &Module, path: &[String], depth: usize) -> Option<Module> {
        let (mut at, mut rest): (Module, &[String]) = match path.first()?.as_str() {
            "crate" => (Vec::new(), &path[1..]),
            "self" => (module.clone(), &path[1..]),
            "super" => {
                let up = path.iter().take_while(|part| *part == "super").count();
                let keep = module.len().checked_sub(up)?;
                (module[..keep].to_vec(), &path[up..])
            }
            first => {
                let child = [module.as_slice(), &[first.to_owned()]].concat();
                self.files
                    .contains_key(&child)
                    .then_some((child, &path[1..]))?
            }
        };
        while let Some(next) = rest.first() {
            let child = [at.as_slice(), std::slice::from_ref(next)].concat();
            if !self.files.contains_key(&child) {
                break;
            }
            (at, rest) = (child, &rest[1..]);
        }
        let given_on = rest
            .first()
            .and_then(|name| self.files.get(&at)?.given_on.get(name));
        match given_on {
            Some(path) if depth < 8 => self.defines(&at, path, depth + 1).or(Some(at)),
            // A bare module is named to reach what is in it, which other paths say.
            _ => self.files.contains_key(&at).then_some(at),
        }
    }

    fn arrows(&self) -> BTreeMap<&Module, BTreeSet<Module>> {
        let arrows = |(module, uses): (_, &Uses)| {
            let named = uses
                .paths
                .iter()
                .filter_map(|path| self.defines(module, path, 0));
            (
                module,
                named.filter(|other| !module.starts_with(other)).collect(),
            )
        };
        self.files.iter().map(arrows).collect()
    }

    /// Sets of files each of which reaches all others of its set.
    fn circles(&self) -> Vec<BTreeSet<Module>> {
        let arrows = self.arrows();
        let reach = |from: &Module| {
            let mut seen = BTreeSet::new();
            let mut open = vec![from.clone()];
            while let Some(module) = open.pop() {
                for next in arrows.get(&module).into_iter().flatten() {
                    if seen.insert(next.clone()) {
                        open.push(next.clone());
                    }
                }
            }
            seen
        };
        let reached: BTreeMap<&Module, BTreeSet<Module>> = self
            .files
            .keys()
            .map(|module| (module, reach(module)))
            .collect();
        let mut circles = BTreeSet::new();
        for (module, reaches) in &reached {
            if reaches.contains(*module) {
                let back = |other: &&Module| reached[*other].contains(*module);
                circles.insert(
                    reaches
                        .iter()
                        .filter(back)
                        .cloned()
                        .collect::<BTreeSet<_>>(),
                );
            }
        }
        circles
            .into_iter()
            .filter(|circle| circle.len() > 1)
            .collect()
    }
}

/// The circles of a crate's files.
pub fn circles(folder: &Path) -> Vec<Vec<String>> {
    let name = |module: &Module| match module.is_empty() {
        true => "lib".to_owned(),
        false => module.join("::"),
    };
    let circles = Graph::of(&folder.join("src")).circles();
    circles
        .iter()
        .map(|circle| circle.iter().map(name).collect())
        .collect()
}

#[test]
fn files_of_a_crate_form_no_circle() {
    let mut found = Found::new();
    let mut shown = String::new();
    for (package, folder) in sources::packages() {
        for circle in circles(&folder) {
            found.insert(format!("{package}:{}", circle[0]), circle.len());
            shown += &format!("{package}: {}\n", circle.join(", "));
        }
    }
    println!("{shown}");
    expect(
        "circle",
        "Files of a crate do not need each other in a circle.",
        &found,
    );
}
