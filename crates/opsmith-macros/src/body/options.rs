//! The options of `#[body(…)]`, `#[pointwise(…)]`, `#[reduce(…)]` and `#[pairwise(…)]`.

use opsmith_core::DType;
use opsmith_core::dtype::sets;
use syn::parse::ParseStream;
use syn::punctuated::Punctuated;
use syn::{Expr, Ident, LitInt, LitStr, Token, bracketed};

use super::Family;
use crate::dtypes;
use crate::op::options::{Policy, assigned, unknown};

/// What the author says about an op beside its function.
pub(crate) struct Options {
    pub(crate) name: Option<LitStr>,
    /// The names of the outputs, where they are given.
    pub(crate) outputs: Option<Vec<Ident>>,
    pub(crate) dtypes: Vec<DType>,
    /// Of how many orders there are gradient ops, where it is given.
    pub(crate) orders: Option<LitInt>,
    pub(crate) autocast: Option<Policy>,
    /// The options that only this family has.
    pub(crate) own: Vec<(Ident, Expr)>,
}

impl Options {
    /// Reads the options, among them those of the family's own.
    pub(crate) fn read(family: &Family, input: ParseStream<'_>) -> syn::Result<Options> {
        let mut options = Options {
            name: None,
            outputs: None,
            dtypes: sets::ANY_FLOAT.to_vec(),
            orders: None,
            autocast: None,
            own: Vec::new(),
        };
        let mut seen: Vec<Ident> = Vec::new();
        if input.peek(LitStr) {
            let message = match family.name {
                "body" => "after the signature come options such as `dtypes = [f32]`".to_owned(),
                name => format!(
                    "#[{name}] has no signature of axes, only options such as `dtypes = [f32]`; with a signature write #[body(…)]"
                ),
            };
            return Err(input.error(message));
        }
        while !input.is_empty() {
            let key: Ident = input.parse()?;
            if seen.contains(&key) {
                return Err(syn::Error::new(key.span(), format!("the option `{key}` is given twice")));
            }
            options.read_one(family, &key, input)?;
            seen.push(key);
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        if let Some(second) = seen.iter().find(|key| *key == "outputs")
            && seen.iter().any(|key| key == "output")
        {
            let message = "write `output = z` for one output or `outputs = [a, b]` for several, not both";
            return Err(syn::Error::new(second.span(), message));
        }
        Ok(options)
    }

    fn read_one(&mut self, family: &Family, key: &Ident, input: ParseStream<'_>) -> syn::Result<()> {
        match key.to_string().as_str() {
            "name" => self.name = Some(assigned(input)?),
            "output" => self.outputs = Some(vec![assigned(input)?]),
            "outputs" => self.outputs = Some(names(input)?),
            "dtypes" => self.dtypes = float_dtypes(input)?,
            "orders" => self.orders = Some(assigned(input)?),
            "autocast" => self.autocast = Some(assigned(input)?),
            own if family.own_options.contains(&own) => self.own.push((key.clone(), assigned(input)?)),
            _ => {
                let common = ["name", "output", "outputs", "dtypes", "orders", "autocast"];
                let known: Vec<&str> = common.iter().chain(family.own_options).copied().collect();
                return Err(unknown(key, family.name, &known));
            }
        }
        Ok(())
    }

    /// Takes an option of the family's own.
    pub(crate) fn take(&mut self, key: &str) -> Option<Expr> {
        let position = self.own.iter().position(|(own, _)| own == key)?;
        Some(self.own.remove(position).1)
    }
}

/// `= [hidden, cell]`.
fn names(input: ParseStream<'_>) -> syn::Result<Vec<Ident>> {
    input.parse::<Token![=]>()?;
    let content;
    bracketed!(content in input);
    Ok(Punctuated::<Ident, Token![,]>::parse_terminated(&content)?.into_iter().collect())
}

/// `= [f32, f64]`, of floats.
fn float_dtypes(input: ParseStream<'_>) -> syn::Result<Vec<DType>> {
    input.parse::<Token![=]>()?;
    let place = input.span();
    let dtypes = dtypes::parse_list(input)?;
    match dtypes.iter().find(|dtype| !sets::ANY_FLOAT.contains(dtype)) {
        Some(other) => {
            let message = format!("a body computes with f16, bf16, f32 and f64, not with {other}");
            Err(syn::Error::new(place, message))
        }
        None => Ok(dtypes),
    }
}
