//! Conditions on numbers: a body selects and does not branch, for it is computed for many elements at a time.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use quote::ToTokens;
use syn::Block;

use super::parameter::{Parameter, Role};

/// Comparisons, as operators and as the methods that give masks.
const COMPARISONS: [(&str, &str); 6] =
    [("<=", "le"), (">=", "ge"), ("==", "eq"), ("!=", "ne"), ("<", "lt"), (">", "gt")];

/// Finds each `if`, `while` and `match` whose condition compares a parameter that is a number. rustc would propose bounds
/// for it that no body may have.
pub(super) fn check(parameters: &[Parameter], block: &Block) -> syn::Result<()> {
    let tokens = block.to_token_stream();
    // A name that the body gives to something else may be no number there.
    let numbers = parameters
        .iter()
        .filter(|parameter| matches!(parameter.role, Role::Input(_) | Role::NumberAttr(_)))
        .filter(|parameter| !is_bound(&tokens, &parameter.ident.to_string()));
    let numbers: Vec<&Parameter> = numbers.collect();
    let mut errors = Vec::new();
    find(&tokens, &numbers, &mut errors);
    errors
        .into_iter()
        .reduce(|mut all, error| {
            all.combine(error);
            all
        })
        .map_or(Ok(()), Err)
}

/// Whether a name is bound by `let`, `for`, a pattern of `if let` or the like, or a closure.
fn is_bound(tokens: &TokenStream, name: &str) -> bool {
    let tokens: Vec<TokenTree> = tokens.clone().into_iter().collect();
    let is_name = |token: &TokenTree| matches!(token, TokenTree::Ident(ident) if ident == name);
    let binds = |token: &TokenTree| match token {
        TokenTree::Ident(ident) => ident == "let" || ident == "for" || ident == "mut" || ident == "ref",
        TokenTree::Punct(punct) => punct.as_char() == '|',
        _ => false,
    };
    tokens.windows(2).any(|pair| binds(&pair[0]) && is_name(&pair[1]))
        || tokens.iter().enumerate().any(|(index, token)| {
            let TokenTree::Group(group) = token else { return false };
            let is_pattern = index > 0 && binds(&tokens[index - 1]);
            is_bound(&group.stream(), name) || (is_pattern && group.stream().into_iter().any(|t| is_name(&t)))
        })
}

fn find(tokens: &TokenStream, numbers: &[&Parameter], errors: &mut Vec<syn::Error>) {
    let mut tokens = tokens.clone().into_iter().peekable();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Group(group) => find(&group.stream(), numbers, errors),
            TokenTree::Ident(keyword) if keyword == "if" || keyword == "while" || keyword == "match" => {
                // What stands before the braces, which no condition has outside of parentheses.
                let is_block =
                    |t: &TokenTree| matches!(t, TokenTree::Group(g) if g.delimiter() == Delimiter::Brace);
                let mut condition = TokenStream::new();
                while let Some(token) = tokens.next_if(|token| !is_block(token)) {
                    condition.extend([token]);
                }
                if let Some((number, method)) = compared(&condition, numbers) {
                    errors.push(error(&keyword.to_string(), &condition, number, method));
                }
            }
            _ => {}
        }
    }
}

/// A number that a condition compares, and the method that does it.
fn compared<'a>(condition: &TokenStream, numbers: &[&'a Parameter]) -> Option<(&'a Parameter, &'static str)> {
    let tokens: Vec<TokenTree> = condition.clone().into_iter().collect();
    for (index, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Group(group) => {
                if let Some(found) = compared(&group.stream(), numbers) {
                    return Some(found);
                }
            }
            TokenTree::Ident(ident) => {
                let Some(number) = numbers.iter().find(|number| number.ident == *ident) else { continue };
                let before = operators(tokens[..index].iter().rev()).chars().rev().collect::<String>();
                let after = operators(tokens[index + 1..].iter());
                let method = match tokens.get(index + 2) {
                    Some(TokenTree::Ident(method)) if after == "." => method.to_string(),
                    _ => String::new(),
                };
                let known = |(operator, name): &&(&str, &str)| {
                    before == *operator || after == *operator || method == *name
                };
                if let Some((_, name)) = COMPARISONS.iter().find(known) {
                    return Some((number, name));
                }
            }
            _ => {}
        }
    }
    None
}

/// The operator that some tokens begin with.
fn operators<'a>(tokens: impl Iterator<Item = &'a TokenTree>) -> String {
    let punct = |token: &TokenTree| match token {
        TokenTree::Punct(punct) => Some(punct.as_char()),
        _ => None,
    };
    tokens.map_while(punct).take(2).collect()
}

fn error(keyword: &str, condition: &TokenStream, number: &Parameter, method: &str) -> syn::Error {
    let (ident, ty) = (&number.ident, number.ty.to_token_stream().to_string().replace(' ', ""));
    let message = format!(
        "`{ident}` is a number of every element at once, so no `{keyword}` can depend on it; both sides are computed, and \
         one is taken: `{ty}::select({ident}.{method}(…), …, …)`"
    );
    syn::Error::new_spanned(condition, message)
}
