//! Mistakes in the arithmetic of a function's body that only a type tells: a literal beside a generic number, a comparison of
//! numbers that have none. rustc knows the types, but proposes bounds that no op may have. So what can be known without it is
//! followed here, name by name; of anything else nothing is said.

#[cfg(test)]
mod tests;
pub(crate) mod text;

use syn::parse::{Parse, ParseStream};
use syn::visit_mut::{self, VisitMut};
use syn::{Block, Expr, ExprClosure, Item, Local, Macro, Pat, Token, Type, parenthesized, parse_quote};

/// What an expression is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Known {
    /// A number of a body, of which a reduction has one for each position of a row.
    Each,
    /// A number of a reduction's body of which there is one for each row.
    One,
    /// What a comparison of such numbers gives.
    Mask,
    /// A number of Rust beside numbers of a body: an `f64`.
    Plain,
    /// A position along an axis of a body.
    Position,
    /// An array of numbers of a body, or one of such arrays, so many deep.
    Parts(usize),
    /// An element whose type is the type parameter at this position.
    Element(usize),
    /// An array of such elements.
    Array(usize),
    /// An iterator over such elements.
    Iter(usize),
}

/// What an element of an array of numbers of a body is.
pub(crate) fn within(parts: Known) -> Option<Known> {
    match parts {
        Known::Parts(1) => Some(Known::Each),
        Known::Parts(depth) => Some(Known::Parts(depth - 1)),
        _ => None,
    }
}

/// The names in scope, the innermost last, and what they are.
pub(crate) type Names = Vec<(String, Option<Known>)>;

/// What a kind of function has that expressions can be, and what is wrong with them.
pub(crate) trait Rules {
    /// What an expression is that is no name.
    fn known(&self, expr: &Expr, names: &Names) -> Option<Known>;

    /// What a value of a written type is.
    fn of_type(&self, ty: &Type) -> Option<Known>;

    /// What is wrong with an expression, apart from its parts.
    fn fault(&self, expr: &Expr, names: &Names) -> Option<syn::Error>;

    /// What is wrong with an expression as the condition of `if`, `while` or `match`.
    fn condition(&self, keyword: &str, condition: &Expr, names: &Names) -> Option<syn::Error>;

    /// What the parts of a tuple are that an expression gives; none where they are not known.
    fn tuple(&self, _expr: &Expr, _names: &Names) -> Vec<Option<Known>> {
        Vec::new()
    }

    /// What an expression is.
    fn of(&self, expr: &Expr, names: &Names) -> Option<Known> {
        match expr {
            Expr::Path(path) => {
                let ident = path.path.get_ident()?;
                names.iter().rev().find(|(name, _)| ident == name)?.1
            }
            Expr::Paren(inner) => self.of(&inner.expr, names),
            Expr::Group(inner) => self.of(&inner.expr, names),
            Expr::Reference(inner) => self.of(&inner.expr, names),
            _ => self.known(expr, names),
        }
    }
}

/// All that is wrong in a block, in which these names are known.
pub(crate) fn check(rules: &dyn Rules, names: Names, block: &Block) -> syn::Result<()> {
    let mut walk = Walk { rules, names, errors: Vec::new() };
    // The walk that changes what it sees is compiled anyhow; a second one would cost every author time.
    walk.visit_block_mut(&mut block.clone());
    let all = walk.errors.into_iter().reduce(|mut all, error| {
        all.combine(error);
        all
    });
    all.map_or(Ok(()), Err)
}

/// A walk through a block that keeps account of the names.
struct Walk<'a> {
    rules: &'a dyn Rules,
    names: Names,
    errors: Vec<syn::Error>,
}

impl Walk<'_> {
    /// Binds a pattern to a value. Of what a pattern takes apart only arrays of numbers are followed.
    fn bind(&mut self, pattern: &mut Pat, value: Option<Known>) {
        match pattern {
            Pat::Ident(ident) => {
                // `name @ pattern` is not followed, but hides what had the name.
                let value = value.filter(|_| ident.subpat.is_none());
                self.names.push((ident.ident.to_string(), value));
                visit_mut::visit_pat_ident_mut(self, ident);
            }
            Pat::Reference(reference) => self.bind(&mut reference.pat, value),
            Pat::Slice(parts) => {
                parts.elems.iter_mut().for_each(|part| self.bind(part, value.and_then(within)))
            }
            Pat::Type(typed) => {
                let known = self.rules.of_type(&typed.ty);
                self.bind(&mut typed.pat, known);
            }
            other => visit_mut::visit_pat_mut(self, other),
        }
    }

    /// What the elements of an expression are, if it is gone through.
    fn item(&self, expr: &Expr) -> Option<Known> {
        match self.rules.of(expr, &self.names)? {
            Known::Array(param) | Known::Iter(param) => Some(Known::Element(param)),
            parts => within(parts),
        }
    }

    /// Walks through what has names of its own, which end with it.
    fn scope(&mut self, walk: impl FnOnce(&mut Self)) {
        let outer = self.names.len();
        walk(self);
        self.names.truncate(outer);
    }

    /// A closure that is called with this.
    fn closure(&mut self, closure: &mut ExprClosure, item: Option<Known>) {
        self.scope(|walk| {
            closure.inputs.iter_mut().for_each(|input| walk.bind(input, item));
            walk.visit_expr_mut(&mut closure.body);
        });
    }

    /// A condition; its parts only where it is right itself, for they are wrong in the same way.
    fn condition(&mut self, keyword: &str, condition: &mut Expr) {
        match self.rules.condition(keyword, condition, &self.names) {
            Some(error) => self.errors.push(error),
            None => self.visit_expr_mut(condition),
        }
    }
}

impl VisitMut for Walk<'_> {
    fn visit_expr_mut(&mut self, expr: &mut Expr) {
        self.errors.extend(self.rules.fault(expr, &self.names));
        match expr {
            Expr::If(choice) => {
                self.scope(|walk| {
                    walk.condition("if", &mut choice.cond);
                    walk.visit_block_mut(&mut choice.then_branch);
                });
                if let Some((_, otherwise)) = &mut choice.else_branch {
                    self.visit_expr_mut(otherwise);
                }
            }
            Expr::While(repeated) => self.scope(|walk| {
                walk.condition("while", &mut repeated.cond);
                walk.visit_block_mut(&mut repeated.body);
            }),
            Expr::Match(choice) => {
                self.condition("match", &mut choice.expr);
                choice.arms.iter_mut().for_each(|arm| self.scope(|walk| walk.visit_arm_mut(arm)));
            }
            Expr::ForLoop(repeated) => {
                self.visit_expr_mut(&mut repeated.expr);
                let item = self.item(&repeated.expr);
                self.scope(|walk| {
                    walk.bind(&mut repeated.pat, item);
                    walk.visit_block_mut(&mut repeated.body);
                });
            }
            Expr::Closure(closure) => self.closure(closure, None),
            Expr::MethodCall(call) => {
                self.visit_expr_mut(&mut call.receiver);
                let each = ["map", "mapv", "for_each", "map_inplace", "mapv_inplace", "all", "any"];
                let item = self.item(&call.receiver).filter(|_| each.iter().any(|each| call.method == each));
                for argument in &mut call.args {
                    match argument {
                        Expr::Closure(closure) => self.closure(closure, item),
                        other => self.visit_expr_mut(other),
                    }
                }
            }
            _ => visit_mut::visit_expr_mut(self, expr),
        }
    }

    fn visit_block_mut(&mut self, block: &mut Block) {
        self.scope(|walk| visit_mut::visit_block_mut(walk, block));
    }

    fn visit_local_mut(&mut self, local: &mut Local) {
        let mut value = None;
        if let Some(init) = &mut local.init {
            self.visit_expr_mut(&mut init.expr);
            value = self.rules.of(&init.expr, &self.names);
            if let Some((_, diverging)) = &mut init.diverge {
                self.visit_expr_mut(diverging);
            }
        }
        match (&mut local.pat, &local.init) {
            (Pat::Tuple(tuple), Some(init)) => {
                let parts = self.rules.tuple(&init.expr, &self.names);
                for (at, part) in tuple.elems.iter_mut().enumerate() {
                    self.bind(part, parts.get(at).copied().flatten());
                }
            }
            (pattern, _) => self.bind(pattern, value),
        }
    }

    fn visit_pat_mut(&mut self, pattern: &mut Pat) {
        match pattern {
            Pat::Ident(_) | Pat::Type(_) => self.bind(pattern, None),
            other => visit_mut::visit_pat_mut(self, other),
        }
    }

    fn visit_item_mut(&mut self, _: &mut Item) {
        // It has names and type parameters of its own.
    }

    fn visit_macro_mut(&mut self, call: &mut Macro) {
        if call.path.segments.last().is_none_or(|last| last.ident != "azip") {
            return;
        }
        let Ok(mut zip) = call.parse_body::<Zip>() else { return };
        self.scope(|walk| {
            for (pattern, array) in &mut zip.parts {
                let item = walk.item(array);
                walk.bind(pattern, item);
            }
            walk.visit_expr_mut(&mut zip.body);
        });
    }
}

/// `azip!((index i, z in &mut z, &x in &x) *z = x)`.
struct Zip {
    /// Patterns and what they take the elements of; of the index, nothing.
    parts: Vec<(Pat, Expr)>,
    body: Expr,
}

impl Parse for Zip {
    fn parse(input: ParseStream<'_>) -> syn::Result<Zip> {
        let content;
        parenthesized!(content in input);
        let mut parts = Vec::new();
        while !content.is_empty() {
            let is_index = content.peek(syn::Ident) && !content.peek2(Token![in]);
            if is_index {
                content.parse::<syn::Ident>()?;
            }
            let pattern = Pat::parse_single(&content)?;
            let array = if is_index {
                parse_quote!(())
            } else {
                content.parse::<Token![in]>()?;
                content.parse()?
            };
            parts.push((pattern, array));
            if !content.is_empty() {
                content.parse::<Token![,]>()?;
            }
        }
        Ok(Zip { parts, body: input.parse()? })
    }
}
