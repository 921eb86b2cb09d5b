//! The options of `#[op(…)]`.

use opsmith_core::{Autocast, DType};
use proc_macro2::{Span, TokenStream};
use quote::quote;
use syn::parse::{Parse, ParseStream};
use syn::{Ident, LitStr, Path, Token, parenthesized};

use crate::dtypes;

/// The options, as messages list them; the table of the author's guide has each.
const OPTIONS: [&str; 11] = [
    "shape",
    "gradient",
    "not_differentiable",
    "name",
    "stateful",
    "strided",
    "cuda",
    "capturable",
    "autocast",
    "parallel",
    "dtypes",
];

/// The error of an option that a macro does not have.
pub(crate) fn unknown(key: &Ident, name: &str, known: &[&str]) -> syn::Error {
    let (last, others) = known.split_last().unwrap_or((&"", &[]));
    let message =
        format!("`{key}` is not an option of #[{name}]; the options are {} and {last}", others.join(", "));
    syn::Error::new(key.span(), message)
}

/// What the author says about an op beside its function.
pub(crate) struct Options {
    pub(crate) shape: LitStr,
    pub(crate) name: Option<LitStr>,
    pub(crate) gradient: Gradient,
    pub(crate) stateful: bool,
    pub(crate) strided: bool,
    /// The file with the CUDA kernels.
    pub(crate) cuda: Option<LitStr>,
    /// Where it says that the CUDA kernel may be recorded and replayed.
    pub(crate) capturable: Option<Span>,
    pub(crate) autocast: Option<Policy>,
    /// The free axes.
    pub(crate) parallel: Option<LitStr>,
    /// For type parameters whose dtypes are listed: the list.
    pub(crate) dtypes: Vec<(Ident, Vec<DType>)>,
}

/// What the author says about the op's gradient.
pub(crate) enum Gradient {
    Undeclared,
    NotDifferentiable,
    /// The op at this path.
    Op(Path),
    /// The op of this name, which the compiler cannot check.
    Named(LitStr),
}

/// What PyTorch's autocast does with the inputs, and where that is said.
#[derive(Clone, Copy)]
pub(crate) struct Policy {
    pub(crate) policy: Autocast,
    pub(crate) place: Span,
}

impl Policy {
    /// The call that declares it.
    pub(crate) fn declaration(self) -> TokenStream {
        let policy = match self.policy {
            Autocast::Float32 => quote!(Float32),
            Autocast::Lower => quote!(Lower),
            Autocast::Widest => quote!(Widest),
        };
        quote!(.autocast(::opsmith::Autocast::#policy))
    }
}

impl Parse for Policy {
    fn parse(input: ParseStream<'_>) -> syn::Result<Policy> {
        let name: LitStr = input.parse()?;
        let known = Autocast::ALL.map(|policy| format!("{:?}", policy.name())).join(", ");
        let unknown = || format!("{:?} is not an autocast policy; the policies are {known}", name.value());
        match Autocast::parse(&name.value()) {
            Some(policy) => Ok(Policy { policy, place: name.span() }),
            None => Err(syn::Error::new(name.span(), unknown())),
        }
    }
}

/// Options in the course of parsing: each may be given once.
#[derive(Default)]
struct Collected {
    shape: Option<LitStr>,
    name: Option<LitStr>,
    gradient: Option<Gradient>,
    stateful: bool,
    strided: bool,
    cuda: Option<LitStr>,
    capturable: Option<Span>,
    autocast: Option<Policy>,
    parallel: Option<LitStr>,
    dtypes: Vec<(Ident, Vec<DType>)>,
    seen: Vec<Ident>,
}

impl Parse for Options {
    fn parse(input: ParseStream<'_>) -> syn::Result<Options> {
        let mut given = Collected::default();
        if let Ok(text) = input.fork().parse::<LitStr>() {
            let message = format!("the shape signature of #[op] has a name: shape = \"{}\"", text.value());
            return Err(syn::Error::new(text.span(), message));
        }
        while !input.is_empty() {
            given.parse_one(input)?;
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        let Some(shape) = given.shape else {
            let message = "an op needs its shape signature: #[op(shape = \"(n),(n)->(n)\")]; if a shape does \
                not follow from the inputs' shapes, write the op with `OpDef` and `OpKernel`";
            return Err(syn::Error::new(Span::call_site(), message));
        };
        Ok(Options {
            shape,
            name: given.name,
            gradient: given.gradient.unwrap_or(Gradient::Undeclared),
            stateful: given.stateful,
            strided: given.strided,
            cuda: given.cuda,
            capturable: given.capturable,
            autocast: given.autocast,
            parallel: given.parallel,
            dtypes: given.dtypes,
        })
    }
}

impl Collected {
    fn parse_one(&mut self, input: ParseStream<'_>) -> syn::Result<()> {
        let key: Ident = input.parse()?;
        if self.seen.contains(&key) {
            return Err(syn::Error::new(key.span(), format!("the option `{key}` is given twice")));
        }
        self.seen.push(key.clone());
        match key.to_string().as_str() {
            "shape" => self.shape = Some(assigned(input)?),
            "name" => self.name = Some(assigned(input)?),
            "gradient" => self.set_gradient(&key, assigned(input)?)?,
            "not_differentiable" => self.set_gradient(&key, Gradient::NotDifferentiable)?,
            "stateful" => self.stateful = true,
            "strided" => self.strided = true,
            "cuda" => self.cuda = Some(assigned(input)?),
            "capturable" => self.capturable = Some(key.span()),
            "autocast" => self.autocast = Some(assigned(input)?),
            "parallel" => self.parallel = Some(assigned(input)?),
            "dtypes" => self.dtypes = dtype_lists(input)?,
            _ => return Err(unknown(&key, "op", &OPTIONS)),
        }
        Ok(())
    }

    fn set_gradient(&mut self, key: &Ident, gradient: Gradient) -> syn::Result<()> {
        if self.gradient.is_some() {
            let message = "an op has a gradient or is not differentiable, not both";
            return Err(syn::Error::new(key.span(), message));
        }
        self.gradient = Some(gradient);
        Ok(())
    }
}

impl Parse for Gradient {
    fn parse(input: ParseStream<'_>) -> syn::Result<Gradient> {
        if input.peek(LitStr) { input.parse().map(Gradient::Named) } else { input.parse().map(Gradient::Op) }
    }
}

/// `= value`.
pub(crate) fn assigned<T: Parse>(input: ParseStream<'_>) -> syn::Result<T> {
    input.parse::<Token![=]>()?;
    input.parse()
}

/// `(T = [f32, f64], S = [i32])`.
fn dtype_lists(input: ParseStream<'_>) -> syn::Result<Vec<(Ident, Vec<DType>)>> {
    let content;
    parenthesized!(content in input);
    let mut lists: Vec<(Ident, Vec<DType>)> = Vec::new();
    while !content.is_empty() {
        let parameter: Ident = content.parse()?;
        if lists.iter().any(|(other, _)| *other == parameter) {
            return Err(syn::Error::new(parameter.span(), format!("`{parameter}` is given twice")));
        }
        content.parse::<Token![=]>()?;
        lists.push((parameter, dtypes::parse_list(&content)?));
        if !content.is_empty() {
            content.parse::<Token![,]>()?;
        }
    }
    Ok(lists)
}

#[cfg(test)]
mod tests {
    use syn::parse_quote;

    use super::*;
    use crate::op::attribute;

    /// The keys in the first column of the table below a line of the author's guide.
    fn table(head: &str) -> Vec<String> {
        let guide = include_str!("../../../../docs/author-guide.md");
        let (_, rest) = guide.split_once(head).unwrap();
        let rows =
            rest.lines().skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
        let key = |row: &str| {
            let (_, text) = row.split_once('`').unwrap();
            text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
        };
        rows.skip(2).map(key).collect()
    }

    #[test]
    fn the_guide_has_every_option() {
        assert_eq!(table("Options of `#[op(…)]`"), OPTIONS);
        assert_eq!(table("Options of `#[attr(…)]`"), attribute::OPTIONS);
    }

    #[test]
    fn every_option_is_read_and_no_other() {
        let read = |tokens: TokenStream| syn::parse2::<Options>(tokens).map(|_| ());
        read(parse_quote!(
            shape = "()->()",
            gradient = a,
            name = "B",
            stateful,
            strided,
            cuda = "c.cu",
            capturable,
            autocast = "lower",
            parallel = "n",
            dtypes(T = [f32])
        ))
        .unwrap();
        read(parse_quote!(shape = "()->()", not_differentiable)).unwrap();
        for key in OPTIONS {
            let key = Ident::new(key, Span::call_site());
            let message = read(parse_quote!(#key #key)).unwrap_err().to_string();
            assert!(!message.contains("is not an option"), "{message}");
        }
        let message = read(parse_quote!(fast)).unwrap_err().to_string();
        assert!(message.ends_with("capturable, autocast, parallel and dtypes"), "{message}");
    }
}
